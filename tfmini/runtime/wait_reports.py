"""Nothing waits for ever in silence: what a client is told whose step has had no answer for long.

A step knows on each task what it waits for (`StepRun.describe_wait`). A client that has waited
`FIRST_S` seconds asks for that, through its master, and logs one line; then again whenever the
time has doubled. The price of a step that is answered is the deadline of one wait.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini import errors
from tfmini.rpc.messages import DescribeStep
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.plan import Part

_log = logging.getLogger("tfmini")

FIRST_S = 10.0
ASK_S = 2.0  # how long a task may take to say what it waits for
_ELEMENT = re.compile(r"elements? of \w*Queue ")
# A queue that is full is no trouble: whoever fills it is ahead of its readers.
_ROOM = re.compile(r" waits for room (in|for \d)")

Told = Callable[[str], None]
Describe = Callable[[Told], None]
"""Calls back, now or later, with what is waited for; with "" when nothing is known."""


def report(describe: Describe, reactor: Any, waited_s: float, is_over: Callable[[], bool]) -> None:
    """Asks what a step waits for and logs it, unless the step is over meanwhile or only a queue is full."""
    text = ask(describe, reactor)
    if text and not is_over() and not all(_ROOM.search(part) for part in text.split("; ")):
        _log.warning("Session.run has had no answer for %.0f s: %s", waited_s, with_hint(text))


def report_interrupt(describe: Describe, reactor: Any) -> None:
    """Logs what a step waited for that its client gives up."""
    text = ask(describe, reactor)
    if text:
        _log.warning("Session.run was interrupted: %s", with_hint(text))


def with_hint(text: str) -> str:
    """The text, with a question that has helped many who wait for a queue."""
    if _ELEMENT.search(text):
        return f"{text}. Were the queue runners started (tf.train.start_queue_runners)?"
    return text


def ask(describe: Describe, reactor: Any) -> str:
    """The answer of ``describe``, or "" if it does not come in time."""
    answers: list[str] = []
    waiter = Waiter()

    def told(text: str) -> None:
        answers.append(text)
        waiter.set()

    describe(told)
    if reactor is not None:
        reactor.drive(waiter, reactor.now() + ASK_S + 1.0)
    return answers[0] if answers else ""


def describe_step(step_id: int, parts: Sequence[Part], running: Mapping[int, Any], told: Told) -> None:
    """Calls back with what a step waits for on each of some tasks.

    Args:
      parts: those that have not answered.
      running: step id -> run, of this task.
    """
    gathering = _Gathering(len(parts), told)
    for index, part in enumerate(parts):
        if part.graph is not None:
            gathering.add(index, describe_run(running.get(step_id)))
        else:
            _ask_task(step_id, part, lambda text, index=index: gathering.add(index, text))  # type: ignore[misc]


def describe_run(run: Any) -> str:
    """What one task waits for; "" if it computes."""
    return "" if run is None or not run.is_waiting else run.describe_wait()


def _ask_task(step_id: int, part: Part, told: Told) -> None:
    def answered(answer: Any) -> None:
        if isinstance(answer, errors.OpError):
            told(f"{part.task} does not say what it waits for: {answer.message}")
        else:
            told(answer.text)

    part.peer.call(DescribeStep(step_id), answered, timeout_s=ASK_S)


class _Gathering:
    """Joins the answers of several tasks when the last one has come."""

    def __init__(self, count: int, told: Told) -> None:
        self._texts: list[str | None] = [None] * count
        self._told = told
        self._lock = threading.Lock()
        if not count:
            told("")

    def add(self, index: int, text: str) -> None:
        with self._lock:
            self._texts[index] = text
            complete = None not in self._texts
        if complete:
            self._told("; ".join(text for text in self._texts if text))
