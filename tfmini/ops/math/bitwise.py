"""Arithmetic on bits: and, or, exclusive or, shifts (``tf.bitwise``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.registry import op
from tfmini.graph.shape_functions import broadcast_shape, same_shape

_BITS = "{int8, int16, int32, int64, uint8, uint16, uint32, uint64}"
bitwise_and_op = op(f"BitwiseAnd(x: T, y: T) -> z: T; T: {_BITS}", differentiable=False)
bitwise_or_op = op(f"BitwiseOr(x: T, y: T) -> z: T; T: {_BITS}", differentiable=False)
bitwise_xor_op = op(f"BitwiseXor(x: T, y: T) -> z: T; T: {_BITS}", differentiable=False)
left_shift_op = op(f"LeftShift(x: T, y: T) -> z: T; T: {_BITS}", differentiable=False)
right_shift_op = op(f"RightShift(x: T, y: T) -> z: T; T: {_BITS}", differentiable=False)
invert_op = op(f"Invert(x: T) -> y: T; T: {_BITS}", differentiable=False)


def _shift_kernel(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Any, y: Any) -> Any:
        # In C, shifts by amounts outside of the width are undefined; TensorFlow clamps the amounts.
        last = x.dtype.type(x.dtype.itemsize * 8 - 1)
        return ufunc(x, np.clip(y, x.dtype.type(0), last))

    return kernel


for _handle in (bitwise_and_op, bitwise_or_op, bitwise_xor_op, left_shift_op, right_shift_op):
    _handle.shape(broadcast_shape)
invert_op.shape(same_shape)
bitwise_and_op.kernel("CPU")(np.bitwise_and)
bitwise_or_op.kernel("CPU")(np.bitwise_or)
bitwise_xor_op.kernel("CPU")(np.bitwise_xor)
invert_op.kernel("CPU")(np.invert)
left_shift_op.kernel("CPU")(_shift_kernel(np.left_shift))
right_shift_op.kernel("CPU")(_shift_kernel(np.right_shift))


@export("tf.bitwise.bitwise_and")
def bitwise_and(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x & y`` of integers (``tf.bitwise.bitwise_and``)."""
    return bitwise_and_op(x, y, name=name)


@export("tf.bitwise.bitwise_or")
def bitwise_or(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x | y`` of integers (``tf.bitwise.bitwise_or``)."""
    return bitwise_or_op(x, y, name=name)


@export("tf.bitwise.bitwise_xor")
def bitwise_xor(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x ^ y`` of integers (``tf.bitwise.bitwise_xor``)."""
    return bitwise_xor_op(x, y, name=name)


@export("tf.bitwise.left_shift")
def left_shift(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x << y`` of integers (``tf.bitwise.left_shift``)."""
    return left_shift_op(x, y, name=name)


@export("tf.bitwise.right_shift")
def right_shift(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x >> y`` of integers, arithmetic for signed types (``tf.bitwise.right_shift``)."""
    return right_shift_op(x, y, name=name)


@export("tf.bitwise.invert")
def invert(x: Any, name: str | None = None) -> Tensor:
    """``~x`` of integers (``tf.bitwise.invert``)."""
    return invert_op(x, name=name)
