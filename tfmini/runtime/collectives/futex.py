"""Sleeping on a number in shared memory until another process says that it has changed.

A futex costs a tenth of a message: no socket, nothing to read. Linux on x86-64 only, as `collectives.stages`.
"""

from __future__ import annotations

import platform
import sys
from functools import cache
from typing import Any

_SYSCALL = {"x86_64": 202}
_WAIT, _WAKE = 0, 1
_ALL = 0x7FFFFFFF


class Futex:
    """The system call.

    Raises:
      OSError: it is not there.
    """

    def __init__(self) -> None:
        import ctypes  # takes some milliseconds: imported only where memory is shared

        number = _SYSCALL.get(platform.machine()) if sys.platform == "linux" else None
        if number is None or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise OSError("no futex here")

        class _Timespec(ctypes.Structure):
            _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

        self._number = number
        self._timespec: Any = _Timespec
        self._byref = ctypes.byref
        # `_wait` releases the interpreter lock; `_wake` returns at once and keeps it.
        self._wait, self._wake = ctypes.CDLL(None).syscall, ctypes.PyDLL(None).syscall
        for call in (self._wait, self._wake):
            call.restype = ctypes.c_long
            call.argtypes = [
                ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p,
                ctypes.c_uint32,
            ]  # fmt: skip

    def wait(self, address: int, value: int, timeout_s: float) -> None:
        """Sleeps as long as the 32-bit number there has that value, until it is woken or the time is up."""
        timeout = self._timespec(int(timeout_s), int(timeout_s % 1 * 1e9))
        self._wait(self._number, address, _WAIT, value & 0xFFFFFFFF, self._byref(timeout), None, 0)

    def wake(self, address: int) -> None:
        """Wakes all threads that sleep on the number there."""
        self._wake(self._number, address, _WAKE, _ALL, None, None, 0)


@cache
def futex() -> Futex | None:
    """The futex of this system, if it has one."""
    try:
        return Futex()
    except OSError:
        return None
