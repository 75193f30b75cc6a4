"""How much memory this process's machine or container has, and how much of it is free."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

_LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_USED_FILES = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
_SMALL = 64 << 20  # bytes that are always there: asking costs some microseconds


def machine_memory() -> int:
    """Returns the bytes of memory that this process's machine or container has."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMIT_FILES:
        limit = _number_in(path)
        found = found if limit is None else min(found, limit)
    return found


def free_memory() -> int:
    """Returns the bytes that this process can still take; those of the machine where nothing tells more."""
    found = machine_memory()
    for limit_file, used_file in zip(_LIMIT_FILES, _USED_FILES):
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
