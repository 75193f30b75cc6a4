"""A step, driven by its master: messages and calls to the parts, and their answers as events of a `StepState`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.traits import ops_with
from tfmini.locks import Guarded
from tfmini.rpc.messages import AbortStep, LostTensors, RunGraph
from tfmini.runtime.executor.partition_run import deadline_exceeded
from tfmini.runtime.master.plan import Part, Plan
from tfmini.runtime.master.step_state import Abort, Instruction, StepState
from tfmini.runtime.master.step_waits import Told, describe_parts, pending_parts
from tfmini.runtime.trace.gathered_trace import GatheredTrace
from tfmini.runtime.trace.record import StepLog, clock

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer
    from tfmini.runtime.master.master_session import MasterSession

_ENDING_S = 0.5  # how long a step whose time is up and that waits for nothing may compute on
_WAITS, _COLLECTIVES = ops_with("waits"), ops_with("collective")

OnDone = Callable[[errors.OpError | None, list[Any], GatheredTrace | None], None]
"""Called once: with the error, or with the fetched values, and with the trace of a traced step."""


class Step:
    """One run of a plan. `MasterSession.new_step` makes it.

    Args:
      timeout_s: seconds until DeadlineExceededError; a master without a network leaves the timer to its client.
      log: of a traced step: the times of requests and answers.

    Attributes:
      started_at: on the clock of the worker.
    """

    def __init__(
        self, session: MasterSession, plan: Plan, on_done: OnDone, timeout_s: float | None, log: StepLog | None = None
    ) -> None:
        self.session = session
        self.plan = plan
        self.step_id = session.master.worker.new_step_id()
        self.log = log
        if log is not None:
            log.step_id = self.step_id
        self._on_done = on_done
        self._timeout_s = timeout_s
        self._state = Guarded("step", StepState(plan))
        self._timer: Any = None
        self._own_waits = ""  # of the part of this task when the time was up
        self._told: list[str] = []  # what other tasks have said of parts that were told to end
        self._late: errors.OpError | None = None  # the error of a step whose time is up and that may come to its end
        self.started_at = session.master.worker.now()

    def start(self, values: Sequence[Any]) -> None:
        """Begins the step.

        Args:
          values: one per feed of the plan.
        """
        if self._state.state.over:  # cancelled before it began
            return
        if not self.session.add_step(self):
            self._finish(self.session.closing_error(), [])
            return
        reactor = self.session.master.reactor
        if self._timeout_s is not None and reactor is not None:
            self._timer = reactor.call_later(self._timeout_s, self.expire)
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
        waits = pending_parts(self.step_id, parts, self.session.master.worker.runs)
        error = deadline_exceeded(self.step_id, self._timeout_s, waits)
        if self._late is not None or not self._may_end(parts):
            self.cancel(self._late or error)
            return
        self._late = error
        own = [part for part in parts if part.graph is not None]
        self._own_waits = pending_parts(self.step_id, own, self.session.master.worker.runs)
        reactor = self.session.master.reactor
        if reactor is not None:
            self._timer = reactor.call_later(_ENDING_S, self.expire)
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

    def _may_end(self, parts: Sequence[Part]) -> bool:
        """Whether a step whose time is up may have taken elements and wait for no others."""
        ops = {node.op for part in self.plan.parts for node in part.task_graph.nodes.values()}
        if ops.isdisjoint(_WAITS - _COLLECTIVES):
            return False
        # Groups of tensors that the part of this task lacks are on their way, or another task says why they are not.
        run = self.session.master.worker.runs.get(self.step_id)
        return run is None or not run.waits_here

    def waiting_parts(self) -> list[Part]:
        """The parts that have not answered."""
        return [self.plan.parts[index] for index in sorted(self._state.state.waiting)]

    def describe(self, told: Told) -> None:
        """Calls back with a text about the waits of the parts that have not answered."""
        describe_parts(self.step_id, self.waiting_parts(), self.session.master.worker.runs, told)

    def task_lost(self, peer: Peer, why: str) -> None:
        """A task is lost that may have run its part: ends the step if another part waits for tensors from there.

        They may have waited for a connection when the process died. A part that has not ended fails by itself.
        """
        waiting = self.waiting_parts()
        for part in [part for part in self.plan.parts if part.peer is peer and part not in waiting]:
            for other in waiting:
                if other.graph is not None:
                    self.session.master.worker.tensors_lost([self.step_id], part.task, why, None)
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
        self.session.master.worker.run_graph(part.graph, self.step_id, feeds, done, self._timeout_s)

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

    def _event(self, event: Callable[..., list[Instruction]], *args: Any) -> None:
        for instruction in self._state(event, *args):
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
                self.session.master.worker.abort_step(self.step_id, error)
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
