"""Asynchronous reads: an iterator whose elements may take long reads them in a thread of its own.

The thread reads only while a step waits. If that step is cancelled meanwhile, the element is kept for the
next step.
"""

from __future__ import annotations

import collections
import threading

from tfmini import errors
from tfmini.data.pipeline import Element, Stage
from tfmini.graph.waiting import Wait

Outcome = tuple[Element | None, errors.OpError | None]


def outcome_of(stage: Stage) -> Outcome:
    """The next element of a stage, or the error that takes its place."""
    try:
        return next(stage), None
    except StopIteration:
        return None, errors.OutOfRangeError.of("End of sequence")
    except Exception as error:  # noqa: BLE001 - a bug in a stage ends the step that waits for it, not the thread
        return None, errors.of_exception(error)


def answer(wait: Wait, outcome: Outcome) -> bool:
    """Ends a wait with an element or an error; returns whether the step took it."""
    element, error = outcome
    return wait.done(element) if error is None else wait.fail(error)


class AsyncReader:
    """Reads elements of one stage for the steps that wait for them, in the order of their requests.

    Args:
      stage: the stage to read.
      name: the iterator's name, for messages.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        self._changed = threading.Condition()
        self._waiting: dict[Wait, None] = {}
        self._kept: collections.deque[Outcome] = collections.deque()
        self._thread: threading.Thread | None = None
        self._reading = False
        self._closed: str | None = None

    def ask(self, wait: Wait) -> None:
        """Answers ``wait`` with the next element: at once if it is available, else when it has been read."""
        outcome: Outcome | None = None
        with self._changed:
            if self._closed is not None:
                outcome = None, errors.CancelledError.of(self._closed)
            elif not self._reading and not self._waiting:
                if self._kept:
                    outcome = self._kept.popleft()
                elif self._stage.ready:
                    outcome = outcome_of(self._stage)
        if outcome is not None:
            self._give(wait, outcome)
        elif wait.on_cancel(f'an element of iterator "{self._name}"', lambda: self._forget(wait)):
            self._enqueue(wait)

    def _enqueue(self, wait: Wait) -> None:
        with self._changed:
            closed = self._closed
            if closed is None:
                self._waiting[wait] = None
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="tfmini-iterator", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        if closed is not None:
            wait.fail(errors.CancelledError.of(closed))

    def _forget(self, wait: Wait) -> None:
        with self._changed:
            self._waiting.pop(wait, None)

    def _serve(self) -> None:
        """The thread's body: reads while a step waits."""
        while True:
            with self._changed:
                while not self._waiting and self._closed is None:
                    self._changed.wait()
                if self._closed is not None:
                    return
                self._reading = True
            outcome = self._kept.popleft() if self._kept else outcome_of(self._stage)
            with self._changed:
                self._reading = False
                wait = next(iter(self._waiting), None)
                if wait is None:
                    self._kept.append(outcome)
                    continue
                del self._waiting[wait]
            self._give(wait, outcome)

    def _give(self, wait: Wait, outcome: Outcome) -> None:
        """Answers a wait; the outcome is for the next one if the step has ended."""
        if not answer(wait, outcome):
            with self._changed:
                self._kept.appendleft(outcome)

    def close(self, why: str) -> None:
        """Ends the thread; the waiting steps get CancelledError."""
        with self._changed:
            self._closed = why
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for wait in waiting:
            wait.fail(errors.CancelledError.of(why))
