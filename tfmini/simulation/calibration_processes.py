"""The processes that a calibration measures: their start, the lines that they are told and answer, and their end."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_DEADLINE_S = 120.0  # for a start or a turn of some seconds

Measured = subprocess.Popen[str]


@contextmanager
def measured(command: Sequence[str]) -> Iterator[Measured]:
    """A process, which is killed at the end."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def tell(process: Measured, what: str) -> None:
    """Writes a line to a process."""
    assert process.stdin is not None
    process.stdin.write(what + "\n")
    process.stdin.flush()


def answer(process: Measured) -> str:
    """The next line of a process, which writes one at a time.

    Raises:
      RuntimeError: it has ended, or does not answer.
    """
    assert process.stdout is not None
    answers = select.select([process.stdout], [], [], _DEADLINE_S)[0]
    line = process.stdout.readline() if answers else ""
    if not line:
        what = "has ended" if answers else f"has not answered for {_DEADLINE_S:.0f} s"
        raise RuntimeError(
            f"a process that is measured {what}: {process.args!r}. Does `tfmini run` work on this machine?"
        )
    return line.strip()
