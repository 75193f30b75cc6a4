"""Changes of element type: ``tf.cast``, ``tf.saturate_cast``, ``tf.bitcast``."""

from __future__ import annotations

import logging
from typing import Any, overload

import numpy as np

from tfmini import dtypes
from tfmini.errors import UnimplementedError
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, SparseComponents, convert_to_tensor
from tfmini.graph.families import Operation, Tensor, name_scope, op, same_shape
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.shapes import RawShape

_log = logging.getLogger("tensorflow")

_cast = op(
    "Cast(x: SrcT) -> y: DstT; SrcT: type; DstT: type; Truncate: bool = false",
    shape=same_shape, checks=True, forwards="elements",
)  # fmt: skip
_BITS = (
    "{bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16,"
    " complex64, complex128, qint8, quint8, qint16, quint16, qint32}"
)
_bitcast = op(f"Bitcast(input: T) -> output: type; T: {_BITS}; type: {_BITS}", forwards="elements")
_bitcast.not_differentiable()


@_cast.kernel_factory("CPU")
def _cast_kernel(node: Any) -> Any:
    source, target = node.attrs["SrcT"], node.attrs["DstT"]
    wanted = target.numpy
    if source is target:
        return lambda value: value
    if dtypes.string in (source, target):
        raise UnimplementedError.of(f"Cast {source.name} to {target.name} is not supported")
    if source.is_complex and not target.is_complex:
        return lambda value: value.real.astype(wanted)
    return lambda value: value.astype(wanted)


@_cast.gradient
def _cast_gradient(node: Operation, grad: Any) -> list[Any]:
    source, target = node.attrs["SrcT"], node.attrs["DstT"]
    if all(t.is_floating or t.is_complex for t in (source, target)):
        return [cast(grad, source)]
    return [None]


@_bitcast.shape
def _bitcast_shape(node: Operation) -> list[RawShape]:
    shape = node.inputs[0].raw_shape
    before, after = node.attrs["T"].size, node.attrs["type"].size
    if shape is None or before == after:
        return [shape]
    if before > after:
        return [(*shape, before // after)]
    if not shape or shape[-1] not in (None, after // before):
        raise ValueError(f"Cannot bitcast due to shape. {shape[-1] if shape else 1} does not match {after // before}")
    return [shape[:-1]]


@_bitcast.kernel_factory("CPU")
def _bitcast_kernel(node: Any) -> Any:
    before, after, wanted = node.attrs["T"].size, node.attrs["type"].size, node.attrs["type"].numpy

    def run(value: Any) -> Any:
        value = np.ascontiguousarray(value).reshape(np.shape(value))
        if before == after:
            return value.view(wanted)
        if before > after:
            return value[..., None].view(wanted)
        if not value.ndim or value.shape[-1] != after // before:
            refuse(
                f"Cannot bitcast from {node.attrs['T'].name} to {node.attrs['type'].name}: shape {list(value.shape)}"
            )
        return value.view(wanted)[..., 0]

    return run


# ---- public functions -------------------------------------------------------------------------


@overload
def cast(x: Tensor, dtype: Any, name: str | None = None) -> Tensor: ...
@overload
def cast(x: Any, dtype: Any, name: str | None = None) -> Any: ...
@export("tf.cast", "tf.dtypes.cast")
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """``x`` with another element type (``tf.cast``); sparse arguments stay sparse.

    A cast to integers drops the fraction; a cast from complex to real numbers drops the imaginary part.
    """
    wanted = dtypes.as_dtype(dtype).base_dtype
    if type(x) is not Tensor:
        if isinstance(x, IndexedSlices):
            return IndexedSlices(cast(x.values, wanted, name), x.indices, x.dense_shape)
        if isinstance(x, SparseComponents):
            return type(x)(x.indices, cast(x.values, wanted, name), x.dense_shape)
        with name_scope(name, "Cast") as scope:
            x = convert_to_tensor(x, name="x")
            name = scope
    source = x.dtype.base_dtype
    if source is wanted:
        return x
    if source.is_complex and not wanted.is_complex:
        _log.warning("Casting complex to real discards imaginary part.")
    return _cast(x, DstT=wanted, name=name)


@export("tf.saturate_cast", "tf.dtypes.saturate_cast")
def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """`cast` that clips values outside the range of ``dtype`` to its limits (``tf.saturate_cast``)."""
    with name_scope(name, "saturate_cast", [value]) as scope:
        value = convert_to_tensor(value, name="value")
        wanted, source = dtypes.as_dtype(dtype).base_dtype, value.dtype.base_dtype
        if source.min < wanted.min:
            value = raw_ops.Maximum(value, _limit_in(source, wanted.min))
        if source.max > wanted.max:
            value = raw_ops.Minimum(value, _limit_in(source, wanted.max))
        return cast(value, wanted, name=scope)  # type: ignore[no-any-return]


def _limit_in(source: dtypes.DType, limit: Any) -> Any:
    """``limit`` in the source type, rounded towards zero because a rounded-up maximum would overflow the cast."""
    rounded = np.asarray(limit).astype(source.numpy)
    if source.is_floating and abs(int(rounded)) > abs(int(limit)):
        rounded = np.nextafter(rounded, source.numpy.type(0))
    return as_ndarray(rounded)


@export("tf.bitcast")
def bitcast(input: Any, type: Any, name: str | None = None) -> Tensor:
    """The same bytes read as another type (``tf.bitcast``).

    A smaller type adds a last dimension; a larger type removes the last dimension.
    """
    return _bitcast(input, type=dtypes.as_dtype(type), name=name)


@export("tf.to_float")
def to_float(x: Any, name: str = "ToFloat") -> Any:
    """``tf.cast(x, tf.float32)``."""
    return cast(x, dtypes.float32, name)


@export("tf.to_double")
def to_double(x: Any, name: str = "ToDouble") -> Any:
    """``tf.cast(x, tf.float64)``."""
    return cast(x, dtypes.float64, name)


@export("tf.to_int32")
def to_int32(x: Any, name: str = "ToInt32") -> Any:
    """``tf.cast(x, tf.int32)``."""
    return cast(x, dtypes.int32, name)


@export("tf.to_int64")
def to_int64(x: Any, name: str = "ToInt64") -> Any:
    """``tf.cast(x, tf.int64)``."""
    return cast(x, dtypes.int64, name)


@export("tf.to_bfloat16")
def to_bfloat16(x: Any, name: str = "ToBFloat16") -> Any:
    """``tf.cast(x, tf.bfloat16)``."""
    return cast(x, dtypes.bfloat16, name)


@export("tf.to_complex64")
def to_complex64(x: Any, name: str = "ToComplex64") -> Any:
    """``tf.cast(x, tf.complex64)``."""
    return cast(x, dtypes.complex64, name)


@export("tf.to_complex128")
def to_complex128(x: Any, name: str = "ToComplex128") -> Any:
    """``tf.cast(x, tf.complex128)``."""
    return cast(x, dtypes.complex128, name)
