"""Ops of optional values: one variant tensor holds an element or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.dataset_ops import TYPES, element_shapes
from tfmini.data.iterator_ops import IteratorState
from tfmini.graph.registry import OpHandle, all_of, op
from tfmini.graph.waiting import Wait
from tfmini.ops.array.kernel_arguments import check_components

from_value_op = op(
    "OptionalFromValue(components: Toutput_types) -> optional: variant; Toutput_types: list(type) >= 1", shape=[()]
)
from_value_op.kernel("CPU")(lambda components: OptionalValue(tuple(components)))
none_op = op("OptionalNone() -> optional: variant", shape=[()])
none_op.kernel("CPU")(lambda: OptionalValue(None))
has_value_op = op("OptionalHasValue(optional: variant) -> has_value: bool", shape=[()])
has_value_op.kernel("CPU")(lambda optional: np.bool_(optional.components is not None))
get_value_op: OpHandle[Any] = op(
    f"OptionalGetValue(optional: variant) -> components: output_types; {TYPES}", shape=element_shapes
)
get_next_as_optional_op = op(
    f"IteratorGetNextAsOptional(iterator: resource) -> optional: variant; {TYPES}", stateful=True, shape=[()]
)
all_of(from_value_op, none_op, has_value_op, get_value_op, get_next_as_optional_op).not_differentiable()


@dataclass(frozen=True)
class OptionalValue:
    """An element's components, or None if there is no value."""

    components: tuple[Any, ...] | None


@get_value_op.kernel("CPU")
def _get_value(optional: OptionalValue, *, output_types: Any, output_shapes: Any) -> tuple[Any, ...]:
    if optional.components is None:
        text = "The given optional does not have a value."
        raise errors.InvalidArgumentError.of(text)
    check_components(optional.components, output_types, output_shapes)
    return optional.components


class _OptionalWait:
    """A wait that gets an optional: the end of the dataset becomes one without a value."""

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self.step = wait.step
        self.on_cancel = wait.on_cancel

    def done(self, result: Any = None) -> bool:
        return self._wait.done(OptionalValue(tuple(result)))

    def fail(self, error: errors.OpError) -> bool:
        if isinstance(error, errors.OutOfRangeError):
            return self._wait.done(OptionalValue(None))
        return self._wait.fail(error)


@get_next_as_optional_op.async_kernel("CPU")
def _get_next_as_optional(wait: Wait, iterator: IteratorState) -> None:
    iterator.ask(_OptionalWait(wait))
