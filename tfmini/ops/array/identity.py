"""Ops whose output is their input: identities, gradient stops and checks; and placeholders."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices, SparseComponents, convert_to_tensor, is_dense_tensor_like
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.graph.shape_functions import declared_shape, same_shapes
from tfmini.ops.array.kernel_arguments import refuse
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
_with_default = op("PlaceholderWithDefault(input: dtype) -> output: dtype; dtype: type; shape: shape", work="none")

_PASS_ON = (identity_op, _snapshot, _stop_gradient, _prevent_gradient, _guarantee_const, _check_numerics)


def _pass_on(value: Any) -> Any:
    return value


def _pass_gradient(node: Operation, grad: Any) -> list[Any]:
    return [grad]


all_of(*_PASS_ON, _identity_n).shape(same_shapes)
for _handle in (identity_op, _snapshot, _stop_gradient, _prevent_gradient, _guarantee_const):
    _handle.kernel("CPU")(_pass_on)
    _handle.inline(lambda node: "{0}")
all_of(identity_op, _snapshot, _guarantee_const).gradient(_pass_gradient)


@_prevent_gradient.gradient
def _prevent_gradient_gradient(node: Operation, grad: Any) -> list[Any]:
    raise LookupError(
        f"Gradient explicitly disabled by op '{node.name}' (PreventGradient). Reason: {node.attrs['message']!r}"
    )


# ---- checks -----------------------------------------------------------------------------------


@_check_numerics.kernel("CPU")
def _check_numerics_kernel(value: Any, *, message: bytes) -> Any:
    # One reduction decides the usual case: a sum of finite numbers is finite unless it overflows.
    if not np.isfinite(np.sum(value)):
        has_nan, has_inf = bool(np.isnan(value).any()), bool(np.isinf(value).any())
        if has_nan or has_inf:
            found = " and ".join(w for w, present in (("Inf", has_inf), ("NaN", has_nan)) if present)
            refuse(f"{message.decode()} : Tensor had {found} values")
    return value


@_check_numerics.gradient
def _check_numerics_gradient(node: Operation, grad: Any) -> list[Any]:
    text = "Not a number (NaN) or infinity (Inf) values detected in gradient."
    return [_check_numerics(grad, message=text)]


@_ensure_shape.kernel("CPU")
def _ensure_shape_kernel(value: Any, *, shape: RawShape) -> Any:
    if not compatible_raw(value.shape, shape):
        refuse(f"Shape of tensor {format_raw(value.shape)} is not compatible with expected shape {format_raw(shape)}.")
    return value


_ensure_shape.gradient(_pass_gradient)


# ---- placeholders -----------------------------------------------------------------------------


@all_of(_placeholder, _placeholder_v2).kernel("CPU")
def _placeholder_kernel(*, node: Any) -> Any:
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


# ---- public functions -------------------------------------------------------------------------


@export("tf.identity")
def identity(input: Any, name: str | None = None) -> Tensor:
    """A tensor with the same value and shape (``tf.identity``); for a variable, its current value."""
    return identity_op(input, name=name)


@export("tf.identity_n")
def identity_n(input: Any, name: str | None = None) -> list[Tensor]:
    """A list of tensors with the same values (``tf.identity_n``)."""
    result = _identity_n(input, name=name)
    return list(result)


@export("tf.stop_gradient")
def stop_gradient(input: Any, name: str | None = None) -> Tensor:
    """The same value, which gradients treat as a constant (``tf.stop_gradient``)."""
    return _stop_gradient(input, name=name)


def prevent_gradient(input: Any, message: str = "", name: str | None = None) -> Tensor:
    """The same value; ``tf.gradients`` through it raises LookupError with ``message``."""
    return _prevent_gradient(input, message=message, name=name)


@export("tf.guarantee_const")
def guarantee_const(input: Any, name: str | None = None) -> Tensor:
    """The same value; the caller guarantees that it never changes (``tf.guarantee_const``)."""
    return _guarantee_const(input, name=name)


def snapshot(input: Any, name: str | None = None) -> Tensor:
    """A copy of the value (``tf.raw_ops.Snapshot``)."""
    return _snapshot(input, name=name)


@export("tf.check_numerics", "tf.debugging.check_numerics")
def check_numerics(tensor: Any, message: str, name: str | None = None) -> Tensor:
    """The same value; the step fails with InvalidArgumentError when it holds NaN or Inf (``tf.check_numerics``)."""
    return _check_numerics(tensor, message=message, name=name)


@export("tf.ensure_shape")
def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """The same value; the step fails when its shape is not ``shape`` (``tf.ensure_shape``)."""
    return _ensure_shape(x, shape=as_raw(shape), name=name)


@export("tf.placeholder")
def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor that every step must feed (``tf.placeholder``).

    Args:
      dtype: the element type.
      shape: the static shape of the values to be fed; None: any.
      name: of the op.
    """
    return _placeholder(dtype=dtypes.as_dtype(dtype), shape=as_raw(shape), name=name)


@export("tf.placeholder_with_default")
def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """A tensor that passes on ``input`` unless it is fed (``tf.placeholder_with_default``).

    Raises:
      ValueError: when the default does not have that shape.
    """
    return _with_default(input, shape=as_raw(shape), name=name)


@export("tf.is_tensor")
def is_tensor(x: Any) -> bool:
    """Whether ``x`` is a tensor, a variable, or another tensor-like object (``tf.is_tensor``)."""
    return is_dense_tensor_like(x) or isinstance(x, (SparseComponents, IndexedSlices))


def as_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Tensor:
    """`convert_to_tensor` that leaves tensors of any type as they are."""
    return value if type(value) is Tensor else convert_to_tensor(value, dtype, name)
