"""Sparse tensors as values: ``tf.SparseTensor`` and ``tf.SparseTensorValue``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfmini import dtypes
from tfmini.core_types import AxisLike, DTypeLike, ShapeLike, TensorLike
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import (
    IndexedSlices,
    IndexedSlicesValue,
    SparseComponents,
    SparseTensorValue,
    convert_to_tensor,
)
from tfmini.graph.families import Operation, OpHandle, Tensor, name_scope
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.shape import broadcast_static_shape
from tfmini.shapes import TensorShape, merge_dims, with_rank


@export("tf.SparseTensor", "tf.sparse.SparseTensor")
class SparseTensor(SparseComponents):
    """A tensor given by its nonzero elements (``tf.SparseTensor``).

    Args:
      indices: int64 [N, rank], in row-major order.
      values: [N].
      dense_shape: int64 [rank].

    Raises:
      ValueError: when the shapes contradict each other.
    """

    if TYPE_CHECKING:
        # The module `functions` defines the operators.
        def __mul__(self, other: TensorLike) -> Any: ...
        def __truediv__(self, other: TensorLike) -> Any: ...

    def __init__(self, indices: TensorLike, values: TensorLike, dense_shape: TensorLike) -> None:
        with name_scope(None, "SparseTensor", [indices, values, dense_shape]):
            super().__init__(
                convert_to_tensor(indices, name="indices", dtype=dtypes.int64),
                convert_to_tensor(values, name="values"),
                convert_to_tensor(dense_shape, name="dense_shape", dtype=dtypes.int64),
            )
        pairs = with_rank(self._indices.raw_shape, 2)
        merge_dims(pairs[0], with_rank(self._values.raw_shape, 1)[0])
        merge_dims(pairs[1], with_rank(self._dense_shape.raw_shape, 1)[0])

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """A sparse tensor of constants.

        Raises:
          TypeError: when it is neither a sparse tensor nor the value of one.
        """
        if not isinstance(sparse_tensor_value, (SparseTensor, SparseTensorValue)):
            raise TypeError(f"Neither a SparseTensor nor SparseTensorValue: {sparse_tensor_value}.")
        return cls(sparse_tensor_value.indices, sparse_tensor_value.values, sparse_tensor_value.dense_shape)

    @property
    def shape(self) -> TensorShape:
        """The static dense shape, as far as it is known."""
        return TensorShape.from_raw(constant_value_as_shape(self._dense_shape))

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self.shape

    def consumers(self) -> list[Operation]:
        """The ops that take one of the three tensors."""
        parts = self._indices, self._values, self._dense_shape
        return [*dict.fromkeys(op for part in parts for op in part.consumers())]

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: object = None) -> SparseTensorValue:
        """The value in ``session`` or the default session."""
        found = self.graph._session_hook("eval", [self._indices, self._values, self._dense_shape], feed_dict, session)
        return SparseTensorValue(*found)


SparseTensorLike: TypeAlias = SparseTensor | SparseTensorValue
"""What may stand for a sparse tensor."""


@export("tf.ragged.RaggedTensorValue")
class RaggedTensorValue:
    """The value of a ragged tensor (``tf.ragged.RaggedTensorValue``): ``values`` may be ragged themselves."""

    def __init__(self, values: Any, row_splits: Any) -> None:
        self.values = values
        self.row_splits = row_splits

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def ragged_rank(self) -> int:
        return self.values.ragged_rank + 1 if isinstance(self.values, RaggedTensorValue) else 1

    @property
    def flat_values(self) -> Any:
        return self.values.flat_values if isinstance(self.values, RaggedTensorValue) else self.values

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        inner = self.values.nested_row_splits if isinstance(self.values, RaggedTensorValue) else ()
        return (self.row_splits, *inner)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return (self.row_splits.shape[0] - 1, None, *self.values.shape[1:])

    def to_list(self) -> list[Any]:
        """Nested Python lists."""
        rows = self.values.to_list() if isinstance(self.values, RaggedTensorValue) else self.values.tolist()
        return [rows[low:high] for low, high in zip(self.row_splits, self.row_splits[1:])]

    def __repr__(self) -> str:
        return f"tf.RaggedTensorValue(values={self.values!r}, row_splits={self.row_splits!r})"


class Reducible:
    """A value that consists of tensors and reduces itself: a ragged tensor."""

    def reduced(self, handle: OpHandle, axis: AxisLike | None, keep: bool, name: str | None) -> Any:
        """Reduces it by the op ``handle``; the arguments are those of `reduce` in `ops/math/reductions.py`."""
        raise NotImplementedError


def on_values(function: Callable[..., Tensor], sparse: SparseTensor, name: str | None) -> SparseTensor:
    """Applies ``function`` to the values of a sparse tensor."""
    return SparseTensor(sparse.indices, function(sparse.values, name=name), sparse.dense_shape)


@export("tf.convert_to_tensor_or_sparse_tensor", "tf.contrib.framework.convert_to_tensor_or_sparse_tensor")
def convert_to_tensor_or_sparse_tensor(value: Any, dtype: DTypeLike | None = None, name: str | None = None) -> Any:
    """A `SparseTensor` unchanged or made from its value; any other value as a tensor.

    Raises:
      RuntimeError: when a sparse tensor has another type than ``dtype``.
    """
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        return convert_to_tensor(value, dtype=dtype, name=name)
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise RuntimeError(f"Sparse dtype: requested = {dtypes.as_dtype(dtype).name}, actual = {value.dtype.name}")
    return value


# ---- Static descriptions of values: `TensorSpec`, `SparseTensorSpec`, `IndexedSlicesSpec` --------------------------


@export("tf.TypeSpec", "tf.data.experimental.Structure")
class TypeSpec:
    """Base of the specs: immutable values, compared by their contents.

    Subclasses have ``value_type``, ``_component_specs``, ``_to_components``, ``_from_components`` and ``_serialize``:
    the arguments of its constructor, as nested tuples and dictionaries of numbers, arrays, shapes, types and specs.
    """

    value_type: type = object

    def _serialize(self) -> tuple[Any, ...]:
        raise NotImplementedError

    @classmethod
    def _deserialize(cls, serialization: tuple[Any, ...]) -> TypeSpec:
        return cls(*serialization)

    @property
    def _component_specs(self) -> Sequence[TensorSpec]:
        """The specs of a value's component tensors."""
        raise NotImplementedError

    def _to_components(self, value: Any) -> Any:
        """The tensors of a value, in the structure of `_component_specs`."""
        return [*_components(value)]

    def _from_components(self, components: Any) -> Any:
        """The value with such tensors."""
        raise NotImplementedError

    @property
    def _flat_tensor_specs(self) -> list[TensorSpec]:
        return nest.flatten(self._component_specs)

    def _to_tensor_list(self, value: Any) -> list[Tensor]:
        """The tensors of a value as a list."""
        return nest.flatten(self._to_components(value), expand_composites=True)

    def _from_tensor_list(self, tensor_list: list[Tensor]) -> Any:
        """The value with these tensors.

        Raises:
          ValueError: they are not compatible with `_flat_tensor_specs`.
        """
        specs = self._flat_tensor_specs
        if len(specs) != len(tensor_list):
            raise ValueError("Incompatible input: wrong number of tensors")
        for i, (spec, tensor) in enumerate(zip(specs, tensor_list)):
            if not spec.is_compatible_with(tensor):
                raise ValueError(f"Incompatible input: tensor {i} ({tensor}) is incompatible with {spec}")
        return self._from_components(nest.pack_sequence_as(self._component_specs, tensor_list))

    def is_compatible_with(self, spec_or_value: object) -> bool:
        """Whether this spec describes the given value, or could describe a value of the given spec."""
        spec = spec_or_value if isinstance(spec_or_value, TypeSpec) else type_spec_from_value(spec_or_value)
        return type(self) is type(spec) and _are_compatible(self._serialize(), spec._serialize())

    def most_specific_compatible_type(self, other: TypeSpec) -> TypeSpec:
        """The spec that describes the values of both; dimensions that differ are unknown.

        Raises:
          ValueError: they differ in more than shapes.
        """
        if type(self) is not type(other):
            raise ValueError(f"No TypeSpec is compatible with both {self} and {other}")
        return self._deserialize(_merged(self._serialize(), other._serialize()))

    def _key(self) -> tuple[Any, ...]:
        return _comparable(self._serialize())  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __reduce__(self) -> Any:
        return type(self)._deserialize, (self._serialize(),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._serialize()!r}"


def _comparable(part: Any) -> Any:
    """A part of a spec's serialization as a value that can be hashed and compared."""
    if isinstance(part, TensorShape):
        return TensorShape, part.raw
    if isinstance(part, np.ndarray):
        return np.ndarray, part.shape, *part.ravel().tolist()
    if isinstance(part, dict):
        return tuple((key, _comparable(part[key])) for key in sorted(part))
    return tuple(map(_comparable, part)) if isinstance(part, tuple) else part


def _are_compatible(one: Any, other: Any) -> bool:
    """Whether two serializations differ at most in what one of them leaves open."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, dict)):
        pairs = _pairs(one, other)
        return pairs is not None and all(_are_compatible(*pair) for pair in pairs)
    if isinstance(one, (TypeSpec, TensorShape, DType)):
        return bool(one.is_compatible_with(other))
    return bool(_comparable(one) == _comparable(other))


def _merged(one: Any, other: Any) -> Any:
    """The serialization of what both describe."""
    pairs = _pairs(one, other) if type(one) is type(other) and isinstance(one, (tuple, dict)) else None
    if pairs is not None:
        items = [_merged(*pair) for pair in pairs]
        return dict(zip(sorted(one), items)) if isinstance(one, dict) else tuple(items)
    if type(one) is type(other) and isinstance(one, TensorShape):
        return one.most_specific_compatible_shape(other)
    if type(one) is type(other) and isinstance(one, TypeSpec):
        return one.most_specific_compatible_type(other)
    if type(one) is not type(other) or _comparable(one) != _comparable(other):
        raise ValueError(f"Types are not compatible: {one!r} vs {other!r}")
    return one


def _pairs(one: Any, other: Any) -> list[tuple[Any, Any]] | None:
    """The corresponding items of two tuples or two dictionaries; None: their sizes or keys differ."""
    if isinstance(one, dict):
        return [(one[key], other[key]) for key in sorted(one)] if one.keys() == other.keys() else None
    return [*zip(one, other)] if len(one) == len(other) else None


_CONVERTERS: list[tuple[type, Callable[[Any], TypeSpec]]] = []


@export("tensorflow.python.framework.type_spec.register_type_spec_from_value_converter")
def register_type_spec_from_value_converter(
    type_object: type, converter_fn: Callable[[Any], TypeSpec], allow_subclass: bool = False
) -> None:
    """Says how `type_spec_from_value` makes specs of the values of a class; ``allow_subclass`` is always so here."""
    _CONVERTERS.append((type_object, converter_fn))


@export("tensorflow.python.framework.type_spec.type_spec_from_value")
def type_spec_from_value(value: Any) -> TypeSpec:
    """The spec of a value; that of a tensor is without its name.

    Raises:
      TypeError: there is none: it is of another kind, and cannot be converted to a tensor.
    """
    for kind, convert in reversed(_CONVERTERS):
        if isinstance(value, kind):
            spec: TypeSpec = convert(value)
            return spec
    try:
        tensor = convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Could not build a TypeSpec for {value!r} with type {type(value).__name__}") from error
    return TensorSpec(tensor.shape, tensor.dtype)


@export("tf.TensorSpec", "tf.contrib.framework.TensorSpec")
class TensorSpec(TypeSpec):
    """Shape, type and name of a tensor (``tf.TensorSpec``).

    Args:
      shape: a `TensorShape` or a value that converts to one; None for an unknown rank.
      dtype: of the elements.
      name: or None.
    """

    value_type = Tensor

    def __init__(
        self, shape: ShapeLike | TensorLike, dtype: DTypeLike = dtypes.float32, name: str | None = None
    ) -> None:
        self._shape = TensorShape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """The spec of a tensor; its name is the op's unless given."""
        return TensorSpec(tensor.shape, tensor.dtype, name or tensor.op.name)

    @classmethod
    def from_spec(cls, spec: TensorSpec, name: str | None = None) -> TensorSpec:
        """A copy, with another name if given."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """The name, or None."""
        return self._name

    @property
    def _shape_tuple(self) -> tuple[int | None, ...] | None:  # libraries that derive from it compare by it
        return None if self._shape.ndims is None else tuple(self._shape.as_list())

    @property
    def _component_specs(self) -> Any:
        return self

    @property
    def _flat_tensor_specs(self) -> list[TensorSpec]:
        return [self]

    def _to_components(self, value: Any) -> Any:
        return convert_to_tensor(value)

    def _from_components(self, components: Any) -> Any:
        return components

    def is_compatible_with(self, spec_or_tensor: object) -> bool:
        if not isinstance(spec_or_tensor, (TypeSpec, Tensor)):
            spec_or_tensor = convert_to_tensor(spec_or_tensor)
        if not isinstance(spec_or_tensor, (TensorSpec, Tensor)):
            return False
        is_same_type = self._dtype.is_compatible_with(spec_or_tensor.dtype)
        return is_same_type and self._shape.is_compatible_with(spec_or_tensor.shape)

    def most_specific_compatible_type(self, other: TypeSpec) -> TypeSpec:
        """As that of other specs; of two names that differ none is left."""
        if not isinstance(other, TensorSpec) or self._dtype is not other._dtype:
            raise ValueError(f"Types are not compatible: {self!r} vs {other!r}")
        shape = self._shape.most_specific_compatible_shape(other._shape)
        return TensorSpec(shape, self._dtype, self._name if self._name == other._name else None)

    def _batch(self, batch_size: int | None) -> TensorSpec:
        return TensorSpec(TensorShape([batch_size]).concatenate(self._shape), self._dtype)

    def _unbatch(self) -> TensorSpec:
        if self._shape.ndims == 0:
            raise ValueError("Unbatching a tensor is only supported for rank >= 1")
        return TensorSpec(self._shape[1:], self._dtype)

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._name

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r})"


@export("tensorflow.python.framework.tensor_spec.BoundedTensorSpec", "tf.contrib.framework.BoundedTensorSpec")
class BoundedTensorSpec(TensorSpec):
    """A `TensorSpec` with the least and the greatest value of the elements.

    Args:
      shape: see `TensorSpec`.
      dtype: of the elements, numeric.
      minimum: the least value: a number, or an array that broadcasts to ``shape``.
      maximum: the greatest value, likewise; inclusive.
      name: or None.

    Raises:
      ValueError: when a bound is None or does not broadcast to ``shape``.
    """

    __hash__ = None  # type: ignore[assignment]  # bounds that are close count as equal

    def __init__(
        self, shape: ShapeLike | TensorLike, dtype: DTypeLike, minimum: Any, maximum: Any, name: str | None = None
    ) -> None:
        super().__init__(shape, dtype, name)
        if minimum is None or maximum is None:
            raise ValueError(f"minimum and maximum must be provided; but saw '{minimum}' and '{maximum}'")
        self._minimum = self._bound("minimum", minimum)
        self._maximum = self._bound("maximum", maximum)

    def _bound(self, which: str, value: Any) -> np.ndarray:
        bound = np.array(value, dtype=self._dtype.as_numpy_dtype)
        try:
            broadcast_static_shape(TensorShape(bound.shape), self._shape)
        except ValueError as error:
            raise ValueError(f"{which} is not compatible with shape. Message: {error!r}.") from error
        bound.setflags(write=False)
        return bound

    @classmethod
    def from_spec(cls, spec: TensorSpec, name: str | None = None) -> BoundedTensorSpec:
        """A copy; a spec without bounds gets those of its dtype."""
        dtype = dtypes.as_dtype(spec.dtype)  # of specs of other libraries, NumPy's
        low, high = getattr(spec, "minimum", dtype.min), getattr(spec, "maximum", dtype.max)
        return cls(spec.shape, spec.dtype, low, high, name or spec.name)

    @property
    def minimum(self) -> np.ndarray:
        """The least value, read-only, of the spec's dtype."""
        return self._minimum

    @property
    def maximum(self) -> np.ndarray:
        """The greatest value, read-only, of the spec's dtype."""
        return self._maximum

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundedTensorSpec) or not super().__eq__(other):
            return False
        return np.allclose(self._minimum, other._minimum) and np.allclose(self._maximum, other._maximum)

    def _key(self) -> tuple[Any, ...]:
        return self._shape.raw, self._dtype, self._name

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._minimum, self._maximum, self._name

    def __repr__(self) -> str:
        bounds = f"minimum={self._minimum!r}, maximum={self._maximum!r}"
        return f"BoundedTensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r}, {bounds})"


@export("tf.SparseTensorSpec")
class SparseTensorSpec(TypeSpec):
    """Dense shape and type of a `SparseTensor` (``tf.SparseTensorSpec``)."""

    value_type = SparseTensor

    def __init__(self, shape: ShapeLike | TensorLike = None, dtype: DTypeLike = dtypes.float32) -> None:
        self._shape = TensorShape(shape)
        self._dtype = dtypes.as_dtype(dtype)

    @classmethod
    def from_value(cls, value: SparseTensorLike) -> SparseTensorSpec:
        """The spec of a sparse tensor or of its value."""
        if isinstance(value, SparseTensor):
            return cls(value.shape, value.dtype)
        if not isinstance(value, SparseTensorValue):
            raise TypeError("Expected SparseTensor or SparseTensorValue")
        return cls(value.dense_shape, value.values.dtype)

    @property
    def shape(self) -> TensorShape:
        """The static dense shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The type of the values."""
        return self._dtype

    @property
    def _component_specs(self) -> list[TensorSpec]:
        rank = self._shape.ndims
        return [
            TensorSpec([None, rank], dtypes.int64), TensorSpec([None], self._dtype), TensorSpec([rank], dtypes.int64),
        ]  # fmt: skip

    def _from_components(self, components: Any) -> Any:
        kind = SparseTensor if any(isinstance(part, Tensor) for part in components) else SparseTensorValue
        return kind(*components)

    def _batch(self, batch_size: int | None) -> SparseTensorSpec:
        return SparseTensorSpec(TensorShape([batch_size]).concatenate(self._shape), self._dtype)

    def _unbatch(self) -> SparseTensorSpec:
        if self._shape.ndims == 0:
            raise ValueError("Unbatching a tensor is only supported for rank >= 1")
        return SparseTensorSpec(self._shape[1:], self._dtype)

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype


@export("tf.IndexedSlicesSpec")
class IndexedSlicesSpec(TypeSpec):
    """Dense shape and types of an `IndexedSlices` (``tf.IndexedSlicesSpec``).

    Args:
      shape: the dense shape.
      dtype: of the values.
      indices_dtype: int32 or int64.
      dense_shape_dtype: int32 or int64, None where the value carries no dense shape.
      indices_shape: of the indices, one dimension; None for an unknown number.
    """

    value_type = IndexedSlices

    def __init__(
        self,
        shape: ShapeLike = None,
        dtype: DTypeLike = dtypes.float32,
        indices_dtype: DTypeLike = dtypes.int64,
        dense_shape_dtype: DTypeLike | None = None,
        indices_shape: ShapeLike = None,
    ) -> None:
        self._shape = TensorShape(shape)
        self._values_dtype = dtypes.as_dtype(dtype)
        self._indices_dtype = dtypes.as_dtype(indices_dtype)
        self._dense_shape_dtype = None if dense_shape_dtype is None else dtypes.as_dtype(dense_shape_dtype)
        self._indices_shape = TensorShape(indices_shape).with_rank(1)

    @classmethod
    def from_value(cls, value: Any) -> IndexedSlicesSpec:
        """The spec of an `IndexedSlices`."""
        given = value.dense_shape
        rest = TensorShape([None]).concatenate(value.values.shape[1:])
        shape = rest if given is None else rest.merge_with(constant_value_as_shape(given))
        return cls(
            shape, value.values.dtype, value.indices.dtype, None if given is None else given.dtype, value.indices.shape
        )

    @property
    def _component_specs(self) -> tuple[TensorSpec, ...]:
        rows, rest = self._indices_shape, self._shape[1:]
        specs = (
            TensorSpec(rows.concatenate(rest), self._values_dtype), TensorSpec(rows, self._indices_dtype),
        )  # fmt: skip
        if self._dense_shape_dtype is None:
            return specs
        return (*specs, TensorSpec([self._shape.ndims], self._dense_shape_dtype))

    def _to_components(self, value: IndexedSlices) -> tuple[Any, ...]:
        return _components(value)

    def _from_components(self, parts: tuple[Any, ...]) -> Any:
        kind = IndexedSlices if isinstance(parts[0], Tensor) else IndexedSlicesValue
        return kind(*parts, *[None] * (3 - len(parts)))

    def _serialize(self) -> tuple[Any, ...]:
        return (
            self._shape, self._values_dtype, self._indices_dtype, self._dense_shape_dtype, self._indices_shape,
        )  # fmt: skip


for _kind in (SparseTensorSpec, IndexedSlicesSpec):
    nest.register_composite(
        _kind, lambda spec: list(spec._component_specs), lambda like, parts: like._from_components(tuple(parts)),
        fits=lambda spec, other: type(other) is type(spec) or bool(spec.is_compatible_with(other)),
    )  # fmt: skip
register_type_spec_from_value_converter(Tensor, lambda tensor: TensorSpec(tensor.shape, tensor.dtype))
register_type_spec_from_value_converter(np.ndarray, lambda array: TensorSpec(array.shape, array.dtype))
register_type_spec_from_value_converter(SparseTensor, SparseTensorSpec.from_value)
register_type_spec_from_value_converter(SparseTensorValue, SparseTensorSpec.from_value)
register_type_spec_from_value_converter(IndexedSlices, IndexedSlicesSpec.from_value)


@export("tf.data.experimental.TensorStructure")
def tensor_structure(dtype: DTypeLike, shape: ShapeLike) -> TensorSpec:
    """`TensorSpec` with its arguments the other way round (``tf.data.experimental.TensorStructure``)."""
    return TensorSpec(shape, dtype)


@export("tf.data.experimental.SparseTensorStructure")
def sparse_tensor_structure(dtype: DTypeLike, shape: ShapeLike) -> SparseTensorSpec:
    """`SparseTensorSpec` with its arguments the other way round (``tf.data.experimental.SparseTensorStructure``)."""
    return SparseTensorSpec(shape, dtype)


def _components(value: Any) -> tuple[Any, ...]:
    if isinstance(value, SparseTensor):
        return value.indices, value.values, value.dense_shape
    if isinstance(value, IndexedSlices):
        return (value.values, value.indices) + (() if value.dense_shape is None else (value.dense_shape,))
    if hasattr(value, "nested_row_splits"):
        return value.flat_values, *value.nested_row_splits
    return (value,)
