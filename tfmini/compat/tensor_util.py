"""TensorFlow's private module ``tensor_util``: static values, shapes and TensorProtos."""

from __future__ import annotations

from typing import Any

from tfmini.core_types import ShapeLike
from tfmini.graph.operation import Tensor
from tfmini.ops.array import constant_value as static
from tfmini.ops.array.constant import make_ndarray
from tfmini.shapes import TensorShape

MakeNdarray = make_ndarray
constant_value = static.get_static_value


def constant_value_as_shape(tensor: Tensor) -> TensorShape:
    """The shape whose sizes an integer vector holds, as far as it is known."""
    return TensorShape(static.constant_value_as_shape(tensor))


def ShapeEquals(tensor_proto: Any, shape: ShapeLike) -> bool:
    """Whether a TensorProto has that shape: a TensorShape, a TensorShapeProto or a list of sizes."""
    return TensorShape(tensor_proto.tensor_shape).as_list() == TensorShape(shape).as_list()
