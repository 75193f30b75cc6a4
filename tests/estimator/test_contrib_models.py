"""The estimators of ``tf.contrib.learn``; what they compute is in `tests.programs.era_estimators`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("LinearClassifier", "enable_centered_bias", True),
        ("LinearClassifier", "_joint_weight", True),
        ("LinearRegressor", "_joint_weights", True),
        ("DNNClassifier", "embedding_lr_multipliers", {"a": 0.5}),
        ("DNNLinearCombinedClassifier", "_joint_linear_weights", True),
        ("DNNLinearCombinedRegressor", "embedding_lr_multipliers", {"a": 0.5}),
    ],
)
def test_what_would_train_another_model_is_refused_by_name(name: str, argument: str, value: Any) -> None:
    columns = [tf.contrib.layers.real_valued_column("x")]
    given: dict[str, Any] = {argument: value}
    if "Combined" in name:
        given |= {"linear_feature_columns": columns}
    else:
        given |= {"feature_columns": columns}
    if name.startswith("DNNC"):
        given["hidden_units"] = [2]
    with pytest.raises(NotImplementedError, match=argument.replace("_linear", "").removesuffix("s")):
        getattr(tf.contrib.learn, name)(**given)


def _input() -> tuple[dict[str, Any], tf.Tensor]:
    words = tf.SparseTensor([[0, 0], [1, 0]], ["a", "b"], [2, 1])
    return {"w": words, "x": tf.constant([[1.0], [2.0]])}, tf.constant([[0], [1]])


def _mixed() -> list[Any]:
    words = tf.contrib.layers.sparse_column_with_hash_bucket("w", 10)
    return [tf.contrib.layers.embedding_column(words, 3), tf.feature_column.numeric_column("x")]


def test_the_vectors_of_a_contrib_column_are_trained_beside_new_columns(tmp_path: Any) -> None:
    model = tf.contrib.learn.DNNClassifier([32], _mixed(), str(tmp_path))
    name = "dnn/input_from_feature_columns/input_layer/w_embedding/weights"
    model.fit(input_fn=_input, steps=1)
    before = model.get_variable_value(name)
    model.fit(input_fn=_input, steps=5)
    assert np.abs(model.get_variable_value(name) - before).max() > 0


@pytest.mark.parametrize("trainable", [True, False])
def test_an_input_layer_makes_the_vectors_of_a_contrib_column_as_it_was_asked(trainable: bool) -> None:
    columns, made = _mixed(), dict[Any, Any]()
    tf.feature_column.input_layer(_input()[0], columns, ["mine"], trainable, made)
    assert [v.name for v in tf.get_collection("mine")] == ["input_layer/w_embedding/weights:0"]
    assert tf.trainable_variables() == (tf.get_collection("mine") if trainable else [])
    assert [made[column] for column in columns] == [tf.get_collection("mine"), []]


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        (lambda: None, "must provide a labels Tensor"),
        (lambda: {"a": tf.constant([[0], [1]])}, "not a dict of a"),
        (lambda: tf.SparseTensor([[0, 0], [1, 0]], [0, 1], [2, 1]), "SparseTensor labels are not supported"),
        (lambda: tf.constant([[0, 1], [1, 0]]), "Expected labels dimension=1. Received 2"),
    ],
)
@pytest.mark.parametrize("make", ["learn_classes", "learn_two_classes", "learn_numbers", "classes", "numbers"])
def test_labels_of_another_kind_are_named(tmp_path: Any, make: str, labels: Any, wrong: str) -> None:
    learn, new = tf.contrib.learn, tf.estimator
    old, column = [tf.contrib.layers.real_valued_column("x")], [tf.feature_column.numeric_column("x")]
    model = {
        "learn_classes": lambda: learn.LinearClassifier(old, str(tmp_path), 3),
        "learn_two_classes": lambda: learn.LinearClassifier(old, str(tmp_path)),
        "learn_numbers": lambda: learn.LinearRegressor(old, str(tmp_path)),
        "classes": lambda: new.LinearClassifier(column, str(tmp_path)),
        "numbers": lambda: new.LinearRegressor(column, str(tmp_path)),
    }[make]()
    train = model.fit if "learn" in make else model.train
    with pytest.raises(ValueError, match=wrong):
        train(input_fn=lambda: (_input()[0], labels()), steps=1)


@pytest.mark.parametrize("classes", [2, 3])
def test_strings_as_labels_need_their_names(tmp_path: Any, classes: int) -> None:
    model = tf.contrib.learn.LinearClassifier(
        [tf.contrib.layers.real_valued_column("x")], str(tmp_path), n_classes=classes
    )
    with pytest.raises(ValueError, match="Labels dtype should be integer"):
        model.fit(input_fn=lambda: (_input()[0], tf.constant(["a", "b"])), steps=1)


def test_labels_of_a_number_are_not_shared_by_two(tmp_path: Any) -> None:
    model = tf.contrib.learn.LinearRegressor(
        [tf.contrib.layers.real_valued_column("x")], str(tmp_path), label_dimension=2
    )
    with pytest.raises(ValueError, match="Expected labels dimension=2. Received 1"):
        model.fit(input_fn=lambda: (_input()[0], tf.constant([0.0, 1.0])), steps=1)


@pytest.mark.parametrize(("classes", "keys"), [(2, ["a", "b"]), (3, ["a", "b"])])
def test_the_names_of_labels_fit_the_number_of_classes(classes: int, keys: list[str]) -> None:
    with pytest.raises(ValueError, match="label_keys"):
        tf.contrib.learn.LinearClassifier(
            [tf.contrib.layers.real_valued_column("x")], n_classes=classes, label_keys=keys
        )


def test_an_evaluation_feeds_what_its_function_gives(tmp_path: Any) -> None:
    def input_fn() -> Any:
        x = tf.placeholder_with_default([[1.0], [2.0]], [2, 1], name="given")
        return {"x": x}, tf.constant([[0.0], [0.0]])

    model = tf.contrib.learn.LinearRegressor([tf.contrib.layers.real_valued_column("x")], str(tmp_path))
    model.fit(input_fn=lambda: ({"x": tf.constant([[1.0]])}, tf.constant([[1.0]])), steps=5)
    w = model.get_variable_value("linear/x/weight")[0, 0]
    b = model.get_variable_value("linear/bias_weight")[0]
    found = model.evaluate(input_fn=input_fn, steps=1, feed_fn=lambda: {"given:0": [[5.0], [5.0]]})
    assert found["loss"] == pytest.approx((5 * w + b) ** 2, rel=1e-5)
    with pytest.raises(ValueError, match="both feed_fn and x or y"):
        model.evaluate(np.ones([1, 1]), np.ones(1), feed_fn=dict)


def test_columns_that_differ_in_their_hash_keys_alone_are_equal_as_in_tensorflow() -> None:
    layers = tf.contrib.layers
    one, other = (layers.sparse_column_with_hash_bucket("w", 10, hash_keys=[[1, last]]) for last in (2, 3))
    assert one == other and one.key == other.key
    with pytest.raises(ValueError, match="Duplicate feature column key found for column: w"):
        layers.check_feature_columns([one, other])


def test_a_model_function_may_be_a_partial_one(tmp_path: Any) -> None:
    def model_fn(features: Any, labels: Any, factor: float, params: Any) -> Any:
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean((features["x"] * w - factor * params["scale"]) ** 2)
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
        return features["x"] * w, loss, step

    model = tf.contrib.learn.Estimator(functools.partial(model_fn, factor=2.0), str(tmp_path), params={"scale": 3.0})
    model.fit(input_fn=lambda: ({"x": tf.constant([1.0])}, tf.constant([0.0])), steps=1)
    assert model.get_variable_value("w") == pytest.approx(1.2)


def test_a_feature_of_unknown_size_is_named_when_columns_are_inferred() -> None:
    features = {"wide": tf.placeholder(tf.float32, [None, None])}
    with pytest.raises(ValueError, match="feature 'wide' is not known.*Give it a column"):
        tf.contrib.learn.infer_real_valued_columns_from_input_fn(lambda: (features, None))


@pytest.mark.parametrize(
    ("metrics", "wrong"),
    [
        ({("mae", "guess"): tf.metrics.mean_absolute_error}, "one of the predictions: scores. Got 'guess'"),
        (
            {"mae": tf.contrib.learn.MetricSpec(tf.metrics.mean_absolute_error, weight_key="weight")},
            "one of the features: w, x. Got 'weight'",
        ),
    ],
)
def test_a_metric_names_what_it_does_not_find(tmp_path: Any, metrics: Any, wrong: str) -> None:
    model = tf.contrib.learn.LinearRegressor([tf.contrib.layers.real_valued_column("x")], str(tmp_path))
    model.fit(input_fn=_input, steps=1)
    with pytest.raises(ValueError, match=wrong):
        model.evaluate(input_fn=_input, steps=1, metrics=metrics)


def _nothing() -> Any:
    empty = tf.data.Dataset.from_tensor_slices({"x": np.zeros([0, 1], np.float32)}).batch(2)
    return tf.data.make_one_shot_iterator(empty).get_next()


def test_predictions_of_no_examples_say_so(tmp_path: Any) -> None:
    model = tf.contrib.learn.LinearRegressor([tf.contrib.layers.real_valued_column("x")], str(tmp_path))
    model.fit(input_fn=_input, steps=1)
    with pytest.raises(ValueError, match="nothing to predict"):
        model.predict(input_fn=_nothing, as_iterable=False)


def test_columns_of_another_kind_are_named() -> None:
    layers, x = tf.contrib.layers, {"x": tf.constant([[1.0]])}
    real, new = layers.real_valued_column("x"), tf.feature_column.numeric_column("x")
    for of_categories in (layers.one_hot_column, lambda column: layers.embedding_column(column, 2)):
        with pytest.raises(TypeError, match="must be a column of categories.*not _RealValuedColumn"):
            of_categories(real)
    with pytest.raises(TypeError, match="must be a column of categories.*not _RealValuedColumn"):
        layers.weighted_sparse_column(real, "w")
    with pytest.raises(ValueError, match="Invalid dimension 0. Embedding of column_name: w"):
        layers.embedding_column(layers.sparse_column_with_hash_bucket("w", 10), 0)
    for make in (layers.input_from_feature_columns, layers.sequence_input_from_feature_columns):
        with pytest.raises(TypeError, match="made by tf.contrib.layers, not NumericColumn"):
            make(x, [new])
        with pytest.raises(ValueError, match="feature_columns is empty"):
            make(x, [])


def test_an_optimizer_of_an_unknown_name_is_named(tmp_path: Any) -> None:
    model = tf.contrib.learn.LinearRegressor(
        [tf.contrib.layers.real_valued_column("x")], str(tmp_path), optimizer="Nope"
    )
    with pytest.raises(ValueError, match="one of .Adagrad, .*you provided Nope"):
        model.fit(input_fn=_input, steps=1)


def test_features_without_names_and_arrays_are_refused(tmp_path: Any) -> None:
    model = tf.contrib.learn.LinearRegressor([tf.contrib.layers.real_valued_column("x")], str(tmp_path))
    with pytest.raises(ValueError, match="empty"):
        model.fit({}, np.zeros(1), steps=1)


def test_an_optimizer_by_name_has_the_learning_rate_of_tensorflow(tmp_path: Any) -> None:
    def weight(kind: str, optimizer: Any) -> Any:
        columns = [tf.contrib.layers.real_valued_column("x")]
        model = {
            "linear": lambda folder: tf.contrib.learn.LinearRegressor(columns, folder, optimizer=optimizer),
            "both": lambda folder: tf.contrib.learn.DNNLinearCombinedRegressor(
                folder, linear_feature_columns=columns, linear_optimizer=optimizer
            ),
        }[kind](str(tmp_path / f"{kind}{type(optimizer).__name__}"))
        model.fit(input_fn=_input, steps=1)
        return model.get_variable_value("linear/x/weight")

    for kind in ("linear", "both"):
        assert weight(kind, "SGD") == pytest.approx(weight(kind, tf.train.GradientDescentOptimizer(0.2)))


def test_a_model_of_two_heads_predicts_and_names_them_when_it_is_exported(tmp_path: Path) -> None:
    learn = tf.contrib.learn
    kind = learn.ProblemType.LINEAR_REGRESSION

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        guess = tf.reduce_sum(features["x"], 1)
        heads = {name: (kind, {"scores": guess}) for name in ("a", "b")}
        step = tf.assign_add(tf.train.get_global_step(), 1)
        return learn.ModelFnOps(mode, {"guess": guess}, tf.reduce_sum(guess), step, output_alternatives=heads)

    model, x = learn.Estimator(model_fn), np.float32([[1, 2], [3, 4]])
    model.fit({"x": x}, x[:, 0], steps=1)
    assert [row["guess"] for row in model.predict({"x": x})] == [3.0, 7.0]
    receive = learn.build_parsing_serving_input_fn({"x": tf.FixedLenFeature([2], tf.float32)})
    with pytest.raises(ValueError, match=r"default_output_alternative_key must be one of \['a', 'b'\], not None"):
        model.export_savedmodel(str(tmp_path), receive)
    assert [row["guess"] for row in model.predict({"x": x})] == [3.0, 7.0]
