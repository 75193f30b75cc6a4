"""Comparisons, logic, and selection by a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    broadcast_shape,
    convert_to_tensor,
    equal_shapes,
    name_scope,
    op,
    same_shape,
)
from tfmini.graph.node import Node
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import partition as array_partition
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.math.broadcast import OfXAndY, named, sum_to_operands, told
from tfmini.shapes import RawShape, broadcast_raw, format_raw, merge_raw, with_rank

approximate_equal_op = op(
    "ApproximateEqual(x: T, y: T) -> z: bool; T: numbertype; tolerance: float = 0.00001",
    shape=equal_shapes,
    differentiable=False,
)
logical_not_op = op("LogicalNot(x: bool) -> y: bool", shape=same_shape, differentiable=False)
logical_not_op.kernel("CPU")(np.logical_not)
select_op = op(
    "Select(condition: bool, t: T, e: T) -> output: T; T: type", aggregates=True, raw_names={"t": "x", "e": "y"}
)
select_v2_op = op("SelectV2(condition: bool, t: T, e: T) -> output: T; T: type")

bitpack_op = op(
    "CompareAndBitpack(input: T, threshold: T) -> output: uint8;"
    " T: {bool, half, float, double, int8, int16, int32, int64}",
    differentiable=None,
)


@bitpack_op.shape
def _bitpack_shape(node: Operation) -> list[RawShape]:
    shape, _ = node.inputs[0].raw_shape, with_rank(node.inputs[1].raw_shape, 0)
    if shape is None or not shape or shape[-1] is None:
        return [None if shape is None else shape]
    if shape[-1] % 8:
        raise ValueError(f"Dimension size must be evenly divisible by 8 but is {shape[-1]}")
    return [(*shape[:-1], shape[-1] // 8)]


@bitpack_op.kernel("CPU")
def _bitpack_kernel(input: Array, threshold: Array) -> Any:
    if np.ndim(threshold):
        refuse(f"Compare must be a scalar, but saw shape: {format_raw(threshold.shape)}")
    if not input.ndim or input.shape[-1] % 8:
        refuse(f"Inner dimension of input should be divisible by 8, but saw shape: {format_raw(input.shape)}")
    # Of booleans TensorFlow packs the input, whatever the threshold.
    return np.packbits(input if input.dtype == bool else input > threshold, axis=-1)


def _function(handle: OpHandle, name: str, text: str, types: str) -> OfXAndY:
    def function(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
        return handle(x, y, name=name)

    result = "A bool tensor of the broadcast shape."
    return named(function, name, told(f"``{text} (``tf.{name}``).", "x, y", types, result))


def _row(op_type: str, ufunc: np.ufunc, sign: str, name: str, dtype: str = "T") -> tuple[OpHandle, OfXAndY]:
    """Declares an op that numpy computes, here or as an operator in a program; returns it and its public function."""
    types, bools = ("; T: realnumbertype", "") if dtype == "T" else ("", " of bools")
    handle = op(f"{op_type}(x: {dtype}, y: {dtype}) -> z: bool{types}", shape=broadcast_shape, differentiable=False)
    handle.kernel("CPU")(ufunc)
    handle.inline(lambda node: f"({{0}} {sign} {{1}})")
    shown = "realnumbertype" if dtype == "T" else dtype
    return handle, _function(handle, name, f"x {sign} y``{bools}, element-wise", shown)


less_op, less = _row("Less", np.less, "<", "less")
less_equal_op, less_equal = _row("LessEqual", np.less_equal, "<=", "less_equal")
greater_op, greater = _row("Greater", np.greater, ">", "greater")
greater_equal_op, greater_equal = _row("GreaterEqual", np.greater_equal, ">=", "greater_equal")
logical_and_op, logical_and = _row("LogicalAnd", np.logical_and, "&", "logical_and", "bool")
logical_or_op, logical_or = _row("LogicalOr", np.logical_or, "|", "logical_or", "bool")
export_names("tf tf.math", "less less_equal greater greater_equal logical_and logical_or equal not_equal")


# ---- equality -------------------------------------------------------------------------------


def _equality_shape(node: Operation) -> list[RawShape]:
    if node.attrs["incompatible_shape_error"]:
        return broadcast_shape(node)
    try:
        return broadcast_shape(node)
    except ValueError:
        return [()]


def _is_plain(node: Node) -> bool:
    return node.attrs["T"] is not dtypes.string and node.attrs.get("incompatible_shape_error", True)


def _equality_kernel(node: Node, ufunc: np.ufunc, symbol: str) -> Callable[..., Any]:
    # numpy's comparison of bytes ignores trailing zeros, and that of object scalars makes S arrays.
    is_string = node.attrs["T"] is dtypes.string
    is_strict = node.attrs.get("incompatible_shape_error", True)

    def kernel(x: TensorLike, y: TensorLike) -> Any:
        try:
            return ufunc(_as_objects(x), _as_objects(y)) if is_string else ufunc(x, y)
        except ValueError:
            if is_strict:
                raise
            return np.bool_(symbol == "!=")

    return ufunc if _is_plain(node) else kernel


def _as_objects(value: TensorLike) -> Any:
    if isinstance(value, np.ndarray):
        return value
    cell = np.empty((), dtype=object)
    cell[()] = value
    return cell


def _equality(op_type: str, ufunc: np.ufunc, sign: str, name: str, text: str) -> tuple[OpHandle, OfXAndY]:
    handle = op(
        f"{op_type}(x: T, y: T) -> z: bool; T: type; incompatible_shape_error: bool = true",
        shape=_equality_shape,
        differentiable=False,
    )
    handle.kernel_factory("CPU")(lambda node: _equality_kernel(node, ufunc, sign))
    handle.inline(lambda node: f"({{0}} {sign} {{1}})" if _is_plain(node) else None)
    return handle, _function(handle, name, text, "type")


equal_op, equal = _equality(
    "Equal", np.equal, "==", "equal", "x == y``, element-wise; the operator ``==`` compares identity"
)
not_equal_op, not_equal = _equality("NotEqual", np.not_equal, "!=", "not_equal", "x != y``, element-wise")


@approximate_equal_op.kernel("CPU")
def _approximate_kernel(x: np.ndarray, y: np.ndarray, *, tolerance: float) -> Any:
    if x.shape != y.shape:
        refuse(f"x and y must be of the same shape. x shape: {format_raw(x.shape)}. y shape: {format_raw(y.shape)}")
    return np.abs(x - y) < x.real.dtype.type(tolerance)


# ---- selection ------------------------------------------------------------------------------


@select_op.shape
def _select_shape(node: Operation) -> list[RawShape]:
    condition, t, e = (x.raw_shape for x in node.inputs)
    data = merge_raw(t, e)
    if condition is None or data is None or condition == ():
        return [data]
    if len(condition) == 1 and len(data) > 0:
        merge_raw(condition, data[:1])  # checks the size, and tells no more about the result, as in TensorFlow
        return [data]
    return [merge_raw(condition, data)]


@select_op.kernel("CPU")
def _select_kernel(condition: Array, t: Array, e: Array) -> Any:
    if not condition.ndim:
        return t if condition else e
    if np.shape(t) != np.shape(e) or condition.shape != t.shape and condition.shape != t.shape[:1]:
        refuse(
            "Inputs to operation Select must have the same size and shape. Input 0: "
            f"{format_raw(condition.shape)} != input 1: {format_raw(np.shape(t))}"
        )
    if condition.ndim != t.ndim:  # A vector selects whole rows.
        condition = condition.reshape(condition.shape + (1,) * (t.ndim - 1))
    return np.where(condition, t, e)


@select_op.gradient
def _select_gradient(node: Operation, grad: Tensor) -> list[Any]:
    condition = node.inputs[0]
    zeros = array_filling.zeros_like(grad)
    return [None, select_op(condition, grad, zeros), select_op(condition, zeros, grad)]


@select_v2_op.shape
def _select_v2_shape(node: Operation) -> list[RawShape]:
    condition, t, e = (x.raw_shape for x in node.inputs)
    return [broadcast_raw(condition, broadcast_raw(t, e))]


@select_v2_op.kernel("CPU")
def _select_v2_kernel(condition: Array, t: Array, e: Array) -> Any:
    if isinstance(t, bytes) or isinstance(e, bytes):
        t, e = _as_objects(t), _as_objects(e)
    result = np.where(condition, t, e)
    return result if result.ndim else result[()]


@select_v2_op.gradient
def _select_v2_gradient(node: Operation, grad: Tensor) -> list[Any]:
    condition, t, e = node.inputs
    zeros = array_filling.zeros_like(grad)
    both = [select_v2_op(condition, grad, zeros), select_v2_op(condition, zeros, grad)]
    return [None, *(_sum_like(node, g, x) for g, x in zip(both, (t, e)))]


def _sum_like(node: Operation, grad: Tensor, operand: Tensor) -> Any:
    """``grad`` of the output's shape, summed to the shape of one operand."""
    view = _Operands([operand, node.outputs[0]])
    return sum_to_operands(view, [grad, None])[0]  # type: ignore[arg-type]


class _Operands:
    """Stands for a binary node whose operands are given."""

    def __init__(self, inputs: list[Tensor]) -> None:
        self.inputs = inputs


# ---- public functions -----------------------------------------------------------------------


def approximate_equal(x: TensorLike, y: TensorLike, tolerance: float = 1e-05, name: str | None = None) -> Tensor:
    """``abs(x - y) < tolerance``, element-wise; x and y have one shape."""
    return approximate_equal_op(x, y, tolerance=tolerance, name=name)


@export("tf.logical_not", "tf.math.logical_not")
def logical_not(x: TensorLike, name: str | None = None) -> Tensor:
    """``~x`` of bools, element-wise (``tf.logical_not``)."""
    return logical_not_op(x, name=name)


@export("tf.logical_xor", "tf.math.logical_xor")
def logical_xor(x: TensorLike, y: TensorLike, name: str | None = "LogicalXor") -> Tensor:
    """``x ^ y`` of bools, element-wise: (x | y) & ~(x & y) (``tf.logical_xor``)."""
    return logical_and(logical_or(x, y), logical_not(logical_and(x, y)), name=name)


def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """The elements of ``x`` where ``condition`` is true, else of ``y`` (``tf.where``).

    ``x`` and ``y`` have one shape; ``condition`` has the same shape, or is a scalar, or a vector that
    selects rows. Without ``x`` and ``y``: the [n, rank] int64 coordinates of the true elements.

    Raises:
      ValueError: when only one of ``x`` and ``y`` is given.
    """
    return _where(select_op, "Select", condition, x, y, name)


@export("tf.where_v2")
def where_v2(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """`where` with broadcasting of all three arguments (``tf.where_v2``)."""
    return _where(select_v2_op, "SelectV2", condition, x, y, name)


def _where(
    handle: OpHandle, default_name: str, condition: TensorLike, x: TensorLike | None, y: TensorLike | None,
    name: str | None,
) -> Tensor:  # fmt: skip
    if x is None and y is None:
        with name_scope(name, "Where", [condition]) as scope:
            condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool, name="condition")
            return array_partition.where(condition, name=scope)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return handle(condition, x, y, name=name or default_name)
