"""Conversion and checks of the arguments of dataset methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.data.structure import Leaf, Structure, common_shape, shape_leaves
from tfmini.graph import nest
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.shapes import RawShape, TensorShape, as_raw


def int64(value: Any, name: str) -> Tensor:
    """A count as an int64 scalar."""
    if isinstance(value, Tensor):
        return cast(value, dtypes.int64) if value.dtype.base_dtype is dtypes.int32 else value
    return convert_to_tensor(value, dtype=dtypes.int64, name=name)


def boolean(value: Any, name: str) -> Tensor:
    """A flag as a bool scalar."""
    return convert_to_tensor(value, dtype=dtypes.bool, name=name)


def static_batch(size: Tensor, drop_remainder: Tensor) -> int | None:
    """The size of every batch; None when it is not known statically or the last batch may be smaller."""
    known, drop = constant_value(size), constant_value(drop_remainder)
    return int(known) if known is not None and drop is not None and bool(drop) else None


def paddings(
    structure: Structure, padded_shapes: Any, padding_values: Any
) -> tuple[list[Tensor], list[Tensor], Structure]:
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


def _padded_shape(given: Any, leaf: Leaf) -> tuple[Tensor, RawShape]:
    """A padded shape as an int64 vector (-1: the largest size in the batch) and as a static shape."""
    if isinstance(given, Tensor):
        tensor = cast(given, dtypes.int64)
        raw: RawShape = constant_value_as_shape(tensor)
    else:
        items = given.tolist() if isinstance(given, np.ndarray) else given
        if isinstance(items, (list, tuple)):
            items = [None if d is not None and not hasattr(d, "value") and d < 0 else d for d in items]
        raw = as_raw(items)
        if raw is None:
            raise ValueError(f"Padded shape {given} must have a known rank.")
        vector = np.array([-1 if d is None else d for d in raw], np.int64)
        tensor = constant(vector, name="padded_shape")
    if raw is not None and leaf.shape is not None:
        _check_padding(raw, leaf.shape)
    return tensor, raw


def _check_padding(raw: tuple[int | None, ...], shape: tuple[int | None, ...]) -> None:
    pairs = list(zip(raw, shape))
    if len(raw) != len(shape) or any(a is not None and b is not None and a < b for a, b in pairs):
        raise ValueError(
            f"The padded shape {TensorShape.from_raw(raw)} is not compatible with the corresponding input component"
            f" shape {TensorShape.from_raw(shape)}."
        )


def _padding_value(value: Any, leaf: Leaf) -> Tensor:
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
