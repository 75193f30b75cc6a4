"""``tf.Assert``: an operation that fails unless a condition holds."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_n_to_tensor, convert_to_tensor
from tfmini.graph.families import Operation, name_scope
from tfmini.ops.control import no_op
from tfmini.ops.debugging.logging_ops import assert_op
from tfmini.ops.flow.cond import cond

_CHEAP = (dtypes.string, dtypes.int32)


@export("tf.Assert", "tf.debugging.Assert")
def Assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> Operation:
    """An operation that fails with ``data`` when ``condition`` is false (``tf.Assert``).

    ``data`` is computed and sent to the device of the check only when the check fails. Strings and
    int32 tensors are assumed to be small, and are sent always.

    Args:
      condition: a scalar bool.
      data: a list of tensors for the error message.
      summarize: the number of elements shown of each, default 3.
      name: of the name scope.

    Raises:
      TypeError: when ``data`` is not a list. A false condition raises `InvalidArgumentError` in the step.
    """
    if not isinstance(data, (list, tuple)):
        raise TypeError("values must be a sequence.")
    limit = 3 if summarize is None else summarize
    with name_scope(name, "Assert", [condition, *data]):
        values = convert_n_to_tensor(data)
        if all(value.dtype.base_dtype in _CHEAP for value in values):
            return assert_op(condition, values, summarize=limit, name="Assert")
        condition = convert_to_tensor(condition, name="Condition")

        def fail_if_false() -> Operation:
            return assert_op(condition, data, summarize=limit, name="Assert")

        return cond(condition, no_op, fail_if_false, name="AssertGuard").op  # type: ignore[no-any-return]
