"""The memory in which a task lays out its parts of collectives, and how the other tasks of its host see it.

Each task has one *arena*, a sealed memfd of which only the pages in use exist. Another task opens it by the
descriptor of its owner (``/proc/<pid>/fd/<n>``), which the kernel allows to processes of the same user, and maps it
read-only. Nothing of it has a name in the file system, and nothing is left of it when its owner dies.

A *place* says where an arena is: host, pid, descriptor, nonce, and the address at which its owner has it, if its
owner may read the memory of others (`other_memory`).
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import secrets
import threading
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.collectives.stages import IS_ORDERED
from tfmini.rpc.lane_listener import host_id
from tfmini.rpc.shared_blocks import size_class
from tfmini.runtime.other_memory import other_memory

ARENA_BYTES = 1 << 33  # of addresses; memory is taken page by page as it is used
_PAGE = 4096
_NONCE = 16
_SEALS = 0x2 | 0x4  # against shrinking and growing
_ADD_SEALS, _GET_SEALS = 1033, 1034

Bytes = np.ndarray[Any, Any]


class Arena:
    """This task's memory. The first page says whose it is; the rest is given out in blocks of few sizes.

    Raises:
      OSError: there is none to be had.
    """

    def __init__(self) -> None:
        self._fd = os.memfd_create("tfmini-collectives", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, ARENA_BYTES)
            fcntl.fcntl(self._fd, _ADD_SEALS, _SEALS)
            self._memory = np.frombuffer(mmap.mmap(self._fd, ARENA_BYTES, flags=mmap.MAP_SHARED), np.uint8)
        except (OSError, ValueError):
            os.close(self._fd)
            raise
        nonce = secrets.token_bytes(_NONCE)
        self._memory[:_NONCE] = np.frombuffer(nonce, np.uint8)
        address = self._memory.ctypes.data if other_memory() is not None else 0
        self.place = f"{_host()}|{os.getpid()}|{self._fd}|{nonce.hex()}|{address}"
        self._end = _PAGE
        self._free: dict[int, list[int]] = {}
        self._lock = threading.Lock()
        self._serials = itertools.count(1)

    def serial(self) -> int:
        """A number that no block had before."""
        return next(self._serials)

    def take(self, nbytes: int) -> tuple[int, int]:
        """(offset, size) of a block.

        Raises:
          ResourceExhaustedError: too many collectives are under way.
        """
        size = -(-nbytes // _PAGE) * _PAGE if nbytes <= 16 * _PAGE else size_class(nbytes)
        with self._lock:
            free = self._free.get(size)
            if free:
                return free.pop(), size
            if self._end + size > ARENA_BYTES:
                text = f"Collectives under way in this task take more than {ARENA_BYTES >> 20} MB of shared memory."
                raise errors.ResourceExhaustedError(None, None, text)
            offset, self._end = self._end, self._end + size
        return offset, size

    def give_back(self, offset: int, size: int) -> None:
        """Others may have that block."""
        with self._lock:
            self._free.setdefault(size, []).append(offset)

    def block(self, offset: int, size: int) -> Bytes:
        """The bytes of a block."""
        return self._memory[offset : offset + size]

    def close(self) -> None:
        """Lets it go; who has it mapped may go on reading."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _host() -> str:
    """Equal for two processes that can map each other's arenas; "": this one cannot have any."""
    host = host_id()
    if not host or not IS_ORDERED:
        return ""
    return f"{host}/{os.stat('/proc/self/ns/pid').st_ino}"


def make_arena() -> Arena | None:
    """An arena; None where there can be none, or ``TFMINI_LANE=off`` forbids it."""
    try:
        return Arena() if _host() else None
    except (OSError, ValueError):
        return None


def can_share(places: list[str]) -> bool:
    """Whether all are different processes of one host."""
    hosts = {place.partition("|")[0] for place in places}
    return len(hosts) == 1 and "" not in hosts and len({pid_of(place) for place in places}) == len(places)


def can_pull(places: list[str]) -> bool:
    """Whether all may read each other's memory."""
    return all(place.split("|")[4] != "0" for place in places)


def pid_of(place: str) -> int:
    """The process whose arena it is."""
    return int(place.split("|")[1])


class Neighbours:
    """The arenas of other tasks, by their places."""

    def __init__(self) -> None:
        self._maps: dict[str, Bytes] = {}

    def map(self, place: str) -> Bytes:
        """The arena there, read-only.

        Raises:
          OSError, ValueError: it cannot be mapped.
        """
        found = self._maps.get(place)
        if found is None:
            _, pid, number, nonce, _ = place.split("|")
            fd = os.open(f"/proc/{int(pid)}/fd/{int(number)}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size != ARENA_BYTES or fcntl.fcntl(fd, _GET_SEALS) & _SEALS != _SEALS:
                    raise ValueError(f"{place} is no arena")
                memory = mmap.mmap(fd, ARENA_BYTES, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            finally:
                os.close(fd)
            if memory[:_NONCE].hex() != nonce:
                raise ValueError(f"{place} belongs to somebody else now")
            found = self._maps[place] = np.frombuffer(memory, np.uint8)
        return found

    def probe(self, place: str) -> None:
        """Reads the nonce of an arena out of its owner's memory.

        Raises:
          OSError: that is forbidden; ValueError: it is not there.
        """
        _, pid, _, nonce, address = place.split("|")
        memory, found = other_memory(), np.empty(_NONCE, np.uint8)
        if memory is None or not memory.read(int(pid), int(address), found) or found.tobytes().hex() != nonce:
            raise ValueError(f"the memory of process {pid} is not what it says")

    def keep(self, places: set[str]) -> None:
        """Forgets all others."""
        for place in [place for place in self._maps if place not in places]:
            del self._maps[place]
