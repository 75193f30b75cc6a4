"""Memory for numpy's arrays in which every access beyond an array is seen.

`guard` gives each array of this process, those of kernels included, pages of its own between two that nobody may touch:
a read or write beyond the array on that side ends the process with SIGSEGV. What lies between the array and the other
page has a pattern, and who has changed it is found when the array is freed. The memory of a fresh array has the
pattern too, so that a result that shows memory which nobody has set differs between two patterns.

numpy frees arrays while an exception is on its way, when no code of Python may run. So that function is a few
instructions that note the address, and the memory is free at the next allocation.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
import threading
from collections import defaultdict
from typing import Any

from numpy._core.multiarray import _ARRAY_API  # type: ignore[attr-defined]

PAGE = 4096
_READ_WRITE, _NONE, _PRIVATE_ANONYMOUS = 3, 0, 0x22
_GET_HANDLER = 305  # its place in numpy's table of functions (numpy/_core/code_generators/numpy_api.py)
_NAME_AND_VERSION = 128
SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
# free(ring, address, size): ring[1 + 2 * (ring[0] % 65536)] = address, the next one size; ++ring[0]
_NOTE = bytes.fromhex("488b07 0fb7c8 48c1e104 4889740f08 4889540f10 48ff07 c3")
_RING = 1 << 16
_KEPT = 64  # free blocks of a size that wait to be used again
LARGEST = 256 << 20
"""Bytes of the largest array. Larger ones are out of memory."""

_P, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_MALLOC = ctypes.CFUNCTYPE(_P, _P, _SIZE)
_CALLOC = ctypes.CFUNCTYPE(_P, _P, _SIZE, _SIZE)
_REALLOC = ctypes.CFUNCTYPE(_P, _P, _P, _SIZE)
_FREE = ctypes.CFUNCTYPE(None, _P, _P, _SIZE)
_Ring = ctypes.c_uint64 * (1 + 2 * _RING)


class _Handler(ctypes.Structure):
    _fields_ = [
        ("name_and_version", ctypes.c_char * _NAME_AND_VERSION), ("context", _P),
        ("malloc", _P), ("calloc", _P), ("realloc", _P), ("free", _P),
    ]  # fmt: skip


class GuardedMemory:
    """The allocator.

    Attributes:
      pattern: the byte of memory that nobody has set.
      at_end: whether arrays end at the page that nobody may touch, or begin at the one before them.
      written_outside: the sizes of arrays beside which something has been written.
      too_large: where arrays larger than `LARGEST` were wanted, as "file:line".
    """

    def __init__(self) -> None:
        self.pattern, self.at_end = 0xFF, True
        self.written_outside: list[int] = []
        self.too_large: list[str] = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = _P
        self._libc.mmap.argtypes = [_P, _SIZE, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self._libc.mprotect.argtypes = [_P, _SIZE, ctypes.c_int]
        self._libc.munmap.argtypes = [_P, _SIZE]
        self._lock = threading.RLock()  # ctypes lets other threads run during its calls
        self._free_blocks: dict[int, list[int]] = defaultdict(list)
        # Address of an array -> of its first page, pages, bytes, pattern.
        self._used: dict[int, tuple[int, int, int, int]] = {}

    def install(self) -> None:
        """Takes the place of numpy's allocator in this process, for all threads."""
        handler = _numpys_handler()
        self._before_free, self._before_realloc = _FREE(handler.free), _REALLOC(handler.realloc)
        self._before_context, self._ring, self._seen = handler.context, _Ring(), 0
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(_NOTE)
        functions = {
            "malloc": _MALLOC(self._malloc),
            "calloc": _CALLOC(self._calloc),
            "realloc": _REALLOC(self._realloc),
        }
        self._alive = functions, code  # as long as the process
        handler.context = ctypes.addressof(self._ring)
        handler.free = ctypes.addressof(ctypes.c_char.from_buffer(code))
        for name, function in functions.items():
            setattr(handler, name, ctypes.cast(function, _P))

    def collect(self) -> None:
        """Frees what numpy has freed."""
        ring = self._ring
        with self._lock:
            while self._seen < ring[0]:
                place = 1 + 2 * (self._seen % _RING)
                self._seen += 1
                self._free(ring[place], ring[place + 1])

    def _malloc(self, context: Any, size: int) -> int | None:
        self.collect()
        if size > LARGEST:
            self.too_large.append(f"{size} bytes at {_caller()}")
            return None
        with self._lock:
            return self._placed(size, -(-size // PAGE) or 1)

    def _placed(self, size: int, pages: int) -> int | None:
        kept = self._free_blocks[pages]
        block = kept.pop() if kept else self._new_block(pages)
        if block is None:
            return None
        ctypes.memset(block, self.pattern, pages * PAGE)
        address = block + (pages * PAGE - size if self.at_end else 0)
        self._used[address] = (block, pages, size, self.pattern)
        return address

    def _new_block(self, pages: int) -> int | None:
        whole: int | None = self._libc.mmap(None, (pages + 2) * PAGE, _NONE, _PRIVATE_ANONYMOUS, -1, 0)
        if whole is None or whole == _P(-1).value:
            return None
        self._libc.mprotect(whole + PAGE, pages * PAGE, _READ_WRITE)
        return whole + PAGE

    def _calloc(self, context: Any, count: int, size: int) -> int | None:
        address = self._malloc(context, count * size)
        if address is not None:
            ctypes.memset(address, 0, count * size)
        return address

    def _realloc(self, context: Any, address: int | None, size: int) -> int | None:
        if address and address not in self._used:
            before: int | None = self._before_realloc(self._before_context, address, size)
            return before
        made = self._malloc(context, size)
        if address and made is not None:
            ctypes.memmove(made, address, min(size, self._used[address][2]))
            self._free(address, 0)
        return made

    def _free(self, address: int, size: int) -> None:
        if not address:
            return
        found = self._used.pop(address, None)
        if found is None:
            self._before_free(self._before_context, address, size)
            return
        block, pages, own, pattern = found
        rest = pages * PAGE - own
        if rest and ctypes.string_at(block if address > block else block + own, rest).strip(bytes([pattern])):
            self.written_outside.append(own)
        if len(self._free_blocks[pages]) < _KEPT and pages < 64:
            self._free_blocks[pages].append(block)
        else:
            self._libc.munmap(block - PAGE, (pages + 2) * PAGE)


def _caller() -> str:
    """The innermost line of tfmini that is running."""
    frame = sys._getframe()
    while frame.f_back is not None and "/tfmini/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/tfmini/')[2]}:{frame.f_lineno}"


def _numpys_handler() -> _Handler:
    """The functions that numpy calls for memory, in its own table."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(get(_ARRAY_API, None), ctypes.POINTER(_P))
    handler = ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER])()
    return _Handler.from_address(get(handler, b"mem_handler"))


def guard() -> GuardedMemory:
    """Guards all arrays that this process makes from now on."""
    memory = GuardedMemory()
    memory.install()
    return memory
