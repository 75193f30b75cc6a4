"""The log lines about a `Session.run` that has no answer for long, or that its client interrupts.

Each run of a partition can describe its waits (`PartitionRun.describe_wait`). A client that has waited for `FIRST_S`
seconds asks for the descriptions, through its master, and logs one line. It does so again whenever the time has
doubled. A step that is answered in time costs no more than the deadline of one wait.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from tfmini.rpc.waiter import Waiter
from tfmini.runtime.master.step import ASK_S, Told

_log = logging.getLogger("tfmini.runtime")

FIRST_S = 10.0
_ELEMENT = re.compile(r"elements? of \w*Queue ")
# What one task says (`PartitionRun.describe_wait`), with its causes.
_PART = re.compile(r"step \d+ on \S+ waits for (.*) for [\d.]+ s$")

# The queue of `SyncReplicasOptimizer`, which no queue runner of the user fills.
_TOKEN = 'an element of FIFOQueue "sync_token_q"'
_TOKEN_HINT = (
    "The chief of the synchronous run fills this queue when each variable has the gradients of replicas_to_aggregate"
    " workers. Either a worker has not sent its own: optimizer.ledger(session) names those who have. Or the chief (by"
    " convention /job:chief/task:0 or /job:worker/task:0) has not begun, or was lost: its make_session_run_hook(True),"
    " or get_chief_queue_runner(), makes the updates. `tfmini status` says who waits for whom"
)

Describe = Callable[[Told], None]
"""Calls back, now or later, with a text about the waits; "" when nothing is known."""


def report(describe: Describe, reactor: Any, waited_s: float, is_over: Callable[[], bool]) -> None:
    """Logs the waits of a step, unless the step has ended meanwhile or only waits for room in queues."""
    text = ask(describe, reactor)
    if text and not is_over() and not _needs_only_room(text):
        _log.warning("Session.run has had no answer for %.0f s: %s", waited_s, with_hint(text))


def _needs_only_room(text: str) -> bool:
    """Whether all causes are full queues. That is normal: the threads that fill a queue are ahead of its readers."""
    parts = [_PART.match(part) for part in text.split("; ")]
    return all(part and all(cause.startswith("room ") for cause in part[1].split(" and ")) for part in parts)


def report_interrupt(describe: Describe, reactor: Any) -> None:
    """Logs the waits of a step that its client interrupts."""
    text = ask(describe, reactor)
    if text:
        _log.warning("Session.run was interrupted: %s", with_hint(text))


def with_hint(text: str) -> str:
    """The text, followed by who fills the queue if the step waits for elements of one."""
    if _TOKEN in text:
        return f"{text}. {_TOKEN_HINT}"
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
