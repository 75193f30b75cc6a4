"""A step, driven by its master: messages and calls to the parts, and their answers as events of a `StepState`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tfmini import errors
from tfmini.graph.op_types import ops_with
from tfmini.locks import Guarded, Once
from tfmini.rpc.calls import Outcome
from tfmini.rpc.fan_out import fan_out
from tfmini.rpc.messages import AbortStep, DescribeStep, Logging, LostTensors, RunGraph
from tfmini.rpc.waiter import Clock
from tfmini.runtime.executor.registered_graph import PartitionRun, deadline_exceeded
from tfmini.runtime.gathered_trace import GatheredTrace, TaskRecord
from tfmini.runtime.master.cluster import ClusterView
from tfmini.runtime.master.registration import Part, Plan, Signature
from tfmini.runtime.trace import OWN, Alignment, StepLog, ask_clock, clock, value_bytes

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

_log = logging.getLogger("tfmini.runtime")
_ENDING_S = 0.5  # how long a step whose time is up and that waits for nothing may compute on
_COLLECT_TIMEOUT_S = 30.0
ASK_S = 2.0  # how long a task may take to answer
_WAITS, _COLLECTIVES = ops_with("waits"), ops_with("collective")
Told = Callable[[str], None]
"""Takes a text for people; "" when nothing is waited for."""
OnDone = Callable[[errors.OpError | None, list[Any], GatheredTrace | None], None]
"""Called once: with the error, or with the fetched values, and with the trace of a traced step."""


@dataclass(frozen=True)
class Abort:
    """Tell the parts (by index) that have not answered that the step has failed."""

    parts: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Finish:
    """The step is over: with an error, or with the fetched values."""

    error: errors.OpError | None
    values: list[Any]


Instruction = Abort | Finish


class StepState:
    """The state of one run of a plan: the parts that have not answered, the fetched values and the error.

    Pure: events in (`part_done`, `part_failed`, `cancel`), instructions out. An error that is marked as derived never
    replaces another one, so the step fails with the root cause in whatever order the errors arrive.
    """

    __slots__ = ("plan", "values", "waiting", "error", "over")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.values: list[Any] = [None] * len(plan.fetches)
        self.waiting = set(range(len(plan.parts)))
        self.error: errors.OpError | None = None
        self.over = False

    def replan(self, plan: Plan) -> bool:
        """The step, which has not begun, gets another plan; False if it is over."""
        if not self.over:
            self.plan, self.values, self.waiting = plan, [None] * len(plan.fetches), set(range(len(plan.parts)))
        return not self.over

    def part_done(self, part: int, values: Sequence[Any]) -> list[Instruction]:
        """A part has run to its end."""
        if part not in self.waiting:
            return []
        self.waiting.discard(part)
        for index, value in zip(self.plan.parts[part].fetch_indices, values):
            self.values[index] = value
        return self._finish_if_last()

    def part_failed(self, part: int, error: errors.OpError) -> list[Instruction]:
        """A part, or the way to it, has failed: the others are told at the first failure."""
        if part not in self.waiting:
            return []
        self.waiting.discard(part)
        return self._fail(error)

    def cancel(self, error: errors.OpError) -> list[Instruction]:
        """The client gave up, the session was closed, or the time is up: the step ends at once.

        Parts that have not answered are told (again); their answers are ignored.
        """
        if self.over:
            return []
        self.error = error if self.error is None or self.error.derived else self.error
        told: list[Instruction] = [self._abort(error)] if self.waiting else []
        self.waiting.clear()
        return told + self._finish_if_last()

    def _fail(self, error: errors.OpError) -> list[Instruction]:
        told: list[Instruction] = [self._abort(error)] if self.error is None and self.waiting else []
        if self.error is None or self.error.derived and not error.derived:
            self.error = error
        return told + self._finish_if_last()

    def _abort(self, error: errors.OpError) -> Abort:
        return Abort(tuple(sorted(self.waiting)), f"The step failed elsewhere: {error.message}")

    def _finish_if_last(self) -> list[Instruction]:
        if self.waiting or self.over:
            return []
        self.over = True
        return [Finish(self.error, [] if self.error is not None else self.values)]


def describe_parts(step_id: int, parts: Sequence[Part], runs: Mapping[int, PartitionRun], told: Told) -> None:
    """Calls back with the waits of a step on some tasks.

    Args:
      parts: those that have not answered.
      runs: step id -> run, of this task.
    """

    def own(answered: Told) -> None:
        run = runs.get(step_id)
        answered("" if run is None else run.describe_wait())

    calls = {i: own if part.graph is not None else partial(_ask_task, step_id, part) for i, part in enumerate(parts)}

    def gathered(texts: Mapping[int, Outcome[str]]) -> None:
        told("; ".join(str(texts[i]) for i in sorted(texts) if texts[i]))

    fan_out(calls, gathered)


def pending_parts(step_id: int, parts: Sequence[Part], runs: Mapping[int, PartitionRun]) -> str:
    """Sentences about parts that have not answered, from what this task knows; it asks no other one.

    Args:
      runs: step id -> run, of this task.
    """
    others = [part.task for part in parts if part.graph is None]
    sentences = [f"There is no answer from {', '.join(others)}."] if others else []
    for part in parts:
        if part.graph is not None:
            run = runs.get(step_id)
            awaited = "" if run is None else run.awaited()
            sentences.append(f"{part.task} {f'waits for {awaited}' if awaited else 'computes'}.")
    return " ".join(sentences)


def _ask_task(step_id: int, part: Part, told: Told) -> None:
    def answered(answer: Any) -> None:
        if isinstance(answer, errors.OpError):
            told(f"{part.task} does not say what it waits for: {answer.message}")
        else:
            told(answer.text)

    part.peer.call(DescribeStep(step_id), answered, timeout_s=ASK_S)


class StepCounts:
    """How many steps have ended.

    Attributes:
      runs: all of them.
      steps: the training steps (`Plan.trains`); ``failed``: those of them that have ended with an error.
    """

    __slots__ = ("runs", "steps", "failed")

    def __init__(self) -> None:
        self.runs = self.steps = self.failed = 0

    def add(self, trains: bool, has_failed: bool) -> None:
        """A step has ended."""
        self.runs += 1
        if trains:
            self.steps += 1
            self.failed += has_failed


class StepOwner(Protocol):
    """The part of a `MasterSession` that its steps, and requests to trace one, use."""

    handle: str
    cluster: ClusterView

    def find_plan(self, signature: Signature) -> Plan | None: ...
    def add_step(self, step: Step) -> bool | None: ...
    def wait(self, step: Step, values: Sequence[Any]) -> None: ...
    def drop_step(self, step: Step) -> None: ...
    def remove_step(self, step: Step, has_failed: bool) -> None: ...
    def closing_error(self) -> errors.OpError: ...


class Step:
    """One run of a plan. `MasterSession.new_step` makes it.

    Args:
      timeout_s: seconds until DeadlineExceededError; a master without a network leaves the timer to its client.
      log: of a traced step: the times of requests and answers.

    Attributes:
      started_at: on the clock of the worker.
    """

    def __init__(
        self, session: StepOwner, plan: Plan, on_done: OnDone, timeout_s: float | None, log: StepLog | None = None
    ) -> None:
        self.session = session
        self.plan = plan
        self.step_id = session.cluster.worker.new_step_id()
        self.log = log
        if log is not None:
            log.step_id = self.step_id
        self._on_done = on_done
        self._timeout_s = timeout_s
        self._state = Guarded("step", StepState(plan))
        self._timer: Any = None
        self._own_waits = ""  # of the part of this task when the time was up
        self._told: list[str] = []  # what other tasks have said of parts that were told to end
        self._held = ""  # why it waits to begin: variables move
        self._late: errors.OpError | None = None  # the error of a step whose time is up and that may come to its end
        self.started_at = session.cluster.worker.now()

    def start(self, values: Sequence[Any]) -> None:
        """Begins the step.

        Args:
          values: one per feed of the plan.
        """
        if self._state.state.over:  # cancelled before it began
            return
        begins = self.session.add_step(self)
        if begins is False:
            self._finish(self.session.closing_error(), [])
            return
        if self._state.state.over:  # cancelled meanwhile, too early to take the note back
            self.session.drop_step(self)
            return
        reactor = self.session.cluster.reactor
        if self._timeout_s is not None and reactor is not None and self._timer is None:
            self._expire_after(self._timeout_s, reactor)
        if begins is None:
            self._held = f"It has not begun: variables that it uses move away from {self.plan.moves_from}."
            self.session.wait(self, values)
            return
        local: tuple[int, Part] | None = None
        for index, part in enumerate(self.plan.parts):
            if self._state.state.over:  # cancelled, or failed on a task, meanwhile: the others are not begun
                return
            if part.graph is not None:
                local = index, part
            else:
                self._guarded(self._call, index, part, values)
        if local is not None and not self._state.state.over:
            self._guarded(self._run_local, *local, values)

    def replan(self, plan: Plan) -> bool:
        """Goes on with another plan; only before the step has begun. False if it is over."""
        is_open = self._state(StepState.replan, plan)
        if is_open:
            self.plan, self._held = plan, ""
        return is_open

    def _expire_after(self, seconds: float, clock: Clock) -> None:
        self._timer = clock.call_later(seconds, self.expire)
        if self._state.state.over:  # perhaps since before there was a timer to cancel, which would keep the step alive
            self._timer.cancel()

    def cancel(self, error: errors.OpError) -> None:
        """Ends the step for the reason given."""
        self._event(StepState.cancel, error)

    def expire(self) -> None:
        """Ends the step because its time is up.

        What it has taken from a queue by now would be lost with it. So if it waits for nothing any more, or only for
        what another task has sent, it may come to its end, which is the same as if it had been a little faster.
        """
        assert self._timeout_s is not None
        parts = self.waiting_parts()
        waits = self._held or pending_parts(self.step_id, parts, self.session.cluster.worker.runs)
        error = deadline_exceeded(self.step_id, self._timeout_s, waits)
        if self._late is not None or self._held or not self._may_end(error):
            self.cancel(self._late or error)
            return
        self._late = error
        own = [part for part in parts if part.graph is not None]
        self._own_waits = pending_parts(self.step_id, own, self.session.cluster.worker.runs)
        reactor = self.session.cluster.reactor
        if reactor is not None:
            self._expire_after(_ENDING_S, reactor)
        for part in parts:
            if part.graph is None:  # it answers that it has ended, or ends now
                part.peer.send(AbortStep(self.step_id, f"The step failed elsewhere: {error.message}"))

    def _told_deadline(self) -> errors.OpError | None:
        """The error of a deadline with what other tasks have said, if they have."""
        waits = [text for text in self._told if " waits for " in text]
        if not waits or self._timeout_s is None:
            return None
        own = [self._own_waits] if self._own_waits else []
        return deadline_exceeded(self.step_id, self._timeout_s, " ".join(waits + own))

    def _may_end(self, error: errors.OpError) -> bool:
        """Whether a step whose time is up may have taken elements and wait for no others. If not, it takes none now."""
        ops = {node.op for part in self.plan.parts for node in part.task_graph.nodes.values()}
        if ops.isdisjoint(_WAITS - _COLLECTIVES):
            return False
        # Groups of tensors that the part of this task lacks are on their way, or another task says why they are not.
        run = self.session.cluster.worker.runs.get(self.step_id)
        return run is None or not run.refuse_answers(error)

    def waiting_parts(self) -> list[Part]:
        """The parts that have not answered."""
        return [self.plan.parts[index] for index in sorted(self._state.state.waiting)]

    def describe(self, told: Told) -> None:
        """Calls back with a text about the waits of the parts that have not answered."""
        if self._held:
            told(self._held)
            return
        describe_parts(self.step_id, self.waiting_parts(), self.session.cluster.worker.runs, told)

    def task_lost(self, peer: Peer, why: str) -> None:
        """A task is lost that may have run its part: ends the step if another part waits for tensors from there.

        They may have waited for a connection when the process died. A part that has not ended fails by itself.
        """
        waiting = self.waiting_parts()
        for part in [part for part in self.plan.parts if part.peer is peer and part not in waiting]:
            for other in waiting:
                if other.graph is not None:
                    self.session.cluster.worker.tensors_lost([self.step_id], part.task, why, None)
                else:
                    lost = LostTensors([self.step_id], why, "", part.task)
                    other.peer.call(lost, lambda _: None, incarnation=other.incarnation)

    # ---- parts ------------------------------------------------------------------------------

    def _guarded(self, start: Callable[..., None], index: int, part: Part, values: Sequence[Any]) -> None:
        """Starts a part. An exception is the part's failure, so that the other parts are told."""
        try:
            start(index, part, [values[i] for i in part.feed_indices])
        except errors.OpError as error:
            self._event(StepState.part_failed, index, error)
        except Exception as error:  # noqa: BLE001 - a half-started step would never end
            failure = errors.InternalError.of(f"{type(error).__name__}: {error}")
            self._event(StepState.part_failed, index, failure)

    def _run_local(self, index: int, part: Part, feeds: list[Any]) -> None:
        def done(error: errors.OpError | None, values: list[Any]) -> None:
            self._answered(index, part, error, values)

        assert part.graph is not None
        if self.log is not None:
            self.log.called[index] = clock()
        self.session.cluster.worker.run_graph(part.graph, self.step_id, feeds, done, self._timeout_s)

    def _call(self, index: int, part: Part, feeds: list[Any]) -> None:
        def done(answer: Any) -> None:
            is_error = isinstance(answer, errors.OpError)
            self._answered(index, part, answer if is_error else None, () if is_error else answer.values)

        if self.log is not None:
            self.log.called[index] = clock()
        request = RunGraph(part.graph_handle, self.step_id, tuple(feeds))
        part.peer.call(request, done, incarnation=part.incarnation)
        if self.log is not None:
            self.log.told[index] = clock()

    def _answered(self, index: int, part: Part, error: errors.OpError | None, values: Sequence[Any]) -> None:
        if self.log is not None:
            self.log.answered[index] = clock()
        if error is None:
            self._event(StepState.part_done, index, values)
            return
        if part.graph is None and error.derived:
            self._told.append(error.message)
        # In a step of several tasks the text names the task; a local step has only one.
        is_local = part.graph is not None and len(self.plan.parts) == 1
        self._event(StepState.part_failed, index, error if is_local else _from_task(error, part.task))

    # ---- the state --------------------------------------------------------------------------

    def _event(self, event: Callable[..., list[Instruction]], *args: object) -> None:
        with self._state.lock:
            instructions = event(self._state.state, *args)
        for instruction in instructions:
            if isinstance(instruction, Abort):
                self._abort(instruction)
            else:
                if self._timer is not None:
                    self._timer.cancel()
                error = instruction.error
                if error is not None and error.derived and self._late is not None:
                    error = self._told_deadline() or self._late
                self.session.remove_step(self, error is not None)
                self._finish(error, instruction.values)

    def _finish(self, error: errors.OpError | None, values: list[Any]) -> None:
        self._on_done(error, values, None)

    def _abort(self, instruction: Abort) -> None:
        error = errors.CancelledError.of(instruction.why, derived=True)
        for index in instruction.parts:
            part = self.plan.parts[index]
            if part.graph is not None:
                self.session.cluster.worker.abort_step(self.step_id, error)
            else:
                # `send` keeps the order: the RunGraph arrives first, even if both wait for a connection.
                part.peer.send(AbortStep(self.step_id, instruction.why))


def _from_task(error: errors.OpError, task: str) -> errors.OpError:
    """An error of another task, with the task named in its text."""
    if error.message.startswith("From /job:") or error.error_code in (errors.UNAVAILABLE, errors.ABORTED):
        return error
    return errors.from_code(
        error.error_code, f"From {task}:\n{error.message}", node_name=error.node_name, device=error.device,
        task=error.task or task, derived=error.derived,
    )  # fmt: skip


class TracedStep(Step):
    """One run of a traced plan: it reads the clocks, runs the step, and collects the tasks' records."""

    log: StepLog

    def __init__(self, session: StepOwner, plan: Plan, on_done: OnDone, timeout_s: float | None) -> None:
        super().__init__(session, plan, on_done, timeout_s, StepLog())
        self._remote = [(i, part) for i, part in enumerate(plan.parts) if part.graph is None]
        self._alignments: dict[int, Alignment | None] = {}
        self._values: Sequence[Any] = ()

    def start(self, values: Sequence[Any]) -> None:
        self._values = values
        fan_out({i: partial(ask_clock, part.peer) for i, part in self._remote}, self._run)

    def _run(self, alignments: Mapping[int, Outcome[Alignment | None]]) -> None:
        self._alignments = {i: None if isinstance(found, errors.OpError) else found for i, found in alignments.items()}
        self.log.started = clock()
        super().start(self._values)

    def _finish(self, error: errors.OpError | None, values: list[Any]) -> None:
        self.log.finished = clock()
        if error is not None:
            super()._finish(error, values)
        else:
            fan_out({i: partial(self._collect, part) for i, part in self._remote}, partial(self._collected, values))

    def _collect(self, part: Part, answered: Callable[[Any], None]) -> None:
        part.peer.call(Logging(self.step_id), answered, _COLLECT_TIMEOUT_S, part.incarnation)

    def _collected(self, values: list[Any], answers: Mapping[int, Outcome[Any]]) -> None:
        cluster = self.session.cluster
        trace = GatheredTrace(cluster.default_device, self.log)
        for index, part in enumerate(self.plan.parts):
            answer = answers.get(index)
            if answer is None:
                stats = partial(cluster.worker.step_stats, self.step_id)
                trace.records.append(TaskRecord(part.task, stats, OWN, index))
            elif isinstance(answer, errors.OpError):
                _log.warning("%s did not report its part of step %d: %s", part.task, self.step_id, answer.message)
            else:
                fed = sum(value_bytes(self._values[i]) for i in part.feed_indices)
                fetched = sum(value_bytes(values[i]) for i in part.fetch_indices)
                stats = partial(getattr, answer, "stats")
                trace.records.append(TaskRecord(part.task, stats, self._alignments[index], index, fed, fetched))
        self._on_done(None, values, trace)


# ---- A request from outside to trace one step of a task's master ----------------------------------------------------
# While there is no request, a step costs one look at an attribute of the master. Only one request is open at a time.


class TraceRequest:
    """One request.

    Args:
      answer: called once, with the error or the record of the step.

    Attributes:
      timer: of its deadline.
    """

    def __init__(self, answer: Callable[[errors.OpError | None, GatheredTrace | None], None]) -> None:
        self._answer = answer
        self.timer: Any = None
        self._taken, self._over = Once(), Once()

    def wants(self, session: StepOwner, plan: Plan) -> bool:
        """Whether this run of a plan is the one to trace; True once."""
        if self._taken.is_over or not plan.trains or not (plan.fetches or plan.targets):
            return False
        signature = plan.feeds, plan.fetches, plan.targets
        if session.find_plan(signature) is not plan:  # one that leaves out updates; the traced plan would make them
            return False
        return self._taken()

    def limit(self, reactor: Clock, seconds: float, late: errors.OpError) -> None:
        """Sets the deadline of a request that may be over by now."""
        self.timer = reactor.call_later(seconds, self.done, late)
        if self._over.is_over:
            self.timer.cancel()

    def done(self, error: errors.OpError | None, trace: GatheredTrace | None = None) -> bool:
        """Answers, unless that has been done."""
        self._taken()
        is_first = self._over()
        if is_first:
            if self.timer is not None:
                self.timer.cancel()
            self._answer(error, trace)
        return is_first
