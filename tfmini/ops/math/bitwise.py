"""Arithmetic on bits: and, or, exclusive or, shifts (``tf.bitwise``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.export import export, export_names
from tfmini.graph.families import Tensor, broadcast_shape, op, same_shape
from tfmini.ops.math.broadcast import OfXAndY, named

_BITS = "{int8, int16, int32, int64, uint8, uint16, uint32, uint64}"


def _binary(op_type: str, kernel: Callable[..., Any], name: str, text: str) -> OfXAndY:
    """Declares an op on integers; returns its public function."""
    handle = op(f"{op_type}(x: T, y: T) -> z: T; T: {_BITS}", shape=broadcast_shape, differentiable=False)
    handle.kernel("CPU")(kernel)

    def function(x: Any, y: Any, name: str | None = None) -> Tensor:
        return handle(x, y, name=name)

    return named(function, name, f"``{text} (``tf.bitwise.{name}``).")


def _shift(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Any, y: Any) -> Any:
        # In C, shifts by amounts outside of the width are undefined; TensorFlow clamps the amounts.
        last = x.dtype.type(x.dtype.itemsize * 8 - 1)
        return ufunc(x, np.clip(y, x.dtype.type(0), last))

    return kernel


bitwise_and = _binary("BitwiseAnd", np.bitwise_and, "bitwise_and", "x & y`` of integers")
bitwise_or = _binary("BitwiseOr", np.bitwise_or, "bitwise_or", "x | y`` of integers")
bitwise_xor = _binary("BitwiseXor", np.bitwise_xor, "bitwise_xor", "x ^ y`` of integers")
left_shift = _binary("LeftShift", _shift(np.left_shift), "left_shift", "x << y`` of integers")
right_shift = _binary(
    "RightShift", _shift(np.right_shift), "right_shift", "x >> y`` of integers, arithmetic for signed types"
)
export_names("tf.bitwise", "bitwise_and bitwise_or bitwise_xor left_shift right_shift")

invert_op = op(f"Invert(x: T) -> y: T; T: {_BITS}", shape=same_shape, differentiable=False)
invert_op.kernel("CPU")(np.invert)


@export("tf.bitwise.invert")
def invert(x: Any, name: str | None = None) -> Tensor:
    """``~x`` of integers (``tf.bitwise.invert``)."""
    return invert_op(x, name=name)
