"""Clipping of values and norms (``tf.clip_by_*``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import IndexedSlices, Tensor, colocate_with, convert_to_tensor, name_scope
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.math.comparison import greater_op, select_op
from tfmini.ops.math.elementwise import maximum_op, minimum_op, mul_op, real_div_op
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.math.unary import is_finite_op, sqrt_op, square_op
from tfmini.shapes import merge_raw


def _values_of(t: Any, name: str) -> Tensor:
    return convert_to_tensor(t.values if isinstance(t, IndexedSlices) else t, name=name)


def _like(t: Any, values: Tensor) -> Any:
    """``values``, as `IndexedSlices` if ``t`` is."""
    return IndexedSlices(values, t.indices, t.dense_shape) if isinstance(t, IndexedSlices) else values


@export("tf.clip_by_value")
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """``t`` with its values limited to [clip_value_min, clip_value_max] (``tf.clip_by_value``).

    Raises:
      ValueError: when the limits would broadcast the result to a larger shape.
    """
    with name_scope(name, "clip_by_value", [_graph_value(t), clip_value_min, clip_value_max]) as scope:
        values = _values_of(t, "t")
        lowered = minimum_op(values, clip_value_max)
        merge_raw(values.raw_shape, lowered.raw_shape)
        raised = maximum_op(lowered, clip_value_min, name=scope)
        merge_raw(values.raw_shape, raised.raw_shape)
        return _like(t, raised)


def _graph_value(t: Any) -> Any:
    return t.values if isinstance(t, IndexedSlices) else t


@export("tf.clip_by_norm")
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """``t`` scaled down, if needed, so that its L2 norm over ``axes`` is at most ``clip_norm``."""
    with name_scope(name, "clip_by_norm", [_graph_value(t), clip_norm]) as scope:
        values = _values_of(t, "t")
        square = reduce_sum(mul_op(values, values), axis=axes, keepdims=True)
        # Avoids the square root of 0, whose gradient is infinite.
        positive = greater_op(square, np.array(0, square.dtype.numpy))
        safe = select_op(positive, square, array_filling.ones_like(square))
        norm = select_op(positive, sqrt_op(safe), square)
        clip_norm = convert_to_tensor(clip_norm, dtype=values.dtype.base_dtype, name="clip_norm")
        scaled = mul_op(values, clip_norm)
        merge_raw(values.raw_shape, scaled.raw_shape)
        clipped = array_identity.identity(real_div_op(scaled, maximum_op(norm, clip_norm)), name=scope)
        return _like(t, clipped)


@export("tf.clip_by_average_norm")
def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """``t`` scaled down, if needed, so that its L2 norm per element is at most ``clip_norm``."""
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as scope:
        t = convert_to_tensor(t, name="t")
        clip_norm = convert_to_tensor(clip_norm, dtype=t.dtype.base_dtype, name="clip_norm")
        one = np.array(1, t.dtype.numpy)
        count = cast(array_shape.size(t), t.dtype.base_dtype)
        norm = sqrt_op(reduce_sum(mul_op(t, t), axis=array_filling.range(array_shape.rank(t))))
        inverse = mul_op(clip_norm, minimum_op(mul_op(real_div_op(one, norm), count), real_div_op(one, clip_norm)))
        return array_identity.identity(mul_op(t, inverse), name=scope)


@export("tf.global_norm", "tf.linalg.global_norm")
def global_norm(t_list: Any, name: str | None = None) -> Tensor | None:
    """The L2 norm of all tensors together; None entries are skipped (``tf.global_norm``).

    Raises:
      TypeError: when ``t_list`` is not a sequence.
    """
    _check_sequence(t_list)
    present = [t for t in t_list if t is not None]
    with name_scope(name, "global_norm", [_graph_value(t) for t in present]):
        halves = []
        for i, t in enumerate(present):
            values = _values_of(t, f"t_{i}")
            with colocate_with(values):
                halves.append(real_div_op(reduce_sum(square_op(values)), np.array(2, values.dtype.numpy)))
        if not halves:
            return None
        total = reduce_sum(stack(halves))
        return sqrt_op(mul_op(total, np.array(2, total.dtype.numpy)), name="global_norm")


def _check_sequence(t_list: Any) -> None:
    if not isinstance(t_list, Sequence) or isinstance(t_list, (str, bytes)):
        raise TypeError("t_list should be a sequence")


@export("tf.clip_by_global_norm")
def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """The tensors, scaled by one factor so that their `global_norm` is at most ``clip_norm``; and the norm.

    A norm that is not finite makes all results NaN. None entries stay None.

    Raises:
      TypeError: when ``t_list`` is not a sequence.
    """
    _check_sequence(t_list)
    if use_norm is None:
        use_norm = global_norm(t_list, name)
    if use_norm is None:
        return list(t_list), None
    present = [_graph_value(t) for t in t_list if t is not None]
    with name_scope(name, "clip_by_global_norm", [*present, clip_norm]) as scope:
        dtype = use_norm.dtype.base_dtype
        one = np.array(1, dtype.numpy)
        limit = convert_to_tensor(clip_norm, dtype=dtype if not isinstance(clip_norm, Tensor) else None)
        factor = mul_op(limit, minimum_op(real_div_op(one, use_norm), real_div_op(one, limit)))
        nan = convert_to_tensor(np.array(np.nan, dtype.numpy))
        factor = select_op(is_finite_op(use_norm), factor, nan)
        clipped = []
        for i, t in enumerate(t_list):
            clipped.append(None if t is None else _scaled(t, factor, f"{scope}_{i}"))
        return clipped, use_norm


def _scaled(t: Any, factor: Tensor, name: str) -> Any:
    values = _values_of(t, "t")
    with colocate_with(values):
        return _like(t, array_identity.identity(mul_op(values, factor), name=name))
