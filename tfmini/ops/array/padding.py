"""Borders around tensors: ``Pad``, ``PadV2``, ``MirrorPad``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, all_of, convert_to_tensor, op
from tfmini.machine_memory import check_room
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.joining import stack
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse, zero_of
from tfmini.ops.array.shape import rank, reshape, shape
from tfmini.shapes import RawShape, merge_dims, with_rank

_PADDINGS = "T: type; Tpaddings: {int32, int64} = DT_INT32"
_pad = op(f"Pad(input: T, paddings: Tpaddings) -> output: T; {_PADDINGS}", work="none")
_pad.kernel("CPU")(lambda value, paddings: _pad_with(value, paddings, zero_of(value.dtype)))
_pad_v2 = op(f"PadV2(input: T, paddings: Tpaddings, constant_values: T) -> output: T; {_PADDINGS}", work="none")
_pad_v2.kernel("CPU")(
    lambda value, paddings, constant_values: _pad_with(value, paddings, as_ndarray(constant_values)[()])
)
_MODE = "mode: {'REFLECT', 'SYMMETRIC'}"
_mirror_pad = op(f"MirrorPad(input: T, paddings: Tpaddings) -> output: T; {_PADDINGS}; {_MODE}")
_mirror_pad.gradient(lambda node, grad: [_mirror_pad_grad(grad, node.inputs[1], mode=node.attrs["mode"]), None])
_mirror_pad_grad = op(f"MirrorPadGrad(input: T, paddings: Tpaddings) -> output: T; {_PADDINGS}; {_MODE}")
_mirror_pad_grad.shape(lambda node: [_padded_shape(node, -1)])
_mirror_pad_grad.gradient(lambda node, grad: [_mirror_pad(grad, node.inputs[1], mode=node.attrs["mode"]), None])


@all_of(_pad, _pad_v2, _mirror_pad).shape
def _pad_shape(node: Operation) -> list[RawShape]:
    return [_padded_shape(node, 1)]


def _padded_shape(node: Operation, sign: int) -> RawShape:
    before, form = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    if form is not None:
        with_rank(form, 2)
        merge_dims(form[1], 2)
    if before is None:
        return None if form is None or form[0] is None else (None,) * form[0]
    if form is not None and form[0] is not None:
        with_rank(before, form[0])
    paddings = constant_value(node.inputs[1])
    if paddings is None:
        return tuple(
            None if d is None or p is None else d + sign * p
            for d, p in zip(before, _partial_widths(node.inputs[1], len(before)))
        )
    if paddings.size and paddings.min() < 0:
        raise ValueError("Paddings must be non-negative")
    return tuple(None if d is None else d + sign * sum(p) for d, p in zip(before, paddings.tolist()))


def _partial_widths(paddings: Tensor, rank: int) -> list[int | None]:
    """The total padding of each axis, None where it is unknown. Known parts of a stacked tensor are found."""
    if paddings.op.type != "Pack" or paddings.op.attrs["axis"] != 0:
        return [None] * rank
    return [_partial_width(row) for row in paddings.op.inputs]


def _partial_width(row: Tensor) -> int | None:
    value = constant_value(row)
    if value is not None:
        return int(value.sum())
    if row.op.type != "Pack":
        return None
    parts = [constant_value(t) for t in row.op.inputs]
    found = [p for p in parts if p is not None]
    return int(sum(found)) if len(found) == len(parts) else None


def _checked_paddings(value: Any, paddings: Any) -> list[Any]:
    pairs: list[Any] = paddings.tolist()
    if len(pairs) != np.ndim(value):
        refuse(
            f"The first dimension of paddings must be the rank of inputs{list(paddings.shape)} {list(np.shape(value))}"
        )
    for low, high in pairs:
        if low < 0 or high < 0:
            refuse(f"Paddings must be non-negative: {low} {high}")
    return pairs


def _pad_with(value: Any, paddings: Any, filler: Any) -> Any:
    pairs = _checked_paddings(value, paddings)
    sizes = [d + low + high for d, (low, high) in zip(value.shape, pairs)]
    check_room(sizes, value.dtype.itemsize)
    result = np.full(sizes, filler, value.dtype) if filler else np.zeros(sizes, value.dtype)
    if value.dtype == object and not filler:
        result[...] = filler
    result[tuple(slice(low, low + d) for d, (low, _) in zip(value.shape, pairs))] = value
    return result


def _check_mirror(value: Any, pairs: list[Any], mode: bytes) -> None:
    limit = 1 if mode == b"REFLECT" else 0
    for i, (low, high) in enumerate(pairs):
        if max(low, high) > value.shape[i] - limit:
            which = "less" if limit else "no greater"
            refuse(f"paddings must be {which} than the dimension size: {low}, {high} {which} than {value.shape[i]}")


@_mirror_pad.kernel("CPU")
def _mirror_pad_kernel(value: Any, paddings: Any, *, mode: bytes) -> Any:
    pairs = _checked_paddings(value, paddings)
    _check_mirror(value, pairs, mode)
    return np.pad(value, pairs, "reflect" if mode == b"REFLECT" else "symmetric") if pairs else value


@_mirror_pad_grad.kernel("CPU")
def _mirror_pad_grad_kernel(value: Any, paddings: Any, *, mode: bytes) -> Any:
    skip = 1 if mode == b"REFLECT" else 0
    result = value
    for axis, (low, high) in enumerate(_checked_paddings(value, paddings)):
        if low or high:
            result = _fold(np.moveaxis(result, axis, 0), low, high, skip)
            result = np.moveaxis(result, 0, axis)
    return result


def _fold(value: Any, low: int, high: int, skip: int) -> Any:
    """Adds the mirrored borders of axis 0 to the elements that they are copies of."""
    count = value.shape[0] - low - high
    result = value[low : low + count].copy()
    if low:
        result[skip : skip + low] += value[:low][::-1]
    if high:
        result[count - skip - high : count - skip] += value[low + count :][::-1]
    return result


@all_of(_pad, _pad_v2).gradient
def _pad_gradient(node: Operation, grad: Any) -> list[Any]:
    value, paddings = node.inputs[:2]
    low = raw_ops.Slice(paddings, [0, 0], stack([rank(value), 1]))
    begin = reshape(low, [-1])
    inner = raw_ops.Slice(grad, begin, shape(value, out_type=begin.dtype))
    return [inner, None, None][: len(node.inputs)] if node.type == "Pad" else [inner, None, _border_sum(grad, inner)]


def _border_sum(grad: Tensor, inner: Tensor) -> Tensor:
    """The gradient of the padding constant: the sum over the border."""
    whole, part = (raw_ops.Sum(t, raw_ops.Range(0, raw_ops.Rank(t), 1)) for t in (grad, inner))
    return raw_ops.Sub(whole, part)


@export("tf.pad")
def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", name: str | None = None, constant_values: Any = 0
) -> Tensor:
    """``tensor`` with a border (``tf.pad``).

    Args:
      tensor: of rank n.
      paddings: [n, 2], the width before and after along each axis.
      mode: CONSTANT, REFLECT or SYMMETRIC.
      name: of the op.
      constant_values: a scalar of the same type.

    Raises:
      ValueError: for another mode.
    """
    kind = mode.upper()
    if kind == "CONSTANT":
        if not isinstance(constant_values, Tensor) and np.isscalar(constant_values) and constant_values == 0:
            return _pad(tensor, paddings, name=name)
        if isinstance(constant_values, int):  # Values outside the type's range wrap around.
            tensor = convert_to_tensor(tensor)
            constant_values = np.array(constant_values).astype(tensor.dtype.as_numpy_dtype)
        return _pad_v2(tensor, paddings, constant_values, name=name)
    if kind not in ("REFLECT", "SYMMETRIC"):
        raise ValueError(f"Unknown padding mode: {mode}")
    return _mirror_pad(tensor, paddings, mode=kind, name=name)
