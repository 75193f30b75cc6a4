"""Lowerings of the ops on arrays: shapes, slices, joins, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.dtypes import DType
from tfmini.graph.lowering import LOOSE, DeviceValue, Entries, jnp, lax, lower, lower_as_kernel, lower_on_host
from tfmini.graph.node import Node
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import slice_index

# ---- values and their shapes ---------------------------------------------------------------------------------------


@lower("Identity Snapshot StopGradient PreventGradient GuaranteeConst DeepCopy")
def _identity(value: DeviceValue) -> Any:
    return value


lower("IdentityN")(lambda values: tuple(values))
lower_as_kernel("EnsureShape")
lower("Shape", keeps_shape_only=True)(lambda value, *, out_type: np.array(value.shape, out_type.numpy))
lower("Size", keeps_shape_only=True)(lambda value, *, out_type: out_type.numpy.type(value.size))
lower("Rank", keeps_shape_only=True)(lambda value: np.int32(value.ndim))
lower("ShapeN", keeps_shape_only=True)(
    lambda values, *, out_type: tuple(np.array(v.shape, out_type.numpy) for v in values)
)
# Their inputs are shapes: the kernels run during the trace.
lower_as_kernel("BroadcastArgs BroadcastGradientArgs", host="s0 s1")
lower_as_kernel("ConcatOffset", host="concat_dim shape")
lower_as_kernel("Range", host="start limit delta")
lower_as_kernel("LinSpace", host="start stop num")


@lower("Cast")
def _cast(x: DeviceValue, *, DstT: DType, SrcT: DType) -> Any:  # noqa: N803 - the names of the attrs
    if SrcT.is_complex and not DstT.is_complex:
        x = x.real
    if DstT.name == "bool":
        return x != 0
    if DstT.is_integer and SrcT.is_floating:  # as processors convert what is too large
        x = jnp.trunc(x)
    return x.astype(DstT.numpy)


@lower("Bitcast")
def _bitcast(value: DeviceValue, *, node: Node) -> Any:
    return lax.bitcast_convert_type(value, node.attrs["type"].numpy)


@lower("Reshape", host="shape")
def _reshape(tensor: DeviceValue, shape: DeviceValue) -> Any:
    sizes = shape.tolist()
    if -1 in sizes:
        known = int(np.prod([s for s in sizes if s != -1]))
        if known == 0 or tensor.size % known or sizes.count(-1) > 1:
            refuse(f"Input to reshape is a tensor with {tensor.size} values, but the requested shape is {sizes}")
        sizes[sizes.index(-1)] = tensor.size // known
    if int(np.prod(sizes)) != tensor.size:
        refuse(
            f"Input to reshape is a tensor with {tensor.size} values, but the requested shape has {int(np.prod(sizes))}"
        )
    return jnp.reshape(tensor, sizes)


@lower("ExpandDims", host="dim")
def _expand_dims(value: DeviceValue, dim: DeviceValue) -> Any:
    return jnp.expand_dims(value, int(dim.reshape(())) if dim.ndim else int(dim))


@lower("Squeeze")
def _squeeze(value: DeviceValue, *, squeeze_dims: list[int]) -> Any:
    axes = [axis % value.ndim for axis in squeeze_dims] or [i for i, n in enumerate(value.shape) if n == 1]
    return jnp.squeeze(value, tuple(axes))


lower("BroadcastTo", host="shape")(lambda value, shape: jnp.broadcast_to(value, tuple(shape.tolist())))
lower("Fill", host="dims")(lambda dims, value: jnp.full(tuple(dims.tolist()), value))
lower("ZerosLike")(lambda value: jnp.zeros(value.shape, value.dtype))
lower("OnesLike")(lambda value: jnp.ones(value.shape, value.dtype))

# ---- slices --------------------------------------------------------------------------------------------------------


def _has_sizes(node: Node, entries: Entries) -> Any:
    """Whether the sizes of a Slice are known without its begin."""
    begin, sizes = entries(node.inputs[1]), entries(node.inputs[2])
    if sizes is None or None in sizes or -1 in sizes or begin is not None and None not in begin:
        return None
    return sizes


@lower("Slice", host="begin size", loose="begin", loosen=_has_sizes)
def _slice(value: DeviceValue, begin: DeviceValue, size: DeviceValue) -> Any:
    if not isinstance(begin, np.ndarray):
        sizes = size.tolist()
        found = lax.dynamic_slice(value, tuple(begin), sizes)
        inside = (begin >= 0) & (begin + np.array(sizes, begin.dtype) <= np.array(value.shape, begin.dtype))
        return jnp.where(jnp.all(inside), found, jnp.zeros((), value.dtype))
    window = []
    for start, count, total in zip(begin.tolist(), size.tolist(), value.shape):
        stop = total if count == -1 else start + count
        if not 0 <= start <= stop <= total:
            refuse(f"Expected a slice within a dimension of {total}, but got begin {start} and size {count}")
        window.append(slice(start, stop))
    return value[tuple(window)]


def _indexed_only(node: Node, entries: Entries) -> Any:
    """The bounds of a strided slice in which what is unknown are indices that remove their axis; else None.

    Such an index has the bounds None.
    """
    begin, end, strides = map(entries, node.inputs[1:4])  # of the op and of its gradient
    count = next((len(v) for v in (strides, begin, end) if v is not None), None)
    if count is None or strides is None or None in strides:
        return None
    lows, highs = begin or [None] * count, end or [None] * count
    if not (len(lows) == len(highs) == len(strides) == count):
        return None
    mask = node.attrs
    bounds: list[Any] = []
    for i, (low, high) in enumerate(zip(lows, highs)):
        bit = 1 << i
        if (mask["ellipsis_mask"] | mask["new_axis_mask"]) & bit:
            bounds.append((0, 0))
        elif mask["shrink_axis_mask"] & bit:
            bounds.append(None if low is None else (low, low + 1))
        else:
            low, high = 0 if mask["begin_mask"] & bit else low, 0 if mask["end_mask"] & bit else high
            if low is None or high is None:
                return None
            bounds.append((low, high))
    return bounds if None in bounds else None


@lower("StridedSlice", host="begin end strides", loose="begin end", loosen=_indexed_only)
def _strided_slice(
    value: DeviceValue, begin: DeviceValue, end: DeviceValue, strides: DeviceValue, *, node: Node
) -> Any:
    if LOOSE in node.attrs and not isinstance(begin, np.ndarray):
        index, picks = _loose_index(node, strides, begin, value.shape)
        return _Picks(value.shape, index, picks).read(value)
    return value[_index(node, begin, end, strides, value.shape)]


@lower("StridedSliceGrad", host="shape begin end strides", loose="begin end", loosen=_indexed_only)
def _strided_slice_grad(
    shape: DeviceValue, begin: DeviceValue, end: DeviceValue, strides: DeviceValue, dy: DeviceValue, *, node: Node
) -> Any:
    sizes = tuple(shape.tolist())
    if LOOSE in node.attrs and not isinstance(begin, np.ndarray):
        index, picks = _loose_index(node, strides, begin, sizes)
        return _Picks(sizes, index, picks).write(dy)
    return jnp.zeros(sizes, dy.dtype).at[_index(node, begin, end, strides, sizes)].set(dy)


def _loose_index(
    node: Node, strides: DeviceValue, begin: DeviceValue, shape: Sequence[int]
) -> tuple[tuple[Any, ...], dict[int, Any]]:
    """The index of a strided slice with all of an axis where its number is traced, and these numbers per axis."""
    bounds = node.attrs[LOOSE]
    lows, highs = ([0 if b is None else b[k] for b in bounds] for k in (0, 1))
    found = list(_index(node, np.array(lows), np.array(highs), strides, [max(n, 1) for n in shape]))
    rest = len(shape) - sum(item is not None and item is not Ellipsis for item in found)
    picks: dict[int, Any] = {}
    axis = 0
    for i, item in enumerate(found):
        if bounds[i] is None:
            found[i] = slice(None)
            picks[axis] = begin[i] + jnp.where(begin[i] < 0, shape[axis], 0).astype(begin.dtype)
        axis += rest if item is Ellipsis else item is not None
    return tuple(found), picks


class _Picks:
    """A slice of which some numbers are traced: of an axis of the tensor, one is taken.

    A number out of range gives zeros, and no gradient.
    """

    def __init__(self, shape: Sequence[int], index: tuple[Any, ...], picks: dict[int, Any]) -> None:
        self.shape, self.index, self.picks = tuple(shape), index, picks
        self.starts = [jnp.int32(0)] * len(self.shape)
        inside: Any = True
        for axis, number in picks.items():
            self.starts[axis] = number.astype(jnp.int32)
            inside &= (number >= 0) & (number < self.shape[axis])
        self.inside = inside
        self.sizes = [1 if axis in picks else n for axis, n in enumerate(self.shape)]

    def read(self, value: DeviceValue) -> Any:
        """The slice."""
        found = lax.dynamic_slice(value, self.starts, self.sizes)
        return jnp.where(self.inside, found, jnp.zeros((), value.dtype))[self._index()]

    def write(self, grad: DeviceValue) -> Any:
        """Zeros of the tensor's shape with ``grad`` in the place of the slice."""
        part = jnp.zeros(self.sizes, grad.dtype).at[self._index()].set(grad)
        part = jnp.where(self.inside, part, jnp.zeros((), grad.dtype))
        return lax.dynamic_update_slice(jnp.zeros(self.shape, grad.dtype), part, self.starts)

    def _index(self) -> tuple[Any, ...]:
        """The index into the part, which has one number of each picked axis."""
        rest = len(self.shape) - sum(item is not None and item is not Ellipsis for item in self.index)
        found: list[Any] = []
        axis = 0
        for item in self.index:
            found.append(0 if item is not None and item is not Ellipsis and axis in self.picks else item)
            axis += rest if item is Ellipsis else item is not None
        return tuple(found)


def _index(
    node: Node, begin: DeviceValue, end: DeviceValue, strides: DeviceValue, shape: Sequence[int]
) -> tuple[Any, ...]:
    """The index of a strided slice. JAX does not refuse a number out of range, as this does."""
    found = slice_index(node.attrs, begin.tolist(), end.tolist(), strides.tolist(), len(shape))
    rest = len(shape) - sum(item is not None and item is not Ellipsis for item in found)
    axis = 0
    for item in found:
        if item is Ellipsis:
            axis += rest
        elif item is not None:
            if isinstance(item, int) and not -shape[axis] <= item < shape[axis]:
                refuse(f"slice index {item} of dimension {axis} out of bounds.")
            axis += 1
    return tuple(slice(i.start, i.stop, i.step) if hasattr(i, "stop") else i for i in found)


# ---- joins and arrangements ----------------------------------------------------------------------------------------


lower("ConcatV2", host="axis")(lambda values, axis: _concat(values, axis))
lower("Concat", host="concat_dim")(lambda concat_dim, values: _concat(values, concat_dim))


def _concat(values: Sequence[Any], axis: DeviceValue) -> Any:
    shapes = {np.shape(v)[:axis] + np.shape(v)[int(axis) % max(np.ndim(v), 1) + 1 :] for v in values}
    if len({np.ndim(v) for v in values}) > 1:
        refuse(f"ConcatOp : Ranks of all input tensors should match: {[np.shape(v) for v in values]} ({len(shapes)})")
    return jnp.concatenate(values, int(axis))


lower("Pack")(lambda values, *, axis: jnp.stack(values, axis))
lower("Unpack")(lambda value, *, axis: tuple(jnp.moveaxis(value, axis, 0)))
lower("Split", host="split_dim")(
    lambda split_dim, value, *, num_split: tuple(jnp.split(value, num_split, int(split_dim)))
)


@lower("SplitV", host="size_splits split_dim")
def _split_v(value: DeviceValue, size_splits: DeviceValue, split_dim: DeviceValue) -> Any:
    sizes, axis = size_splits.tolist(), int(split_dim)
    if -1 in sizes:
        sizes[sizes.index(-1)] = value.shape[axis] - sum(s for s in sizes if s != -1)
    if sum(sizes) != value.shape[axis]:
        refuse(f"Determined shape must match dimension {axis} of the input: {sizes} and {value.shape[axis]}")
    return tuple(jnp.split(value, np.cumsum(sizes)[:-1].tolist(), axis))


lower("Tile", host="multiples")(lambda value, multiples: jnp.tile(value, multiples.tolist()))
lower("ReverseV2", host="axis")(lambda tensor, axis: jnp.flip(tensor, tuple(axis.tolist())))
lower("Transpose", host="perm")(lambda x, perm: jnp.transpose(x, perm.tolist()))
lower("ConjugateTranspose", host="perm")(lambda x, perm: jnp.conj(jnp.transpose(x, perm.tolist())))
lower("Pad", host="paddings")(lambda value, paddings: jnp.pad(value, paddings.tolist()))
lower("PadV2", host="paddings")(
    lambda value, paddings, constant: jnp.pad(value, paddings.tolist(), constant_values=constant)
)


@lower("Roll", host="shift axis")
def _roll(value: DeviceValue, shift: DeviceValue, axis: DeviceValue) -> Any:
    for amount, where in zip(shift.reshape(-1).tolist(), axis.reshape(-1).tolist()):
        value = jnp.roll(value, amount, where)
    return value


@lower("MirrorPad", host="paddings")
def _mirror_pad(value: DeviceValue, paddings: DeviceValue, *, mode: bytes) -> Any:
    return jnp.pad(value, paddings.tolist(), mode=mode.decode().lower())


@lower("MirrorPadGrad", host="paddings")
def _mirror_pad_grad(grad: DeviceValue, paddings: DeviceValue, *, mode: bytes) -> Any:
    from jax import vjp

    before = [n - a - b for n, (a, b) in zip(grad.shape, paddings.tolist())]
    pull = vjp(lambda x: _mirror_pad(x, paddings, mode=mode), jnp.zeros(before, grad.dtype))[1]
    return pull(grad)[0]


@lower("ReverseSequence")
def _reverse_sequence(value: DeviceValue, lengths: DeviceValue, *, seq_dim: int, batch_dim: int) -> Any:
    moved = jnp.moveaxis(value, (batch_dim, seq_dim), (0, 1))
    steps = jnp.arange(moved.shape[1])
    turned = jnp.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    rows = jnp.take_along_axis(moved, turned.reshape(turned.shape + (1,) * (moved.ndim - 2)), 1)
    return jnp.moveaxis(rows, (0, 1), (batch_dim, seq_dim))


lower_as_kernel("SpaceToDepth DepthToSpace")
lower_as_kernel("SpaceToBatchND", host="block_shape paddings")
lower_as_kernel("BatchToSpaceND", host="block_shape crops")

# ---- gathers and scatters ------------------------------------------------------------------------------------------
# As TensorFlow's kernels for GPUs, which cannot raise: a number out of range gives zeros, or changes nothing.

DROP: dict[str, Any] = {"mode": "drop", "wrap_negative_indices": False}
"""How JAX changes rows: a number out of range, as a negative one, changes none."""


@lower("Gather")
def _gather(params: DeviceValue, indices: DeviceValue) -> Any:
    return rows(params, indices, 0)


def rows(params: DeviceValue, indices: DeviceValue, axis: int) -> Any:
    """The rows of an axis by their numbers; zeros for a number out of range, negative ones included."""
    where = (*[slice(None)] * axis, jnp.asarray(indices))
    return jnp.asarray(params).at[where].get(mode="fill", fill_value=0, wrap_negative_indices=False)


@lower("GatherV2", host="axis")
def _gather_v2(params: DeviceValue, indices: DeviceValue, axis: DeviceValue, *, batch_dims: int) -> Any:
    return gather(params, indices, int(axis) % max(params.ndim, 1), batch_dims % max(indices.ndim + 1, 1))


def gather(params: DeviceValue, indices: DeviceValue, axis: int, batch_dims: int) -> Any:
    """`rows` per element of the first ``batch_dims`` axes, which both have."""
    if not batch_dims:
        return rows(params, indices, axis)
    from jax import vmap

    return vmap(lambda p, i: gather(p, i, axis - 1, batch_dims - 1))(params, jnp.asarray(indices))


@lower("GatherNd")
def _gather_nd(params: DeviceValue, indices: DeviceValue) -> Any:
    return gather_nd(params, indices)


def gather_nd(params: DeviceValue, indices: DeviceValue) -> Any:
    """The slices at index vectors; zeros for one out of range."""
    where = places(indices)
    if not where:
        return jnp.broadcast_to(params, (*indices.shape[:-1], *params.shape))
    return jnp.asarray(params).at[where].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def places(indices: DeviceValue) -> tuple[Any, ...]:
    """Index vectors as an index per axis."""
    indices = jnp.asarray(indices)
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


@lower("ScatterNd", host="shape")
def _scatter_nd(indices: DeviceValue, updates: DeviceValue, shape: DeviceValue) -> Any:
    sizes = shape.tolist()
    return jnp.zeros(sizes, updates.dtype).at[places(indices)].add(updates, **DROP)


lower("TensorScatterUpdate")(lambda x, i, updates: jnp.asarray(x).at[places(i)].set(updates, **DROP))
lower("TensorScatterAdd ScatterNdNonAliasingAdd")(
    lambda x, i, updates: jnp.asarray(x).at[places(i)].add(updates, **DROP)
)
lower("TensorScatterSub")(lambda x, i, updates: jnp.asarray(x).at[places(i)].add(-updates, **DROP))


@lower("OneHot", host="depth")
def _one_hot(
    indices: DeviceValue, depth: DeviceValue, on_value: DeviceValue, off_value: DeviceValue, *, axis: int
) -> Any:
    indices = jnp.asarray(indices)
    place = indices.ndim if axis == -1 else axis
    shape = [1] * (indices.ndim + 1)
    shape[place] = int(depth)
    hot = jnp.expand_dims(indices, place) == jnp.arange(int(depth)).reshape(shape)
    return jnp.where(hot, on_value, off_value)


@lower("InvertPermutation")
def _invert(x: DeviceValue) -> Any:
    return jnp.zeros_like(x).at[x].set(jnp.arange(x.shape[0], dtype=x.dtype))


# ---- diagonals -----------------------------------------------------------------------------------------------------


@lower("MatrixBandPart", host="num_lower num_upper")
def _band(value: DeviceValue, lower_: DeviceValue, upper: DeviceValue) -> Any:
    row, column = jnp.arange(value.shape[-2])[:, None], jnp.arange(value.shape[-1])
    low, up = int(lower_), int(upper)
    inside = ((low < 0) | (row - column <= low)) & ((up < 0) | (column - row <= up))
    return jnp.where(inside, value, jnp.zeros((), value.dtype))


@lower("MatrixDiag")
def _matrix_diag(diagonal: DeviceValue) -> Any:
    return jnp.where(jnp.eye(diagonal.shape[-1], dtype=bool), diagonal[..., None], jnp.zeros((), diagonal.dtype))


lower("MatrixDiagPart")(lambda value: jnp.diagonal(value, axis1=-2, axis2=-1))


@lower("MatrixSetDiag")
def _set_diag(value: DeviceValue, diagonal: DeviceValue) -> Any:
    places_ = jnp.arange(min(value.shape[-2:]))
    return jnp.asarray(value).at[..., places_, places_].set(diagonal)


@lower("Diag")
def _diag(diagonal: DeviceValue) -> Any:
    return jnp.diag(jnp.ravel(diagonal)).reshape(diagonal.shape * 2)


@lower("DiagPart")
def _diag_part(value: DeviceValue) -> Any:
    shape = value.shape[: value.ndim // 2]
    size = int(np.prod(shape))
    return jnp.diagonal(value.reshape(size, size)).reshape(shape)


# Their shapes depend on values.
lower_on_host(
    "Where Unique UniqueWithCounts ListDiff DynamicPartition DynamicStitch ParallelDynamicStitch CheckNumerics"
    " MatrixDiagV2 MatrixDiagPartV2 MatrixSetDiagV2 InplaceUpdate InplaceAdd InplaceSub Empty"
)
