"""The arguments of ``tf.gradients`` as tensors: targets, sources, and the gradients of the targets."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph import raw_ops
from tfmini.graph.conversion import (
    IndexedSlices,
    convert_n_to_tensor_or_indexed_slices,
    convert_to_tensor_or_indexed_slices,
    internal_convert,
)
from tfmini.graph.families import Tensor, colocate_with, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.control import identity

# DType kinds: float, complex, resource, variant.
_TRAINABLE_KINDS = "fcRV"


def is_trainable(tensor: Any) -> bool:
    """Whether the tensor's type can have gradients: floats, complex numbers, resources, variants."""
    return tensor.dtype._kind in _TRAINABLE_KINDS


def as_targets(ys: list[Any]) -> list[Any]:
    """The ys as tensors or indexed slices."""
    return convert_n_to_tensor_or_indexed_slices(ys, name="y")


def as_sources(xs: list[Any]) -> list[Tensor]:
    """The xs as tensors: a resource variable by its handle, a ref variable by its reference."""
    found = []
    for i, x in enumerate(xs):
        handle = None if isinstance(x, Tensor) else getattr(x, "handle", None)
        x = handle if isinstance(handle, Tensor) else x
        found.append(convert_to_tensor_or_indexed_slices(x, name=f"x_{i}", as_ref=True))
    return found


def as_tensors(values: list[Any]) -> list[Any]:
    """``stop_gradients`` as tensors."""
    return [
        value if isinstance(value, (Tensor, IndexedSlices)) else internal_convert(value, as_ref=True)
        for value in values
    ]


def default_gradients(grad_ys: list[Any], ys: list[Any], colocate: bool) -> list[Any]:
    """The gradients of the ys: the given ones, checked, and ones in place of None.

    Raises:
      ValueError: when the counts differ.
      TypeError: when a type does not fit its y.
    """
    if len(grad_ys) != len(ys):
        raise ValueError(f"Passed {len(grad_ys)} grad_ys for {len(ys)} ys")
    grad_ys = convert_n_to_tensor_or_indexed_slices(grad_ys, name="grad_y")
    found = []
    for i, (y, grad) in enumerate(zip(ys, grad_ys)):
        with colocate_with(y.op) if colocate else nullcontext():
            if grad is None:
                found.append(_ones(y, f"grad_ys_{i}"))
            else:
                _check_type(grad, y)
                found.append(_named(grad, f"grad_ys_{i}"))
    return found


def _ones(y: Any, name: str) -> Tensor:
    if y.dtype.is_complex:
        raise TypeError(f"Gradients of complex tensors must set grad_ys (y.dtype = {y.dtype!r})")
    y = internal_convert(y)
    if y.raw_shape is not None and None not in y.raw_shape:
        shape = constant(np.array(y.raw_shape, np.int32), name="Shape")
    else:
        shape = raw_ops.Shape(y, name="Shape")
    with name_scope(name) as scope:
        one = constant(1, dtype=y.dtype.base_dtype, name="Const")
        return raw_ops.Fill(shape, one, name=scope)


def _check_type(grad: Any, y: Any) -> None:
    got, wanted = grad.dtype, y.dtype
    start = f"Gradient type {got.name} generated for "
    end = f"tensor {y} with type {wanted.name} must be"
    if wanted.is_floating or wanted.is_integer:
        if not (got.is_floating or got.is_integer):
            raise TypeError(f"{start}real or integer-valued {end} real or integer")
    elif wanted.is_complex:
        if not got.is_complex:
            raise TypeError(f"{start}complex-valued {end} real")
    elif wanted.base_dtype is dtypes.variant:
        if got.base_dtype is not dtypes.variant:
            raise TypeError(f"{start}variant {end} variant")
    elif wanted.base_dtype is dtypes.resource:
        if got.base_dtype is dtypes.resource:
            raise TypeError(f"Input gradient {grad} for resource tensor {y} should not be a resource")
    else:
        raise TypeError(f"Tensor {y} with type {wanted.name} must be numeric to obtain a default gradient")


def _named(grad: Any, name: str) -> Any:
    """``grad`` under a name with the number of its y."""
    if isinstance(grad, Tensor):
        return identity(grad, name)
    shape = grad.dense_shape
    return IndexedSlices(
        identity(grad.values, f"{name}_values"),
        identity(grad.indices, f"{name}_indices"),
        None if shape is None else identity(shape, f"{name}_shape"),
    )
