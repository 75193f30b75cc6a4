"""What NumPy's arrays themselves did when old scripts were written.

``float(a)``, ``int(a)``, ``complex(a)``, ``"%f" % a`` and ``b[0] = a`` took an array of one element and any rank until
NumPy 2.4, and the truth of an empty array was false until NumPy 2.2. All these call a method of the type ``ndarray``,
so the type gets others. A type of C answers most by the function pointers in its slots: these become those of a Python
class, which call the methods. Methods that NumPy has dropped, such as ``tostring``, come back in the same way.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfmini.compat.old_python.notices import tell_once

# The places in CPython's PyTypeObject and PyNumberMethods, in pointers (Include/cpython/object.h).
_NAME, _AS_NUMBER = 1, 10  # after the head of the object and its size
_SLOTS = {"__bool__": 9, "__int__": 16, "__float__": 18}  # `complex` has none: it calls the method


class _Numbers:
    """Its slots call the methods of the type whose slots they become."""

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 1.0


def install() -> None:
    """Mends the arrays of this process, where NumPy no longer does so and the interpreter is as known here."""
    if sys.implementation.name == "cpython":
        _give_methods()
        _mend_numbers(_wanted())


def _mend_numbers(wanted: list[str]) -> None:
    is_known = sys.version_info < (3, 15) and getattr(sys, "_is_gil_enabled", lambda: True)()  # how types lie in memory
    if not wanted or not is_known:
        return
    ours = _slots(_Numbers)
    if _name(np.ndarray) != b"numpy.ndarray" or not all(ours[place] for place in _SLOTS.values()):  # they lie otherwise
        return
    methods = _methods(np.ndarray)
    before = {name: _slots(np.ndarray)[place] for name, place in _SLOTS.items()}
    for name in wanted:
        methods[name] = _MENDED[name](methods[name])
        for kind in _kinds(np.ndarray) if name in _SLOTS else ():
            if _slots(kind)[_SLOTS[name]] == before[name]:  # else the type has a method of its own
                _slots(kind)[_SLOTS[name]] = ours[_SLOTS[name]]
    _note_change(np.ndarray)


def _wanted() -> list[str]:
    """The methods that this NumPy has changed."""
    changed = []
    for name in _MENDED:
        try:
            with warnings.catch_warnings(action="ignore"):
                getattr(np.zeros(0 if name == "__bool__" else 1), name)()
        except (TypeError, ValueError):
            changed.append(name)
    return changed


def _number(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def mended(original: Callable[..., Any]) -> Callable[..., Any]:
        def number(array: np.ndarray) -> Any:
            if array.ndim == 0 or array.size != 1:
                return original(array)
            tell_once("a number from an array of rank 1 or more", "tfmini takes its only element, as NumPy 2.3 did")
            return kind(array.item())

        return number

    return mended


def _truth(original: Callable[..., Any]) -> Callable[..., Any]:
    def truth(array: np.ndarray) -> Any:
        if array.size:
            return original(array)
        tell_once("the truth of an empty array", "tfmini takes it for false, as NumPy 2.1 did")
        return False

    return truth


_MENDED = {"__bool__": _truth, "__int__": _number(int), "__float__": _number(float), "__complex__": _number(complex)}


# ---- Methods ---------------------------------------------------------------------------------------------------------


def _tostring(array: Any, order: Any = "C") -> bytes:
    return array.tobytes(order)  # type: ignore[no-any-return]


def _itemset(array: Any, *args: Any) -> None:
    *place, value = args
    if len(place) == 1 and not isinstance(place[0], tuple):
        array.flat[place[0]] = value
    else:
        array[tuple(place[0]) if len(place) == 1 else tuple(place)] = value


def _newbyteorder(array: Any, new_order: str = "S") -> Any:
    return array.view(array.dtype.newbyteorder(new_order))


def _ptp(array: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return np.ptp(array, axis, out, keepdims=keepdims)


# Methods of arrays and of their numbers: name -> what it does, and what is to be written now.
METHODS: dict[str, tuple[Callable[..., Any], str]] = {
    "tostring": (_tostring, "a.tobytes()"),
    "itemset": (_itemset, "a[i] = value"),
    "newbyteorder": (_newbyteorder, "a.view(a.dtype.newbyteorder())"),
    "ptp": (_ptp, "np.ptp(a)"),
}


def _give_methods() -> None:
    for kind in (np.ndarray, np.generic):
        for name, (function, now) in METHODS.items():
            if not hasattr(kind, name):
                _methods(kind)[name] = _told(function, f"ndarray.{name}", now)
        _note_change(kind)


def _told(function: Callable[..., Any], name: str, now: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def method(array: Any, *args: Any, **options: Any) -> Any:
        tell_once(name, f"tfmini gives it as {now}")
        return function(array, *args, **options)

    return method


# ---- The types of C --------------------------------------------------------------------------------------------------


def _methods(kind: type) -> dict[str, Any]:
    """The dictionary itself, which ``vars`` shows only to be read."""
    return gc.get_referents(kind.__dict__)[0]  # type: ignore[no-any-return]


def _note_change(kind: type) -> None:
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for each in type.__subclasses__(kind):
        yield from _kinds(each)


def _at(kind: type, pointers: int) -> int:
    return id(kind) + object.__basicsize__ + pointers * ctypes.sizeof(ctypes.c_void_p)


def _name(kind: type) -> bytes | None:
    return ctypes.c_char_p.from_address(_at(kind, _NAME)).value


def _slots(kind: type) -> ctypes.Array[ctypes.c_void_p]:
    numbers = ctypes.c_void_p.from_address(_at(kind, _AS_NUMBER)).value
    table = ctypes.c_void_p * (max(_SLOTS.values()) + 1)
    return table() if numbers is None else table.from_address(numbers)
