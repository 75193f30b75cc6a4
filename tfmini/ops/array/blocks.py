"""Blocks of space moved into depth or batch: space_to_depth, space_to_batch and their inverses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.memory import check_room
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, at_least_rank, format_raw, merge_raw, with_rank

_LAYOUT = "T: type; block_size: int >= 2; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
_space_to_depth = op(f"SpaceToDepth(input: T) -> output: T; {_LAYOUT}")
_space_to_depth.shape(lambda node: [_depth_shape(node, to_depth=True)])
_depth_to_space = op(f"DepthToSpace(input: T) -> output: T; {_LAYOUT}")
_depth_to_space.shape(lambda node: [_depth_shape(node, to_depth=False)])
_BLOCK = "block_shape: Tblock_shape"
_TYPES = "T: type; Tblock_shape: {int32, int64} = DT_INT32"
_space_to_batch = op(
    f"SpaceToBatchND(input: T, {_BLOCK}, paddings: Tpaddings) -> output: T; {_TYPES};"
    " Tpaddings: {int32, int64} = DT_INT32"
)
_space_to_batch.gradient(lambda node, grad: [_batch_to_space(grad, node.inputs[1], node.inputs[2]), None, None])
_batch_to_space: OpHandle = op(
    f"BatchToSpaceND(input: T, {_BLOCK}, crops: Tcrops) -> output: T; {_TYPES}; Tcrops: {{int32, int64}} = DT_INT32"
)
_batch_to_space.gradient(lambda node, grad: [_space_to_batch(grad, node.inputs[1], node.inputs[2]), None, None])


# ---- depth --------------------------------------------------------------------------------------


def _axes(data_format: bytes) -> tuple[int, int, int]:
    """The positions of height, width and depth."""
    if data_format == b"NCHW_VECT_C":
        raise ValueError("tfmini moves blocks in the formats NHWC and NCHW, not NCHW_VECT_C.")
    return (1, 2, 3) if data_format == b"NHWC" else (2, 3, 1)


def _depth_shape(node: Operation, to_depth: bool) -> RawShape:
    result = list(with_rank(node.inputs[0].raw_shape, 4))
    block = node.attrs["block_size"]
    height, width, depth = _axes(node.attrs["data_format"])
    shrinking = [(height, block), (width, block)] if to_depth else [(depth, block * block)]
    growing = [(depth, block * block)] if to_depth else [(height, block), (width, block)]
    for axis, factor in shrinking:
        size = result[axis]
        if size is not None and size % factor:
            raise ValueError(f"Dimension size must be evenly divisible by {factor} but is {size}")
        result[axis] = None if size is None else size // factor
    for axis, factor in growing:
        size = result[axis]
        result[axis] = None if size is None else size * factor
    return tuple(result)


@_space_to_depth.kernel("CPU")
def _space_to_depth_kernel(value: np.ndarray, *, block_size: int, data_format: bytes) -> Any:
    channels_first = data_format == b"NCHW"
    n, h, w, c = value.shape if not channels_first else np.moveaxis(value, 1, -1).shape
    b = block_size
    if h % b or w % b:
        refuse(f"Image width {w} and height {h} should be divisible by block_size: {b}")
    if channels_first:
        parts = value.reshape(n, c, h // b, b, w // b, b)
        return parts.transpose(0, 3, 5, 1, 2, 4).reshape(n, b * b * c, h // b, w // b)
    parts = value.reshape(n, h // b, b, w // b, b, c)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // b, w // b, b * b * c)


@_depth_to_space.kernel("CPU")
def _depth_to_space_kernel(value: np.ndarray, *, block_size: int, data_format: bytes) -> Any:
    channels_first = data_format == b"NCHW"
    n, h, w, c = value.shape if not channels_first else np.moveaxis(value, 1, -1).shape
    b = block_size
    if c % (b * b):
        refuse(f"Input depth dimension {c} should be divisible by: {b * b}")
    c //= b * b
    if channels_first:
        return value.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c, h * b, w * b)
    return value.reshape(n, h, w, b, b, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * b, w * b, c)


@_space_to_depth.gradient
def _space_to_depth_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [_depth_to_space(grad, block_size=node.attrs["block_size"], data_format=node.attrs["data_format"])]


@_depth_to_space.gradient
def _depth_to_space_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [_space_to_depth(grad, block_size=node.attrs["block_size"], data_format=node.attrs["data_format"])]


# ---- batch --------------------------------------------------------------------------------------


@all_of(_space_to_batch, _batch_to_space).shape
def _batch_shape(node: Operation) -> list[RawShape]:
    count, raw = _block_rank(node), node.inputs[0].raw_shape
    if count is None:
        return [None]
    block, edges = constant_value(node.inputs[1]), constant_value(node.inputs[2])
    _check_blocks(block, edges, "paddings" if node.type == "SpaceToBatchND" else "crops")
    at_least_rank(raw, count + 1)
    if raw is None:
        return [None]
    if block is None or edges is None:
        return [(None,) * (count + 1) + raw[count + 1 :]]
    sizes, to_batch = list(raw), node.type == "SpaceToBatchND"
    sizes[0] = _scaled(sizes[0], math.prod(block.tolist()), to_batch)
    for i, (factor, edge) in enumerate(zip(block.tolist(), edges.tolist()), 1):
        size = sizes[i]
        if size is None:
            continue
        sizes[i] = _scaled(size + sum(edge), factor, False) if to_batch else _cropped(size * factor, edge)
    return [tuple(sizes)]


def _block_rank(node: Operation) -> int | None:
    """The number of axes with blocks; None if the rank of the block's shape is unknown.

    Raises:
      ValueError: its size is unknown, or the paddings or crops are of another number of axes.
    """
    shape = node.inputs[1].raw_shape
    if shape is None:
        return None
    if len(shape) != 1:
        raise ValueError("block_shape must have rank 1.")
    if shape[0] is None:
        raise ValueError("block_shape must have known size.")
    merge_raw(node.inputs[2].raw_shape, (shape[0], 2))
    return shape[0]


def _check_blocks(block: Array | None, edges: Array | None, name: str) -> None:
    """Refuses blocks below one and negative paddings or crops.

    Raises:
      ValueError: for such values.
    """
    if block is not None and block.size and block.min() < 1:
        raise ValueError(f"block_shape must be positive, got {block.tolist()}")
    if edges is not None and edges.size and edges.min() < 0:
        raise ValueError(f"{name} cannot be negative, got {edges.tolist()}")


def _cropped(size: int, edge: list[int]) -> int:
    left = size
    for crop in edge:
        if crop > left:
            raise ValueError(f"Negative dimension size caused by subtracting {crop} from {left}")
        left -= crop
    return left


def _scaled(size: int | None, factor: int, up: bool) -> int | None:
    if size is None:
        return None
    if up:
        return size * factor
    if size % factor:
        raise ValueError(f"Dimension size must be evenly divisible by {factor} but is {size}")
    return size // factor


def _check_edges(value: Array, block_shape: Array, edges: Array, name: str) -> None:
    count = block_shape.size
    if value.ndim < count + 1:
        refuse(f"input rank should be >= {count + 1} instead of {value.ndim}")
    if edges.shape != (count, 2):
        refuse(f"{name} should have shape [{count}, 2] instead of {format_raw(edges.shape)}")
    if edges.size and edges.min() < 0:
        refuse(f"{name.capitalize()} must be non-negative")


@_space_to_batch.kernel("CPU")
def _space_to_batch_kernel(value: np.ndarray, block_shape: Array, paddings: np.ndarray) -> Any:
    _check_edges(value, block_shape, paddings, "paddings")
    block, count = block_shape.tolist(), block_shape.size
    for i, factor in enumerate(block):
        if factor < 1:
            refuse(f"All values in block_shape must be positive, got value, {factor} at index {i}.")
    room = [n + low + high for n, (low, high) in zip(value.shape[1:], paddings.tolist())]
    check_room([len(value), *room, *value.shape[1 + count :]], value.dtype.itemsize)
    padded = np.pad(value, [(0, 0), *paddings.tolist(), *[(0, 0)] * (value.ndim - count - 1)])
    sizes = [padded.shape[0]]
    for i, (size, factor) in enumerate(zip(padded.shape[1:], block)):
        if size % factor:
            refuse(f"padded_shape[{i}]={size} is not divisible by block_shape[{i}]={factor}")
        sizes += [size // factor, factor]
    rest = padded.shape[count + 1 :]
    blocks, cells = range(2, 2 * count + 1, 2), range(1, 2 * count + 1, 2)
    tail = range(2 * count + 1, 2 * count + 1 + len(rest))
    moved = padded.reshape(*sizes, *rest).transpose(*blocks, 0, *cells, *tail)
    return moved.reshape(padded.shape[0] * math.prod(block), *sizes[1::2], *rest)


@_batch_to_space.kernel("CPU")
def _batch_to_space_kernel(value: np.ndarray, block_shape: Array, crops: Array) -> Any:
    _check_edges(value, block_shape, crops, "crops")
    block, count, cells = block_shape.tolist(), block_shape.size, math.prod(block_shape.tolist())
    if cells < 1:
        refuse(f"Product of block sizes must be positive, got {cells}")
    if value.shape[0] % cells:
        refuse(f"Input batch dimension ({value.shape[0]}) is not divisible by product of block sizes ({cells})")
    for i, (size, factor, edge) in enumerate(zip(value.shape[1:], block, crops.tolist())):
        if (left := size * factor - sum(edge)) < 0:
            refuse(f"cropped_shape[{i}]={left} must be non-negative")
    batch, space, rest = value.shape[0] // cells, value.shape[1 : count + 1], value.shape[count + 1 :]
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    moved = value.reshape(*block, batch, *space, *rest).transpose(order)
    grown = [s * b for s, b in zip(space, block)]
    window = tuple(slice(low, size - high) for size, (low, high) in zip(grown, crops.tolist()))
    return moved.reshape(batch, *grown, *rest)[(slice(None), *window)]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.space_to_depth", "tf.nn.space_to_depth")
def space_to_depth(input: TensorLike, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Blocks of ``block_size`` squared pixels as depth (``tf.space_to_depth``)."""
    return _space_to_depth(input, block_size=block_size, data_format=data_format, name=name)


@export("tf.depth_to_space", "tf.nn.depth_to_space")
def depth_to_space(input: TensorLike, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Depth as blocks of ``block_size`` squared pixels (``tf.depth_to_space``)."""
    return _depth_to_space(input, block_size=block_size, data_format=data_format, name=name)


@export("tf.space_to_batch_nd", "tf.manip.space_to_batch_nd")
def space_to_batch_nd(
    input: TensorLike, block_shape: TensorLike, paddings: TensorLike, name: str | None = None
) -> Tensor:
    """Blocks of the padded space as batch (``tf.space_to_batch_nd``)."""
    return _space_to_batch(input, block_shape, paddings, name=name)


@export("tf.batch_to_space_nd", "tf.manip.batch_to_space_nd")
def batch_to_space_nd(input: TensorLike, block_shape: TensorLike, crops: TensorLike, name: str | None = None) -> Tensor:
    """Batch as blocks of space, then cropped (``tf.batch_to_space_nd``)."""
    return _batch_to_space(input, block_shape, crops, name=name)


def _block_shape(block_size: TensorLike | None, block_shape: TensorLike | None) -> Any:
    if (block_size is None) == (block_shape is None):
        raise ValueError("Give exactly one of block_size and block_shape.")
    size = block_size if block_shape is None else block_shape
    return [size, size] if block_shape is None or isinstance(block_shape, int) else block_shape


def _of_rank_four(images: Tensor) -> Tensor:
    """The result of blocks over two axes, whose static rank is 4 even where nothing else is known."""
    images.set_shape([None] * 4)
    return images


@export("tf.space_to_batch", "tf.nn.space_to_batch")
def space_to_batch(
    input: TensorLike, paddings: TensorLike, block_size: TensorLike | None = None, name: str | None = None,
    block_shape: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """`space_to_batch_nd` with square blocks over two axes (``tf.space_to_batch``)."""
    found = space_to_batch_nd(input, _block_shape(block_size, block_shape), paddings, name)
    return found if block_size is None else _of_rank_four(found)


@export("tf.batch_to_space")
def batch_to_space(
    input: TensorLike, crops: TensorLike, block_size: TensorLike | None = None, name: str | None = None,
    block_shape: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """`batch_to_space_nd` with square blocks over two axes (``tf.batch_to_space``)."""
    found = batch_to_space_nd(input, _block_shape(block_size, block_shape), crops, name)
    return found if block_size is None else _of_rank_four(found)
