"""``tf.data.experimental.Optional``: an element of a dataset, or none, in one variant tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.components import components_of, element_of
from tfmini.data.dataset_ops import TYPES, element_shapes
from tfmini.data.iterator import Iterator
from tfmini.data.iterator_ops import IteratorState
from tfmini.data.structure import Structure, normalize, structure_of
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.registry import OpHandle, op
from tfmini.graph.waiting import Wait
from tfmini.ops.array.kernel_arguments import check_components

from_value_op = op(
    "OptionalFromValue(components: Toutput_types) -> optional: variant; Toutput_types: list(type) >= 1", shape=[()]
)
none_op = op("OptionalNone() -> optional: variant", shape=[()])
has_value_op = op("OptionalHasValue(optional: variant) -> has_value: bool", shape=[()])
get_value_op: OpHandle[Any] = op(
    f"OptionalGetValue(optional: variant) -> components: output_types; {TYPES}", shape=element_shapes
)
get_next_as_optional_op = op(
    f"IteratorGetNextAsOptional(iterator: resource) -> optional: variant; {TYPES}", stateful=True, shape=[()]
)
for _handle in (from_value_op, none_op, has_value_op, get_value_op, get_next_as_optional_op):
    _handle.not_differentiable()


@dataclass(frozen=True)
class OptionalValue:
    """An element's components, or None if there is no value."""

    components: tuple[Any, ...] | None


@from_value_op.kernel("CPU")
def _from_value(components: list[Any]) -> OptionalValue:
    return OptionalValue(tuple(components))


@none_op.kernel("CPU")
def _none() -> OptionalValue:
    return OptionalValue(None)


@has_value_op.kernel("CPU")
def _has_value(optional: OptionalValue) -> Any:
    return np.bool_(optional.components is not None)


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


@export("tf.contrib.data.Optional", "tf.data.experimental.Optional")
class Optional:
    """A value that may be absent; made by `from_value`, `none_from_structure` and `get_next_as_optional`.

    Args:
      variant_tensor: the variant scalar that holds the value.
      structure: the structure of the value.
    """

    def __init__(self, variant_tensor: Tensor, structure: Structure) -> None:
        self._variant_tensor = variant_tensor
        self._structure = structure

    @staticmethod
    def from_value(value: Any) -> Optional:
        """An optional with a value: a nested structure of tensors or of values that convert to tensors."""
        whole = normalize(value)
        return Optional(from_value_op(components_of(whole)), structure_of(whole))

    @staticmethod
    def none_from_structure(value_structure: Any) -> Optional:
        """An optional without a value; ``value_structure`` is that of another optional."""
        return Optional(none_op(), value_structure)

    @property
    def value_structure(self) -> Structure:
        """The structure of the value."""
        return self._structure

    def has_value(self, name: str | None = None) -> Tensor:
        """Whether there is a value, a scalar bool."""
        return has_value_op(self._variant_tensor, name=name)

    def get_value(self, name: str | None = None) -> Any:
        """The value; running it raises `InvalidArgumentError` if there is none."""
        structure = self._structure
        return element_of(structure, get_value_op(self._variant_tensor, **structure.attrs, name=name))


@export("tf.contrib.data.get_next_as_optional", "tf.data.experimental.get_next_as_optional")
def get_next_as_optional(iterator: Iterator) -> Optional:
    """The next element of an iterator; without a value at the end of the dataset (``tf.data.experimental``)."""
    structure = iterator._structure
    return Optional(get_next_as_optional_op(iterator._iterator_resource, **structure.attrs), structure)
