"""Convolutions: their gradients are slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run
from tfmini.ops.nn import dilated


def test_the_gradient_of_volumes_is_their_slope() -> None:
    volume = tf.constant(np.random.RandomState(0).randn(1, 3, 3, 3, 2))
    filters = tf.constant(np.random.RandomState(1).randn(2, 2, 2, 2, 3))
    for value, function in (
        (volume, lambda v: tf.nn.conv3d(v, filters, [1, 1, 1, 1, 1], "SAME")),
        (filters, lambda f: tf.nn.conv3d(volume, f, [1, 2, 1, 1, 1], "VALID")),
        (volume, lambda v: tf.nn.avg_pool3d(v, [1, 2, 2, 2, 1], [1, 1, 1, 1, 1], "SAME")),
    ):
        base = run(value)
        direction = np.random.RandomState(2).randn(*base.shape)
        total = tf.reduce_sum(tf.sin(function(value)))
        slope = (run(tf.gradients(total, value)[0]) * direction).sum()
        ends = [run(tf.reduce_sum(tf.sin(function(tf.constant(base + s * direction))))) for s in (1e-6, -1e-6)]
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize(("batch", "channels", "count"), [(1, 1, 0), (1, 0, 2), (0, 1, 2)])
def test_a_convolution_without_elements_is_zero(window: int, batch: int, channels: int, count: int) -> None:
    image, filters = [batch, 3, 4, channels], [window, window, channels, count]
    back = [batch, 4 - window, 5 - window, count]
    how: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "VALID"}
    with tf.Graph().as_default(), tf.Session() as session:
        forward, to_filter, to_image = session.run([
            tf.nn.conv2d(tf.ones(image), tf.ones(filters), **how),
            tf.nn.conv2d_backprop_filter(tf.ones(image), filters, tf.ones(back), **how),
            tf.nn.conv2d_backprop_input(image, tf.ones(filters), tf.ones(back), **how),
        ])  # fmt: skip
    assert [list(each.shape) for each in (forward, to_filter, to_image)] == [back, filters, image]
    assert not forward.any() and not to_filter.any() and not to_image.any()


@pytest.mark.parametrize("rate", [1, 2])
@pytest.mark.parametrize("layout", ["NHWC", None])
def test_a_convolution_of_known_shapes_is_that_of_its_inputs(rate: int, layout: str | None) -> None:
    """The names of its ops are those of 1.15.5."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        image = tf.constant(np.random.RandomState(0).randn(1, 6, 6, 2), name="x")
        filters = tf.constant(np.random.RandomState(1).randn(2, 2, 2, 3), name="f")
        one = dilated.Convolution(image.shape, filters.shape, "SAME", dilation_rate=[rate] * 2, data_format=layout)
        with tf.name_scope("s"):
            found = one(image, filters)
        ops = [op.name for op in graph.get_operations() if op.type not in ("Const", "Placeholder")]
        assert ops == (["s/Conv2D"] if rate == 1 else ["s/SpaceToBatchND", "s/Conv2D", "s/BatchToSpaceND"])
        wanted = tf.nn.convolution(image, filters, "SAME", dilation_rate=[rate] * 2)
        np.testing.assert_allclose(*session.run([found, wanted]))
        assert one.strides.tolist() == [1, 1] and one.dilation_rate.tolist() == [rate] * 2
    for shapes, message in ((([1, 6, 6, 3], [2, 2, 2, 3]), "3 != 2"), (([1, 6, 6], [2, 2, 2, 3]), "must have rank 4")):
        with pytest.raises(ValueError, match=message):
            dilated.Convolution(*map(tf.TensorShape, shapes), "SAME")
