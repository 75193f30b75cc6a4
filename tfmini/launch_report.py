"""What a task tells the `tfmini launch` that started it: that it only serves now, inside `Server.join`.

The contract: the environment variable `TFMINI_LAUNCH_REPORT` is ``FD:INODE``, the write end of a
pipe that the task has inherited, and the pipe's inode, so that a child of the task, where that
number means something else, writes to nobody. Each line is ``JOB TASK joined`` or ``JOB TASK left``.
"""

from __future__ import annotations

import os
import stat

REPORT_ENV = "TFMINI_LAUNCH_REPORT"


def report_variable(fd: int) -> str:
    """The variable's value for a pipe."""
    return f"{fd}:{os.fstat(fd).st_ino}"


def is_launched() -> bool:
    """Whether `tfmini launch` has started this process, and shows what it prints beside other tasks' output."""
    return _pipe() is not None


def tell(job: str, task: int, joined: bool) -> None:
    """Tells the launcher, if there is one, that this task is inside `Server.join`, or has left it."""
    fd = _pipe()
    if fd is None:
        return
    try:
        os.write(fd, f"{job} {task} {'joined' if joined else 'left'}\n".encode())
    except OSError:  # the launcher is gone, and nobody waits for the news
        return


def parse_report(line: str) -> tuple[str, int, bool] | None:
    """(job, task, joined) of a line; None if it is none of ours."""
    words = line.split()
    if len(words) != 3 or not words[1].isdecimal() or words[2] not in ("joined", "left"):
        return None
    return words[0], int(words[1]), words[2] == "joined"


def _pipe() -> int | None:
    number, _, inode = os.environ.get(REPORT_ENV, "").partition(":")
    if not number.isdecimal() or not inode.isdecimal():
        return None
    try:
        found = os.fstat(int(number))
    except OSError:
        return None
    return int(number) if stat.S_ISFIFO(found.st_mode) and found.st_ino == int(inode) else None
