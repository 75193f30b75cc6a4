"""Asks the operating system about a process on this host that sends nothing."""

from __future__ import annotations

_IDLE_LOOKS = 4
_STOPPED = frozenset("TtZXx")


class ProcessWatch:
    """Tells a process that computes from one that is stopped, dead or idle.

    A kernel that holds the interpreter keeps every thread of its process from sending heartbeats. Such a process is not
    lost: it uses the processor. One that was stopped (SIGSTOP), has died or waits for something does not.

    Args:
      pid: of the process; 0: unknown. `computes` is called once per tick.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._used = -1
        self._idle_looks = 0

    def computes(self) -> bool:
        """Whether the process has used the processor within the last few calls and is not stopped now."""
        used = _processor_time(self.pid) if self.pid else -1
        self._idle_looks = self._idle_looks + 1 if used == self._used else 0
        self._used = used
        return used >= 0 and self._idle_looks < _IDLE_LOOKS


def _processor_time(pid: int) -> int:
    """The time that all threads of a process have used, in clock ticks; -1 if it is stopped or dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return -1 if fields[0].decode() in _STOPPED else int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return -1
