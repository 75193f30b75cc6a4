"""Reorders and repeats elements: tile, reverse, roll, meshgrid, repeat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, SizesLike, TensorLike
from tfmini.export import either, export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import (
    IndexedSlices,
    Operation,
    OpHandle,
    Tensor,
    all_of,
    convert_to_tensor,
    name_scope,
    op,
    same_shape,
)
from tfmini.memory import check_room
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.filling import ones
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.kernel_arguments import as_ndarray, filled, refuse, zero_of
from tfmini.ops.array.shape import broadcast_to, expand_dims, rank, reshape, shape, size
from tfmini.shapes import RawShape, at_least_rank, at_most_rank, compatible_raw, format_raw, merge_dims, with_rank

_tile = op(
    "Tile(input: T, multiples: Tmultiples) -> output: T; T: type; Tmultiples: {int32, int64} = DT_INT32", work="none"
)
_reverse = op(
    "ReverseV2(tensor: T, axis: Tidx) -> output: T; Tidx: {int32, int64} = DT_INT32; T: {uint8, int8, uint16, int16,"
    " int32, int64, bool, bfloat16, half, float, double, complex64, complex128, string}",
    work="none",
)
_reverse.gradient(lambda node, grad: [_reverse(grad, node.inputs[1]), None])
_reverse_sequence = op(
    "ReverseSequence(input: T, seq_lengths: Tlen) -> output: T; seq_dim: int; batch_dim: int = 0; T: type;"
    " Tlen: {int32, int64} = DT_INT64"
)
_roll = op(
    "Roll(input: T, shift: Tshift, axis: Taxis) -> output: T; T: type; Tshift: {int32,int64}; Taxis: {int32,int64}"
)
_roll.gradient(lambda node, grad: [_roll(grad, raw_ops.Neg(node.inputs[1]), node.inputs[2]), None, None])


# ---- Tile ---------------------------------------------------------------------------------------


@_tile.shape
def _tile_shape(node: Operation) -> list[RawShape]:
    before, length = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    if before is None:
        return [None if not length or length[0] is None else (None,) * length[0]]
    if length and length[0] is not None:
        with_rank(before, length[0])
    factors = constant_value_as_shape(node.inputs[1]) or (None,) * len(before)
    return [tuple(None if d is None or f is None else d * f for d, f in zip(before, factors))]


@_tile.kernel("CPU")
def _tile_kernel(value: Array, multiples: Array) -> Any:
    if multiples.ndim != 1:
        refuse(f"Expected multiples to be 1-D, but got shape {list(multiples.shape)}")
    factors = multiples.tolist()
    if len(factors) != np.ndim(value):
        refuse(f"Expected multiples argument to be a vector of length {np.ndim(value)} but got length {len(factors)}")
    for i, factor in enumerate(factors):
        if factor < 0:
            refuse(f"Expected multiples[{i}] >= 0, but got {factor}")
    if math.prod(factors) * np.size(value) >= 1 << 63:
        refuse(f"Encountered overflow when multiplying the sizes of {list(np.shape(value))} by {factors}")
    check_room(factors, np.size(value) * value.dtype.itemsize)
    return np.tile(value, factors) if factors else value


@_tile.gradient
def _tile_gradient(node: Operation, grad: Tensor) -> list[Any]:
    value, multiples = node.inputs
    sizes = shape(value, out_type=multiples.dtype.base_dtype)
    if isinstance(grad, IndexedSlices):
        grad = convert_to_tensor(grad)
    # [m0, s0, m1, s1, …]: every second axis of that shape counts the repetitions.
    split = reshape(raw_ops.Transpose(stack([multiples, sizes]), [1, 0]), [-1])
    axes = raw_ops.Range(0, size(split), 2)
    total = raw_ops.Sum(reshape(grad, split), axes)
    total.set_shape(value.raw_shape)
    return [total, None]


# ---- Reverse, Roll ------------------------------------------------------------------------------


@_reverse.shape
def _reverse_shape(node: Operation) -> list[RawShape]:
    before, axes = node.inputs[0].raw_shape, constant_value(node.inputs[1])
    with_rank(node.inputs[1].raw_shape, 1)
    if before is None or axes is None:
        return [before]
    seen = set()
    for i, axis in enumerate(axes.tolist()):
        if not -len(before) <= axis < len(before):
            raise ValueError(f"'axis'[{i}] = {axis} is out of valid range [0, {len(before) - 1}]")
        if axis % len(before) in seen:
            raise ValueError(f"axis {axis % len(before)} specified more than once.")
        seen.add(axis % len(before))
    return [before]


@_reverse.kernel("CPU")
def _reverse_kernel(value: Array, axis: Array) -> Any:
    for i, a in enumerate(axis.tolist()):
        if not -np.ndim(value) <= a < np.ndim(value):
            refuse(f"'axis'[{i}] = {a} is out of valid range [0, {np.ndim(value) - 1}]")
    return np.flip(value, tuple(axis.tolist())) if axis.size else value


@_reverse_sequence.shape
def _reverse_sequence_shape(node: Operation) -> list[RawShape]:
    before, (length,) = node.inputs[0].raw_shape, with_rank(node.inputs[1].raw_shape, 1)
    if before is None:
        return [None]
    for name in ("batch_dim", "seq_dim"):
        if node.attrs[name] >= len(before):
            raise ValueError(f"{name} must be < input rank: {node.attrs[name]} vs. {len(before)}")
    batch = node.attrs["batch_dim"]
    return [(*before[:batch], merge_dims(before[batch], length), *before[batch + 1 :])]


@_reverse_sequence.kernel("CPU")
def _reverse_sequence_kernel(value: Array, seq_lengths: Array, *, seq_dim: int, batch_dim: int) -> Any:
    if batch_dim == seq_dim:
        refuse(f"batch_dim == seq_dim == {seq_dim}")
    if seq_lengths.shape != (value.shape[batch_dim],):
        refuse(f"len(seq_lens) != input.dims({batch_dim}), ({seq_lengths.size} vs. {value.shape[batch_dim]})")
    if seq_lengths.size and not 0 <= seq_lengths.min() <= seq_lengths.max() <= value.shape[seq_dim]:
        refuse(f"seq_lens must lie in [0, input.dims({seq_dim})], that is [0, {value.shape[seq_dim]}]")
    result = value.copy()
    rows = np.moveaxis(result, (batch_dim, seq_dim), (0, 1))
    for i, length in enumerate(seq_lengths.tolist()):
        rows[i, :length] = rows[i, :length][::-1].copy()
    return result


@_reverse_sequence.gradient
def _reverse_sequence_gradient(node: Operation, grad: Tensor) -> list[Any]:
    attrs = {name: node.attrs[name] for name in ("seq_dim", "batch_dim")}
    return [_reverse_sequence(grad, node.inputs[1], **attrs), None]


@_roll.shape
def _roll_shape(node: Operation) -> list[RawShape]:
    value, shift, axis = (t.raw_shape for t in node.inputs)
    at_least_rank(value, 1)
    for given in (shift, axis):
        at_most_rank(given, 1)
    if not compatible_raw(shift, axis):
        raise ValueError(
            f"Dimension 0 in both shapes must be equal, but are {format_raw(shift)} and {format_raw(axis)}"
        )
    return [value]


@_roll.kernel("CPU")
def _roll_kernel(value: Array, shift: Array, axis: Array) -> Any:
    if not np.ndim(value):
        refuse("input must be 1-D or higher")
    for what, given in (("shift", shift), ("axis", axis)):
        if np.ndim(given) > 1:
            refuse(f"{what} must be a scalar or a 1-D vector. Found: {list(np.shape(given))}")
    if np.shape(shift) != np.shape(axis):
        refuse("shift and axis must have the same size")
    axes = np.ravel(axis).tolist()
    if any(not -value.ndim <= a < value.ndim for a in axes):
        refuse(f"axis {axes} is out of range [{-value.ndim}, {value.ndim})")
    return np.roll(value, np.ravel(shift).tolist(), axes)


# ---- Public functions of tile, reverse, roll, meshgrid and repeat --------------------------------------------------


@export("tf.tile", "tf.manip.tile")
def tile(input: TensorLike, multiples: SizesLike, name: str | None = None) -> Tensor:
    """``input`` repeated ``multiples[i]`` times along axis i (``tf.tile``)."""
    return _tile(input, multiples, name=name)


@export("tf.reverse", "tf.manip.reverse")
def reverse(tensor: TensorLike, axis: AxisLike, name: str | None = None) -> Tensor:
    """``tensor`` back to front along the given axes (``tf.reverse``, ``tf.reverse_v2``)."""
    return _reverse(tensor, axis, name=name)


reverse_v2 = reverse


@export("tf.reverse_sequence")
def reverse_sequence(
    input: TensorLike, seq_lengths: TensorLike, seq_axis: int | None = None, batch_axis: int | None = None,
    name: str | None = None, seq_dim: int | None = None, batch_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """The first ``seq_lengths[i]`` elements of each sequence back to front (``tf.reverse_sequence``)."""
    sequence = either("seq_axis", seq_axis, "seq_dim", seq_dim)
    batch = either("batch_axis", batch_axis, "batch_dim", batch_dim)
    if sequence is None:
        raise ValueError("reverse_sequence needs seq_axis.")
    return _reverse_sequence(input, seq_lengths, seq_dim=sequence, batch_dim=batch or 0, name=name)


@export("tf.roll", "tf.manip.roll")
def roll(input: TensorLike, shift: TensorLike, axis: AxisLike, name: str | None = None) -> Tensor:
    """``input`` shifted cyclically along axes (``tf.roll``)."""
    return _roll(input, shift, axis, name=name)


@export("tf.meshgrid")
def meshgrid(*args: TensorLike, **kwargs: Any) -> list[Tensor]:
    """Coordinate arrays over the grid of the given vectors (``tf.meshgrid``).

    Args:
      *args: vectors.
      **kwargs: ``indexing`` "xy" (default) or "ij", ``name``.

    Raises:
      ValueError: for an unknown indexing.
      TypeError: for an unknown keyword.
    """
    indexing, name = kwargs.pop("indexing", "xy"), kwargs.pop("name", "meshgrid")
    if kwargs:
        raise TypeError(f"'{next(iter(kwargs))}' is an invalid keyword argument for this function")
    if indexing not in ("xy", "ij"):
        raise ValueError("indexing parameter must be either 'xy' or 'ij'")
    with name_scope(name, "meshgrid", args):
        vectors = [convert_to_tensor(v) for v in args]
        count = len(vectors)
        order = list(range(count))
        if indexing == "xy" and count > 1:
            order[:2] = [1, 0]
        sizes: list[Any] = [None] * count
        for vector, axis in zip(vectors, order):
            sizes[axis] = size(vector)
        if not count:
            return []
        whole = stack(sizes)
        forms = [[-1 if i == axis else 1 for i in range(count)] for axis in order]
        multiply = raw_ops.Mul
        return [multiply(reshape(v, f), ones(whole, v.dtype.base_dtype)) for v, f in zip(vectors, forms)]


@export("tf.repeat")
def repeat(input: TensorLike, repeats: TensorLike, axis: int | None = None, name: str | None = None) -> Tensor:
    """Each element ``repeats`` times in a row, along ``axis`` or of the flat tensor (``tf.repeat``).

    Args:
      input: of any shape.
      repeats: an integer, or one for each element along the axis.
      axis: default: flatten first.
      name: of the scope.
    """
    with name_scope(name, "Repeat", [input, repeats]):
        data, times = convert_to_tensor(input), cast(convert_to_tensor(repeats), dtypes.int32)
        if axis is None:
            data, axis = reshape(data, [-1]), 0
        if axis < 0:
            axis += len(data.raw_shape or ())
        length = shape(data)[axis]
        times = broadcast_to(reshape(times, [-1]), stack([length]))
        limit = raw_ops.Max(concat([times, [0]], 0), [0])
        # Row i of the grid holds as many i as its repetitions.
        inside = raw_ops.Less(raw_ops.Range(0, limit, 1), expand_dims(times, 1))
        rows = raw_ops.Where(inside)[:, 0]
        return gather(data, rows, axis=axis)


export_names("tf", "reverse_v2")


# ---- Permutations of axes: ``tf.transpose`` and ``tf.matrix_transpose`` --------------------------------------------

_PERM = "perm: Tperm) -> y: T; T: type; Tperm: {int32, int64} = DT_INT32"
_transpose = op(f"Transpose(x: T, {_PERM}", work="none")
_transpose.gradient(lambda node, grad: [_transpose(grad, raw_ops.InvertPermutation(node.inputs[1])), None])
_conjugate_transpose = op(f"ConjugateTranspose(x: T, {_PERM}")
_conjugate_transpose.gradient(
    lambda node, grad: [_conjugate_transpose(grad, raw_ops.InvertPermutation(node.inputs[1])), None]
)


@all_of(_transpose, _conjugate_transpose).shape
def _transpose_shape(node: Operation) -> list[RawShape]:
    before, perm = node.inputs[0].raw_shape, constant_value(node.inputs[1])
    length = node.inputs[1].raw_shape
    if before is None:
        # A permutation of one element also fits a scalar.
        return [None if not length or length[0] is None or length[0] < 2 else (None,) * length[0]]
    if length and length[0] is not None:
        merge_dims(len(before), length[0])
    if perm is None:
        return [(None,) * len(before)]
    for axis in perm.tolist():
        if not -len(before) <= axis < len(before):
            raise ValueError(f"perm dim {axis} is out of range of input rank {len(before)}")
    return [tuple(before[axis] for axis in perm.tolist())]


@_transpose.kernel("CPU")
def _transpose_kernel(x: Array, perm: Array) -> Any:
    if not np.ndim(x):
        return x
    try:
        return x.transpose(perm.tolist())
    except ValueError:
        return refuse(f"transpose expects a vector of size {x.ndim}. But input(1) is {perm.tolist()}")


@_conjugate_transpose.kernel("CPU")
def _conjugate_transpose_kernel(x: Array, perm: Array) -> Any:
    transposed = _transpose_kernel(x, perm)
    return np.conj(transposed) if transposed.dtype.kind == "c" else transposed


# ---- Public functions of transposition -----------------------------------------------------------------------------


@export("tf.transpose")
def transpose(
    a: TensorLike, perm: TensorLike | None = None, name: str = "transpose", conjugate: bool = False
) -> Tensor:
    """``a`` with its axes in the order ``perm``, by default reversed (``tf.transpose``).

    Args:
      a: a tensor.
      perm: the axes of ``a`` in their new order; default: reversed.
      name: of the op.
      conjugate: whether to conjugate complex elements, too.

    Returns:
      A tensor whose axis i is the axis ``perm[i]`` of ``a``.
    """
    with name_scope(name, "transpose", [a]) as scope:
        a = convert_to_tensor(a, name="a")
        if perm is None:
            if a.raw_shape is not None:
                perm = np.arange(len(a.raw_shape))[::-1].astype(np.int32)
            else:
                last = raw_ops.Sub(rank(a), 1)
                perm = raw_ops.Sub(last, raw_ops.Range(0, rank(a), 1))
        apply = _conjugate_transpose if conjugate and a.dtype.is_complex else _transpose
        return apply(a, perm, name=scope)


@export("tf.matrix_transpose", "tf.linalg.matrix_transpose", "tf.linalg.transpose")
def matrix_transpose(a: TensorLike, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """``a`` with its last two axes exchanged (``tf.matrix_transpose``).

    Raises:
      ValueError: when its rank is less than 2.
    """
    with name_scope(name, values=[a]):
        a = convert_to_tensor(a, name="a")
        if a.raw_shape is None:
            count: Any = rank(a)
            head = raw_ops.Range(0, count - 2, 1)
            return transpose(a, concat([head, [count - 1, count - 2]], 0), conjugate=conjugate)
        count = len(a.raw_shape)
        if count < 2:
            raise ValueError(f"Argument 'a' should be a (batch) matrix, with rank >= 2.  Found: {a.shape}")
        return transpose(a, [*range(count - 2), count - 1, count - 2], conjugate=conjugate)


# ---- Borders around tensors: ``Pad``, ``PadV2``, ``MirrorPad`` -----------------------------------------------------

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
_mirror_pad_grad: OpHandle = op(f"MirrorPadGrad(input: T, paddings: Tpaddings) -> output: T; {_PADDINGS}; {_MODE}")
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


def _checked_paddings(value: Array, paddings: Array) -> list[Any]:
    pairs: list[Any] = paddings.tolist()
    if len(pairs) != np.ndim(value):
        refuse(
            f"The first dimension of paddings must be the rank of inputs{list(paddings.shape)} {list(np.shape(value))}"
        )
    for low, high in pairs:
        if low < 0 or high < 0:
            refuse(f"Paddings must be non-negative: {low} {high}")
    return pairs


def _pad_with(value: Array, paddings: Array, filler: Array) -> Any:
    pairs = _checked_paddings(value, paddings)
    result = filled(tuple(d + low + high for d, (low, high) in zip(value.shape, pairs)), filler, value.dtype)
    result[tuple(slice(low, low + d) for d, (low, _) in zip(value.shape, pairs))] = value
    return result


def _check_mirror(value: Array, pairs: list[Any], mode: bytes) -> None:
    limit = 1 if mode == b"REFLECT" else 0
    for i, (low, high) in enumerate(pairs):
        if max(low, high) > value.shape[i] - limit:
            which = "less" if limit else "no greater"
            refuse(f"paddings must be {which} than the dimension size: {low}, {high} {which} than {value.shape[i]}")


@_mirror_pad.kernel("CPU")
def _mirror_pad_kernel(value: Array, paddings: Array, *, mode: bytes) -> Any:
    pairs = _checked_paddings(value, paddings)
    _check_mirror(value, pairs, mode)
    return np.pad(value, pairs, "reflect" if mode == b"REFLECT" else "symmetric") if pairs else value


@_mirror_pad_grad.kernel("CPU")
def _mirror_pad_grad_kernel(value: Array, paddings: Array, *, mode: bytes) -> Any:
    skip = 1 if mode == b"REFLECT" else 0
    result = value
    for axis, (low, high) in enumerate(_checked_paddings(value, paddings)):
        if low or high:
            result = _fold(np.moveaxis(result, axis, 0), low, high, skip)
            result = np.moveaxis(result, 0, axis)
    return result


def _fold(value: Array, low: int, high: int, skip: int) -> Any:
    """Adds the mirrored borders of axis 0 to the elements that they are copies of."""
    count = value.shape[0] - low - high
    result = value[low : low + count].copy()
    if low:
        result[skip : skip + low] += value[:low][::-1]
    if high:
        result[count - skip - high : count - skip] += value[low + count :][::-1]
    return result


@all_of(_pad, _pad_v2).gradient
def _pad_gradient(node: Operation, grad: Tensor) -> list[Any]:
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
    tensor: TensorLike, paddings: TensorLike, mode: str = "CONSTANT", name: str | None = None,
    constant_values: TensorLike = 0,
) -> Tensor:  # fmt: skip
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


# ---- Names of axes: places and sizes of one data format in another -------------------------------------------------

_FORMATS = 'src_format: string = "NHWC"; dst_format: string = "NCHW"; T: {int32, int64} = DT_INT32'
_dim_map = op(f"DataFormatDimMap(x: T) -> y: T; {_FORMATS}", shape=same_shape, differentiable=False)
_vec_permute = op(f"DataFormatVecPermute(x: T) -> y: T; {_FORMATS}", shape=same_shape, differentiable=False)


def _format_names(src_format: bytes, dst_format: bytes) -> tuple[str, str]:
    source, target = src_format.decode(), dst_format.decode()
    for role, attr, name in (("Source", "src", source), ("Destination", "dst", target)):
        if len(name) not in (4, 5):
            refuse(f"{role} format must be of length 4 or 5, received {attr}_format = {name}")
    if not len(set(source)) == len(source) == len(target) or set(source) != set(target):
        refuse(f"Destination and source format must determine a permutation, got {source} and {target}")
    return source, target


@_dim_map.kernel("CPU")
def _dim_map_kernel(x: Array, *, src_format: bytes, dst_format: bytes) -> Any:
    source, target = _format_names(src_format, dst_format)
    return np.array([target.index(axis) for axis in source], x.dtype)[x % len(source)]


@_vec_permute.kernel("CPU")
def _vec_permute_kernel(x: Array, *, src_format: bytes, dst_format: bytes) -> Any:
    source, target = _format_names(src_format, dst_format)
    if x.ndim not in (1, 2):
        refuse(f"input must be a vector or 2D tensor, but got shape {format_raw(x.shape)}")
    if x.shape[0] != len(source):
        refuse(f"{x.ndim}D input must be of size {len(source)}, but got shape {format_raw(x.shape)}")
    if x.ndim == 2 and x.shape[1] != 2:
        refuse(f"Second dimension of 2D input must be of size 2, but got shape {format_raw(x.shape)}")
    return x[[source.index(axis) for axis in target]]
