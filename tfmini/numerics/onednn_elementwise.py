"""Chains of element-wise operations on arrays of float32 by oneDNN: one pass over memory, on all cores.

numpy makes a pass for each operation, on one core. A chain is ``target = step(…step(first(a, b), operand)…)``. All of
its operations round as numpy's do, so that the results are equal bit by bit.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.numerics import onednn
from tfmini.numerics.onednn import RESULT, SOURCE, Layout, Library, Primitive, check

Array = np.ndarray[Any, Any]

_SECOND_SOURCE = 2
_STEP_OPERAND = 32768  # DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE, times the number of the step (from 1)
_BINARY = {"add": 0x1FFF0, "multiply": 0x1FFF1, "divide": 0x1FFF4, "subtract": 0x1FFF5}
_UNARY = {"sqrt": 0x25}
_FLOAT32 = np.dtype(np.float32)
_MOST_CHAINS = 1024  # one for each size of a variable and pass of its rule


def accepts(*arrays: Any) -> bool:
    """Whether oneDNN computes chains here, and all arrays are contiguous, of float32 and not empty."""
    return all(a.dtype == _FLOAT32 and a.flags.c_contiguous and a.size for a in arrays) and _available()


def several_threads() -> bool:
    """Whether a chain on this thread is divided among several."""
    library = onednn.library()
    return library is not None and library.use_threads() > 1


@functools.cache
def _available() -> bool:
    """Whether oneDNN is there, has code for all operations on this processor, and rounds as numpy does."""
    if onednn.library() is None:
        return False
    a = np.linspace(0.1, 3, 37, dtype=np.float32)
    b, found = a[::-1].copy(), np.empty_like(a)
    try:
        run(found, a, "multiply", 0.3, "add", b, "divide", a, "sqrt", "subtract", 0.7, "multiply", b)
    except onednn.OneDnnError:
        return False
    return np.array_equal(found, (np.sqrt((a * np.float32(0.3) + b) / a) - np.float32(0.7)) * b)


def run(target: Array, a: Array, first: str, b: Any, *steps: Any) -> None:
    """Computes a chain on arrays of one size, which `accepts` has accepted; ``target`` may be one of them.

    Args:
      first, steps: "add", "subtract", "multiply" or "divide", each with its right operand behind it, an array or a
        number; a step may also be "sqrt".
    """
    library = onednn.library()
    assert library is not None
    threads = library.use_threads()
    operands = [_operand(x) for x in (b, *steps) if not isinstance(x, str)]
    kinds = [first, operands[0].size > 1, *(x if isinstance(x, str) else _operand(x).size > 1 for x in steps)]
    _chain(a.size, tuple(kinds), threads)(target, a, operands)


def _operand(value: Any) -> Array:
    """An array as it is; a number as an array of one element."""
    return value if isinstance(value, np.ndarray) and value.size > 1 else np.array([value], np.float32)


@functools.lru_cache(_MOST_CHAINS)
def _chain(size: int, kinds: tuple[Any, ...], threads: int) -> _Chain:
    """``threads`` is part of the key: a primitive divides its work among that many when it is made."""
    library = onednn.library()
    assert library is not None
    return _Chain(library, size, kinds)


class _Chain:
    """The primitive of one chain.

    Args:
      kinds: the operations, each with a right operand behind it: whether that is an array.
    """

    def __init__(self, library: Library, size: int, kinds: Sequence[Any]) -> None:
        self._array = Layout(library, [size], [1])
        self._number = Layout(library, [1], [1])
        self._layouts: list[tuple[int, Layout]] = []
        first, b, *steps = kinds
        self._layouts.append((_SECOND_SOURCE, self._layout(b)))
        attributes = self._attributes(library, steps)
        try:
            self._primitive = Primitive(library, library.describe(
                "binary", library.engine, _BINARY[first], self._array.handle, self._layout(b).handle,
                self._array.handle, attributes,
            ))  # fmt: skip
        finally:
            library.quick.dnnl_primitive_attr_destroy(attributes)

    def _layout(self, is_array: bool) -> Layout:
        return self._array if is_array else self._number

    def _attributes(self, library: Library, steps: Sequence[Any]) -> ctypes.c_void_p:
        """The attributes of a primitive that runs the steps behind its own operation."""
        quick, made, after = library.quick, ctypes.c_void_p(), ctypes.c_void_p()
        check(quick.dnnl_post_ops_create(ctypes.byref(after)))
        number = 0
        for step, operand in zip(steps, [*steps[1:], ""]):
            if step in _UNARY:
                check(quick.dnnl_post_ops_append_eltwise(after, _UNARY[step], ctypes.c_float(0), ctypes.c_float(0)))
                number += 1
            elif step in _BINARY:
                check(quick.dnnl_post_ops_append_binary(after, _BINARY[step], self._layout(operand).handle))
                number += 1
                self._layouts.append((_STEP_OPERAND * number | _SECOND_SOURCE, self._layout(operand)))
        check(quick.dnnl_primitive_attr_create(ctypes.byref(made)))
        check(quick.dnnl_primitive_attr_set_scratchpad_mode(made, onednn.USER_SCRATCHPAD))
        check(quick.dnnl_primitive_attr_set_post_ops(made, after))
        check(quick.dnnl_post_ops_destroy(after))
        return made

    def __call__(self, target: Array, a: Array, operands: Sequence[Array]) -> None:
        """Runs the chain."""
        arguments = {kind: (layout, x) for (kind, layout), x in zip(self._layouts, operands)}
        layout = self._array
        self._primitive({SOURCE: (layout, a), RESULT: (layout, target), **arguments})
