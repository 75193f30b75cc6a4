"""A master's side of one client session: its graph, placement, plans and running steps.

Nothing here waits. A client in the same process drives the reactor until its callback has been
called; for a remote client `master_service` sends the answer from the callback.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.node import Node, Nodes
from tfmini.placement.decision import Decision
from tfmini.placement.placer import place
from tfmini.rpc.messages import AbortStep, RunGraph
from tfmini.runtime.inline_step import InlineStep
from tfmini.runtime.local_step import LocalStep, TimedStep, run_simple
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.ownership import make_private
from tfmini.runtime.plan import Part, Plan, build_plan
from tfmini.runtime.registration import Registration
from tfmini.runtime.step import Abort, Finish, Instruction, Step
from tfmini.runtime.step_ids import new_step_id
from tfmini.runtime.trace import StepLog, clock
from tfmini.runtime.traced_run import TracedLocalStep
from tfmini.runtime.wait_reports import Told, describe_step

if TYPE_CHECKING:
    from tfmini.runtime.master import Master

_log = logging.getLogger("tfmini.runtime")

OnPlan = Callable[[errors.OpError | None, Plan | None], None]
OnValues = Callable[[errors.OpError | None, list[Any]], None]
_Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
_PlanKey = tuple[_Signature, bool]  # with whether it is traced


class MasterSession:
    """See the module. Made by `Master.create_session`."""

    def __init__(self, master: Master, handle: str, options: SessionOptions) -> None:
        self.master = master
        self.handle = handle
        self.options = options
        self.nodes: Nodes = {}
        self.placement: dict[str, str] = {}
        self.decisions: dict[str, Decision] = {}
        self.graph_version = 0
        self.closed = False
        self.closed_because = "Step was cancelled by an explicit call to `Session::Close()`."
        self.registered_tasks: dict[str, int] = {}
        self.holds: list[Callable[[], None]] = []  # end our coming back to tasks where this session is open
        self._names = itertools.count(0)
        self._plans: dict[_PlanKey, Plan] = {}
        self._building: dict[_PlanKey, list[OnPlan]] = {}
        self._steps: dict[int, _Run] = {}
        self._local_steps: dict[int, LocalStep] = {}
        self._registrations: set[Registration] = set()
        self._lock = threading.RLock()

    # ---- graph ------------------------------------------------------------------------------

    def extend(self, nodes: Sequence[Node]) -> int:
        """Adds nodes and places them; returns the new graph version.

        Raises:
          InvalidArgumentError: when a name is known already or a node cannot be placed.
          FailedPreconditionError: when the session is closed.
        """
        self._check_open()
        with self._lock:
            for node in nodes:
                if node.name in self.nodes:
                    text = (
                        f"GraphDef argument to Extend includes node '{node.name}', which was created by a previous call"
                        " to Create or Extend in this session."
                    )
                    raise errors.InvalidArgumentError(None, None, text)
            grown = {**self.nodes, **{n.name: n for n in nodes}} if self.nodes else {n.name: n for n in nodes}
            self._place(grown)
            self.nodes = grown
            self.graph_version += 1
            return self.graph_version

    def extend_when_known(self, nodes: Sequence[Node], on_done: Callable[[errors.OpError | None], None]) -> None:
        """As `extend`, after asking tasks for devices that the nodes name and that nobody has seen yet."""

        def known() -> None:
            error: errors.OpError | None = None
            try:
                if nodes:
                    self.extend(nodes)
            except errors.OpError as failure:
                error = failure
            on_done(error)

        self.master.learn_devices(nodes, self.options, known)

    def _place(self, nodes: Nodes) -> None:
        placement = place(
            nodes,
            self.master.devices(self.options.device_filters),
            default_device=self.master.default_device,
            soft_placement=self.options.allow_soft_placement,
            assigned=self.placement,
        )
        new = {name: d for name, d in placement.items() if name not in self.decisions}
        self.decisions.update(new)
        self.placement.update({name: d.device for name, d in new.items()})
        if self.options.log_device_placement:
            for name, decision in new.items():
                line = f"{name}: ({nodes[name].op}): {decision.device}"
                print(line)
                _log.info("%s", line)

    def _check_open(self) -> None:
        if self.closed:
            raise errors.FailedPreconditionError(None, None, "Session is closed.")

    # ---- plans ------------------------------------------------------------------------------

    def find_plan(self, signature: _Signature, traced: bool = False) -> Plan | None:
        """The plan of a signature if it is ready."""
        return self._plans.get((signature, traced))

    def prepare(self, signature: _Signature, on_plan: OnPlan, traced: bool = False) -> None:
        """Calls back with the plan of (feeds, fetches, targets), built and registered on all tasks.

        A plan that could not be built is not remembered: the next call tries again.

        Args:
          traced: the plan whose programs record what they do: another one beside the usual.
        """
        key = (signature, traced)
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                others = self._building.get(key)
                if others is not None:
                    others.append(on_plan)
                    return
                self._building[key] = [on_plan]
        if plan is not None:
            on_plan(None, plan)
            return
        try:
            self._check_open()
            plan = self._build(signature)
            plan.traced = traced
            registration = Registration(self, plan, lambda error: self._prepared(key, error, plan))
            with self._lock:  # either `close` sees the registration or it is never begun
                if self.closed:
                    raise errors.CancelledError(None, None, self.closed_because)
                self._registrations.add(registration)
            registration.start()
        except errors.OpError as error:
            self._prepared(key, error, None)
        except BaseException as error:  # even Ctrl-C
            # Whoever else waits for this plan must not wait for ever.
            self._prepared(key, errors.InternalError(None, None, f"{type(error).__name__}: {error}"), None)
            raise

    def _build(self, signature: _Signature) -> Plan:
        feeds, fetches, targets = signature
        with self._lock:
            incarnations = {d.name: d.incarnation for d in self.master.devices(())}
            return build_plan(
                self.nodes, self.placement, feeds, fetches, targets,
                client_device=self.master.default_device, incarnations=incarnations, name_counter=self._names,
            )  # fmt: skip

    def _prepared(self, key: _PlanKey, error: errors.OpError | None, plan: Plan | None) -> None:
        with self._lock:
            self._registrations = {r for r in self._registrations if not r.is_over}
            if error is None and plan is not None and not self.closed:
                self._plans[key] = plan
            waiting = self._building.pop(key, [])
        for callback in waiting:
            callback(error, None if error is not None else plan)

    # ---- steps ------------------------------------------------------------------------------

    def run_local(self, plan: Plan, values: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
        """Runs a plan that stays on this task as a plain function call.

        Args:
          values: one per feed of the plan.
          timeout_s: seconds after which a loop ends with DeadlineExceededError.

        Raises:
          OpError: what the step failed with.
        """
        part = plan.local
        assert part is not None
        graph = part.graph
        graph.program.bind(graph.resources)
        step_id, worker = new_step_id(), self.master.worker
        if plan.is_inline:
            return self._run_inline(InlineStep(graph.program, step_id, worker, self.master.reactor, timeout_s), values)
        step = LocalStep(step_id, worker) if timeout_s is None else TimedStep(step_id, worker, timeout_s)
        self._local_steps[step_id] = step  # a loop in it must notice when the session is closed
        try:
            return run_simple(graph.program, values, step, worker.task)
        finally:
            del self._local_steps[step_id]

    def run_traced(self, plan: Plan, values: Sequence[Any], timeout_s: float | None) -> tuple[list[Any], int]:
        """As `run_local`, of a traced plan; returns the values and the step's id, under which the trace is kept."""
        part = plan.local
        assert part is not None
        graph = part.graph
        graph.program.bind(graph.resources)
        step_id, worker = new_step_id(), self.master.worker
        step = TracedLocalStep(step_id, worker, timeout_s)
        worker.traces.keep(step_id, step.trace, graph)
        self._local_steps[step_id] = step
        try:
            return run_simple(graph.program, values, step, worker.task), step_id
        finally:
            step.trace.finished = clock()
            del self._local_steps[step_id]

    def _run_inline(self, step: InlineStep, values: Sequence[Any]) -> list[Any]:
        self._local_steps[step.step_id] = step
        try:
            if self.closed:
                step.stop(self.closed_because)
            return step.run_program(values)
        finally:
            del self._local_steps[step.step_id]

    def run(
        self, plan: Plan, values: Sequence[Any], on_done: OnValues, timeout_s: float | None, in_process: bool = False,
        log: StepLog | None = None,
    ) -> Callable[[errors.OpError], None]:  # fmt: skip
        """Starts a step and returns a function that cancels it with an error (and describes itself).

        Args:
          values: one per feed of the plan.
          on_done: called once with the error or the fetched values.
          timeout_s: seconds until DeadlineExceededError.
          in_process: the values go to a client in this process, which may change them.
          log: of a traced step: gets its id, and when what was sent and came.
        """
        run = _Run(self, plan, new_step_id(), on_done, in_process, log)
        with self._lock:  # either `close` sees the step or the step sees that the session is closed
            if not self.closed:
                self._steps[run.step_id] = run
            is_closed = self.closed
        if is_closed:
            on_done(errors.FailedPreconditionError(None, None, "Session is closed."), [])
            return lambda error: None
        run.start(values, timeout_s)
        return run

    def describe_wait(self, signature: _Signature, told: Told) -> None:
        """Calls back with what a step of that signature waits for, or a task that keeps it from beginning."""
        plans = [plan for traced in (False, True) if (plan := self._plans.get((signature, traced))) is not None]
        run = next((run for run in list(self._steps.values()) if run.plan in plans), None)
        if run is not None:
            run.describe(told)
            return
        with self._lock:
            told("; ".join(text for r in self._registrations if (text := r.describe_wait())))

    def expire(self, cancel: Callable[[errors.OpError], None], timeout_s: float | None) -> None:
        """The time of a local step is up; ``cancel`` is what `run` returned."""
        waits = "; ".join(step.describe_wait() for step in list(self.master.worker.steps.values()))
        text = f"Timed out waiting for notification: no result in {timeout_s:g} s. {waits}"
        cancel(errors.DeadlineExceededError(None, None, text))

    def step_over(self, step_id: int) -> None:
        """A step has ended."""
        self._steps.pop(step_id, None)

    def close(self) -> None:
        """Cancels running steps and lets the tasks forget the session."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            running = list(self._steps.values())
            registrations = list(self._registrations)
            self._plans.clear()
        for registration in registrations:
            registration.cancel(errors.CancelledError(None, None, self.closed_because))
        for step in list(self._local_steps.values()):
            step.stop(self.closed_because)
        for run in running:
            run.cancel(errors.CancelledError(None, None, self.closed_because))
        self.master.forget(self)


class _Run:
    """Drives one `Step`: turns its instructions into messages, and answers into events."""

    def __init__(
        self, session: MasterSession, plan: Plan, step_id: int, on_done: OnValues, in_process: bool,
        log: StepLog | None = None,
    ) -> None:  # fmt: skip
        self.log = log
        if log is not None:
            log.step_id = step_id
        self.session = session
        self.plan = plan
        self.step_id = step_id
        self.in_process = in_process
        self._step = Step(plan)
        self._on_done = on_done
        self._lock = threading.Lock()
        self._timer: Any = None
        self._calls: dict[int, Any] = {}

    def start(self, values: Sequence[Any], timeout_s: float | None) -> None:
        if timeout_s is not None and self.session.master.reactor is not None:
            self._timer = self.session.master.reactor.call_later(timeout_s, self._expire, timeout_s)
        if self._step.over:  # cancelled before it began
            return
        local: tuple[int, Part] | None = None
        for index, part in enumerate(self.plan.parts):
            if self._step.over:  # cancelled, or failed on a task, meanwhile: the others are not begun
                return
            if part.graph is not None:
                local = index, part
            else:
                self._guarded(index, self._call, index, part, [values[i] for i in part.feed_indices])
        if local is not None and not self._step.over:
            index, part = local
            self._guarded(index, self._run_local, index, part, [values[i] for i in part.feed_indices])

    def _guarded(self, index: int, start: Callable[..., None], *args: Any) -> None:
        """Starts a part; what it raises is the part's failure, so that the others are told."""
        try:
            start(*args)
        except errors.OpError as error:
            self._event(Step.part_failed, index, error)
        except Exception as error:  # noqa: BLE001 - a half-started step would never end
            self._event(Step.part_failed, index, errors.InternalError(None, None, f"{type(error).__name__}: {error}"))

    def _run_local(self, index: int, part: Part, feeds: list[Any]) -> None:
        if self.log is not None:
            self.log.called[index] = clock()
        self.session.master.worker.run_graph(
            part.graph, self.step_id, feeds, lambda error, found: self._local_answer(index, error, found)
        )

    def _call(self, index: int, part: Part, feeds: list[Any]) -> None:
        if self.log is not None:
            self.log.called[index] = clock()
        request = RunGraph(self.session.handle, part.graph_handle, self.step_id, tuple(feeds), 0)
        self._calls[index] = part.peer.call(
            request, lambda answer: self._answer(index, part, answer), incarnation=part.incarnation
        )
        if self.log is not None:
            self.log.told[index] = clock()

    def _answer(self, index: int, part: Part, answer: Any) -> None:
        if self.log is not None:
            self.log.answered[index] = clock()
        if isinstance(answer, errors.OpError):
            self._event(Step.part_failed, index, from_task(answer, part.task))
        else:
            self._event(Step.part_done, index, answer.values)

    def _local_answer(self, index: int, error: errors.OpError | None, values: list[Any]) -> None:
        if self.log is not None:
            self.log.answered[index] = clock()
        if error is not None:
            # In a step of several tasks the text says which; alone, there is only one.
            error = error if len(self.plan.parts) == 1 else from_task(error, self.plan.parts[index].task)
            self._event(Step.part_failed, index, error)
        else:
            if self.in_process:
                values = make_private(values)
            self._event(Step.part_done, index, values)

    def cancel(self, error: errors.OpError) -> None:
        """Ends the step for the reason given."""
        self._event(Step.cancel, error)

    __call__ = cancel

    def describe(self, told: Told) -> None:
        """Calls back with what the step waits for, on the tasks that have not answered."""
        with self._lock:
            parts = [self.plan.parts[index] for index in sorted(self._step.waiting)]
        describe_step(self.step_id, parts, self.session.master.worker.steps, told)

    def _expire(self, timeout_s: float) -> None:
        waits = [self.plan.parts[i].task for i in sorted(self._step.waiting)]
        text = (
            f"Timed out waiting for notification: step {self.step_id} had no answer"
            f" from {', '.join(waits)} in {timeout_s:g} s."
        )
        self.cancel(errors.DeadlineExceededError(None, None, text))

    def _event(self, event: Callable[..., list[Instruction]], *args: Any) -> None:
        with self._lock:
            instructions = event(self._step, *args)
        for instruction in instructions:
            if isinstance(instruction, Abort):
                self._abort(instruction)
            elif isinstance(instruction, Finish):
                self._finish(instruction)

    def _abort(self, instruction: Abort) -> None:
        error = instruction.error
        for index in instruction.parts:
            part = self.plan.parts[index]
            if part.graph is not None:
                self.session.master.worker.abort_step(self.step_id, error)
            else:
                # In the order of the RunGraph that it aborts, also while both wait for a connection.
                part.peer.send(AbortStep(self.step_id, error.error_code, error.message, "", "", error.task, True))

    def _finish(self, instruction: Finish) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.session.step_over(self.step_id)
        self._on_done(instruction.error, instruction.values)


def from_task(error: errors.OpError, task: str) -> errors.OpError:
    """An error that came from another task, with the task named in its text."""
    prefix = f"From {task}:\n"
    if error.message.startswith("From /job:") or error.error_code in (errors.UNAVAILABLE, errors.ABORTED):
        return error
    return errors.from_code(
        error.error_code,
        prefix + error.message,
        node_name=error.node_name,
        device=error.device,
        task=error.task or task,
        derived=error.derived,
    )
