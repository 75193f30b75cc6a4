"""`Answer`: the outcome that a client's thread waits for."""

from __future__ import annotations

import contextlib
import logging
import re
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from tfmini import errors
from tfmini.devices import parse
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.op_types import ENTER_OPS, SWITCH_OPS, VARIABLE_OPS
from tfmini.graph.operation import Operation
from tfmini.locks import lock
from tfmini.rpc.waiter import Clock, Waiter, unlock
from tfmini.runtime.executor.dispatch import this_thread
from tfmini.runtime.master.step import ASK_S, Told
from tfmini.shapes import format_raw

_log = logging.getLogger("tfmini.runtime")

# ---- The log lines about a `Session.run` that has no answer for long, or that its client interrupts ----------------
# Each run of a partition can describe its waits (`PartitionRun.describe_wait`). A client that has waited for `FIRST_S`
# seconds asks for the descriptions, through its master, and logs one line. It does so again whenever the time has
# doubled. A step that is answered in time costs no more than the deadline of one wait.


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


# ---- The wait for an answer ----------------------------------------------------------------------------------------

T = TypeVar("T")


class Answer(Generic[T]):
    """Turns a callback into a wait. The waiting thread drives the reactor, or runs segments of its local step.

    Args:
      reactor: None for a master without a network, whose answer another thread of this process gives.
    """

    def __init__(self, reactor: Clock | None) -> None:
        self._reactor = reactor
        self._waiter = Waiter()
        self._gate = None  # a lock that is free when the answer has come
        if reactor is None:
            self._gate = allocate_lock()
            self._gate.acquire()
        self._error: errors.OpError | None = None
        self._value: Any = None

    def done(self, error: errors.OpError | None, value: T | None = None) -> None:
        """The callback: stores the outcome and ends the wait."""
        self._error, self._value = error, value
        self._waiter.set()
        if self._gate is not None:
            unlock(self._gate)

    def answered(self, reply: Any) -> None:
        """The callback of an rpc call."""
        if isinstance(reply, errors.OpError):
            self.done(reply)
        else:
            self.done(None, reply)

    def result(
        self, timeout_s: float | None = None, expire: Callable[[], None] | None = None,
        describe: Describe | None = None,
    ) -> T:  # fmt: skip
        """Waits, then returns the value.

        Args:
          timeout_s, expire: for a master without a reactor, which has no timers: ``expire`` is called after
            ``timeout_s`` seconds and leads to an answer.
          describe: describes the waits of the step, for the log lines about a long wait.

        Raises:
          OpError: the error of the answer.
        """
        if not self._waiter.done:
            limit_s = timeout_s if self._reactor is None else None
            if not self._wait(limit_s, describe) and expire is not None:
                expire()
                self._wait(None, None)
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def _wait(self, limit_s: float | None, describe: Describe | None) -> bool:
        """Whether the answer came within the limit; logs the waits after 10 s, 20 s, 40 s, …"""
        if describe is None:
            return self._sleep(limit_s)
        waited, pause = 0.0, FIRST_S
        while limit_s is None or waited < limit_s:
            if self._sleep(pause if limit_s is None else min(pause, limit_s - waited)):
                return True
            waited += pause
            pause = waited
            if limit_s is None or waited < limit_s:
                report(describe, self._reactor, waited, lambda: self._waiter.done)
        return False

    def _sleep(self, seconds: float | None) -> bool:
        if self._reactor is None:
            assert self._gate is not None
            return this_thread().sleep(self._gate, lambda: self._waiter.done, seconds)
        return self._reactor.drive(self._waiter, None if seconds is None else self._reactor.now() + seconds)


class PendingAnswers:
    """The waits of a session's client for its master, which the end of the session ends.

    Attributes:
      over: whether the session was closed.
    """

    def __init__(self, reactor: Clock | None, closed: Callable[[], errors.OpError]) -> None:
        self._reactor = reactor
        self._closed = closed
        self._lock = lock("client pending")
        self.over = False
        self._answers: set[Answer[Any]] = set()

    @contextlib.contextmanager
    def new(self) -> Iterator[Answer[Any]]:
        """An answer to wait for in the block.

        Raises:
          OpError: when the session was closed.
        """
        answer: Answer[Any] = Answer(self._reactor)
        if not self.unless_over(lambda: self._answers.add(answer)):
            raise self._closed()
        try:
            yield answer
        finally:
            self._answers.discard(answer)

    def unless_over(self, store: Callable[[], None]) -> bool:
        """Stores something that `stop` finds; False: the session was closed before, and nothing is stored."""
        with self._lock:
            if not self.over:
                store()
            return not self.over

    def stop(self) -> None:
        """Begins the end of the session: nothing is stored any more."""
        with self._lock:
            self.over = True

    def end(self) -> None:
        """Ends all waits with the error of a closed session, and those to come."""
        self.stop()
        for answer in list(self._answers):
            answer.done(self._closed())


# ---- Errors of a step as the client sees them: with its own operation and source line ------------------------------

_PLACEMENT = re.compile(r"Cannot (assign a device|colocate)")
_NODE = re.compile(r"\[\[\{\{node ([^}]+)\}\}\]\]")
_UNINITIALIZED = re.compile(
    r"Attempting to use uninitialized value (\S+)|Error while reading resource variable (\S+) from Container"
)
_HANDS_ON = frozenset(("Identity", *SWITCH_OPS, *ENTER_OPS))
_ASSIGNED = re.compile(r"Assign requires shapes of both tensors to match\. lhs shape= (\[.*?\]) rhs")
_ANY_NODE = re.compile(r"\{\{(?:colocation_)?node ([^}]+)\}\}( ?)")


def located(error: errors.OpError, graph: Graph) -> errors.OpError:
    """The same error with the client's operation attached and node tags replaced by source lines."""
    match = _NODE.search(error.message)
    name = failed = error.node_name or (match.group(1) if match else "")
    if error.error_code == errors.FAILED_PRECONDITION:
        name = _reader(failed, error.message, graph)
    op = graph._ops.get(name)
    tagged = error.message.replace(f"{{{{node {failed}}}}}", f"{{{{node {name}}}}}")
    message = _ANY_NODE.sub(lambda found: _describe(found[1], found[2], graph), tagged)
    if error.error_code == errors.FAILED_PRECONDITION:
        message += _remedy(error, graph)
    elif op is not None and (shapes := _ASSIGNED.search(error.message)):
        message += _owner(op, shapes[1], error.device)
    elif op is not None and _PLACEMENT.match(error.message):
        message += "".join(f"\nA scope around {name}: {site}." for site in (*op._sites[1], *op._device_assignments))
    found = errors.from_code(
        error.error_code,
        message,
        op=op,
        node_name=name,
        device=error.device,
        task=error.task,
        derived=error.derived,
    )
    found.unfinished = error.unfinished
    return found


def _describe(name: str, space: str, graph: Graph) -> str:
    """The text that replaces a node tag and the space, if any, that follows it."""
    op = graph._ops.get(name)
    if op is None or not op.creation_stack():
        return f"node {name}{space}"
    file, line = op.creation_site()
    return f"node {name} (defined at {file}:{line}) "


def _reader(failed: str, message: str, graph: Graph) -> str:
    """The node that reads the variable without a value, as TensorFlow names it.

    Compiled steps leave out copies such as ``v/read``, so that an op behind them fails; a loop does so as a whole.
    """
    match = _UNINITIALIZED.search(message)
    variable = graph._ops.get(match.group(1) or "") if match else None
    if variable is None:
        return failed
    copies = {one.name for one in variable.outputs[0].consumers() if one.type == "Identity"}
    op = graph._ops.get(failed)
    seen, behind = set(), list(copies) if op is None else [one.op.name for one in op.inputs]
    while behind:
        name = behind.pop(0)
        if name in copies:
            return name
        if name not in seen and graph._ops[name].type in _HANDS_ON:
            behind += [one.op.name for one in graph._ops[name].inputs]
        seen.add(name)
    return failed


def _remedy(error: errors.OpError, graph: Graph) -> str:
    """The op to run first, and the task of the variable, after an error about a variable without a value."""
    match = _UNINITIALIZED.search(error.message)
    if match is None:
        return ""
    name = match.group(1) or match.group(2)
    initializer = "local_variables_initializer" if _is_local(name, graph) else "global_variables_initializer"
    found = f"\nRun tf.{initializer}(), or restore, first"
    place = parse(error.device) if error.device else None
    if place is None or place.job in (None, "localhost"):
        return f"{found}."
    return f"{found}; it is a variable on /job:{place.job}/task:{place.task}."


def _owner(assignment: Operation, found: str, device: str) -> str:
    """The variable of an assignment of another shape, and whether it is one that an earlier job has left."""
    variable = assignment.inputs[0]
    declared = variable.raw_shape
    if variable.op.type not in VARIABLE_OPS:
        return ""
    if declared is None or None in declared or format_raw(declared) == found:
        return f"\nIt assigns to the variable '{variable.op.name}'."
    task = f"on {device.partition('/device:')[0]}" if device else "there"
    return (
        f"\nThe variable '{variable.op.name}' has shape {format_raw(declared)} in this graph, so that of shape {found}"
        f" {task} is left from an earlier job, or of one that uses the same servers now. Start the servers again, or"
        " drop their variables by tf.Session.reset(target); give each job its own ports."
    )


def _is_local(name: str, graph: Graph) -> bool:
    local = graph.get_collection(GraphKeys.LOCAL_VARIABLES)
    return any(getattr(variable, "op", None) is not None and variable.op.name == name for variable in local)
