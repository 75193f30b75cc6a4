"""Updates of a variable and its slots by a dense gradient, for the optimizers' update ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.errors import InvalidArgumentError
from tfmini.numerics.update_rules import Rule, run_blockwise
from tfmini.ops.variables.state import VariableState, update_together
from tfmini.shapes import format_raw


def apply_dense(
    rule: Rule, states: Sequence[VariableState], grad: Any, hyper: Sequence[Any], grad_name: str = "grad"
) -> None:
    """Runs ``rule`` on a variable and its slots as one exclusive update.

    Raises:
      InvalidArgumentError: when the shapes differ.
      FailedPreconditionError: when one of them was never assigned.
    """

    def run(*arrays: Any) -> None:
        _check_shapes(arrays, grad, states, grad_name)
        run_blockwise(rule, arrays, grad, hyper)

    update_together(states, run)


def _check_shapes(arrays: tuple[Any, ...], grad: Any, states: Sequence[VariableState], grad_name: str) -> None:
    shape = arrays[0].shape
    if grad.shape != shape:
        raise _differ(grad_name, shape, grad.shape)
    for array, state in zip(arrays, states):
        if array.shape != shape:
            raise _differ(state.name, shape, array.shape)


def _differ(what: str, shape: tuple[int, ...], other: tuple[int, ...]) -> InvalidArgumentError:
    return InvalidArgumentError.of(f"var and {what} do not have the same shape{format_raw(shape)} {format_raw(other)}")
