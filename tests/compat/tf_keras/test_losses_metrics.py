"""Losses, metrics and schedules of ``tf.keras``: types of targets, shapes of weights, and what Keras 2.3 lacks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
keras = tf.keras


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


def value_of(tensor: Any) -> Any:
    return keras.backend.get_value(tensor)


def result_of(metric: Any, *updates: tuple[Any, ...]) -> Any:
    session = keras.backend.get_session()
    for update in updates:
        made = metric.update_state(*update)
        value_of(metric.weights[0])  # initializes the variables
        session.run(made)
    return value_of(metric.result())


@pytest.mark.parametrize(
    ("loss", "expected"),
    [("hinge", 1.75), ("squared_hinge", 3.625), ("categorical_hinge", 2.5), ("logcosh", 0.6446), ("poisson", 8.809),
     ("kullback_leibler_divergence", 16.12), ("mse", 1.625), ("cosine_similarity", 0.0)],
)  # fmt: skip
def test_losses_take_targets_of_other_types(loss: str, expected: float) -> None:
    targets, predictions = np.array([[0, 1]]), np.array([[1.5, 0.0]], "float32")
    found = value_of(keras.losses.get(loss)(targets, predictions))
    np.testing.assert_allclose(found, [expected], rtol=1e-3)


def test_the_cosine_is_not_negated_as_in_1_15() -> None:
    vectors = np.array([[3.0, 4.0]], "float32")
    assert value_of(keras.losses.CosineSimilarity()(vectors, vectors)) == pytest.approx(1.0)
    assert value_of(keras.losses.cosine_similarity(vectors, vectors)).tolist() == pytest.approx([1.0])


def test_reductions_are_checked() -> None:
    with pytest.raises(ValueError, match="Invalid Reduction Key Foo"):
        keras.losses.MeanSquaredError(reduction="Foo")
    with pytest.raises(ValueError, match="weights can not be broadcast to values"):
        keras.losses.MeanSquaredError()(np.ones((2, 3, 1)), np.ones((2, 3, 1)), sample_weight=np.ones((2, 2)))


def test_sparse_targets_and_predictions_may_have_an_unknown_rank() -> None:
    targets, predictions = keras.backend.placeholder(), keras.backend.placeholder()
    loss = keras.losses.sparse_categorical_crossentropy(targets, predictions)
    found = keras.backend.get_session().run(loss, {targets: [1, 0], predictions: [[0.25, 0.75], [0.5, 0.5]]})
    np.testing.assert_allclose(found.reshape(-1), -np.log([0.75, 0.5]), rtol=1e-5)


def test_weights_of_fewer_dimensions_are_those_of_means() -> None:
    values = np.array([[[1.0], [3.0]], [[5.0], [7.0]]], "float32")
    assert result_of(keras.metrics.Mean(), (values, np.array([1.0, 3.0]))) == pytest.approx(5.0)
    assert result_of(keras.metrics.Sum(), (values, np.array([1.0, 3.0]))) == pytest.approx(40.0)
    assert value_of(keras.metrics.Mean().result()) == 0.0


def test_ranks_may_be_unknown() -> None:
    values, weights = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    found = keras.metrics.Mean()(values, sample_weight=weights)
    value_of(tf.constant(0))
    session = keras.backend.get_session()
    assert session.run(found, {values: [1.0, 3.0], weights: [[1.0], [3.0]]}) == pytest.approx(2.5)


def test_a_metric_whose_update_returns_nothing_is_updated_nonetheless() -> None:
    class Seen(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="seen")
            self.total = self.add_weight("total", initializer="zeros")

        def update_state(self, values: Any) -> None:
            self.total.assign_add(tf.reduce_sum(values))

        def result(self) -> Any:
            return self.total

    assert result_of(Seen(), (tf.constant([1.0, 2.0]),), (tf.constant([3.0]),)) == 6.0


def test_the_mean_of_each_element_of_tensors() -> None:
    metric = keras.metrics.MeanTensor()
    with pytest.raises(ValueError, match="does not have any result yet"):
        metric.result()
    found = result_of(metric, ([1.0, 2.0],), ([3.0, 6.0], [1.0, 3.0]))
    np.testing.assert_allclose(found, [2.0, 5.0])
    with pytest.raises(ValueError, match="must always have the same shape"):
        metric.update_state([1.0])
    metric.reset_states()
    assert value_of(metric.count).tolist() == [0, 0]


def test_relative_errors_and_the_intersection_over_union() -> None:
    relative = keras.metrics.MeanRelativeError(normalizer=[1.0, 2.0, 0.0])
    assert result_of(relative, ([1.0, 2.0, 3.0], [2.0, 4.0, 9.0])) == pytest.approx(2 / 3)
    union = keras.metrics.MeanIoU(num_classes=2)
    assert result_of(union, ([0, 0, 1, 1], [0, 1, 0, 1])) == pytest.approx(1 / 3)
    assert keras.metrics.MeanIoU.from_config(union.get_config()).num_classes == 2
    union.reset_states()
    assert not value_of(union.total_cm).any()


@pytest.mark.parametrize("name", ["CosineDecay", "CosineDecayRestarts", "LinearCosineDecay", "NoisyLinearCosineDecay"])
def test_the_schedules_of_cosines_begin_at_the_rate(name: str) -> None:
    schedules = keras.optimizers.schedules
    schedule = getattr(schedules, name)(0.5, 10)
    again = schedules.deserialize(schedules.serialize(schedule))
    assert again.get_config() == schedule.get_config()
    if name != "NoisyLinearCosineDecay":
        assert value_of(again(tf.constant(0))) == pytest.approx(0.5, rel=1e-2)
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile(keras.optimizers.SGD(again), "mse")
    assert len(model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0).history["loss"]) == 1


def test_the_reduction_may_be_chosen_by_itself() -> None:
    ours = [keras.losses.MeanSquaredError(reduction=each) for each in ("auto", "sum_over_batch_size", "sum")]
    found = [value_of(loss(np.array([[1.0], [2.0]]), np.array([[4.0], [4.0]]))) for loss in ours]
    assert found == pytest.approx([6.5, 6.5, 13.0])


@pytest.mark.parametrize("reduction", ["sum", "auto"])
def test_a_loss_may_be_one_number_for_the_batch(reduction: str) -> None:
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones", input_shape=(3,))])
    whole = lambda y, p: tf.reduce_mean(tf.square(y - p))  # noqa: E731
    model.compile("sgd", tf.keras.losses.MeanSquaredError() if reduction == "auto" else whole)
    x, y = np.arange(24.0).reshape(8, 3), np.ones((8, 1))
    assert model.test_on_batch(x, y) == pytest.approx(1547.5)  # also on 1.15.5


def test_a_loss_of_class_numbers_takes_lists_and_arrays() -> None:
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(
        [0, 1], np.array([[2.0, 1.0], [0.0, 1.0]], "f")
    )
    np.testing.assert_allclose(tf.keras.backend.get_value(loss), 0.3132617, rtol=1e-6)
