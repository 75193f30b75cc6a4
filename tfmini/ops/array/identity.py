"""Ops whose output is their input: identities, gradient stops and checks; and placeholders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, overload

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, ShapeLike, TensorLike
from tfmini.errors import UnimplementedError
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, SparseComponents, convert_to_tensor, is_dense_tensor_like
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    all_of,
    declared_shape,
    name_scope,
    op,
    same_shape,
    same_shapes,
)
from tfmini.graph.node import Node
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.shapes import RawShape, as_raw, compatible_raw, format_raw, merge_raw

identity_op = op("Identity(input: T) -> output: T; T: type", forwards="value")
_identity_n: OpHandle[Any] = op("IdentityN(input: T) -> output: T; T: list(type)", work="none")
_identity_n.kernel("CPU")(lambda values: tuple(values))
_identity_n.gradient(lambda node, *grads: list(grads))
_snapshot = op("Snapshot(input: T) -> output: T; T: type", forwards="value")
_stop_gradient = op("StopGradient(input: T) -> output: T; T: type", forwards="value", differentiable=False)
_prevent_gradient = op("PreventGradient(input: T) -> output: T; T: type; message: string = ''", forwards="value")
_guarantee_const = op("GuaranteeConst(input: T) -> output: T; T: type", stateful=True, forwards="value")
_check_numerics = op(
    "CheckNumerics(tensor: T) -> output: T; T: {bfloat16, half, float, double}; message: string",
    stateful=True, checks=True, forwards="value",
)  # fmt: skip
_ensure_shape = op("EnsureShape(input: T) -> output: T; shape: shape; T: type", checks=True, forwards="value")
_ensure_shape.shape(lambda node: [merge_raw(node.inputs[0].raw_shape, node.attrs["shape"])])
_placeholder = op(
    "Placeholder() -> output: dtype; dtype: type; shape: shape = unknown_rank",
    shape=declared_shape,
    placeholder=True,
    differentiable=False,
)
_placeholder_v2 = op(
    "PlaceholderV2() -> output: dtype; dtype: type; shape: shape",
    shape=declared_shape,
    placeholder=True,
    differentiable=False,
)
_with_default = op(
    "PlaceholderWithDefault(input: dtype) -> output: dtype; dtype: type; shape: shape", work="none", hands_on=True
)

_PASS_ON = (identity_op, _snapshot, _stop_gradient, _prevent_gradient, _guarantee_const, _check_numerics)


def _pass_on(value: object) -> Any:
    return value


def _pass_gradient(node: Operation, grad: Tensor | IndexedSlices) -> list[Any]:
    return [grad]


all_of(*_PASS_ON, _identity_n).shape(same_shapes)
for _handle in (identity_op, _snapshot, _stop_gradient, _prevent_gradient, _guarantee_const):
    _handle.kernel("CPU")(_pass_on)
    _handle.inline(lambda node: "{0}")
all_of(identity_op, _snapshot, _guarantee_const).gradient(_pass_gradient)


@_prevent_gradient.gradient
def _prevent_gradient_gradient(node: Operation, grad: Tensor) -> list[Any]:
    raise LookupError(
        f"Gradient explicitly disabled by op '{node.name}' (PreventGradient). Reason: {node.attrs['message']!r}"
    )


# ---- checks -----------------------------------------------------------------------------------


@_check_numerics.kernel("CPU")
def _check_numerics_kernel(value: Array, *, message: bytes) -> Any:
    # One reduction decides the usual case: a sum of finite numbers is finite unless it overflows.
    if not np.isfinite(np.sum(value)):
        has_nan, has_inf = bool(np.isnan(value).any()), bool(np.isinf(value).any())
        if has_nan or has_inf:
            found = " and ".join(w for w, present in (("Inf", has_inf), ("NaN", has_nan)) if present)
            refuse(f"{message.decode()} : Tensor had {found} values")
    return value


@_check_numerics.gradient
def _check_numerics_gradient(node: Operation, grad: Tensor) -> list[Any]:
    text = "Not a number (NaN) or infinity (Inf) values detected in gradient."
    return [_check_numerics(grad, message=text)]


@_ensure_shape.kernel("CPU")
def _ensure_shape_kernel(value: Array, *, shape: RawShape) -> Any:
    if not compatible_raw(value.shape, shape):
        refuse(f"Shape of tensor {format_raw(value.shape)} is not compatible with expected shape {format_raw(shape)}.")
    return value


_ensure_shape.gradient(_pass_gradient)


# ---- placeholders -----------------------------------------------------------------------------


@all_of(_placeholder, _placeholder_v2).kernel("CPU")
def _placeholder_kernel(*, node: Node) -> Any:
    dtype = dtypes.cpp_name(node.attrs["dtype"])
    text = f"You must feed a value for placeholder tensor '{node.name}' with dtype {dtype}"
    shape = node.attrs["shape"]
    if shape:
        text += f" and shape {format_raw(shape)}"
    refuse(text)


@_with_default.shape
def _with_default_shape(node: Operation) -> list[RawShape]:
    shape = node.attrs["shape"]
    merge_raw(node.inputs[0].raw_shape, shape)
    return [shape]


_with_default.kernel("CPU")(_pass_on)
_with_default.gradient(_pass_gradient)


# ---- Public functions of identities, checks and placeholders -------------------------------------------------------


@export("tf.identity")
def identity(input: TensorLike, name: str | None = None) -> Tensor:
    """A tensor with the same value and shape (``tf.identity``); for a variable, its current value.

    Args:
      input: a tensor of any type, or a variable.
      name: of the op.

    Returns:
      A tensor of the same dtype and shape, made by an op of its own.
    """
    return identity_op(input, name=name)


@export("tf.identity_n")
def identity_n(input: Iterable[TensorLike], name: str | None = None) -> list[Tensor]:
    """A list of tensors with the same values (``tf.identity_n``)."""
    result = _identity_n(input, name=name)
    return list(result)


@export("tf.stop_gradient")
def stop_gradient(input: TensorLike, name: str | None = None) -> Tensor:
    """The same value, which gradients treat as a constant (``tf.stop_gradient``)."""
    return _stop_gradient(input, name=name)


@export("tensorflow.python.ops.array_ops.prevent_gradient")
def prevent_gradient(input: TensorLike, message: str = "", name: str | None = None) -> Tensor:
    """The same value; ``tf.gradients`` through it raises LookupError with ``message``."""
    return _prevent_gradient(input, message=message, name=name)


@export("tf.guarantee_const")
def guarantee_const(input: TensorLike, name: str | None = None) -> Tensor:
    """The same value; the caller guarantees that it never changes (``tf.guarantee_const``)."""
    return _guarantee_const(input, name=name)


def snapshot(input: TensorLike, name: str | None = None) -> Tensor:
    """A copy of the value (``tf.raw_ops.Snapshot``)."""
    return _snapshot(input, name=name)


@export("tf.check_numerics", "tf.debugging.check_numerics")
def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Tensor:
    """The same value; the step fails with InvalidArgumentError when it holds NaN or Inf (``tf.check_numerics``)."""
    return _check_numerics(tensor, message=message, name=name)


@export("tf.ensure_shape")
def ensure_shape(x: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    """The same value; the step fails when its shape is not ``shape`` (``tf.ensure_shape``)."""
    return _ensure_shape(x, shape=as_raw(shape), name=name)


@export("tf.placeholder")
def placeholder(dtype: DTypeLike, shape: ShapeLike = None, name: str | None = None) -> Tensor:
    """A tensor that every step must feed (``tf.placeholder``).

    Args:
      dtype: the element type.
      shape: the static shape of the values to be fed; None: any.
      name: of the op.
    """
    return _placeholder(dtype=dtypes.as_dtype(dtype), shape=as_raw(shape), name=name)


@export("tf.placeholder_with_default")
def placeholder_with_default(input: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    """A tensor that passes on ``input`` unless it is fed (``tf.placeholder_with_default``).

    Raises:
      ValueError: when the default does not have that shape.
    """
    return _with_default(input, shape=as_raw(shape), name=name)


@export("tf.is_tensor", "tf.contrib.framework.is_tensor")
def is_tensor(x: object) -> bool:
    """Whether ``x`` is a tensor, a variable, or another tensor-like object (``tf.is_tensor``)."""
    return is_dense_tensor_like(x) or isinstance(x, (SparseComponents, IndexedSlices))


def as_tensor(value: TensorLike, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """`convert_to_tensor` that leaves tensors of any type as they are."""
    return value if type(value) is Tensor else convert_to_tensor(value, dtype, name)


# ---- Changes of element type: ``tf.cast``, ``tf.saturate_cast``, ``tf.bitcast`` ------------------------------------

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
def _cast_kernel(node: Node) -> Any:
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
def _cast_gradient(node: Operation, grad: Tensor) -> list[Any]:
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
def _bitcast_kernel(node: Node) -> Any:
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


# ---- Public functions of type changes ------------------------------------------------------------------------------


@overload
def cast(x: Tensor, dtype: DTypeLike, name: str | None = None) -> Tensor: ...
@overload
def cast(x: TensorLike, dtype: DTypeLike, name: str | None = None) -> Any: ...
@export("tf.cast", "tf.dtypes.cast")
def cast(x: Any, dtype: DTypeLike, name: str | None = None) -> Any:
    """``x`` with another element type (``tf.cast``); sparse and ragged arguments stay so.

    A cast to integers drops the fraction; a cast from complex to real numbers drops the imaginary part.

    Args:
      x: a tensor, a `SparseTensor`, `IndexedSlices` or `RaggedTensor`, of any numeric type or bool.
      dtype: the numeric type or bool to convert to.
      name: of the op.

    Returns:
      ``x`` of the type ``dtype``, with the same shape; ``x`` itself if it has that type.
    """
    wanted = dtypes.as_dtype(dtype).base_dtype
    if type(x) is not Tensor:
        if isinstance(x, IndexedSlices):
            return IndexedSlices(cast(x.values, wanted, name), x.indices, x.dense_shape)
        if isinstance(x, SparseComponents):
            return type(x)(x.indices, cast(x.values, wanted, name), x.dense_shape)
        if hasattr(x, "with_flat_values"):  # ragged
            return x.with_flat_values(cast(x.flat_values, wanted, name))
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
def saturate_cast(value: TensorLike, dtype: DTypeLike, name: str | None = None) -> Tensor:
    """`cast` that clips values outside the range of ``dtype`` to its limits (``tf.saturate_cast``)."""
    with name_scope(name, "saturate_cast", [value]) as scope:
        value = convert_to_tensor(value, name="value")
        wanted, source = dtypes.as_dtype(dtype).base_dtype, value.dtype.base_dtype
        if source.min < wanted.min:
            value = raw_ops.Maximum(value, _limit_in(source, wanted.min))
        if source.max > wanted.max:
            value = raw_ops.Minimum(value, _limit_in(source, wanted.max))
        return cast(value, wanted, name=scope)


def _limit_in(source: dtypes.DType, limit: float) -> Any:
    """``limit`` in the source type, rounded towards zero because a rounded-up maximum would overflow the cast."""
    rounded = np.asarray(limit).astype(source.numpy)
    if source.is_floating and abs(int(rounded)) > abs(int(limit)):
        rounded = np.nextafter(rounded, source.numpy.type(0))
    return as_ndarray(rounded)


@export("tf.bitcast")
def bitcast(input: TensorLike, type: DTypeLike, name: str | None = None) -> Tensor:
    """The same bytes read as another type (``tf.bitcast``).

    A smaller type adds a last dimension; a larger type removes the last dimension.
    """
    return _bitcast(input, type=dtypes.as_dtype(type), name=name)


def _to(function_name: str, dtype: dtypes.DType, default: str) -> Callable[..., Any]:
    def function(x: TensorLike, name: str = default) -> Any:
        return cast(x, dtype, name)

    function.__name__ = function.__qualname__ = function_name
    function.__doc__ = f"``tf.cast(x, tf.{dtype.name})``."
    return function


to_float = _to("to_float", dtypes.float32, "ToFloat")
to_double = _to("to_double", dtypes.float64, "ToDouble")
to_int32 = _to("to_int32", dtypes.int32, "ToInt32")
to_int64 = _to("to_int64", dtypes.int64, "ToInt64")
to_bfloat16 = _to("to_bfloat16", dtypes.bfloat16, "ToBFloat16")
to_complex64 = _to("to_complex64", dtypes.complex64, "ToComplex64")
to_complex128 = _to("to_complex128", dtypes.complex128, "ToComplex128")
export_names("tf", "to_float to_double to_int32 to_int64 to_bfloat16 to_complex64 to_complex128")
