"""Conditions that may be known while the graph is built (``tensorflow.python.layers.utils``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.ops.cond import cond
from tfmini.ops.constant_value import constant_value
from tfmini.ops.variable_base import Variable

__all__ = ["constant_value", "smart_cond", "smart_constant_value"]


def smart_constant_value(pred: Any) -> bool | None:
    """The value of a condition, or None when only the running graph knows it.

    Raises:
      TypeError: for what is no condition.
    """
    if isinstance(pred, bool):
        return pred
    if isinstance(pred, int) and pred in (0, 1):
        return bool(pred)
    if isinstance(pred, Variable):
        return None
    if isinstance(pred, Tensor):
        value = constant_value(pred)
        return None if value is None else bool(value)
    raise TypeError(f"`pred` must be a Tensor, or a Python bool, or 1 or 0. Found instead: {pred}")


def smart_cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """``tf.cond``, or just the one branch when the condition is known (``tf.contrib.framework.smart_cond``).

    Raises:
      TypeError: when a branch is no function.
    """
    if not callable(true_fn):
        raise TypeError("`true_fn` must be callable.")
    if not callable(false_fn):
        raise TypeError("`false_fn` must be callable.")
    value = smart_constant_value(pred)
    if value is None:
        return cond(pred, true_fn, false_fn, name=name)
    return true_fn() if value else false_fn()
