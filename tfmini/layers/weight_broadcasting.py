"""Weights of losses and metrics: a scalar, or a tensor of the values' rank with axes of length 1 or the values'."""

from __future__ import annotations

from typing import Any

from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.filling import ones_like
from tfmini.ops.array.shape import rank, size
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.control import no_op
from tfmini.ops.debugging.assertion import Assert
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import equal, logical_or
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.math.reduce_functions import reduce_all

__all__ = ["assert_broadcastable", "broadcast_weights"]

_PREFIX = "weights can not be broadcast to values."


def assert_broadcastable(weights: Any, values: Any) -> Any:
    """Checks that ``weights`` can be broadcast to ``values``, now if possible; returns an op for the rest.

    Raises:
      ValueError: when the static shapes are incompatible.
    """
    with name_scope(None, "assert_broadcastable", [weights, values]):
        weights, values = convert_to_tensor(weights, name="weights"), convert_to_tensor(values, name="values")
        weights_shape, values_shape = weights.shape, values.shape
        if weights_shape.ndims == 0:
            return no_op(name="static_scalar_check_success")
        if weights_shape.ndims is None or values_shape.ndims is None:
            return _checked_in_the_step(weights, values)
        where = f" values.rank={values_shape.ndims}. weights.rank={weights_shape.ndims}."
        shapes = f" values.shape={values_shape}. weights.shape={weights_shape}."
        if weights_shape.ndims != values_shape.ndims:
            raise ValueError(f"{_PREFIX}{where}{shapes}")
        pairs = list(zip(weights_shape.as_list(), values_shape.as_list()))
        if any(w not in (1, v) for w, v in pairs if w is not None and v is not None):
            raise ValueError(f"{_PREFIX} Mismatch at dim {_first_mismatch(pairs)}.{shapes}")
        if all(w == 1 or (w is not None and w == v) for w, v in pairs):
            return no_op(name="static_dims_check_success")
        sizes, wanted = shape_of(weights), shape_of(values)
        fits = reduce_all(logical_or(equal(sizes, 1), equal(sizes, wanted)), name="is_valid_shape")
        return Assert(fits, [_PREFIX, "weights.shape=", sizes, "values.shape=", wanted], name="AssertGuard")


def _checked_in_the_step(weights: Any, values: Any) -> Any:
    """Checks shapes whose ranks are known only when the step runs."""
    sizes, wanted = shape_of(weights), shape_of(values)
    scalar = equal(rank(weights), 0)
    same = equal(size(sizes), size(wanted))

    def fits() -> Any:
        return reduce_all(logical_or(equal(sizes, 1), equal(sizes, wanted)))

    def of_one_rank() -> Any:
        return cond(same, fits, lambda: same)

    valid = cond(scalar, lambda: scalar, of_one_rank, name="is_valid_shape")
    return Assert(valid, [_PREFIX, "weights.shape=", sizes, "values.shape=", wanted], name="AssertGuard")


def _first_mismatch(pairs: list[tuple[int | None, int | None]]) -> int:
    return next(i for i, (w, v) in enumerate(pairs) if w is not None and v is not None and w not in (1, v))


def broadcast_weights(weights: Any, values: Any) -> Any:
    """``weights``, broadcast to the shape of ``values``."""
    with name_scope(None, "broadcast_weights", [weights, values]) as scope:
        values = convert_to_tensor(values, name="values")
        weights = convert_to_tensor(weights, dtype=values.dtype.base_dtype, name="weights")
        if (
            weights.shape.is_fully_defined()
            and weights.shape.is_compatible_with(values.shape)
            and (values.shape.is_fully_defined())
        ):
            return weights
        with control_dependencies([assert_broadcastable(weights, values)]):
            return multiply(weights, ones_like(values), name=scope)
