"""The typed namespace of all ops. `tests/test_namespace.py` compares its stub with the declarations."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.graph import raw_ops


def test_an_op_of_another_family_is_called_by_name() -> None:
    with tf.Graph().as_default():
        total = raw_ops.Sum([[1, 2], [3, 4]], [0], keep_dims=True, name="total")
        assert (total.op.type, total.op.name, total.shape.as_list()) == ("Sum", "total", [1, 2])
        assert raw_ops.NoOp().type == "NoOp"
        assert raw_ops.Switch(1, True)._fields == ("output_false", "output_true")


def test_an_op_that_does_not_exist_is_told() -> None:
    with pytest.raises(AttributeError, match="there is no op 'Summ'"):
        raw_ops.Summ  # noqa: B018
    assert "Sum" in dir(raw_ops)


def test_attrs_follow_the_inputs_by_place_in_the_order_of_tensorflow_1_15() -> None:
    ops: Any = raw_ops  # its stub has TensorFlow's public signatures, which take attrs by name only
    restored = ops.RestoreV2("file", ["v"], [""], [tf.float32], "mine")
    assert (restored[0].dtype, restored[0].op.name) == (tf.float32, "mine")
    images = tf.zeros([1, 4, 4, 1])
    pooled = ops.MaxPool(images, [1, 2, 2, 1], [1, 2, 2, 1], "SAME", "NHWC")
    assert (pooled.op.get_attr("data_format"), pooled.op.get_attr("explicit_paddings")) == (b"NHWC", [])
    _, places = ops.MaxPoolWithArgmax(images, [1, 2, 2, 1], [1, 2, 2, 1], "SAME", tf.int32, True)
    assert (places.dtype, places.op.get_attr("include_batch_in_index")) == (tf.int32, True)
    crop = ops.SampleDistortedBoundingBox([4, 4, 3], tf.zeros([1, 1, 4]), 3, 5, 0.5)
    assert [crop.begin.op.get_attr(name) for name in ("seed", "seed2", "min_object_covered")] == [3, 5, 0.5]
    with pytest.raises(TypeError, match="Op 'Sum' got multiple values for argument 'keep_dims'."):
        ops.Sum([1], [0], True, keep_dims=True)
    with pytest.raises(TypeError, match="Op 'Neg' takes 2 arguments but 3 were given."):
        ops.Neg(1.0, "name", 2)
