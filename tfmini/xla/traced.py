"""Arrays under which numpy's functions call JAX's: so a numpy kernel can be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class TracedArray(NDArrayOperatorsMixin):
    """A traced array as numpy's functions see an array. An ``out=`` of a function replaces its value.

    Attributes:
      value: JAX's array.
    """

    __slots__ = ("value",)
    __array_priority__ = 200

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if method == "reduce":
            function: Any = _REDUCTIONS.get(ufunc.__name__)
        else:
            function = _function(ufunc.__name__) if method == "__call__" else None
        if function is None:
            return NotImplemented
        return _stored(function(*bare(inputs), **{k: bare(v) for k, v in kwargs.items() if k != "casting"}), out)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.copyto:
            return _copy(*args, **kwargs)
        out = kwargs.pop("out", None)
        own = getattr(jnp, func.__name__, None) if func.__module__ == "numpy" else None
        if func.__module__ == "numpy.linalg":
            own = getattr(jnp.linalg, func.__name__, None)
        if own is None:
            return NotImplemented
        return _stored(own(*bare(args), **{k: bare(v) for k, v in kwargs.items()}), None if out is None else (out,))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.value, name)
        if callable(found) and not isinstance(found, type):
            return lambda *args, **kwargs: wrapped(found(*bare(args), **{k: bare(v) for k, v in kwargs.items()}))
        return wrapped(found)

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self.value[bare(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value = self.value.at[bare(key)].set(bare(value))

    def __len__(self) -> int:
        return len(self.value)

    def astype(self, dtype: Any, copy: bool = True) -> TracedArray:
        return TracedArray(self.value.astype(dtype))

    def copy(self) -> TracedArray:
        return TracedArray(self.value)


def wrapped(value: Any) -> Any:
    """JAX's arrays as `TracedArray`, also those in tuples and lists."""
    if isinstance(value, jax.Array):
        return TracedArray(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(wrapped, value)) if type(value) in (tuple, list) else tuple(map(wrapped, value))
    return value


def bare(value: Any) -> Any:
    """The inverse of `wrapped`."""
    if isinstance(value, TracedArray):
        return value.value
    if type(value) in (tuple, list):
        return type(value)(map(bare, value))
    return value


_REDUCTIONS = {
    "add": jnp.sum, "multiply": jnp.prod, "maximum": jnp.max, "minimum": jnp.min, "logical_and": jnp.all,
    "logical_or": jnp.any,
}  # fmt: skip


def _function(name: str) -> Callable[..., Any] | None:
    return getattr(jnp, name, None) or getattr(jax.scipy.special, name, None)


def _stored(result: Any, out: Any) -> Any:
    if out is None:
        return wrapped(result)
    (target,) = out
    target.value = result.astype(target.value.dtype)
    return target


def _copy(dst: TracedArray, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    new = jnp.broadcast_to(jnp.asarray(bare(src), dst.value.dtype), dst.value.shape)
    dst.value = new if where is True else jnp.where(bare(where), new, dst.value)
