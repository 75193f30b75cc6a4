"""Programs with the heads of ``tf.estimator`` and gradient tapes: a part of `tests.programs.era`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program

X = np.cos(np.arange(24) * 1.3).astype(np.float32)
ONE, THREE = X[:4].reshape(4, 1), X[:12].reshape(4, 3)
TIMES = X.reshape(2, 4, 3)
YES, CLASSES = np.array([0, 1, 1, 0]), np.array([0, 2, 1, 1])
MARKS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]])
WEIGHTS = np.array([1.0, 2.0, 0.0, 0.5], np.float32)


def _tensors(tf: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tensors(tf, one) for key, one in value.items()}
    return value() if callable(value) else tf.constant(value)


def _step(tf: Any) -> Any:
    return lambda loss: tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())


def _outputs(spec: Any) -> Any:
    found = {}
    for name, output in sorted(spec.export_outputs.items()):
        parts = {part: getattr(output, part, None) for part in ("scores", "classes", "value", "outputs")}
        found[name] = type(output).__name__, sorted(part for part, value in parts.items() if value is not None)
    return found


def _measured(tf: Any, session: Any, spec: Any) -> Any:
    for _ in range(2):
        session.run({name: update for name, (_, update) in spec.eval_metric_ops.items()})
    found = session.run({name: value for name, (value, _) in spec.eval_metric_ops.items()})
    return {name: float(value) for name, value in sorted(found.items())}


def _trained(tf: Any, session: Any, spec: Any, weight: Any) -> Any:
    summary = tf.Summary.FromString(session.run(tf.summary.merge_all()))
    session.run(spec.train_op)
    return [(value.tag, value.simple_value) for value in summary.value], session.run(weight)


def _in_modes(tf: Any, head: Any, logits: Any, labels: Any, weights: Any = None, regularized: bool = False) -> Any:
    """What a head says in each of the three modes."""
    found: dict[str, Any] = {"dimension": head.logits_dimension, "name": head.name}
    for mode in ("infer", "eval", "train"):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.train.create_global_step()
            weight = tf.get_variable("w", [], initializer=tf.ones_initializer())
            scaled = {k: v * weight for k, v in _tensors(tf, logits).items()} if isinstance(logits, dict) else (
                tf.constant(logits) * weight
            )  # fmt: skip
            spec = head.create_estimator_spec(
                features={} if weights is None else {"w": tf.constant(weights)}, mode=mode, logits=scaled,
                labels=None if mode == "infer" else _tensors(tf, labels),
                train_op_fn=_step(tf) if mode == "train" else None,
                regularization_losses=[tf.constant(0.5), weight * 2] if regularized else None,
            )  # fmt: skip
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
            predictions = session.run(spec.predictions)
            if mode == "infer":
                shown = [(str(key), value) for key, value in sorted(predictions.items(), key=str)]
                found[mode] = shown, _outputs(spec)
            elif mode == "eval":
                found[mode] = session.run(spec.loss), _measured(tf, session, spec)
            else:
                found[mode] = session.run(spec.loss), _trained(tf, session, spec, weight)
    return found


@program
def heads_of_numbers(tf: Any) -> Any:
    made = tf.estimator
    numbers = np.sin(X[:8]).reshape(4, 2)
    return {
        "plain": _in_modes(tf, made.RegressionHead(), ONE, X[4:8].reshape(4, 1)),
        "weights": _in_modes(
            tf, made.RegressionHead(weight_column="w", name="h", loss_reduction="sum"), ONE, X[4:8], WEIGHTS, True
        ),
        "each": _in_modes(tf, made.RegressionHead(2, "w"), X[:8].reshape(4, 2), numbers, np.abs(numbers)),
        "times": _in_modes(tf, made.RegressionHead(3), TIMES, np.sin(TIMES)),
        "poisson": _in_modes(tf, made.PoissonRegressionHead(), ONE, np.array([1.0, 2.0, 0.0, 5.0], np.float32)),
        "short": _in_modes(tf, made.PoissonRegressionHead(compute_full_loss=False), ONE, np.array([1, 2, 0, 5])),
        "logistic": _in_modes(tf, made.LogisticRegressionHead(), ONE, np.array([0.1, 0.9, 0.3, 1.0], np.float32)),
    }


@program
def heads_of_classes(tf: Any) -> Any:
    made = tf.estimator

    def distance(labels: Any, logits: Any) -> Any:
        return tf.abs(labels - logits)

    return {
        "binary": _in_modes(tf, made.BinaryClassHead(), ONE, YES),
        "weights": _in_modes(
            tf, made.BinaryClassHead("w", [0.25, 0.5], name="b"), ONE, YES.reshape(4, 1), WEIGHTS, True
        ),
        "names": _in_modes(tf, made.BinaryClassHead(label_vocabulary=["no", "yes"]), ONE, np.array(["no", "yes"] * 2)),
        "times": _in_modes(tf, made.BinaryClassHead(), X[:6].reshape(2, 3, 1), np.array([[0, 1, 1], [1, 0, 0]])),
        "loss": _in_modes(tf, made.BinaryClassHead(loss_fn=distance), ONE, YES),
        "classes": _in_modes(tf, made.MultiClassHead(3), THREE, CLASSES),
        "words": _in_modes(
            tf, made.MultiClassHead(3, "w", ["a", "b", "c"], name="m"), THREE, np.array([["a"], ["c"], ["b"], ["b"]]),
            WEIGHTS, True,
        ),
        "class times": _in_modes(tf, made.MultiClassHead(3), TIMES, np.array([[0, 2, 1, 1], [1, 1, 0, 2]])),
    }  # fmt: skip


@program
def heads_of_many_labels(tf: Any) -> Any:
    made = tf.estimator

    def words() -> Any:
        return tf.SparseTensor(
            [[0, 0], [1, 0], [1, 1], [2, 0], [3, 0]], ["a", "b", "c", "a", "b"], [4, 2]
        )  # fmt: skip

    both = [made.BinaryClassHead(name="a"), made.RegressionHead(2, name="b")]
    labels = {"a": YES, "b": np.sin(X[:8]).reshape(4, 2)}
    by_class = made.MultiLabelHead(3, thresholds=[0.3], classes_for_class_based_metrics=[0, 2])
    by_name = made.MultiLabelHead(
        3, "w", label_vocabulary=["a", "b", "c"], classes_for_class_based_metrics=["b"], name="l"
    )
    return {
        "labels": _in_modes(tf, by_class, THREE, MARKS),
        "words": _in_modes(tf, by_name, THREE, words, WEIGHTS, True),
        "heads": _in_modes(tf, made.MultiHead(both, [1.0, 0.5]), THREE, labels, None, True),
        "parts": _in_modes(tf, made.MultiHead(both), {"a": ONE, "b": X[:8].reshape(4, 2)}, labels),
    }


@program
def wrong_heads(tf: Any) -> Any:
    made = tf.estimator
    wrong: list[Any] = [
        lambda: made.BinaryClassHead(thresholds=[1.5]), lambda: made.MultiClassHead(2), lambda: made.RegressionHead(0),
        lambda: made.RegressionHead(loss_reduction="none"), lambda: made.MultiHead([]), lambda: made.MultiLabelHead(1),
        lambda: made.MultiHead([made.BinaryClassHead()]), lambda: made.BinaryClassHead(loss_fn=lambda x: x),
        lambda: made.RegressionHead(loss_reduction=tf.losses.Reduction.SUM),
        lambda: _in_modes(tf, made.BinaryClassHead(), ONE, np.array([[0, 1], [1, 0]] * 2)),
        lambda: _in_modes(tf, made.BinaryClassHead(), ONE, np.array([0, 1, 2, 0])),
        lambda: _in_modes(tf, made.BinaryClassHead(), THREE, YES),
        lambda: _in_modes(tf, made.MultiClassHead(3), THREE, X[:4]),
    ]  # fmt: skip
    return [outcome(one) for one in wrong]


@program
def heads_of_contrib_train_by_optimizers_and_run_collected_updates(tf: Any) -> Any:
    def trained(make: Any, logits: Any, labels: Any, **how: Any) -> Any:
        with tf.Graph().as_default(), tf.Session() as session:
            step, w = tf.train.get_or_create_global_step(), tf.get_variable("w", initializer=1.0)
            count = tf.get_variable("count", initializer=0.0, trainable=False)
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, count.assign_add(1.0))
            how = {key: make_one(tf) for key, make_one in how.items()}
            spec = make().create_estimator_spec(
                features={}, mode="train", logits=w * logits, labels=_tensors(tf, labels), **how
            )
            session.run(tf.global_variables_initializer())
            session.run(spec.train_op)
            return session.run([step, w, count, spec.loss])

    def sgd(tf: Any) -> Any:
        return tf.train.GradientDescentOptimizer(0.1)

    made = tf.contrib.estimator

    def two() -> Any:
        return made.multi_head([made.binary_classification_head(name="a"), made.regression_head(name="b")])

    both, labels = np.concatenate([ONE, ONE], 1), {"a": YES.reshape(4, 1), "b": ONE}
    return [
        trained(made.binary_classification_head, ONE, YES.reshape(4, 1), optimizer=sgd),
        trained(made.binary_classification_head, ONE, YES.reshape(4, 1), train_op_fn=_step),
        trained(lambda: made.multi_class_head(3), THREE, CLASSES.reshape(4, 1), optimizer=sgd),
        trained(made.regression_head, ONE, ONE, optimizer=sgd),
        trained(two, both, labels, optimizer=sgd),
        outcome(lambda: trained(made.regression_head, ONE, ONE, optimizer=sgd, train_op_fn=_step)),
        outcome(lambda: trained(made.regression_head, ONE, ONE)),
    ]


@program
def models_with_a_head(tf: Any) -> Any:
    column = [tf.feature_column.numeric_column("x")]

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensors(({"x": ONE, "w": WEIGHTS}, YES.reshape(4, 1))).repeat(2)

    config = tf.estimator.RunConfig(tf_random_seed=3)
    head = tf.contrib.estimator.binary_classification_head("w")
    linear = tf.estimator.LinearEstimator(head, column, config=config)
    linear.train(input_fn, steps=2)
    found = {key: float(value) for key, value in sorted(linear.evaluate(input_fn).items())}
    found.pop("auc_precision_recall")  # not that of tf.keras's metric, which it is here
    names = []
    for model in (tf.estimator.DNNEstimator(head, [2], column), tf.estimator.DNNLinearCombinedEstimator(
        head, linear_feature_columns=column, dnn_feature_columns=column, dnn_hidden_units=[2]
    )):  # fmt: skip
        model.train(input_fn, steps=1)
        names.append(sorted(model.get_variable_names()))
    return found, names, [sorted(one) for one in linear.predict(input_fn)]


@program
def gradient_tapes_in_a_graph(tf: Any) -> Any:
    x, w = tf.constant([1.0, 2.0, 3.0]), tf.get_variable("w", initializer=[2.0, 0.5, 1.0], use_resource=True)
    frozen = tf.get_variable("f", initializer=1.0, trainable=False, use_resource=True)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x * w * frozen
    with tf.GradientTape(watch_accessed_variables=False) as blind:
        z = x * w
    grads = tape.gradient(y, {"x": x, "w": w, "f": frozen}, output_gradients=tf.constant([1.0, 0.0, 2.0]))
    missing = [grads.pop("f"), blind.gradient(z, w)]
    again = outcome(lambda: blind.gradient(z, w))
    zeros = tape.gradient(tf.constant(1.0), x, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    read = [one.op.name for one in tape.watched_variables()]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return missing, again, read, session.run([grads, zeros, tape.jacobian(y, x), tape.gradient([y, y], x)])


@program
def areas_under_curves_of_heads(tf: Any) -> Any:
    logits = np.random.RandomState(1).randn(8, 1).astype(np.float32)
    labels, found = np.array([0, 1, 1, 0, 1, 0, 1, 1]).reshape(8, 1), []
    pair = np.concatenate([logits, -logits], 1), np.concatenate([labels, 1 - labels], 1)
    contrib, estimator = tf.contrib.estimator, tf.estimator
    heads = contrib.binary_classification_head(), contrib.multi_label_head(2), estimator.BinaryClassHead()
    for head, (given, truth) in zip(heads, ((logits, labels), pair, (logits, labels))):
        with tf.Graph().as_default(), tf.Session() as session:
            spec = head.create_estimator_spec({}, "eval", tf.constant(given), tf.constant(truth))
            session.run(tf.local_variables_initializer())
            session.run([update for _, update in spec.eval_metric_ops.values()])
            found.append(session.run([spec.eval_metric_ops[name][0] for name in ("auc", "auc_precision_recall")]))
    return found
