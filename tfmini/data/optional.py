"""``tf.data.experimental.Optional``: an element of a dataset, or none."""

from __future__ import annotations

from typing import Any

from tfmini.data.components import components_of, element_of
from tfmini.data.iterator import Iterator
from tfmini.data.optional_ops import from_value_op, get_next_as_optional_op, get_value_op, has_value_op, none_op
from tfmini.data.structure import Structure, normalize, structure_of
from tfmini.export import export
from tfmini.graph.operation import Tensor


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
        components = get_value_op(
            self._variant_tensor, output_types=structure.dtypes, output_shapes=structure.shapes, name=name
        )
        return element_of(structure, components)


@export("tf.contrib.data.get_next_as_optional", "tf.data.experimental.get_next_as_optional")
def get_next_as_optional(iterator: Iterator) -> Optional:
    """The next element of an iterator; without a value at the end of the dataset (``tf.data.experimental``)."""
    structure = iterator._structure
    resource = iterator._iterator_resource
    made = get_next_as_optional_op(resource, output_types=structure.dtypes, output_shapes=structure.shapes)
    return Optional(made, structure)
