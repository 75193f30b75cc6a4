"""The logger "tensorflow", to which the library itself logs, as `tf.logging` does."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import sys

from tfmini.text import printable


class StderrHandler(logging.Handler):
    """Writes TensorFlow's format (``INFO:tensorflow:…``) to stderr, unless the program has handlers of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if any(not type(handler).__module__.startswith("absl.") for handler in logging.getLogger().handlers):
            return  # they get the record, too
        stream = sys.stdout if _is_interactive() else sys.stderr
        stream.write(self.format(record) + "\n")
        stream.flush()


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def library_logger() -> logging.Logger:
    """The logger "tensorflow", with its handler."""
    logger = logging.getLogger("tensorflow")
    if os.environ.get("TFMINI_LOG_JSON") == "1":
        from tfmini import json_log  # late, because few want it

        json_log.install()
        return logger
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        handler = StderrHandler()
        handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        logger.addHandler(handler)
        if _is_interactive() and logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    return logger


RUNTIME_LOGGERS = ("tfmini.rpc", "tfmini.runtime", "tfmini.ops", "tfmini.run")


class _OneLine(logging.Filter):
    """Keeps a record of the runtime on one line: a peer's name or error could otherwise forge a record of its own.

    The lines of a traceback are indented, for the same reason.
    """

    _formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        with contextlib.suppress(TypeError, ValueError):  # its handler reports what cannot be formatted
            text = record.getMessage()
            if not text.isprintable():
                record.msg, record.args = printable(text), ()
        if record.exc_info and not record.exc_text:
            lines = self._formatter.formatException(record.exc_info).split("\n")
            record.exc_text = "\n".join(f"  {printable(line)}" for line in lines)
        return True


_one_line = _OneLine()


def guard_runtime_logs() -> None:
    """Lets the runtime's records show what others have written without its control characters. Idempotent."""
    for name in RUNTIME_LOGGERS:
        logging.getLogger(name).addFilter(_one_line)


def set_level(level: int | str) -> None:
    """Sets the lowest level that the library logs; of the runtime's own messages, warnings are always logged."""
    library_logger().setLevel(level)
    runtime = logging.getLogger("tfmini")
    runtime.setLevel(level)
    runtime.setLevel(min(runtime.level, logging.WARNING))


# ---- Reports from a task to the `tfmini launch` that started it ----------------------------------------------------
# It serves, enters or leaves `Server.join`, meets others in a collective, works long.
#
# The contract: the environment variable `TFMINI_LAUNCH_REPORT` is ``FD:INODE``, the write end of a pipe that the task
# has inherited, and the pipe's inode. The inode prevents that a child of the task, in which the descriptor may be
# another file, writes to it. Each line is ``JOB TASK joined`` or ``JOB TASK left``, or ``JOB TASK`` and words about its
# progress (`tfmini.launch.progress`).

REPORT_ENV = "TFMINI_LAUNCH_REPORT"
_NUMBER = re.compile("[0-9]{1,9}")
MEETS = "meets"
"""The progress of a task that has met others in a collective; ``MEETS_ELASTIC``: in a group that may lose it."""
MEETS_ELASTIC = f"{MEETS} elastic"
_LONGEST_LINE = 400  # bytes; shorter than PIPE_BUF, so that lines of several tasks do not mix


def report_variable(fd: int) -> str:
    """The value of the environment variable for a pipe."""
    return f"{fd}:{os.fstat(fd).st_ino}"


def is_launched() -> bool:
    """Whether `tfmini launch` has started this process, so that its output is shown beside other tasks' output."""
    return _pipe() is not None


def send_report(job: str, task: int, joined: bool) -> None:
    """Reports to the launcher, if there is one, that this task has entered or left `Server.join`."""
    fd = _pipe()
    if fd is None:
        return
    try:
        os.write(fd, f"{job} {task} {'joined' if joined else 'left'}\n".encode())
    except OSError:  # the launcher has ended
        return


def send_progress(job: str, task: int, words: str) -> None:
    """Reports progress to the launcher, if there is one that reads. It never blocks; the line may be lost."""
    fd = _pipe()
    if fd is None:
        return
    import select

    try:
        if select.select([], [fd], [], 0)[1]:
            os.write(fd, f"{job} {task} {words}".replace("\n", " ").encode()[:_LONGEST_LINE] + b"\n")
    except (OSError, ValueError):  # the launcher has ended, or the descriptor is too large for select
        return


def parse_progress(line: str) -> tuple[str, int, str] | None:
    """Parses a line of `send_progress` to (job, task, words); None if it is none."""
    job, _, rest = line.partition(" ")
    task, _, words = rest.partition(" ")
    if not _NUMBER.fullmatch(task) or words.split(" ")[0] not in ("serves", "works", "rests", MEETS):
        return None
    return job, int(task), words


def parse_report(line: str) -> tuple[str, int, bool] | None:
    """Parses a line to (job, task, joined); None if it is no report."""
    words = line.split()
    if len(words) != 3 or not _NUMBER.fullmatch(words[1]) or words[2] not in ("joined", "left"):
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
