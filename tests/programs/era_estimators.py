"""Programs with the estimators of ``tf.contrib.learn``: a part of `tests.programs.era`."""

from __future__ import annotations

import itertools
import os
import tempfile
from typing import Any

import numpy as np

from tests.programs.era import outcome, program

X = np.cos(np.arange(24) * 1.3).reshape(12, 2).astype(np.float32)
Y = (X[:, 0] - 2 * X[:, 1] > 0.1).astype(np.int64)
THREE = (np.arange(12) % 3).astype(np.int64)


def _numbers(found: Any) -> Any:
    return {key: float(value) for key, value in found.items()}


def _columns(tf: Any) -> Any:
    layers = tf.contrib.layers
    real = layers.real_valued_column("x", dimension=2)
    words = layers.sparse_column_with_keys("w", ["a", "b"])
    return [real, words, layers.crossed_column([words, layers.bucketized_column(real, [0.0])], 10)]


def _input(tf: Any, labels: Any, weights: bool = False) -> Any:
    def input_fn() -> Any:
        words = tf.SparseTensor([[i, 0] for i in range(12)], ["a", "b", "c"] * 4, [12, 1])
        more = {"weight": tf.constant(np.arange(12) % 2 + 0.5, tf.float32)} if weights else {}
        return dict({"x": tf.constant(X, tf.float32), "w": words}, **more), tf.constant(labels)

    return input_fn


@program
def linear_models_of_contrib_learn(tf: Any) -> Any:
    learn, found = tf.contrib.learn, {}
    plain = [tf.contrib.layers.real_valued_column("", dimension=2)]
    for classes, labels in ((2, Y), (3, THREE)):
        model = learn.LinearClassifier(plain, n_classes=classes)
        model.fit(X, labels, steps=5)
        results = _numbers(model.evaluate(X, labels, steps=1))
        names = [(name, model.get_variable_value(name)) for name in sorted(model.get_variable_names())]
        proba = list(model.predict_proba(X[:3]))
        found[classes] = results, list(model.predict(X)), proba, names
        every = model.predict(X, outputs=["classes", "logits"], as_iterable=False)
        found[str(classes)] = sorted(every), [np.asarray(value).shape for _, value in sorted(every.items())]
    model = learn.LinearRegressor(plain, optimizer=tf.train.GradientDescentOptimizer(0.1), gradient_clip_norm=0.5)
    model.fit(x=X, y=X[:, 0] * 3 + 1, steps=6)
    found["regressor"] = _numbers(model.evaluate(X, X[:, 0] * 3 + 1)), list(model.predict_scores(X, as_iterable=True))
    spec = learn.MetricSpec(tf.metrics.mean_absolute_error, "scores")
    extra = model.evaluate(x=X, y=X[:, 0], metrics={"mae": spec})
    found["metrics"] = _numbers(extra)
    return found


@program
def wide_models_of_contrib_learn(tf: Any) -> Any:
    learn, found = tf.contrib.learn, {}
    columns = _columns(tf)
    model = learn.LinearClassifier(columns, weight_column_name="weight")
    model.fit(input_fn=_input(tf, Y[:, None], True), steps=4)
    found["wide"] = _numbers(model.evaluate(input_fn=_input(tf, Y[:, None], True), steps=1))
    found["classes"] = list(model.predict(input_fn=_input(tf, Y[:, None], True)))
    found["names"] = [name for name in sorted(model.get_variable_names()) if "Ftrl" not in name]
    model = learn.LinearClassifier(columns, n_classes=3, label_keys=["p", "q", "r"])
    texts = np.array(["p", "q", "r"])[THREE].tolist()
    model.fit(input_fn=_input(tf, texts), max_steps=4)
    found["keys"] = _numbers(model.evaluate(input_fn=_input(tf, texts), steps=1))
    found["predicted"] = list(model.predict(input_fn=_input(tf, texts)))
    return found


@program
def networks_of_contrib_learn(tf: Any) -> Any:
    learn, layers = tf.contrib.learn, tf.contrib.layers
    real, words, crossed = _columns(tf)
    deep = [real, layers.embedding_column(words, 2), layers.one_hot_column(crossed)]
    found = {}
    models = {
        "dnn": lambda: learn.DNNClassifier([8, 4], deep),
        "dnn3": lambda: learn.DNNClassifier(hidden_units=[8], feature_columns=deep, n_classes=3, dropout=0.1),
        "regressor": lambda: learn.DNNRegressor([5], deep, optimizer=tf.train.AdamOptimizer(0.01)),
        "both": lambda: learn.DNNLinearCombinedClassifier(
            linear_feature_columns=[words, crossed], dnn_feature_columns=deep, dnn_hidden_units=[6]),
        "wide": lambda: learn.DNNLinearCombinedRegressor(linear_feature_columns=[words, real]),
    }  # fmt: skip
    for name, make in models.items():
        model = make()
        labels = THREE if name == "dnn3" else Y.astype(np.float32) if name in ("regressor", "wide") else Y
        model.fit(input_fn=_input(tf, labels), steps=3)
        results = model.evaluate(input_fn=_input(tf, labels), steps=1)
        variables = [(v, np.shape(model.get_variable_value(v))) for v in sorted(model.get_variable_names())
                     if not v.rstrip("_1").endswith(("Adagrad", "Adam", "Ftrl"))]  # fmt: skip
        found[name] = sorted(results), int(results["global_step"]), variables, len(list(
            model.predict(input_fn=_input(tf, labels))))  # fmt: skip
    return found


@program
def own_models_of_contrib_learn(tf: Any) -> Any:
    learn, seen = tf.contrib.learn, []

    def model_fn(features: Any, labels: Any, mode: Any, params: Any) -> Any:
        seen.append(mode)
        w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
        guess = tf.reduce_sum(features * w, 1)
        if mode == learn.ModeKeys.INFER:
            return learn.ModelFnOps(mode=mode, predictions={"guess": guess})
        loss = tf.reduce_mean((guess - tf.cast(labels, tf.float32)) ** 2)
        step = tf.train.GradientDescentOptimizer(params["rate"]).minimize(loss, tf.train.get_global_step())
        return learn.ModelFnOps(mode=mode, predictions={"guess": guess}, loss=loss, train_op=step)

    model = learn.SKCompat(learn.Estimator(model_fn, params={"rate": 0.1}))
    model.fit(X, Y.astype(np.float32), batch_size=12, steps=3)
    mae = learn.MetricSpec(tf.metrics.mean_absolute_error, prediction_key="guess")
    score = model.score(X, Y.astype(np.float32), batch_size=4, metrics={"mae": mae})
    old = learn.Estimator(lambda features, labels: (features, tf.constant(1.0), tf.no_op()))
    wrong = [
        lambda: old.fit(X, Y, input_fn=lambda: None), lambda: old.fit(), lambda: old.fit(X, Y, steps=1, max_steps=2),
        lambda: old.fit(input_fn=lambda: None, batch_size=2), lambda: old.fit(tf.zeros([2]), Y),
        lambda: old.evaluate(X, Y, metrics=[1]), lambda: learn.DNNLinearCombinedClassifier(),
    ]  # fmt: skip
    columns = learn.infer_real_valued_columns_from_input(X)
    answers = [outcome(way) for way in wrong]
    return score["mae"], score["loss"], model.predict(X), sorted(set(seen)), answers, str(columns)


@program
def features_among_predictions(tf: Any) -> Any:
    wrapped, numeric = tf.contrib.estimator, tf.feature_column.numeric_column("x", shape=(2,))
    optimizer = wrapped.clip_gradients_by_norm(tf.train.GradientDescentOptimizer(0.5), 0.01)
    first = tf.estimator.LinearClassifier([numeric], optimizer=optimizer)
    kinds = {"x": "x", "some": ["x"], "all": None}
    found = {}

    def inputs(sparse: bool = False) -> Any:
        more = {"ids": tf.SparseTensor([[i, 0] for i in range(12)], list(range(12)), [12, 2])} if sparse else {}
        return dict({"x": tf.constant(X, tf.float32)}, **more), tf.constant(Y)

    first.train(inputs, steps=3)
    for name, keys in kinds.items():
        estimator = wrapped.forward_features(first, keys)
        rows = list(itertools.islice(estimator.predict(inputs), 3))  # they do not end
        found[name] = [sorted(rows[0]), [row["x"] for row in rows[:2]], rows[2]["probabilities"]]
    more = wrapped.forward_features(first, ["ids"], {"ids": -1}).predict(lambda: inputs(True))
    bad = [outcome(lambda: wrapped.forward_features(first, 3)), outcome(lambda: wrapped.forward_features(first, [3]))]
    bad += [outcome(lambda keys=keys, gaps=gaps: next(wrapped.forward_features(first, keys, gaps).predict(
        lambda: inputs(True)))) for keys, gaps in (("y", None), ("ids", None), ("x", {"x": 0}))]  # fmt: skip
    return (
        found,
        [row["ids"] for row in itertools.islice(more, 3)],
        bad,
        first.get_variable_value("linear/linear_model/x/weights"),
    )


@program
def exports_of_contrib_learn(tf: Any) -> Any:
    from tensorflow.contrib.learn.python.learn.estimators.constants import ProblemType
    from tensorflow.contrib.learn.python.learn.utils import input_fn_utils

    learn, columns = tf.contrib.learn, [tf.contrib.layers.real_valued_column("x", dimension=2)]
    parsed = input_fn_utils.build_parsing_serving_input_fn(tf.contrib.layers.create_feature_spec_for_parsing(columns))
    plain = input_fn_utils.build_default_serving_input_fn({"x": tf.placeholder(tf.float32, [None, 2], name="given")})

    def own(features: Any, labels: Any, mode: Any) -> Any:
        guess = 2.0 * tf.reduce_sum(features["x"], 1)
        step = tf.assign_add(tf.train.get_global_step(), 1)
        heads = {"a": (ProblemType.LINEAR_REGRESSION, {"scores": guess}), "b": (ProblemType.UNSPECIFIED, {"g": -guess})}
        return learn.ModelFnOps(mode, {"guess": guess}, tf.reduce_sum(guess), step, output_alternatives=heads)

    def whole(features: Any, labels: Any) -> Any:
        guess = 2.0 * tf.reduce_sum(features["x"], 1)
        return guess, tf.reduce_sum(guess), tf.assign_add(tf.train.get_global_step(), 1)

    found = [
        _served(tf, model, labels, parsed)
        for model, labels in (
            (learn.LinearRegressor(columns), Y.astype(np.float32)), (learn.LinearClassifier(columns), Y),
            (learn.LinearClassifier(columns, n_classes=3, label_keys=[*"pqr"]), np.array([*"pqr"])[THREE]),
        )
    ]  # fmt: skip
    found += [_served(tf, learn.Estimator(own), Y, parsed, default_output_alternative_key="b"),
              _served(tf, learn.Estimator(whole), Y, plain, as_text=True)]  # fmt: skip
    bad = [outcome(lambda key=key: _served(tf, learn.Estimator(own), Y, parsed, **key))
           for key in ({}, {"default_output_alternative_key": "c"})]  # fmt: skip
    new = learn.LinearRegressor(columns)
    bad += [outcome(lambda: new.export_savedmodel(tempfile.mkdtemp(), parsed)), outcome(lambda: new.evaluate(X, Y)),
            outcome(lambda: list(new.predict(X)))]  # fmt: skip
    with tf.Graph().as_default():
        given = parsed()
        return found, bad, given._fields, [sorted(part) for part in (given.features, given.default_inputs)]


def _served(tf: Any, model: Any, labels: Any, input_fn: Any, **options: Any) -> Any:
    """The signatures of an export, and what they answer."""
    model.fit(input_fn=lambda: ({"x": tf.constant(X, tf.float32)}, tf.constant(labels)), steps=3)
    path = os.fsdecode(model.export_savedmodel(tempfile.mkdtemp(), input_fn, **options))
    examples = [tf.train.Example() for _ in X]
    for example, row in zip(examples, X):
        example.features.feature["x"].float_list.value.extend(row)
    found = {}
    with tf.Graph().as_default(), tf.Session() as session:
        signatures = tf.saved_model.loader.load(session, ["serve"], path).signature_def
        for name, signature in signatures.items():
            ((key, fed),) = signature.inputs.items()
            feed = {fed.name: X if fed.dtype == 1 else [example.SerializeToString() for example in examples]}
            outputs = {key: tensor.name for key, tensor in signature.outputs.items()}
            found[name] = [signature.method_name, key, session.run(outputs, feed)]
    return sorted(os.listdir(path)), found


@program
def positions_of_input_pipelines(tf: Any) -> Any:
    def model_fn(features: Any, labels: Any, mode: Any, config: Any) -> Any:
        step, latest = tf.train.get_or_create_global_step(), tf.Variable(0, name="latest", dtype=tf.int64)
        train = tf.group(step.assign_add(1), latest.assign(features))
        return tf.estimator.EstimatorSpec("train", loss=tf.constant(2.0), train_op=train)

    def one_shot() -> Any:
        return tf.data.Dataset.range(20).make_one_shot_iterator().get_next()

    found = []
    hook = tf.data.experimental.CheckpointInputPipelineHook
    for input_fn in (lambda: tf.data.Dataset.range(20), one_shot):
        estimator = tf.estimator.Estimator(model_fn, tempfile.mkdtemp())
        for has_hook in (True, True, False):
            estimator.train(input_fn, steps=2, hooks=[hook(estimator)] if has_hook else [])
            found.append([estimator.get_variable_value("latest"), estimator.get_variable_value("global_step")])
        names = os.listdir(estimator.model_dir)
        found.append(sorted(name for name in names if "input" in name))
    estimator = tf.estimator.Estimator(model_fn, tempfile.mkdtemp())
    train = lambda: estimator.train(lambda: tf.constant(1, tf.int64), steps=2, hooks=[hook(estimator)])  # noqa: E731
    return found, outcome(train)


@program
def checks_of_tpu_specs(tf: Any) -> Any:
    """What a `TPUEstimatorSpec` completes and refuses, beside an `EstimatorSpec`."""
    tpu, one, hook = tf.estimator.tpu.TPUEstimatorSpec, tf.constant(1.0), tf.train.StopAtStepHook(3)
    plain, output = tf.estimator.EstimatorSpec, tf.estimator.export.PredictOutput({"a": one})
    calls: list[Any] = [
        3, (lambda x: {}, [one]), (3, [one]), (lambda x: {}, 3), (lambda x, y: {}, [one]),
        (lambda x, y: {}, {"x": one}), (lambda x: {}, [one], 4), [lambda *rest: {}, (one, one)],
    ]  # fmt: skip
    cases: dict[str, Any] = {
        f"metrics {n}": {"mode": "eval", "loss": one, "eval_metrics": c} for n, c in enumerate(calls)
    }
    cases.update({f"host {n}": {"mode": "eval", "loss": one, "host_call": c} for n, c in enumerate(calls)})
    both: dict[str, Any] = {
        "train": {"loss": one, "train_op": one}, "hooks": {"loss": one, "train_op": one, "training_hooks": [hook]},
        "no hook": {"loss": one, "train_op": one, "predictions": one, "training_hooks": [3]}, "nothing": {},
        "vector": {"loss": tf.constant([1.0, 2.0]), "train_op": one},
        "one in a vector": {"loss": tf.constant([1.0]), "train_op": one},
        "no outputs": {"loss": one, "train_op": one, "predictions": one, "export_outputs": 3},
        "outputs": {"loss": one, "train_op": one, "predictions": one, "export_outputs": {"a": 3}},
        "good outputs": {"loss": one, "train_op": one, "predictions": one, "export_outputs": {"a": output}},
    }  # fmt: skip
    for mode in ("train", "eval", "infer"):
        cases.update({f"{mode} {name}": {"mode": mode, **values} for name, values in both.items()})

    def made(kind: Any, values: Any) -> Any:
        try:
            spec = kind(**values)
        except (TypeError, ValueError, RuntimeError) as error:
            return type(error).__name__
        return [
            spec.predictions is None,
            len(spec.training_hooks),
            len(spec.prediction_hooks),
            type(spec.export_outputs).__name__,
        ]

    found = {name: made(tpu, values) for name, values in cases.items()}
    found.update(
        {f"plain {name}": made(plain, cases[name]) for name in cases if name.split()[0] in ("train", "eval", "infer")}
    )
    return found
