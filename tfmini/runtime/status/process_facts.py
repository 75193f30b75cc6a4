"""CPU time, memory and threads of this process."""

from __future__ import annotations

import os
import resource
import threading
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")


def process_id() -> int:
    """The id of this process."""
    return os.getpid()


def cpu_seconds() -> float:
    """CPU time of all threads so far, in seconds."""
    return time.process_time()


def memory_bytes() -> int:
    """Resident memory; where the system does not tell, the most that it has been."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def thread_count() -> int:
    """The number of Python threads."""
    return threading.active_count()
