"""Padded batches: stacks elements of different sizes into one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.pipeline import Element
from tfmini.machine_memory import check_room


def padded_combiner(
    shapes: Sequence[Any], values: Sequence[Any]
) -> Callable[[list[Element]], Element]:
    """A function that makes a padded batch of elements.

    Args:
      shapes: a padded shape per component; -1 means the largest size in the batch.
      values: a padding value per component.
    """

    def combine(elements: list[Element]) -> Element:
        columns = zip(*elements)
        return tuple(_padded(rows, shape, value) for rows, shape, value in zip(columns, shapes, values))

    return combine


def _padded(rows: Sequence[Any], wanted: Any, value: Any) -> Any:
    sizes = [() if isinstance(row, bytes) else np.shape(row) for row in rows]
    full = []
    for size in sizes:
        if len(size) != len(wanted):
            raise errors.InvalidArgumentError.of(
                f"All elements in a batch must have the same rank as the padded shape for component"
                f" 0: expected rank {len(wanted)} but got element with rank {len(size)}"
            )
    for axis, dimension in enumerate(wanted):
        longest = max(size[axis] for size in sizes)
        if dimension >= 0 and longest > dimension:
            raise errors.DataLossError.of(
                "Attempted to pad to a smaller size than the input element."
                f" Dimension {axis} has {longest} elements, the padded shape {dimension}."
            )
        full.append(longest if dimension < 0 else int(dimension))
    first = rows[0]
    dtype = object if isinstance(first, bytes) else first.dtype
    check_room((len(rows), *full), np.dtype(dtype).itemsize)
    out = np.full((len(rows), *full), value, dtype)
    for i, (row, size) in enumerate(zip(rows, sizes)):
        place: Any = (i, *(slice(0, n) for n in size))
        out[place] = row
    return out
