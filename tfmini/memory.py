"""The memory of this process's machine, and rests of Python's cycle collector while many objects are made."""

from __future__ import annotations

import functools
import gc
import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

# ---- Pauses of Python's cycle collector while many objects that all stay are made ----------------------------------

_lock = threading.RLock()  # a destructor may run a block inside another one
_FROZEN_BY_PYTHON = 1_000  # at most: Python 3.12 starts with 375 of its own; a program freezes all that it has
_MANY = 100_000  # objects made in a pause, from which on they are called old
_pauses = 0
_was_enabled = False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Pauses the collector in all threads until the last of such blocks ends.

    A pass over a large graph makes so many objects that the collector looks at all objects of the process several
    times, and it finds nothing to free: that took a fifth to a third of the time. A block must not wait for anything.
    (A script that disables the collector itself, in another thread while a block runs, has to do so again.)
    """
    global _pauses, _was_enabled
    try:
        with _lock:
            _pauses += 1  # first: Ctrl-C here must not leave the collector off for good
            if _pauses == 1:
                _was_enabled = gc.isenabled()
                gc.disable()
        yield
    finally:
        with _lock:
            _pauses = max(0, _pauses - 1)  # 0 in a child that was forked inside the block
            if not _pauses and _was_enabled:
                if gc.get_count()[0] > _MANY:  # after short pauses garbage would not be found early
                    call_old()
                gc.enable()


def current_frames() -> dict[int, FrameType]:
    """What each thread runs: `sys._current_frames`, without a collection inside it.

    CPython 3.11 makes the frames while it holds the lock that a thread takes when it begins or ends. A collection there
    runs destructors, during which such a thread may get the interpreter and wait for that lock: then the process
    stands still for good (gh-106883).
    """
    with collector_at_rest():
        return sys._current_frames()


def call_old() -> None:
    """Moves all objects to the oldest generation, for when those that have been made lately stay anyway.

    Else a collection of all of them comes soon, which takes a second per million. Garbage among them lives until the
    next collection of everything, which this puts off. Frozen objects, which others do not want back, stay frozen.
    """
    if gc.get_freeze_count() < _FROZEN_BY_PYTHON:
        gc.freeze()  # two moves of whole lists: there is no function that moves them directly
        gc.unfreeze()


@functools.cache
def call_imports_old() -> None:
    """Calls old, once per process, what is there when its first server begins: mostly what has been imported.

    Else it is collected amid the server's first steps, and all their tasks wait for that.
    """
    call_old()


def _after_fork() -> None:
    """Ends the pauses of the parent's other threads, which do not run in the child."""
    global _lock, _pauses
    _lock = threading.RLock()
    if _pauses and _was_enabled:
        gc.enable()
    _pauses = 0


os.register_at_fork(after_in_child=_after_fork)


# ---- How much memory this process's machine or container has, and how much of it is free ---------------------------

LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
USED_FILES = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
_SMALL = 64 << 20  # bytes that are always there: asking costs some microseconds


def machine_memory() -> int:
    """Returns the bytes of memory that this process's machine or container has."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in LIMIT_FILES:
        limit = _number_in(path)
        found = found if limit is None else min(found, limit)
    return found


def free_memory() -> int:
    """Returns the bytes that this process can still take; those of the machine where nothing tells more."""
    found = machine_memory()
    for limit_file, used_file in zip(LIMIT_FILES, USED_FILES):
        limit, used = _number_in(limit_file), _number_in(used_file)
        if limit is not None and used is not None:
            found = min(found, max(limit - used, 0) + _cached(limit_file))
    try:
        with open("/proc/meminfo") as file:
            sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
        return min(found, sizes["MemAvailable"] + sizes.get("SwapFree", 0))
    except (OSError, ValueError, KeyError, IndexError):  # another system than Linux
        return found


def check_room(shape: Sequence[int], itemsize: int) -> None:
    """Refuses an array that the memory has no room for, before any of it is taken.

    The system often grants memory that it does not have, and then kills the process that writes into it: a server
    would die for one client's step.

    Raises:
      MemoryError: with the shape.
    """
    nbytes = math.prod(shape) * itemsize
    if nbytes > _SMALL and nbytes > (free := free_memory()):
        raise MemoryError(f"OOM when allocating tensor with shape {list(shape)}: {nbytes} bytes, {free} are free")


def _cached(limit_file: str) -> int:
    """The bytes of a container that files in its cache take, which the system gives back."""
    try:
        with open(os.path.join(os.path.dirname(limit_file), "memory.stat")) as file:
            sizes = dict(line.split() for line in file)
        return int(sizes.get("inactive_file", sizes.get("total_inactive_file", 0)))
    except (OSError, ValueError):
        return 0


def _number_in(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):  # another version of cgroups; "max": no limit
        return None
