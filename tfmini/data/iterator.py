"""``tf.data.Iterator``: one-shot, initializable, reinitializable and feedable iterators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import TensorLike
from tfmini.data.dataset_ops import TYPES, element_shapes
from tfmini.data.iterator_ops import (
    IteratorState,
    from_string_op,
    get_next_op,
    get_next_sync_op,
    iterator_op,
    make_iterator_op,
    one_shot_op,
    to_string_op,
)
from tfmini.data.pipeline import components_of, element_of
from tfmini.data.structure import (
    Leaf,
    Nested,
    ShapesLike,
    Structure,
    Structured,
    TypesLike,
    given_structure,
    normalize,
    spec_of,
    structure_of,
    structure_of_specs,
)
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.graph import nest, op_types
from tfmini.graph.families import Operation, OpHandle, Tensor, colocate_with, convert_to_tensor, op
from tfmini.graph.node import FunctionBody
from tfmini.graph.op_types import Wait
from tfmini.graph.prune import traverse
from tfmini.graph.scoping import add_to_collection, count_ops
from tfmini.ops.array.kernel_arguments import check_components
from tfmini.ops.composites import TensorSpec, TypeSpec, register_type_spec_from_value_converter
from tfmini.out_of_scope import Advising
from tfmini.shapes import RawShape, compatible_raw

GLOBAL_ITERATORS = "iterators"
"""The collection of the resource handles of all iterators (TensorFlow's name)."""


class IteratedSource(Structured):
    """A `Dataset` as its iterators see it."""

    _variant_tensor: Tensor

    def make_one_shot_iterator(self) -> Iterator:
        """Makes an iterator that reads the dataset once."""
        raise NotImplementedError

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """Makes an iterator that starts from the beginning whenever its ``initializer`` runs."""
        raise NotImplementedError


@export("tf.data.Iterator", "tf.contrib.data.Iterator")
class Iterator(Advising, Structured):
    """A position in a dataset (``tf.data.Iterator``); made by datasets and the static methods.

    Args:
      iterator_resource: the resource handle of the iterator's state.
      initializer: the op that starts the iterator from the beginning, or None.
      structure: the structure of the elements.
      waits: whether an element may take long, because it comes from a generator or another thread.
    """

    def __init__(
        self, iterator_resource: Tensor, initializer: Operation | None, structure: Structure, waits: bool = True
    ) -> None:
        self._iterator_resource = iterator_resource
        self._initializer = initializer
        self._structure = structure
        self._string_handle: Tensor | None = None
        add_to_collection(GLOBAL_ITERATORS, iterator_resource)
        # The synchronous op is many times cheaper than the asynchronous one, so pipelines that never wait use it.
        self._get_next_op = get_next_op if waits else get_next_sync_op

    @staticmethod
    def from_structure(
        output_types: TypesLike, output_shapes: ShapesLike | None = None, shared_name: str | None = None,
        output_classes: type | Nested | None = None,
    ) -> Iterator:  # fmt: skip
        """An iterator without a dataset; the ops of `make_initializer` start it on one dataset or another.

        Args:
          output_types: nested structure of the dtypes of an element.
          output_shapes: nested structure of static shapes; None for unknown ones.
          shared_name: the name under which sessions share the iterator.
          output_classes: nested structure of `Tensor` or `SparseTensor`.
        """
        structure = given_structure(output_types, output_shapes, output_classes)
        resource = _iterator(structure, shared_name)
        count_ops(1)
        return Iterator(resource, None, structure)

    @staticmethod
    def from_string_handle(
        string_handle: TensorLike, output_types: TypesLike, output_shapes: ShapesLike | None = None,
        output_classes: type | Nested | None = None,
    ) -> Iterator:  # fmt: skip
        """The iterator that a scalar string tensor names; each step can feed another name.

        Args:
          string_handle: the value of another iterator's `string_handle`.
          output_types, output_shapes, output_classes: as in `from_structure`.
        """
        structure = given_structure(output_types, output_shapes, output_classes)
        handle = convert_to_tensor(string_handle, dtype=dtypes.string)
        resource = from_string_op(handle, **structure.attrs)
        count_ops(1)
        return Iterator(resource, None, structure)

    @property
    def initializer(self) -> Operation:
        """The op that starts the iterator at the beginning of its dataset.

        Raises:
          ValueError: when the iterator has none.
        """
        if self._initializer is None:
            raise ValueError("Iterator does not have an initializer.")
        return self._initializer

    def make_initializer(self, dataset: IteratedSource, name: str | None = None) -> Operation:
        """An op that starts the iterator at the beginning of ``dataset``.

        Raises:
          TypeError: when the dataset's types, classes or shapes do not fit to the iterator's.
          ValueError: when its elements have another structure.
        """
        mine, theirs = self._structure, dataset._structure
        nest.assert_same_structure(mine.skeleton, theirs.skeleton)
        if self.output_types != dataset.output_types or self.output_classes != dataset.output_classes:
            raise TypeError(
                f"Expected output types {self.output_types!r} but got dataset with output types"
                f" {dataset.output_types!r}."
            )
        for a, b in zip(mine.leaves, theirs.leaves):
            if not compatible_raw(a.shape, b.shape):
                raise TypeError(
                    f"Expected output shapes compatible with {self.output_shapes!r} but got dataset with output"
                    f" shapes {dataset.output_shapes!r}."
                )
        with colocate_with(self._iterator_resource):
            return make_iterator_op(dataset._variant_tensor, self._iterator_resource, name=name)

    def get_next(self, name: str | None = None) -> Any:
        """Tensors in the structure of an element; each step that runs them gets the next element.

        Running them raises `OutOfRangeError` at the end of the dataset.
        """
        structure = self._structure
        components = self._get_next_op(self._iterator_resource, **structure.attrs, name=name or "IteratorGetNext")
        return element_of(structure, components)

    def string_handle(self, name: str | None = None) -> Tensor:
        """A scalar string that names the iterator for `from_string_handle`."""
        if name is not None:
            return to_string_op(self._iterator_resource, name=name)
        if self._string_handle is None:
            count_ops(-1)  # TensorFlow makes it with the iterator
            self._string_handle = to_string_op(self._iterator_resource)
        return self._string_handle


def _iterator(structure: Structure, shared_name: str | None) -> Tensor:
    return iterator_op(shared_name=shared_name or "", container="", **structure.attrs)


def initializable(dataset: IteratedSource, shared_name: str | None) -> Iterator:
    """An iterator of ``dataset`` with an initializer."""
    resource = _iterator(dataset._structure, shared_name)
    count_ops(4)  # what optimizes the dataset, and the handle as a string
    with colocate_with(resource):
        initializer = make_iterator_op(dataset._variant_tensor, resource)
    return Iterator(resource, initializer, dataset._structure, _may_wait(dataset._variant_tensor.op))


def one_shot(factory: FunctionBody, structure: Structure) -> Iterator:
    """An iterator of the dataset that ``factory`` makes at the iterator's first use."""
    resource = one_shot_op(dataset_factory=factory, **structure.attrs)
    count_ops(1)
    return Iterator(resource, None, structure, any(_node_may_wait(node.op, node.attrs) for node in factory.nodes))


def _node_may_wait(op_type: str, attrs: Mapping[str, Any]) -> bool:
    """Whether an op may wait, or one in the functions that it calls."""
    if op_types.may_wait(op_type):
        return True
    bodies = [value for value in attrs.values() if isinstance(value, FunctionBody)]
    return any(_node_may_wait(node.op, node.attrs) for body in bodies for node in body.nodes)


def _may_wait(operation: Operation) -> bool:
    """Whether an operation or one of its ancestors may wait: for a generator, another thread or a Python function."""
    ancestors = traverse([operation], lambda op: [tensor.op for tensor in op.inputs])
    return any(_node_may_wait(op.type, op.attrs) for op in ancestors)


@export("tf.data.make_one_shot_iterator")
def make_one_shot_iterator(dataset: IteratedSource) -> Iterator:
    """`Dataset.make_one_shot_iterator` (``tf.data.make_one_shot_iterator``)."""
    return dataset.make_one_shot_iterator()


@export("tf.data.make_initializable_iterator")
def make_initializable_iterator(dataset: IteratedSource, shared_name: str | None = None) -> Iterator:
    """`Dataset.make_initializable_iterator` (``tf.data.make_initializable_iterator``)."""
    return dataset.make_initializable_iterator(shared_name)


@export("tf.data.get_output_types", "tensorflow.python.data.ops.dataset_ops.get_legacy_output_types")
def get_output_types(dataset_or_iterator: Structured) -> Any:
    """``tf.data.get_output_types``."""
    return dataset_or_iterator.output_types


@export("tf.data.get_output_shapes", "tensorflow.python.data.ops.dataset_ops.get_legacy_output_shapes")
def get_output_shapes(dataset_or_iterator: Structured) -> Any:
    """``tf.data.get_output_shapes``."""
    return dataset_or_iterator.output_shapes


@export("tf.data.get_output_classes", "tensorflow.python.data.ops.dataset_ops.get_legacy_output_classes")
def get_output_classes(dataset_or_iterator: Structured) -> Any:
    """``tf.data.get_output_classes``."""
    return dataset_or_iterator.output_classes


# ---- ``tf.data.experimental.Optional``: an element of a dataset, or none, in one variant tensor --------------------

from_value_op = op(
    "OptionalFromValue(components: Toutput_types) -> optional: variant; Toutput_types: list(type) >= 1", shape=[()]
)
none_op = op("OptionalNone() -> optional: variant", shape=[()])
has_value_op = op("OptionalHasValue(optional: variant) -> has_value: bool", shape=[()])
get_value_op: OpHandle[Any] = op(
    f"OptionalGetValue(optional: variant) -> components: output_types; {TYPES}", shape=element_shapes
)
get_next_as_optional_op = op(
    f"IteratorGetNextAsOptional(iterator: resource) -> optional: variant; {TYPES}",
    stateful=True,
    iterates=True,
    shape=[()],
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
def _get_value(optional: OptionalValue, *, output_types: list[DType], output_shapes: list[RawShape]) -> tuple[Any, ...]:
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

    @property
    def _leaf_class(self) -> type:
        return Optional

    @classmethod
    def _of(cls, variant: Tensor, structure: Structure) -> Optional:
        return cls(variant, structure)

    @staticmethod
    def _spec(structure: Structure) -> OptionalSpec:
        return OptionalSpec(structure.map(spec_of))

    @staticmethod
    def from_value(value: TensorLike) -> Optional:
        """An optional with a value: a nested structure of tensors or of values that convert to tensors."""
        whole = normalize(value)
        return Optional(from_value_op(components_of(whole)), structure_of(whole))

    @staticmethod
    def none_from_structure(value_structure: Any) -> Optional:
        """An optional without a value; ``value_structure`` is that of another optional: nested specs."""
        return Optional(none_op(), structure_of_specs(value_structure))

    @property
    def value_structure(self) -> Any:
        """The specs of the value."""
        return self._structure.map(spec_of)

    def has_value(self, name: str | None = None) -> Tensor:
        """Whether there is a value, a scalar bool."""
        return has_value_op(self._variant_tensor, name=name)

    def get_value(self, name: str | None = None) -> Any:
        """The value; running it raises `InvalidArgumentError` if there is none."""
        structure = self._structure
        return element_of(structure, get_value_op(self._variant_tensor, **structure.attrs, name=name))


@export("tf.OptionalSpec", "tf.data.experimental.OptionalStructure")
class OptionalSpec(TypeSpec):
    """The specs of a value that may be absent (``tf.OptionalSpec``).

    Args:
      value_structure: nested specs of the value.
    """

    value_type = Optional

    def __init__(self, value_structure: Any) -> None:
        self._value_structure = value_structure

    @staticmethod
    def from_value(value: Optional) -> OptionalSpec:
        """The spec of an optional."""
        return OptionalSpec(value.value_structure)

    def _leaf(self) -> Leaf:
        return Leaf(Optional, None, (), structure_of_specs(self._value_structure))

    @property
    def _component_specs(self) -> list[TensorSpec]:
        return [TensorSpec((), dtypes.variant)]

    def _to_components(self, value: Optional) -> list[Tensor]:
        return [value._variant_tensor]

    def _from_components(self, components: Any) -> Optional:
        return Optional(components[0], structure_of_specs(self._value_structure))

    def _serialize(self) -> tuple[Any, ...]:
        return (self._value_structure,)


register_type_spec_from_value_converter(Optional, OptionalSpec.from_value)


@export("tf.contrib.data.get_next_as_optional", "tf.data.experimental.get_next_as_optional")
def get_next_as_optional(iterator: Iterator) -> Optional:
    """The next element of an iterator; without a value at the end of the dataset (``tf.data.experimental``)."""
    structure = iterator._structure
    return Optional(get_next_as_optional_op(iterator._iterator_resource, **structure.attrs), structure)
