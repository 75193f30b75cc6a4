"""``tf.Assert``: an operation that fails unless a condition holds."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.graph.conversion import convert_n_to_tensor, convert_to_tensor
from tfmini.graph.operation import Operation
from tfmini.ops.cond import cond
from tfmini.ops.control import no_op
from tfmini.ops.logging_ops import assert_op
from tfmini.ops.scoping import name_scope

_CHEAP = (dtypes.string, dtypes.int32)


def Assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> Operation:
    """An operation that fails with ``data`` when ``condition`` is false (``tf.Assert``).

    ``data`` is needed, and sent where the check runs, only when it fails; strings and int32
    tensors are taken to be small and at hand.

    Args:
      condition: a scalar bool.
      data: a list of tensors to show.
      summarize: how many elements of each, default 3.
      name: of the name scope.

    Raises:
      TypeError: when ``data`` is no list. `InvalidArgumentError` comes when it runs.
    """
    if not isinstance(data, (list, tuple)):
        raise TypeError("values must be a sequence.")
    limit = 3 if summarize is None else summarize
    with name_scope(name, "Assert", [condition, *data]):
        values = convert_n_to_tensor(data)
        if all(value.dtype.base_dtype in _CHEAP for value in values):
            return assert_op(condition, values, summarize=limit, name="Assert")  # type: ignore[no-any-return]
        condition = convert_to_tensor(condition, name="Condition")

        def fail_if_false() -> Operation:
            return assert_op(condition, data, summarize=limit, name="Assert")  # type: ignore[no-any-return]

        return cond(condition, no_op, fail_if_false, name="AssertGuard").op  # type: ignore[no-any-return]
