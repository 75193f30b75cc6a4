"""The structure of a dataset's elements: a nested structure with a type and a static shape per leaf.

A leaf is a dense tensor, a sparse tensor or a dataset. Between the stages of a pipeline each leaf is
one value, its *component*: an array, a `SparseValue` or a `Source`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfmini import dtypes
from tfmini.graph import nest
from tfmini.graph.conversion import SparseTensorValue, convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.shapes import RawShape, TensorShape, as_raw


@dataclass(frozen=True)
class Leaf:
    """One leaf of an element.

    Attributes:
      kind: the class that the user sees: `Tensor`, `SparseTensor` or the dataset class.
      dtype: the type of the values; None for a dataset.
      shape: static shape of one element; a sparse tensor's dense shape.
      inner: the element structure of a dataset.
    """

    kind: type
    dtype: Any
    shape: RawShape
    inner: Structure | None = None

    @property
    def component_dtype(self) -> dtypes.DType:
        return self.dtype if self.kind is Tensor else dtypes.variant

    @property
    def component_shape(self) -> RawShape:
        return self.shape if self.kind is Tensor else ()


@dataclass(frozen=True)
class Structure:
    """The structure of an element: nested tuples and dictionaries whose leaves are `Leaf` objects."""

    skeleton: Any

    @property
    def leaves(self) -> list[Leaf]:
        return nest.flatten(self.skeleton)

    def is_scalar(self, dtype: dtypes.DType) -> bool:
        """Whether an element is a single scalar of ``dtype``, as far as its static shape tells."""
        leaf = self.skeleton
        return isinstance(leaf, Leaf) and leaf.dtype is dtype and leaf.shape in (None, ())

    @property
    def dtypes(self) -> list[dtypes.DType]:
        """Component types, one per leaf."""
        return [leaf.component_dtype for leaf in self.leaves]

    @property
    def shapes(self) -> list[RawShape]:
        """Component shapes, one per leaf."""
        return [leaf.component_shape for leaf in self.leaves]

    @property
    def attrs(self) -> dict[str, Any]:
        """The attrs of an op whose dataset or result has this structure."""
        return {"output_types": self.dtypes, "output_shapes": self.shapes}

    def pack(self, values: Sequence[Any]) -> Any:
        """Arranges values, one per leaf, in the structure of an element."""
        return nest.pack_sequence_as(self.skeleton, list(values))

    def map(self, function: Callable[[Leaf], Any]) -> Any:
        """``function`` of each leaf, in the structure of an element."""
        return self.pack([function(leaf) for leaf in self.leaves])

    def with_shapes(self, change: Callable[[RawShape], RawShape]) -> Structure:
        """The same structure with ``change`` applied to every static shape."""
        return Structure(self.map(lambda leaf: replace(leaf, shape=change(leaf.shape))))

    def batched(self, size: int | None) -> Structure:
        """The structure of a batch of ``size`` elements."""
        return self.with_shapes(lambda shape: None if shape is None else (size, *shape))

    def common(self, other: Structure) -> Structure:
        """The structure that describes elements of both: dimensions that differ become unknown."""
        mine, theirs = self.leaves, other.leaves
        return Structure(self.pack([replace(a, shape=common_shape(a.shape, b.shape)) for a, b in zip(mine, theirs)]))


def common_shape(a: RawShape, b: RawShape) -> RawShape:
    """The most specific shape that is compatible with both."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b))


def normalize(value: Any) -> Any:
    """Converts every leaf of a user's element to a tensor, sparse tensor or dataset; lists become tensors."""
    if isinstance(value, SparseTensor) or hasattr(value, "_variant_tensor"):
        return value
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if isinstance(value, (tuple, dict)):
        items = nest._items(value)
        return nest._like(value, [normalize(item) for item in items])
    return convert_to_tensor(value)


def structure_of(value: Any) -> Structure:
    """The structure of a normalized element."""
    return Structure(nest.map_structure(leaf_of, value))


def leaf_of(value: Any) -> Leaf:
    """The type and shape of a leaf of a normalized element."""
    if isinstance(value, SparseTensor):
        return Leaf(SparseTensor, value.dtype.base_dtype, value.get_shape().raw)
    inner = getattr(value, "_structure", None)
    if inner is not None:
        return Leaf(value._leaf_class, None, (), inner)
    return Leaf(Tensor, value.dtype.base_dtype, value.raw_shape)


def given_structure(output_types: Any, output_shapes: Any = None, output_classes: Any = None) -> Structure:
    """The structure that ``output_types``, ``output_shapes`` and ``output_classes`` describe; None is unknown."""
    if isinstance(output_types, (tuple, dict)):
        keys = sorted(output_types) if isinstance(output_types, dict) else range(len(output_types))
        items = [
            given_structure(output_types[key], _part(output_shapes, key), _part(output_classes, key)).skeleton
            for key in keys
        ]
        return Structure(nest._like(output_types, items))
    if isinstance(output_types, list):
        raise TypeError(f"output_types must be a DType or a tuple or dict of them, not the list {output_types}.")
    kind = output_classes or Tensor
    return Structure(Leaf(kind, dtypes.as_dtype(output_types).base_dtype, as_raw(output_shapes)))


def _part(structure: Any, key: Any) -> Any:
    return None if structure is None or isinstance(structure, type) else structure[key]


def shape_leaves(structure: Structure, shapes: Any) -> list[Any]:
    """Flattens shapes (or other leaves that may be lists) that are nested like an element."""

    def collect(skeleton: Any, given: Any) -> list[Any]:
        if isinstance(skeleton, Leaf):
            return [given]
        keys = sorted(skeleton) if isinstance(skeleton, dict) else range(len(skeleton))
        if isinstance(given, dict) != isinstance(skeleton, dict) or len(given) != len(skeleton):
            raise ValueError(f"The two structures don't have the same nested structure: {skeleton} and {given}.")
        return [leaf for key in keys for leaf in collect(skeleton[key], given[key])]

    return collect(structure.skeleton, shapes)


class Structured:
    """Base class of datasets and iterators: the properties that describe their elements."""

    _structure: Structure

    @property
    def output_types(self) -> Any:
        """The dtypes, in the structure of an element."""
        return self._structure.map(lambda leaf: leaf.dtype)

    @property
    def output_shapes(self) -> Any:
        """The static shapes, in the structure of an element."""
        return self._structure.map(lambda leaf: TensorShape.from_raw(leaf.shape))

    @property
    def output_classes(self) -> Any:
        """The classes of the leaves, in the structure of an element."""
        return self._structure.map(lambda leaf: leaf.kind)
