"""The memory in which a task lays out its parts of collectives, and how the other tasks of its host see it.

Each task has one *arena*, a sealed memfd of which only the pages in use exist. Another task opens it by the
descriptor of its owner (``/proc/<pid>/fd/<n>``), which the kernel allows to processes of the same user, and maps it
read-only. Nothing of it has a name in the file system, and nothing is left of it when its owner dies.

"""

from __future__ import annotations

import errno
import fcntl
import itertools
import mmap
import os
import platform
import secrets
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tfmini import errors
from tfmini.collectives.shared_reduce import COPIED, IS_ORDERED, WINDOW_BITS, Moves, RankStage
from tfmini.rpc.lane_listener import host_id
from tfmini.rpc.shared_blocks import ADD_SEALS, GET_SEALS, SEALS, size_class

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_FORBIDDEN = (errno.EPERM, errno.ENOSYS)
ARENA_BYTES = 1 << 33  # of addresses; memory is taken page by page as it is used
_PAGE = 4096
_NONCE = 16
Bytes = np.ndarray[Any, Any]


_SYSCALL = {"x86_64": 202}
_WAIT, _WAKE = 0, 1
_ALL = 0x7FFFFFFF


class Futex:
    """Sleeping on a number in shared memory until another process says that it has changed.

    A futex costs a tenth of a message: no socket, nothing to read. Linux on x86-64 only, as `collectives.stages`.

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


class OtherMemory:
    """Reads another process's memory with one copy and without a stage (``process_vm_readv``, Linux).

    The kernel allows it to processes of one user, unless the system is set to keep them apart (``ptrace_scope`` of the
    Yama module, as on Ubuntu outside containers, or a seccomp filter). tfmini does not change that setting.

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


class ArenaPlace(NamedTuple):
    """Where an arena is.

    Attributes:
      host: equal for processes that can map each other's arenas.
      descriptor: of its owner; ``nonce``: the number at its beginning, in hexadecimal digits.
      address: where its owner has it; 0 if that may not read the memory of others (`other_memory`).
    """

    host: str
    pid: int
    descriptor: int
    nonce: str
    address: int

    @classmethod
    def parse(cls, text: str) -> ArenaPlace:
        """From a message.

        Raises:
          ValueError: it is none.
        """
        host, pid, descriptor, nonce, address = text.split("|")
        return cls(host, int(pid), int(descriptor), nonce, int(address))

    def __str__(self) -> str:
        return "|".join(map(str, self))


class Arena:
    """This task's memory. The first page says whose it is; the rest is given out in blocks of few sizes.

    Not thread-safe: the executor's lock guards it.

    Args:
      can_be_read: whether its place says at which address its owner has it.

    Raises:
      OSError: there is none to be had.
    """

    def __init__(self, can_be_read: bool) -> None:
        self._fd = os.memfd_create("tfmini-collectives", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, ARENA_BYTES)
            fcntl.fcntl(self._fd, ADD_SEALS, SEALS)
            self._memory = np.frombuffer(mmap.mmap(self._fd, ARENA_BYTES, flags=mmap.MAP_SHARED), np.uint8)
        except (OSError, ValueError):
            os.close(self._fd)
            raise
        nonce = secrets.token_bytes(_NONCE)
        self._memory[:_NONCE] = np.frombuffer(nonce, np.uint8)
        address = self._memory.ctypes.data if can_be_read else 0
        self.place = str(ArenaPlace(_host(), os.getpid(), self._fd, nonce.hex(), address))
        self._end = _PAGE
        self._free: dict[int, list[int]] = {}
        self._serials = itertools.count(1)

    def hide(self) -> None:
        """Removes the address from the place, so that no rank reads this process's memory directly."""
        self.place = str(ArenaPlace.parse(self.place)._replace(address=0))

    def serial(self) -> int:
        """A number that no block had before."""
        return next(self._serials)

    def take(self, nbytes: int) -> tuple[int, int]:
        """(offset, size) of a block.

        Raises:
          ResourceExhaustedError: too many collectives are under way.
        """
        size = -(-nbytes // _PAGE) * _PAGE if nbytes <= 16 * _PAGE else size_class(nbytes)
        free = self._free.get(size)
        if free:
            return free.pop(), size
        if self._end + size > ARENA_BYTES:
            text = f"Collectives under way in this task take more than {ARENA_BYTES >> 20} MB of shared memory."
            raise errors.ResourceExhaustedError.of(text)
        offset, self._end = self._end, self._end + size
        return offset, size

    def give_back(self, offset: int, size: int) -> None:
        """Others may have that block."""
        self._free.setdefault(size, []).append(offset)

    def block(self, offset: int, size: int) -> Bytes:
        """The bytes of a block."""
        return self._memory[offset : offset + size]

    def close(self) -> None:
        """Gives the memory up; processes that have it mapped may go on reading."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _host() -> str:
    """Equal for two processes that can map each other's arenas; "": this one cannot have any."""
    host = host_id()
    if not host or not IS_ORDERED:
        return ""
    return f"{host}/{os.stat('/proc/self/ns/pid').st_ino}"


def make_arena(can_be_read: bool = False) -> Arena | None:
    """An arena; None where there can be none, or ``TFMINI_LANE=off`` forbids it."""
    try:
        return Arena(can_be_read) if _host() else None
    except (OSError, ValueError):
        return None


def can_share(places: list[str]) -> bool:
    """Whether there are several, all of different processes of one host."""
    if len(places) < 2 or "" in places:
        return False
    known = [ArenaPlace.parse(place) for place in places]
    return len({place.host for place in known}) == 1 and len({place.pid for place in known}) == len(known)


class Neighbours:
    """The arenas of other tasks, by their places."""

    def __init__(self) -> None:
        self._maps: dict[ArenaPlace, Bytes] = {}

    def map(self, place: ArenaPlace) -> Bytes:
        """The arena there, read-only.

        Raises:
          OSError, ValueError: it cannot be mapped.
        """
        found = self._maps.get(place)
        if found is None:
            fd = os.open(f"/proc/{place.pid}/fd/{place.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size != ARENA_BYTES or fcntl.fcntl(fd, GET_SEALS) & SEALS != SEALS:
                    raise ValueError(f"{place} is no arena")
                memory = mmap.mmap(fd, ARENA_BYTES, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            finally:
                os.close(fd)
            if memory[:_NONCE].hex() != place.nonce:
                raise ValueError(f"{place} belongs to somebody else now")
            found = self._maps[place] = np.frombuffer(memory, np.uint8)
        return found

    def can_read(self, place: ArenaPlace) -> bool:
        """Whether the nonce of an arena can be read out of its owner's memory."""
        memory, found = other_memory(), np.empty(_NONCE, np.uint8)
        try:
            is_read = memory is not None and memory.read(place.pid, place.address, found)
        except OSError:  # kept apart by something that reading one's own memory does not show
            return False
        return is_read and found.tobytes().hex() == place.nonce

    def keep(self, places: set[ArenaPlace]) -> None:
        """Forgets all others."""
        for place in [place for place in self._maps if place not in places]:
            del self._maps[place]


# ---- The stages of all ranks of a group that shares memory, and which ranks need a notice of a new stage -----------
# A collective keeps its stage from step to step, so that in the steady state ranks find each other's parts without
# a message. When all stages of a member take more than `KEEP_BYTES`, those that have been idle longest are released;
# their collectives get new ones, announced to the other ranks, when they run again. Others may still read from the
# old stage, so each run of a collective uses the stages that were announced up to it.

KEEP_BYTES = 64 << 20


@dataclass
class Channel:
    """The state of one collective at a member.

    Attributes:
      stages: of all ranks, by rank, as the latest run here goes by them.
      announced: (rank, count, stage) of other ranks, for later runs.
      count: the number of the latest run here, from 0. Another graph may use the instance for a collective that goes by
        messages: that is no run.
      moves: how the latest run went.
    """

    stages: list[RankStage | None]
    announced: list[tuple[int, int, RankStage]] = field(default_factory=list)
    offset: int = 0
    size: int = 0
    moves: type[Moves] | None = None
    count: int = -1
    is_busy: bool = False
    outgrown: list[tuple[RankStage, int, int]] = field(default_factory=list)

    def begin(self) -> None:
        """A run begins: it goes by the stages that have been announced for it."""
        self.count, self.is_busy = self.count + 1, True
        self.stages = list(self.stages)  # the run before keeps its own
        for rank, since, stage in self.announced:
            if since <= self.count:
                self.stages[rank] = stage
        self.announced = [entry for entry in self.announced if entry[1] > self.count]


class Stages:
    """See the module.

    Args:
      arena: of this task; ``neighbours``: of all ranks (its own entry is not used).
    """

    def __init__(self, rank: int, arena: Arena, neighbours: list[Bytes]) -> None:
        self._rank, self._arena, self._neighbours = rank, arena, neighbours
        self._channels: dict[int, Channel] = {}  # those used last at the end
        self._bytes = 0

    def channel(self, instance: int) -> Channel:
        """The state of a collective at this member."""
        found = self._channels.get(instance)
        if found is None:
            found = self._channels[instance] = Channel([None] * len(self._neighbours))
        return found

    def place(self, instance: int, count: int, sender: int, serial: int, offset: int, size: int) -> bool:
        """Another rank has told where its stage is from its ``count``-th run on; whether the latest run here uses it.

        Raises:
          ValueError: it cannot be there.
        """
        memory = self._neighbours[sender][offset : offset + size]
        if offset < 0 or len(memory) != size or size < 4096 or offset % 4096:
            raise ValueError(f"rank {sender} has no stage at {offset}")
        channel, stage = self.channel(instance), RankStage(memory, serial)
        if count > channel.count:
            channel.announced.append((sender, count, stage))
            return False
        channel.stages[sender] = stage
        return True

    def open(self, instance: int, needed: int) -> tuple[Channel, tuple[int, int, int] | None]:
        """Prepares a run, whose stage takes so many bytes; with (serial, offset, size) when the others must be told.

        Raises:
          ResourceExhaustedError: there is no memory.
        """
        channel = self.channel(instance)
        channel.begin()
        self._channels[instance] = self._channels.pop(instance)
        own = channel.stages[self._rank]
        if own is not None:
            if channel.size >= needed:
                return channel, None
            # Others may still read the run before.
            channel.outgrown.append((own, channel.offset, channel.size))
        self._make_room(needed)
        channel.offset, channel.size = self._arena.take(needed)
        self._bytes += channel.size
        stage = RankStage(self._arena.block(channel.offset, channel.size), self._arena.serial())
        stage.open(channel.count)
        channel.stages[self._rank] = stage
        return channel, (stage.serial, channel.offset, channel.size)

    def _make_room(self, needed: int) -> None:
        for channel in list(self._channels.values()):
            if self._bytes + needed <= KEEP_BYTES:
                return
            if channel.size and not channel.is_busy and self._is_idle(channel):
                self._give_back(channel)

    def _is_idle(self, channel: Channel) -> bool:
        """Whether all others are through with the latest run."""
        over = channel.count + 1 << WINDOW_BITS
        stages = [stage for rank, stage in enumerate(channel.stages) if rank != self._rank]
        # One whose rank has given it up has gone on as well.
        return all(stage is not None and (stage.words[COPIED] >= over or not stage.is_valid) for stage in stages)

    def _give_back(self, channel: Channel) -> None:
        own = channel.stages[self._rank]
        for stage, offset, size in [*channel.outgrown, *([(own, channel.offset, channel.size)] if own else [])]:
            stage.release()
            self._arena.give_back(offset, size)
            self._bytes -= size
        channel.stages[self._rank] = None
        channel.offset = channel.size = 0
        channel.outgrown.clear()

    def invalidate(self, for_good: bool) -> None:
        """Invalidates all stages, because the tensors of unfinished runs may be freed at any time."""
        for channel in self._channels.values():
            own = channel.stages[self._rank]
            if own is not None and (channel.is_busy or not for_good):
                own.release()

    def close(self, for_good: bool) -> None:
        """Gives all back.

        Args:
          for_good: the arena is given up, too. Its blocks are not reused, so others may finish reading complete data.
        """
        for channel in self._channels.values():
            if channel.is_busy or not for_good:
                self._give_back(channel)
        self._channels.clear()
