"""Messages of collectives that come before this rank knows of them: bounded, and dropped when nobody takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import errors

MESSAGE_LIMIT = 100_000
BYTE_LIMIT = 4 << 30  # of groups that a task does not know yet, and of one member's collectives that it has not called
KEEP_S = 300.0  # seconds between two calls of `sweep`
_MESSAGE_BYTES = 256  # what a message takes beside its values


def size_of(message: Any) -> int:
    """The bytes that a message takes."""
    nbytes: int = sum(value.nbytes for value in getattr(message, "values", ()))
    return _MESSAGE_BYTES + nbytes


def too_many_bytes(who: str, what: str) -> errors.OpError:
    """The error of a group of which one rank is far behind the others."""
    return errors.ResourceExhaustedError.of(
        f"{who} can keep no more messages {what}: {BYTE_LIMIT} bytes or {MESSAGE_LIMIT} messages wait, since the other"
        " ranks are far ahead of it. Let all ranks begin together, or reduce less at a time."
    )


class _Kept:
    """The messages of one epoch."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.bytes = 0
        self.senders: set[str] = set()
        self.is_old = False


class EarlyMessages:
    """Messages of groups that a task does not know yet, by epoch. Not thread-safe: the executor guards them.

    Args:
      task: who keeps them, for errors.
      refuse: called with an epoch that has lost messages and the error that its group must get.
    """

    def __init__(self, task: str, refuse: Callable[[int, errors.OpError], None]) -> None:
        self._task = task
        self._refuse = refuse
        self._epochs: dict[int, _Kept] = {}
        self._is_swept = False
        self.bytes = self.count = 0

    def add(self, message: Any, sender: str) -> bool:
        """Keeps a message of a task, or refuses its group if there are too many; returns whether to begin to sweep."""
        size = size_of(message)
        if self.count >= MESSAGE_LIMIT or self.bytes + size > BYTE_LIMIT:
            self.drop(message.epoch)
            self._refuse(message.epoch, too_many_bytes(self._task, "of collective groups that it has not joined yet"))
            return False
        kept = self._epochs.setdefault(message.epoch, _Kept())
        kept.messages.append(message)
        kept.bytes += size
        kept.senders.add(sender)
        self.bytes += size
        self.count += 1
        begins, self._is_swept = not self._is_swept, True
        return begins

    def take(self, epoch: int, rank: int) -> list[Any]:
        """Takes out the messages for one rank of a group."""
        kept = self._epochs.get(epoch)
        if kept is None:
            return []
        found = [message for message in kept.messages if message.rank == rank]
        kept.messages = [message for message in kept.messages if message.rank != rank]
        size = sum(map(size_of, found))
        kept.bytes -= size
        self.bytes -= size
        self.count -= len(found)
        if not kept.messages:
            del self._epochs[epoch]
        return found

    def drop(self, epoch: int) -> None:
        """Forgets the messages of a group."""
        kept = self._epochs.pop(epoch, None)
        if kept is not None:
            self.bytes -= kept.bytes
            self.count -= len(kept.messages)

    def epochs_of(self, sender: str) -> list[int]:
        """The groups of which a task has sent messages."""
        return [epoch for epoch, kept in self._epochs.items() if sender in kept.senders]

    def refuse_lost(self, epochs: list[int], sender: str, why: str) -> None:
        """Refuses groups, if their messages are still here: the task that sent them is gone."""
        for epoch in epochs:
            if epoch in self._epochs:
                text = f"{sender} was lost by {self._task}, which had not joined its collective group yet: {why}"
                self.drop(epoch)
                self._refuse(epoch, errors.UnavailableError.of(text, task=sender))

    def sweep(self) -> bool:
        """Refuses the groups that were here at the last sweep already; returns whether to come again."""
        for epoch in [epoch for epoch, kept in self._epochs.items() if kept.is_old]:
            text = f"{self._task} has not joined its collective group {KEEP_S:g} s after another rank has begun."
            self.drop(epoch)
            self._refuse(epoch, errors.ResourceExhaustedError.of(text))
        for kept in self._epochs.values():
            kept.is_old = True
        self._is_swept = bool(self._epochs)
        return self._is_swept
