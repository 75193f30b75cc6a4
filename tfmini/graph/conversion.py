"""Conversion of Python values to tensors: ``tf.convert_to_tensor`` with its registry, and `IndexedSlices`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.operation import Operation, Tensor
from tfmini.shapes import TensorShape

ConversionFunction = Callable[..., Any]
# (type, function, priority), lowest number first. The first function that does not return NotImplemented converts.
_registry: list[tuple[Any, ConversionFunction, int]] = []
_by_type: dict[type, list[ConversionFunction]] = {}


@export("tf.register_tensor_conversion_function")
def register_tensor_conversion_function(
    base_type: Any, conversion_func: ConversionFunction, priority: int = 100
) -> None:
    """Registers how instances of a type become tensors (``tf.register_tensor_conversion_function``).

    Args:
      base_type: a type or tuple of types.
      conversion_func: ``f(value, dtype=None, name=None, as_ref=False)`` -> Tensor or NotImplemented.
      priority: lower numbers are asked first.

    Raises:
      TypeError: ``base_type`` is no type, or ``conversion_func`` is not callable.
    """
    types = base_type if isinstance(base_type, tuple) else (base_type,)
    if not all(isinstance(t, type) for t in types):
        raise TypeError("base_type must be a type or a tuple of types.")
    if not callable(conversion_func):
        raise TypeError("conversion_func must be callable.")
    _registry.append((base_type, conversion_func, priority))
    _registry.sort(key=lambda entry: entry[2])
    _by_type.clear()


def _functions_for(kind: type) -> list[ConversionFunction]:
    found = _by_type.get(kind)
    if found is None:
        found = _by_type[kind] = [function for base, function, _ in _registry if issubclass(kind, base)]
    return found


def is_convertible(value: Any) -> bool:
    """Whether a value is no Python or NumPy value, but of a type (other than ``object``) with a conversion function."""
    if hasattr(value, "__index__") or isinstance(value, (list, tuple, str, bytes, float)):
        return False
    return any(base is not object and isinstance(value, base) for base, _, _ in _registry)


@export("tf.convert_to_tensor")
def convert_to_tensor(
    value: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None, dtype_hint: Any = None
) -> Tensor:
    """Converts ``value`` to a `Tensor` (``tf.convert_to_tensor``).

    Args:
      value: a tensor, variable, numpy array, Python number, string, or nest of lists of those.
      dtype: the type it must have.
      name: the name of the constant, if one is made.
      preferred_dtype: with ``dtype`` None, the type to try first.

    Raises:
      TypeError: the value cannot be converted to a tensor of that type.
      ValueError: ``value`` is a tensor of another type.
    """
    return internal_convert(value, dtype, name, preferred_dtype if preferred_dtype is not None else dtype_hint)


def internal_convert(
    value: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None, as_ref: bool = False
) -> Tensor:
    """Does the same as `convert_to_tensor`; with ``as_ref``, a reference variable gives its reference."""
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    if isinstance(value, Tensor):
        if dtype is not None and not dtype.is_compatible_with(value.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {dtype.name} for Tensor with dtype {value.dtype.name}: {value!r}"
            )
        return value
    for function in _functions_for(type(value)):
        result = NotImplemented
        if dtype is None and preferred_dtype is not None:
            try:
                result = function(value, dtype=dtypes.as_dtype(preferred_dtype), name=name, as_ref=as_ref)
            except (TypeError, ValueError):
                result = NotImplemented
        if result is NotImplemented:
            result = function(value, dtype=dtype, name=name, as_ref=as_ref)
        if result is NotImplemented:
            continue
        if dtype is not None and not dtype.is_compatible_with(result.dtype):
            raise RuntimeError(f"{_label(name)}Conversion function {function!r} returned {result!r}, not {dtype.name}.")
        return result  # type: ignore[no-any-return]
    raise TypeError(
        f"{_label(name)}Cannot convert {value!r} with type {type(value)} to Tensor: no conversion function registered."
    )


def _label(name: str | None) -> str:
    return f"{name}: " if name else ""


def convert_n_to_tensor(values: Any, dtype: Any = None, name: str | None = None) -> list[Tensor]:
    """Converts each value with `convert_to_tensor`; the names get a numeric suffix."""
    return [internal_convert(value, dtype, None if name is None else f"{name}_{i}") for i, value in enumerate(values)]


@export("tf.IndexedSlices")
class IndexedSlices:
    """Some rows of a larger tensor: ``dense[indices[i], ...] = values[i, ...]`` (``tf.IndexedSlices``).

    Args:
      values: a tensor of shape [n, ...].
      indices: a 1-D integer tensor of n row numbers, which may repeat (their rows then add up).
      dense_shape: a 1-D integer tensor with the full shape, or None.
    """

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor | None = None) -> None:
        self._values, self._indices, self._dense_shape = values, indices, dense_shape

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def dense_shape(self) -> Tensor | None:
        return self._dense_shape

    @property
    def shape(self) -> TensorShape:
        """The static dense shape as far as it is known. ``values`` gives the size of a row."""
        raw = self._values.raw_shape
        return TensorShape.from_raw(None if raw is None else (None, *raw[1:]))

    @property
    def name(self) -> str:
        return self._values.name

    @property
    def device(self) -> str:
        return self._values.device

    @property
    def op(self) -> Operation:
        return self._values.op

    @property
    def dtype(self) -> dtypes.DType:
        return self._values.dtype

    @property
    def graph(self) -> Any:
        return self._values.graph

    def consumers(self) -> list[Operation]:
        return self._values.consumers()

    @property
    def _parent_op(self) -> Operation:
        return self._values.op  # for which control dependencies on the slices wait

    def _fetch_parts(self) -> tuple[list[Tensor], Callable[[list[Any]], IndexedSlicesValue]]:
        parts = [self._values, self._indices, *([] if self._dense_shape is None else [self._dense_shape])]
        return parts, lambda values: IndexedSlicesValue(*values, *[None] * (3 - len(values)))

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self._values, self._indices, self._dense_shape)

    def __str__(self) -> str:
        shape = f", dense_shape={self._dense_shape}" if self._dense_shape is not None else ""
        return f"IndexedSlices(indices={self._indices}, values={self._values}{shape})"


class IndexedSlicesValue(NamedTuple):
    """The value of a fetched `IndexedSlices`."""

    values: Any
    indices: Any
    dense_shape: Any


@export("tf.SparseTensorValue")
class SparseTensorValue(NamedTuple):
    """The value of a sparse tensor: three arrays (``tf.SparseTensorValue``)."""

    indices: Any
    values: Any
    dense_shape: Any


class SparseComponents:
    """The three tensors of a ``tf.SparseTensor``, which is this class with conversions and a shape (`ops.sparse`)."""

    def __init__(self, indices: Tensor, values: Tensor, dense_shape: Tensor) -> None:
        self._indices, self._values, self._dense_shape = indices, values, dense_shape

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def dense_shape(self) -> Tensor:
        return self._dense_shape

    @property
    def dtype(self) -> dtypes.DType:
        return self._values.dtype

    @property
    def op(self) -> Operation:
        """The operation that computes the values."""
        return self._values.op

    @property
    def name(self) -> str:
        return self._values.name

    @property
    def graph(self) -> Any:
        return self._indices.graph

    def _fetch_parts(self) -> tuple[list[Tensor], Callable[[list[Any]], SparseTensorValue]]:
        return [self._indices, self._values, self._dense_shape], lambda values: SparseTensorValue(*values)

    def __repr__(self) -> str:
        return f"SparseTensor(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"


@export("tf.convert_to_tensor_or_indexed_slices")
def convert_to_tensor_or_indexed_slices(
    value: Any, dtype: Any = None, name: str | None = None, as_ref: bool = False
) -> Any:
    """Converts ``value`` to a `Tensor`, unless it is an `IndexedSlices` or a sparse tensor.

    Raises:
      ValueError: it has another dtype than ``dtype``.
    """
    if isinstance(value, (Tensor, IndexedSlices, SparseComponents)):
        if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for Tensor with dtype"
                f" {value.dtype.name}: {value!s}"
            )
        return value
    return internal_convert(value, dtype, name, as_ref=as_ref)


def convert_n_to_tensor_or_indexed_slices(values: Any, dtype: Any = None, name: str | None = None) -> list[Any]:
    """Converts each value with `convert_to_tensor_or_indexed_slices`; None stays None."""
    return [
        None if v is None else convert_to_tensor_or_indexed_slices(v, dtype, None if name is None else f"{name}_{i}")
        for i, v in enumerate(values)
    ]


def is_dense_tensor_like(value: Any) -> bool:
    """Whether ``value`` is a tensor or an object with one value, such as a variable."""
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element") and hasattr(value, "dtype")
