"""Regions of equal pixels, and pairs of what is near: ``ImageConnectedComponents`` and ``BipartiteMatch``;
boxes that do not overlap, in TensorFlow's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.families import Operation, OpHandle, op, same_shape
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.memory import check_room
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.partition import unique
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.shapes import RawShape, with_rank

components_op = op(
    "ImageConnectedComponents(image: dtype) -> components: int64"
    "; dtype: {int64, int32, uint16, int16, uint8, int8, half, float, double, bool, string}",
    shape=same_shape, differentiable=False,
)  # fmt: skip
match_op: OpHandle[Any] = op(
    "BipartiteMatch(distance_mat: float, num_valid_rows: float)"
    " -> row_to_col_match_indices: int32, col_to_row_match_indices: int32; top_k: int = -1",
    differentiable=None,
)


class BipartiteMatch(NamedTuple):
    """What `bipartite_match` returns."""

    row_to_col_match_indices: Tensor
    col_to_row_match_indices: Tensor


# ---- regions of equal pixels -----------------------------------------------------------------


@components_op.kernel("CPU")
def _components_kernel(image: Array) -> Any:
    """Of each pixel that is not zero, 1 and the place of its region's first pixel among all of the batch."""
    if image.ndim != 3:
        refuse("Input images must have rank 3")
    check_room(image.shape, 40)
    places = np.arange(image.size).reshape(image.shape)
    full = image != (b"" if image.dtype == object else 0)
    pairs = []
    for axis in (1, 2):
        first, second = (_part(axis, part) for part in (slice(None, -1), slice(1, None)))
        joined = full[first] & np.asarray(image[first] == image[second], bool)
        pairs.append((places[first][joined], places[second][joined]))
    roots = _roots(image.size, *(np.concatenate(ends) for ends in zip(*pairs)))
    return np.where(full, roots.reshape(image.shape) + 1, 0)


def _part(axis: int, part: slice) -> tuple[slice, ...]:
    return tuple(part if i == axis else slice(None) for i in range(3))


def _roots(count: int, first: Array, second: Array) -> Array:
    """The least of all elements that pairs connect with each, by shorter and shorter chains."""
    roots = np.arange(count)
    while len(first):
        least = np.minimum(roots[first], roots[second])
        np.minimum.at(roots, roots[first], least)
        np.minimum.at(roots, roots[second], least)
        while (roots[roots] != roots).any():
            roots = roots[roots]
        apart = roots[first] != roots[second]
        first, second = first[apart], second[apart]
    return roots


@export("tf.contrib.image.connected_components")
def connected_components(images: TensorLike) -> Tensor:
    """Numbers of the regions of equal pixels, which meet at their sides (``tf.contrib.image.connected_components``).

    Args:
      images: [rows, columns] or [n, rows, columns], of numbers, booleans or texts.

    Returns:
      int32, of the same shape: 1, 2, … through all images, in the order of the regions' first pixels; 0 where the
      pixel is zero, False or empty.

    Raises:
      TypeError: for another rank or dtype.
    """
    with name_scope("connected_components"):
        found = convert_to_tensor(images, name="images")
        if len(found.shape) not in (2, 3):
            raise TypeError(f"images should have rank 2 (HW) or 3 (NHW). Static shape is {found.shape}")
        flat = found.shape.ndims == 2
        components: Tensor = components_op(found[None] if flat else found)
        # A zero in front makes its number 0, whether there are others or not.
        ids, numbers = unique(concat([convert_to_tensor([0], dtypes.int64), reshape(components, [-1])], 0))
        del ids
        made = reshape(numbers[1:], shape_of(components))
        made.set_shape(components.shape)
        return made[0] if flat else made


# ---- pairs of what is near -------------------------------------------------------------------


@match_op.shape
def _match_shape(node: Operation) -> list[RawShape]:
    rows, columns = with_rank(node.inputs[0].raw_shape, 2)
    return [(rows,), (columns,)]


@match_op.kernel_factory("CPU")
def _match_factory(node: Any) -> Any:
    most = int(node.attrs["top_k"])

    def match(distances: Array, valid: Array) -> tuple[Array, Array]:
        if distances.ndim != 2:
            refuse(f"distance_mat should be 2-dimensional, but got [{','.join(map(str, distances.shape))}]")
        if valid.size != 1:
            refuse(f"num_valid_rows argument should be a tensor with 1 element, but got {valid.size}")
        rows, columns = (np.full(size, -1, np.int32) for size in distances.shape)
        count = len(rows) if valid.item() < 0 else int(valid.item())
        if count > len(rows):
            refuse(f"There should be at least {count} rows in distance_mat, but only got {len(rows)} rows.")
        left = min(count, len(columns), most if most > 0 else count)
        check_room(distances.shape, 80)
        for place in _nearest(distances[:count].ravel()) if left else ():
            row, column = divmod(place, len(columns))
            if rows[row] < 0 and columns[column] < 0:
                rows[row], columns[column], left = column, row, left - 1
                if not left:
                    break
        return rows, columns

    return match


def _nearest(distances: Array) -> Iterator[int]:
    """The places of distances, from the least; equal ones in the order of TensorFlow, which is that of its heap."""
    if len(np.unique(distances)) == len(distances) and not np.isnan(distances).any():
        yield from np.argsort(distances).tolist()
        return
    keys, heap = distances.tolist(), [0] * len(distances)
    for place in range(len(heap)):
        _rise(heap, keys, place, place)
    while heap:
        yield heap[0]
        last = heap.pop()
        if heap:
            _sink(heap, keys, last)


def _rise(heap: list[int], keys: list[float], hole: int, place: int) -> None:
    """Puts a place into a hole, or nearer to the root, before those of larger keys."""
    parent = (hole - 1) // 2
    while hole and keys[heap[parent]] > keys[place]:
        heap[hole], hole = heap[parent], parent
        parent = (hole - 1) // 2
    heap[hole] = place


def _sink(heap: list[int], keys: list[float], place: int) -> None:
    """Moves the root's hole to a leaf, by the children with smaller keys, and the place up from there."""
    hole, count = 0, len(heap)
    while 2 * hole + 2 < count:
        child = 2 * hole + 2
        child -= keys[heap[child]] > keys[heap[child - 1]]
        heap[hole], hole = heap[child], child
    if 2 * hole + 1 < count:
        heap[hole], hole = heap[2 * hole + 1], 2 * hole + 1
    _rise(heap, keys, hole, place)


@export("tf.contrib.image.bipartite_match")
def bipartite_match(
    distance_mat: TensorLike, num_valid_rows: TensorLike, top_k: int = -1, name: str | None = "bipartite_match"
) -> BipartiteMatch:
    """Pairs each row with a column, the nearest first (``tf.contrib.image.bipartite_match``).

    Args:
      distance_mat: [rows, columns], float32.
      num_valid_rows: one number, float32: only so many rows are paired; all when it is negative.
      top_k: the number of pairs at most; all that there are when it is not positive.

    Returns:
      ``(row_to_col_match_indices, col_to_row_match_indices)``, int32: the column of each row and the row of each
      column, -1 of those without.

    Raises:
      InvalidArgumentError: in a step, when the rows are fewer than ``num_valid_rows``.
    """
    inputs = [part if isinstance(part, Tensor) else convert_to_tensor(part, dtypes.float32)
              for part in (distance_mat, num_valid_rows)]  # fmt: skip
    made = match_op(*inputs, top_k=top_k, name=name)
    return BipartiteMatch(*made)


# ---- a heap of C++ ------------------------------------
# TensorFlow takes boxes from a heap of the standard library of C++, in which equal scores have an order that follows
# from how items sink and rise. Python's heap has another one.


def chosen_from_heap(
    overlaps: Callable[[int], Array], scores: Array, is_open: Array, count: int, threshold: float
) -> tuple[list[int], list[float]]:
    """At most ``count`` boxes, best first, none of which overlaps with a better one by the threshold; and their scores.

    Args:
      overlaps: gives the overlaps of a box with all boxes.
      scores: float32, one for each box.
      is_open: which boxes may be chosen; those that may not any more are closed in it.
      threshold: of the overlaps.
    """
    heap: list[tuple[float, int]] = []
    for number in np.flatnonzero(is_open).tolist():
        _push(heap, (float(scores[number]), number), len(heap))
    chosen: list[tuple[float, int]] = []
    while len(chosen) < count and heap:
        best = _pop(heap)
        if is_open[best[1]]:
            chosen.append(best)
            is_open &= overlaps(best[1]) < threshold
            is_open[best[1]] = False
            _push(heap, best, len(heap))  # as in TensorFlow, which then finds that it overlaps with itself
    return [number for _, number in chosen], [score for score, _ in chosen]


def _push(heap: list[tuple[float, int]], item: tuple[float, int], place: int) -> None:
    """Lets an item, (score, number), rise from a free place or from behind the end."""
    if place == len(heap):
        heap.append(item)
    while place and heap[(place - 1) // 2][0] < item[0]:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = item


def _pop(heap: list[tuple[float, int]]) -> tuple[float, int]:
    """Takes the item of the largest score; the last one sinks to the bottom and rises from there."""
    top, last = heap[0], heap.pop()
    hole = 0
    while (child := 2 * hole + 2) <= len(heap):
        if child == len(heap) or heap[child][0] < heap[child - 1][0]:
            child -= 1
        heap[hole], hole = heap[child], child
    if heap:
        _push(heap, last, hole)
    return top
