"""Masks and selection by masks: ``tf.where``, ``tf.boolean_mask``, ``tf.sequence_mask``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope, op
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.gather import gather
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import expand_dims, reshape, shape, squeeze
from tfmini.shapes import RawShape, compatible_raw

_where = op("Where(input: T) -> index: int64; T: type = DT_BOOL", raw_names={"input": "condition"})
_where.kernel("CPU")(lambda value: np.argwhere(value).astype(np.int64, copy=False))
_where.not_differentiable()


@_where.shape
def _where_shape(node: Operation) -> list[RawShape]:
    raw = node.inputs[0].raw_shape
    return [(None, None if raw is None else len(raw))]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.where")
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Coordinates of the true elements; with ``x`` and ``y``, x where true and y elsewhere (``tf.where``).

    Raises:
      ValueError: when only one of ``x`` and ``y`` is given.
    """
    if x is None and y is None:
        with name_scope(name, "Where", [condition]) as scope:
            condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool, name="condition")
            return _where(condition, name=scope)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return raw_ops.Select(condition, x, y, name=name)


@export("tf.boolean_mask")
def boolean_mask(tensor: Any, mask: Any, name: str = "boolean_mask", axis: Any = None) -> Tensor:
    """The slices of ``tensor`` where ``mask`` is true (``tf.boolean_mask``).

    Args:
      tensor: of at least the mask's rank.
      mask: bool, of known rank; its shape matches the tensor's from ``axis`` on.
      name: of the scope.
      axis: the tensor's axis that the mask's first axis belongs to, default 0.

    Raises:
      ValueError: when the mask is a scalar, has unknown rank, or does not match.
    """
    with name_scope(name, values=[tensor, mask]):
        tensor, mask = convert_to_tensor(tensor, name="tensor"), convert_to_tensor(mask, name="mask")
        form = mask.raw_shape
        if form is None:
            raise ValueError(
                "Number of mask dimensions must be specified, even if some dimensions are None.  E.g. shape=[None] is"
                " ok, but shape=None is not."
            )
        if not form:
            raise ValueError("mask cannot be scalar.")
        start = 0 if axis is None else int(constant_value(convert_to_tensor(axis)))  # type: ignore[arg-type]
        raw = tensor.raw_shape
        if raw is not None and not compatible_raw(raw[start : start + len(form)], form):
            raise ValueError(f"Shapes {tensor.shape[start : start + len(form)]} and {mask.shape} are incompatible")
        rows = squeeze(_where(reshape(mask, [-1])), axis=[1])
        return gather(_merge_axes(tensor, start, len(form)), rows, axis=start)


def _merge_axes(tensor: Tensor, start: int, count: int) -> Tensor:
    """``tensor`` with ``count`` axes from ``start`` on merged into one."""
    if count == 1:
        return tensor
    sizes = shape(tensor)
    merged = reshape(tensor, concat([sizes[:start], [-1], sizes[start + count :]], 0))
    if tensor.raw_shape is not None:
        part: int | None = 1
        for dim in tensor.raw_shape[start : start + count]:
            part = None if part is None or dim is None else part * dim
        merged.set_shape((*tensor.raw_shape[:start], part, *tensor.raw_shape[start + count :]))
    return merged


@export("tf.sequence_mask")
def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool, name: str | None = None) -> Tensor:
    """``mask[..., j] = j < lengths[...]`` (``tf.sequence_mask``).

    Args:
      lengths: integers of any shape.
      maxlen: the size of the new last axis; default the largest length.
      dtype: of the result.
      name: of the scope.

    Raises:
      ValueError: when ``maxlen`` is not a scalar.
    """
    with name_scope(name, "SequenceMask", [lengths, maxlen]):
        lengths = convert_to_tensor(lengths)
        if maxlen is None:
            axes = raw_ops.Range(0, raw_ops.Rank(lengths), 1)
            largest = raw_ops.Max(lengths, axes)
            maxlen = raw_ops.Maximum(constant(0, lengths.dtype), largest)
        else:
            maxlen = convert_to_tensor(maxlen)
        if maxlen.raw_shape not in (None, ()):
            raise ValueError("maxlen must be scalar for sequence_mask")
        bound = cast(maxlen, lengths.dtype)
        row = raw_ops.Range(constant(0, bound.dtype), bound, constant(1, bound.dtype))
        result = raw_ops.Less(row, expand_dims(lengths, -1))
        return cast(result, dtype)
