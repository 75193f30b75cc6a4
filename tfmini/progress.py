"""Long work says how far it is, to a listener if there is one.

The command line listens on a terminal and shows bars; a task of `tfmini launch` tells its launcher (both are in
`tfmini.launch.progress`). Without a listener a piece of work costs a function call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Work(Protocol):
    """One piece of work, on the listener's side. Called from the thread that works."""

    def advance(self, amount: int) -> None:
        """So much more is done."""

    def end(self) -> None:
        """The work has ended, or has failed."""


Listener = Callable[[str, int | None, str], Work]
"""Begins a piece of work: what is done, the total (None: unknown), and the unit of amounts (``B`` for bytes)."""

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Sets the listener of this process; None: nobody listens."""
    global _listener
    _listener = listener


@contextmanager
def work(text: str, total: int | None = None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """A piece of work, for the time of the block; gives the function that says how much more is done.

    Args:
      text: what is done, such as ``saving /tmp/model.ckpt-100``.
      total: the amount at the end; None: unknown.
      unit: of amounts; ``B`` for bytes.
    """
    listener = _listener
    if listener is None:
        yield _nobody_listens
        return
    begun = listener(text, total, unit)
    try:
        yield begun.advance
    finally:
        begun.end()


def _nobody_listens(amount: int) -> None:
    return
