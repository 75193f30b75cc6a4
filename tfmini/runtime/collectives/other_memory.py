"""Reads another process's memory with one copy and without a stage (``process_vm_readv``, Linux).

The kernel allows it to processes of one user, unless the system is set to keep them apart (``ptrace_scope`` of the
Yama module, as on Ubuntu outside containers, or a seccomp filter). tfmini does not change that setting.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from typing import Any

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_FORBIDDEN = (errno.EPERM, errno.ENOSYS)


class OtherMemory:
    """The system call.

    Raises:
      OSError: it is not there, or forbidden.
    """

    def __init__(self) -> None:
        import ctypes  # takes some milliseconds: imported only where memory is shared

        class _Piece(ctypes.Structure):
            _fields_ = [("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]

        if not sys.platform.startswith("linux") or _is_kept_apart():
            raise OSError(errno.ENOSYS, "other processes' memory cannot be read here")
        self._piece: Any = _Piece
        self._byref, self._errno = ctypes.byref, ctypes.get_errno
        try:
            self._read = ctypes.CDLL(None, use_errno=True).process_vm_readv
        except AttributeError:
            raise OSError(errno.ENOSYS, "the C library cannot read other processes' memory") from None
        self._read.restype = ctypes.c_ssize_t
        pieces, count = ctypes.c_void_p, ctypes.c_ulong
        self._read.argtypes = [ctypes.c_int, pieces, count, pieces, count, count]

    def read(self, pid: int, address: int, into: Any) -> bool:
        """Fills a contiguous array from another process's memory; False: it is there no more.

        Raises:
          OSError: it is forbidden.
        """
        done, nbytes, own = 0, into.nbytes, into.ctypes.data
        while done < nbytes:
            here, there = self._piece(own + done, nbytes - done), self._piece(address + done, nbytes - done)
            got = self._read(pid, self._byref(here), 1, self._byref(there), 1, 0)
            if got <= 0:
                code = self._errno()
                if got < 0 and code in _FORBIDDEN:
                    raise OSError(code, f"the memory of process {pid} cannot be read: {os.strerror(code)}")
                return False
            done += got
        return True


def _is_kept_apart() -> bool:
    try:
        with open(_YAMA) as scope:
            return int(scope.read()) > 0
    except (OSError, ValueError):
        return False


@cache
def other_memory() -> OtherMemory | None:
    """The call, where this process may make it."""
    import numpy as np

    try:
        memory, here, there = OtherMemory(), np.zeros(1), np.ones(1)
        return memory if memory.read(os.getpid(), there.ctypes.data, here) and here[0] == 1 else None
    except OSError:
        return None
