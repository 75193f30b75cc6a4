"""Updates of some rows of a variable and its slots, for the optimizers' update ops.

A row that is named twice is updated twice, in order; the optimizers add up duplicates before the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.numerics.scatter_rows import first_positions
from tfmini.numerics.update_rules import Rule, run_blockwise
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.variables.state import VariableState, update_together
from tfmini.shapes import format_raw


def apply_sparse(rule: Rule, states: Sequence[VariableState], grad: Any, indices: Any, hyper: Sequence[Any]) -> None:
    """Runs ``rule`` on the rows ``indices`` of a variable and its slots as one exclusive update.

    Raises:
      InvalidArgumentError: when shapes do not fit or an index is out of range; nothing has changed then.
      FailedPreconditionError: when one of the variables was never assigned.
    """

    def run(*arrays: Any) -> None:
        _check(arrays, grad, indices, states)
        for chosen in _without_repeats(indices, arrays[0].shape[0]):
            _update_rows(rule, arrays, grad[chosen], indices[chosen], hyper)

    update_together(states, run)


def _update_rows(rule: Rule, arrays: Sequence[Any], grad: Any, indices: Any, hyper: Sequence[Any]) -> None:
    # The row numbers are checked already: "clip" saves numpy's own check, and time that its indexing needs.
    rows = [array.take(indices, 0, mode="clip") for array in arrays]
    run_blockwise(rule, rows, grad, hyper)
    for array, changed in zip(arrays, rows):
        array[indices] = changed


def _without_repeats(indices: Any, rows: int) -> list[Any]:
    """Splits positions into rounds that name each row at most once: round k has the k-th mention of each row."""
    rounds: list[Any] = []
    left: Any = np.arange(indices.size)
    while left.size:
        is_first = first_positions(indices[left], rows) == np.arange(left.size)
        if not rounds and is_first.all():
            return [slice(None)]
        rounds.append(left[is_first])
        left = left[~is_first]
    return rounds


def _check(arrays: tuple[Any, ...], grad: Any, indices: Any, states: Sequence[VariableState]) -> None:
    shape = arrays[0].shape
    for array, state in zip(arrays, states):
        if array.shape != shape:
            refuse(f"var and {state.name} do not have the same shape{format_raw(shape)} {format_raw(array.shape)}")
    if not shape:
        refuse("var must be at least 1 dimensional")
    if indices.ndim != 1:
        refuse("indices must be one-dimensional")
    if grad.ndim != len(shape):
        refuse(f"var and grad must have the same rank: {len(shape)} and {grad.ndim}")
    for axis in range(1, len(shape)):
        if shape[axis] != grad.shape[axis]:
            refuse(f"var and grad must match in dimension {axis}")
    if grad.shape[0] != indices.size:
        refuse("grad must be the same size as indices in the first dimension.")
    if indices.size and (indices.min() < 0 or indices.max() >= shape[0]):
        offset = int(np.flatnonzero((indices < 0) | (indices >= shape[0]))[0])
        refuse(f"Index {indices[offset]} at offset {offset} in indices is out of range")
