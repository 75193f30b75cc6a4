"""The structure of a dataset's elements: a nested structure with a type and a static shape per leaf.

A leaf is a dense tensor, a sparse tensor or a dataset. Between the stages of a pipeline each leaf is
one value, its *component*: an array, a `SparseValue` or a `Source`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import nest
from tfmini.graph.conversion import SparseTensorValue, convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.identity import cast
from tfmini.ops.composites import SparseTensor, SparseTensorLike, SparseTensorSpec, TensorSpec
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.ragged import RaggedTensor, RaggedTensorSpec, RaggedTensorValue
from tfmini.shapes import RawShape, TensorShape, as_raw

# What users give for an element, for its types and for its shapes: one, or a nested structure of them.
Nested: TypeAlias = tuple[Any, ...] | Mapping[str, Any]
ElementLike: TypeAlias = TensorLike | SparseTensorLike | Nested
TypesLike: TypeAlias = DTypeLike | Nested
ShapesLike: TypeAlias = ShapeLike | TensorLike | Nested


@dataclass(frozen=True)
class Leaf:
    """One leaf of an element.

    Attributes:
      kind: the class that the user sees: `Tensor`, `SparseTensor`, `TensorArray` or the dataset class.
      dtype: the type of the values; None for a dataset.
      shape: static shape of one element; a sparse tensor's dense shape, or that of all elements of a `TensorArray`.
      inner: the element structure of a dataset.
      ragged: of a ragged tensor, its ragged rank (0: a tensor, of which batches are ragged) and the type of its splits.
    """

    kind: type
    dtype: Any
    shape: RawShape
    inner: Structure | None = None
    ragged: tuple[int, dtypes.DType] | None = None

    @functools.cached_property
    def public_shape(self) -> TensorShape:
        """The shape as programs see it: one object, since unknown sizes are equal only to themselves."""
        return TensorShape.from_raw(self.shape)

    @property
    def component_dtype(self) -> dtypes.DType:
        return self.dtype if self.kind in (Tensor, TensorArray) else dtypes.variant

    @property
    def component_shape(self) -> RawShape:
        return self.shape if self.kind in (Tensor, TensorArray) else ()


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
        return self._nested(1).with_shapes(lambda shape: None if shape is None else (size, *shape))

    def rows(self) -> Structure:
        """The structure of the rows of a batch."""
        return self._nested(-1).with_shapes(lambda shape: None if shape is None else shape[1:])

    def _nested(self, by: int) -> Structure:
        def nested(leaf: Leaf) -> Leaf:
            return leaf if leaf.ragged is None else replace(leaf, ragged=(leaf.ragged[0] + by, leaf.ragged[1]))

        return Structure(self.map(nested))

    def common(self, other: Structure) -> Structure:
        """The structure that describes elements of both: dimensions that differ become unknown."""
        mine, theirs = self.leaves, other.leaves
        return Structure(self.pack([replace(a, shape=common_shape(a.shape, b.shape)) for a, b in zip(mine, theirs)]))


def common_shape(a: RawShape, b: RawShape) -> RawShape:
    """The most specific shape that is compatible with both."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b))


def normalize(value: object) -> Any:
    """Converts every leaf of a user's element to a tensor, sparse tensor or dataset; lists become tensors."""
    if isinstance(value, (SparseTensor, RaggedTensor, TensorArray)) or hasattr(value, "_variant_tensor"):
        return value
    if isinstance(value, RaggedTensorValue):
        return RaggedTensor.from_nested_row_splits(value.flat_values, value.nested_row_splits, validate=False)
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if isinstance(value, (tuple, dict)):
        items = nest._items(value)
        return nest._like(value, [normalize(item) for item in items])
    return convert_to_tensor(value)


def normalized_state(value: object) -> Any:
    """The first state of a scan or a reduction, normalized.

    Raises:
      TypeError: a leaf is a `TensorArray`: a write changes it, so that the function could not read the state before.
    """
    state = normalize(value)
    if any(isinstance(leaf, TensorArray) for leaf in nest.flatten(state)):
        raise TypeError("A TensorArray cannot be the state of a scan or of a reduction.")
    return state


def structure_of(value: object) -> Structure:
    """The structure of a normalized element."""
    return Structure(nest.map_structure(leaf_of, value))


def leaf_of(value: Any) -> Leaf:
    """The type and shape of a leaf of a normalized element."""
    if isinstance(value, SparseTensor):
        return Leaf(SparseTensor, value.dtype.base_dtype, value.get_shape().raw)
    if isinstance(value, RaggedTensor):
        ragged = value.ragged_rank, value.row_splits.dtype
        return Leaf(RaggedTensor, value.dtype.base_dtype, value.shape.raw, ragged=ragged)
    if isinstance(value, TensorArray):
        shape = value.element_shape.raw
        return Leaf(TensorArray, value.dtype, None if shape is None else (None, *shape))
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
    if isinstance(kind, RaggedTensorSpec):
        shape, dtype, *ragged = kind._serialize()
        return Structure(Leaf(RaggedTensor, dtype, shape.raw, ragged=tuple(ragged)))
    return Structure(Leaf(kind, dtypes.as_dtype(output_types).base_dtype, as_raw(output_shapes)))


def _part(structure: Any, key: object) -> Any:
    if structure is None or isinstance(structure, type):
        return None
    try:
        return structure[key]
    except (IndexError, KeyError, TypeError) as error:
        raise TypeError(f"{structure} is not nested as the types of an element are.") from error


def structure_of_specs(specs: Any) -> Structure:
    """The structure of elements with these specs, which are nested as an element.

    Raises:
      TypeError: one is no spec of a tensor, a sparse tensor or a ragged tensor.
    """
    return specs if isinstance(specs, Structure) else Structure(nest.map_structure(_leaf_of_spec, specs))


def _leaf_of_spec(spec: Any) -> Leaf:
    if isinstance(spec, RaggedTensorSpec):
        return given_structure(None, None, spec).skeleton  # type: ignore[no-any-return]
    if hasattr(spec, "_leaf"):
        return spec._leaf()  # type: ignore[no-any-return]
    if not isinstance(spec, (TensorSpec, SparseTensorSpec)):
        raise TypeError(f"Elements of a dataset cannot have the spec {spec}.")
    return Leaf(Tensor if isinstance(spec, TensorSpec) else SparseTensor, spec.dtype, spec.shape.raw)


def _class_of(leaf: Leaf) -> Any:
    return leaf.kind if leaf.ragged is None else spec_of(leaf)


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
        return self._structure.map(lambda leaf: leaf.public_shape)

    @property
    def output_classes(self) -> Any:
        """The classes of the leaves, in the structure of an element; of a ragged tensor its spec."""
        return self._structure.map(_class_of)

    @property
    def element_spec(self) -> Any:
        """The `TensorSpec` or `SparseTensorSpec` of each leaf, in the structure of an element.

        Raises:
          NotImplementedError: a leaf is a dataset.
        """
        return self._structure.map(spec_of)


def spec_of(leaf: Leaf) -> TensorSpec | SparseTensorSpec | RaggedTensorSpec:
    """The spec of a leaf; see `Structured.element_spec`."""
    if leaf.ragged is not None:
        return RaggedTensorSpec(TensorShape.from_raw(leaf.shape), leaf.dtype, *leaf.ragged)
    make = getattr(leaf.kind, "_spec", None)
    if make is not None:
        return make(leaf.inner)  # type: ignore[no-any-return]
    if leaf.kind not in (Tensor, SparseTensor):
        raise NotImplementedError("There is no spec of datasets in datasets; use output_types and output_shapes.")
    return (TensorSpec if leaf.kind is Tensor else SparseTensorSpec)(leaf.public_shape, leaf.dtype)


@export("tf.data.experimental.get_structure")
def get_structure(dataset_or_iterator: Structured) -> Any:
    """The specs of the elements of a dataset or an iterator, ``element_spec`` (``tf.data.experimental.get_structure``).

    Raises:
      TypeError: it is neither.
    """
    if not isinstance(dataset_or_iterator, Structured):
        raise TypeError(f"`dataset_or_iterator` must be a Dataset or Iterator, not {type(dataset_or_iterator)}.")
    return dataset_or_iterator.element_spec


# ---- ``data.util.structure``: what libraries ask about the specs of elements --------------------------------------


@export("tensorflow.python.data.util.structure.are_compatible")
def are_compatible(spec1: Any, spec2: Any) -> bool:
    """Whether two nested structures of specs have one form, and each spec fits its counterpart in both directions."""
    try:
        nest.assert_same_structure(spec1, spec2)
    except (TypeError, ValueError):
        return False
    pairs = zip(nest.flatten(spec1), nest.flatten(spec2))
    return all(a.is_compatible_with(b) and b.is_compatible_with(a) for a, b in pairs)


@export("tensorflow.python.data.util.structure.type_spec_from_value")
def type_spec_from_value(element: object, use_fallback: bool = True) -> Any:
    """The specs of an element, in its structure; of what can only be converted to a tensor with ``use_fallback``.

    Raises:
      TypeError: a leaf has no spec.
    """
    if isinstance(element, (tuple, dict)) and not isinstance(element, SparseTensorValue):
        return nest._like(element, [type_spec_from_value(item) for item in nest._items(element)])
    tensors = (Tensor, np.ndarray, SparseTensor, SparseTensorValue, RaggedTensor, RaggedTensorValue)
    if not use_fallback and not isinstance(element, tensors) and not hasattr(element, "_variant_tensor"):
        raise TypeError(f"Could not build a TypeSpec for {element!r} with type {type(element).__name__}")
    try:
        return structure_of(normalize(element)).map(spec_of)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(f"Could not build a TypeSpec for {element!r} with type {type(element).__name__}") from error


@export("tensorflow.python.data.util.structure.convert_legacy_structure")
def convert_legacy_structure(output_types: Any, output_shapes: Any, output_classes: Any) -> Any:
    """The specs that types, shapes and classes of elements stand for, which are nested alike.

    Raises:
      TypeError: they are not nested alike.
    """
    return given_structure(output_types, output_shapes, output_classes).map(spec_of)


@export("tensorflow.python.data.util.structure.get_flat_tensor_types")
def get_flat_tensor_types(element_spec: Any) -> list[dtypes.DType]:
    """The type of each component of elements with these specs: ``tf.variant`` unless it is a dense tensor."""
    return structure_of_specs(element_spec).dtypes


@export("tensorflow.python.data.util.structure.get_flat_tensor_shapes")
def get_flat_tensor_shapes(element_spec: Any) -> list[TensorShape]:
    """The static shape of each component of elements with these specs; unknown for sparse and ragged tensors."""
    leaves = structure_of_specs(element_spec).leaves
    whole = [leaf.kind is Tensor or leaf.inner is not None for leaf in leaves]
    return [TensorShape.from_raw(leaf.shape if known else None) for leaf, known in zip(leaves, whole)]


@export("tensorflow.python.data.util.structure.get_flat_tensor_specs")
def get_flat_tensor_specs(element_spec: Any) -> list[TensorSpec]:
    """A spec for each component of elements with these specs."""
    types, shapes = get_flat_tensor_types(element_spec), get_flat_tensor_shapes(element_spec)
    return [TensorSpec(shape, dtype) for shape, dtype in zip(shapes, types)]


@export("tensorflow.python.data.util.structure.normalize_element")
def normalize_element(element: object) -> Any:
    """An element with a tensor, a sparse or ragged tensor or a data set as each of its leaves."""
    with name_scope("normalize_element"):
        return normalize(element)


# ---- ``tf.data.Options``: hints for a pipeline; they are kept and merged, but change nothing -----------------------

AUTOTUNE = -1
"""Lets the runtime choose a buffer size or a number of parallel calls (``tf.data.experimental.AUTOTUNE``)."""


class OptionGroup:
    """Base class of groups of hints; one that was not set is None.

    ``kinds`` has the hints of the group. Another name is refused, so that a misspelt hint is noticed.
    """

    kinds: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).kinds:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return None

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).kinds.get(name)
        if kind is None:
            raise AttributeError(f"Cannot set the property {name} on {type(self).__name__}.")
        if not isinstance(value, kind):
            raise TypeError(f'Property "{name}" must be of type {kind}, got: {value!r} (type: {type(value)})')
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


def _kinds(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


@export("tf.data.experimental.MapVectorizationOptions")
class MapVectorizationOptions(OptionGroup):
    """Hints about functions of whole batches (``tf.data.experimental.MapVectorizationOptions``)."""

    kinds = _kinds(bool, "enabled use_choose_fastest")


@export("tf.data.experimental.OptimizationOptions")
class OptimizationOptions(OptionGroup):
    """Hints about rewriting pipelines (``tf.data.experimental.OptimizationOptions``)."""

    kinds = (
        _kinds(bool, "apply_default_optimizations autotune autotune_buffers filter_fusion hoist_random_uniform")
        | _kinds(bool, "filter_with_random_uniform_fusion map_and_batch_fusion map_and_filter_fusion map_fusion")
        | _kinds(bool, "map_parallelization noop_elimination parallel_batch shuffle_and_repeat_fusion")
        | _kinds(int, "autotune_algorithm autotune_cpu_budget")
        | _kinds(MapVectorizationOptions, "map_vectorization")
    )

    def __init__(self) -> None:
        self.map_vectorization = MapVectorizationOptions()


@export("tf.data.experimental.StatsOptions")
class StatsOptions(OptionGroup):
    """Which statistics to gather (``tf.data.experimental.StatsOptions``): none are."""

    kinds = _kinds(object, "aggregator") | _kinds(str, "prefix counter_prefix") | _kinds(bool, "latency_all_edges")


@export("tf.data.experimental.DistributeOptions")
class DistributeOptions(OptionGroup):
    """Hints for distribution strategies (``tf.data.experimental.DistributeOptions``)."""

    kinds = _kinds(bool, "auto_shard") | _kinds(int, "num_devices")


@export("tf.data.experimental.ThreadingOptions")
class ThreadingOptions(OptionGroup):
    """Hints about threads (``tf.data.experimental.ThreadingOptions``)."""

    kinds = _kinds(int, "max_intra_op_parallelism private_threadpool_size")


@export("tf.data.Options")
class Options(OptionGroup):
    """The hints of a dataset (``tf.data.Options``)."""

    kinds = (
        _kinds(bool, "experimental_deterministic experimental_slack")
        | _kinds(list, "experimental_stateful_whitelist")
        | _kinds(OptimizationOptions, "experimental_optimization")
        | _kinds(ThreadingOptions, "experimental_threading")
        | _kinds(StatsOptions, "experimental_stats")
        | _kinds(DistributeOptions, "experimental_distribute")
    )

    def __init__(self) -> None:
        self.experimental_optimization = OptimizationOptions()
        self.experimental_threading = ThreadingOptions()
        self.experimental_stats, self.experimental_distribute = StatsOptions(), DistributeOptions()

    def merge(self, options: Options) -> Options:
        """The hints of both.

        Raises:
          ValueError: when they contradict each other.
        """
        merged = Options()
        _merge(merged, self)
        _merge(merged, options)
        return merged


def _merge(into: OptionGroup, other: OptionGroup) -> None:
    for name, value in vars(other).items():
        here = getattr(into, name)
        if isinstance(value, OptionGroup):
            if here is None:
                here = type(value)()
                setattr(into, name, here)
            _merge(here, value)
        elif here is None:
            setattr(into, name, value)
        elif value is not None and here != value:
            raise ValueError(f"Cannot merge incompatible values {here} and {value} of option: {name}")


export_names("tf.contrib.data tf.data.experimental", "AUTOTUNE")


# ---- Conversion and checks of the arguments of dataset methods -----------------------------------------------------


def int64(value: TensorLike, name: str) -> Tensor:
    """A count as an int64 scalar.

    Raises:
      ValueError: it is no scalar.
    """
    tensor = value if isinstance(value, Tensor) else convert_to_tensor(value, dtype=dtypes.int64, name=name)
    if tensor.shape.ndims not in (None, 0):
        raise ValueError(f"Shape must be rank 0 but is rank {tensor.shape.ndims} for the argument {name}.")
    return cast(tensor, dtypes.int64) if tensor.dtype.base_dtype is dtypes.int32 else tensor


def boolean(value: TensorLike, name: str) -> Tensor:
    """A flag as a bool scalar."""
    return convert_to_tensor(value, dtype=dtypes.bool, name=name)


def static_batch(size: Tensor, drop_remainder: Tensor) -> int | None:
    """The size of every batch; None when it is not known statically or the last batch may be smaller."""
    known, drop = constant_value(size), constant_value(drop_remainder)
    return int(known) if known is not None and drop is not None and bool(drop) else None


def paddings(
    structure: Structure, padded_shapes: ShapesLike, padding_values: TensorLike | Nested | None,
) -> tuple[list[Tensor], list[Tensor], Structure]:  # fmt: skip
    """(padded shapes as int64 vectors, padding values, structure of a padded element).

    Raises:
      TypeError: when an element is not dense, or a padding value has another type than its leaf.
      ValueError: when the elements do not fit into the padded shapes, or a padding value is no scalar.
    """
    leaves = structure.leaves
    if any(leaf.kind is not Tensor for leaf in leaves):
        raise TypeError("Batching of padded sparse tensors is not currently supported")
    shapes = [_padded_shape(shape, leaf) for shape, leaf in zip(shape_leaves(structure, padded_shapes), leaves)]
    given = [None] * len(leaves) if padding_values is None else shape_leaves(structure, padding_values)
    values = [_padding_value(value, leaf) for value, leaf in zip(given, leaves)]
    padded = structure.pack([replace(leaf, shape=raw) for leaf, (_, raw) in zip(leaves, shapes)])
    return [tensor for tensor, _ in shapes], values, Structure(padded)


def _padded_shape(given: object, leaf: Leaf) -> tuple[Tensor, RawShape]:
    """A padded shape as an int64 vector (-1: the largest size in the batch) and as a static shape."""
    if isinstance(given, Tensor):
        if given.dtype.base_dtype is not dtypes.int64:
            raise TypeError(
                f"Padded shape {given} must be a 1-D tensor of tf.int64 values, but its element type was"
                f" {given.dtype.name}."
            )
        tensor = given
        raw: RawShape = _static_shape(tensor)
    else:
        items = given.tolist() if isinstance(given, np.ndarray) else given
        if isinstance(items, (list, tuple)):
            if any(isinstance(d, (list, tuple)) for d in items):
                shape = np.shape(items)
                text = f"Padded shape {given} must be a 1-D tensor of tf.int64 values, but its shape was {shape}."
                raise ValueError(text)
            items = [None if d is not None and not hasattr(d, "value") and d < 0 else d for d in items]
        raw = as_raw(items)
        if raw is None:
            raise ValueError(f"Padded shape {given} must have a known rank.")
        vector = np.array([-1 if d is None else d for d in raw], np.int64)
        tensor = constant(vector, name="padded_shape")
    if raw is not None and leaf.shape is not None:
        _check_padding(raw, leaf.shape)
    return tensor, raw


def _static_shape(tensor: Tensor) -> RawShape:
    try:
        return constant_value_as_shape(tensor)
    except ValueError:  # a size below -1, which a step refuses
        return None


def _check_padding(raw: tuple[int | None, ...], shape: tuple[int | None, ...]) -> None:
    pairs = list(zip(raw, shape))
    if len(raw) != len(shape) or any(a is not None and b is not None and a < b for a, b in pairs):
        raise ValueError(
            f"The padded shape {TensorShape.from_raw(raw)} is not compatible with the corresponding input component"
            f" shape {TensorShape.from_raw(shape)}."
        )


def _padding_value(value: object, leaf: Leaf) -> Tensor:
    if value is None:
        value = b"" if leaf.dtype is dtypes.string else np.zeros((), leaf.dtype.numpy)
        return constant(value, dtype=leaf.dtype)
    tensor = convert_to_tensor(value, name="padding_value")
    if tensor.shape.ndims not in (None, 0):
        raise ValueError("Padding value should be a scalar.")
    if tensor.dtype.base_dtype is not leaf.dtype:
        raise TypeError(f"Padding value tensor ({tensor}) does not match output type: {leaf.dtype!r}")
    return tensor


def check_first_dimensions(structure: Structure) -> None:
    """Raises ValueError for scalars and for first dimensions that differ statically."""
    first = None
    for leaf in structure.leaves:
        if leaf.shape is None:
            continue
        if not leaf.shape:
            raise ValueError("Unbatching a tensor is only supported for rank >= 1")
        if first is None:
            first = leaf.shape[0]
        elif leaf.shape[0] is not None and first != leaf.shape[0]:
            raise ValueError(f"Dimensions {first} and {leaf.shape[0]} are not compatible")


def same_types(before: Structure, after: Structure, function: str) -> Structure:
    """The structure of a state that a function updates; dimensions that change become unknown.

    Raises:
      TypeError: when types or structures differ.
    """
    nest.assert_same_structure(before.skeleton, after.skeleton)
    for a, b in zip(before.leaves, after.leaves):
        if a.dtype is not b.dtype or a.kind is not b.kind:
            raise TypeError(
                f"The element types for the new state must match the initial state. Expected {a.dtype!r}; got"
                f" {b.dtype!r} from `{function}`."
            )
    leaves = [replace(a, shape=common_shape(a.shape, b.shape)) for a, b in zip(before.leaves, after.leaves)]
    return Structure(before.pack(leaves))
