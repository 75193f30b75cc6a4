"""The worker's methods as answers to messages, and what its threads compute while messages wait."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.memory import collector_at_rest, current_frames
from tfmini.placement.task_graph import TaskGraph
from tfmini.rpc import messages as m
from tfmini.rpc.link import register_work
from tfmini.runtime.compiler.kernels import NODE_LINES
from tfmini.runtime.executor.dataflow_run import Activation
from tfmini.runtime.executor.registered_graph import PartitionRun, StepOutcome
from tfmini.runtime.resources import SessionOwners
from tfmini.runtime.snapshot import ThreadSnapshot
from tfmini.runtime.worker.departures import VariablesMoved
from tfmini.runtime.worker.task_state import STEP_LIMIT
from tfmini.runtime.worker.worker import Worker

if TYPE_CHECKING:
    from tfmini.rpc.calls import Responder
    from tfmini.rpc.peer import Peer


# ---- What the threads that run the reactor compute for steps, for peers whose messages wait meanwhile --------------
# It is found in the stacks of the threads, when somebody asks: so a step does nothing to be found. To note the run in a
# variable of its thread, and to take the note back, would be 9 bytecodes of the 484 that `Session.run` of one op
# executes (counted with `sys.settrace`), 1.9 %; to note the op as well, as many for each op.

_STEP_CODE = frozenset({Activation.run_segment.__code__, PartitionRun.execute.__code__})
_FRAMES = 60  # of a stack; the outer ones beyond are left out


def describe_computing(threads: Sequence[int]) -> str:
    """A text like "computes MatMul (node layer/mul)" if one of the threads runs a step; else ""."""
    frames = current_frames()
    found = (step_of_stack(frames.get(thread)) for thread in threads)
    return next(("computes " + (shown(step[1]) or "a step") for step in found if step is not None), "")


def step_of_stack(frame: FrameType | None) -> tuple[FrameType, Any] | None:
    """The innermost frame of a stack that runs a step, and the node that it computes or None; None: it runs no step."""
    node = None
    while frame is not None:
        if frame.f_code in _STEP_CODE:
            return frame, node
        node = node or _node_of_frame(frame)
        frame = frame.f_back
    return None


def shown(node: Node) -> str:
    """``MatMul (node layer/mul)``; "" for None."""
    return "" if node is None else f"{node.op} (node {node.name})"


def _node_of_frame(frame: FrameType) -> Any:
    """The node that a frame of generated code computes, or None."""
    lines = frame.f_globals.get(NODE_LINES, {}).get(frame.f_code.co_filename)
    return lines[frame.f_lineno] if lines is not None and frame.f_lineno < len(lines) else None


def computing_steps() -> dict[int, str]:
    """Step id -> what a thread computes for it, such as ``MatMul (node layer/mul)``."""
    found: dict[int, str] = {}
    for stack in list(current_frames().values()):
        step = step_of_stack(stack)
        if step is not None:
            frame, node = step
            owner = frame.f_locals.get("self")  # the run, or the part of it that a loop is
            run = getattr(owner, "run", owner)
            if isinstance(run, PartitionRun):
                found.setdefault(run.step_id, shown(node))
    return found


def thread_stacks() -> tuple[ThreadSnapshot, ...]:
    """The Python stacks of all threads of this process but the caller's."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = current_frames()
    me = threading.get_ident()
    return tuple(
        ThreadSnapshot(names.get(ident, f"thread {ident}"), _lines(frame))
        for ident, frame in sorted(frames.items())
        if ident != me
    )


def innermost(threads: Sequence[int]) -> str:
    """Where the first of these threads (by ident) is, such as ``in wait (threading.py:324)``; "": none is anywhere."""
    frames = current_frames()
    for thread in threads:
        frame = frames.get(thread)
        if frame is not None and thread != threading.get_ident():
            code = frame.f_code
            return f"in {code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"
    return ""


def _lines(frame: FrameType | None) -> tuple[str, ...]:
    lines: list[str] = []
    while frame is not None and len(lines) < _FRAMES:
        code = frame.f_code
        lines.append(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return tuple(reversed(lines))


# ---- The answers to messages ---------------------------------------------------------------------------------------

_LARGE_GRAPH = 1000  # nodes; compiling so many takes about 0.1 s

register_work(describe_computing)


def worker_handlers(worker: Worker, owners: SessionOwners) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""
    service = _WorkerService(worker, owners)
    answered: dict[type[Any], Callable[..., Any]] = {
        m.GetStatus: service.get_status,
        m.CreateWorkerSession: service.create_worker_session,
        m.DeleteWorkerSession: service.delete_worker_session,
        m.DeregisterGraph: service.deregister_graph,
        m.CleanupAll: service.cleanup_all,
        m.DescribeStep: service.describe_step,
        m.LostTensors: service.lost_tensors,
    }
    return {
        **{kind: _answering(method) for kind, method in answered.items()},
        m.RegisterGraph: service.register_graph,
        m.RunGraph: service.run_graph,
        m.Logging: service.logging,
        m.GetStepOutcome: service.get_step_outcome,
        m.SendTensors: service.send_tensors,
        m.AbortStep: service.abort_step,
    }


def _answering(method: Callable[[Any, Any], Any]) -> Callable[..., None]:
    """The handler that answers with what a method returns; None stands for a reply without content."""

    def handler(peer: Peer, request: Any, respond: Responder) -> None:
        reply = method(peer, request)
        respond(type(request).row.reply() if reply is None else reply)

    return handler


class _WorkerService:
    def __init__(self, worker: Worker, owners: SessionOwners) -> None:
        self.worker = worker
        self._owners = owners

    def get_status(self, peer: Peer, request: m.GetStatus) -> m.GetStatusReply:
        devices = [[d.name, d.device_type, d.memory_limit, d.incarnation] for d in self.worker.devices]
        return m.GetStatusReply(self.worker.task, self.worker.incarnation, devices)

    def create_worker_session(self, peer: Peer, request: m.CreateWorkerSession) -> None:
        handle = request.session_handle
        self._check_session(handle, peer)
        if handle not in self.worker.sessions:
            self._owners.check_session_limits(peer, self.worker.task)
        self.worker.create_session(handle, request.isolate, request.tasks, request.task)
        self._owners.adopt(handle, peer, lambda why: self.worker.delete_session(handle))

    def delete_worker_session(self, peer: Peer, request: m.DeleteWorkerSession) -> None:
        self._check_session(request.session_handle, peer)
        self._owners.release(request.session_handle)
        self.worker.delete_session(request.session_handle)

    def _check_session(self, handle: str, peer: Peer) -> None:
        """Raises PermissionDeniedError if the session is another process's."""
        if handle in self.worker.sessions:
            self._owners.check(handle, peer)

    def register_graph(self, peer: Peer, request: m.RegisterGraph, respond: Responder) -> None:
        self._check_session(request.session_handle, peer)
        self.worker.departures.admit_or_wait(lambda: self._admit(request, respond))

    def _admit(self, request: m.RegisterGraph, respond: Responder) -> None:
        nodes = request.graph.get("nodes") if type(request.graph) is dict else None
        if type(nodes) is not list or len(nodes) < _LARGE_GRAPH:
            self._register(request, respond)
        # Heartbeats and others would wait for it.
        elif not self.worker.threads.run_in_pool(self._register, request, respond):
            respond(errors.shutting_down(self.worker.task))

    def _register(self, request: m.RegisterGraph, respond: Responder) -> None:
        try:
            with collector_at_rest():
                task_graph = TaskGraph.from_wire(request.graph)
            graph = self.worker.register_graph(
                request.session_handle, task_graph, request.fold_constants, request.traced
            )
        except VariablesMoved as moved:
            respond(m.RegisterGraphReply(0, moved.forwarding.to_wire()))
        except errors.OpError as error:
            respond(error)
        except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and the master wait for ever
            respond(errors.InternalError.of(f"the graph cannot be registered: {type(error).__name__}: {error}"))
        else:
            respond(m.RegisterGraphReply(graph.handle, []))

    def deregister_graph(self, peer: Peer, request: m.DeregisterGraph) -> None:
        graph = self.worker.graphs.get(request.graph_handle)
        if graph is not None:
            self._owners.check(graph.session_handle, peer)
            self.worker.deregister_graph(graph.handle)

    def run_graph(self, peer: Peer, request: m.RunGraph, respond: Responder) -> None:
        def done(error: errors.OpError | None, values: list[Any]) -> None:
            respond(error if error is not None else m.RunGraphReply(tuple(values)))

        graph = self.worker.graphs.get(request.graph_handle)
        if graph is not None:
            self._owners.check(graph.session_handle, peer)
        if request.step_id in self.worker.runs:  # perhaps another client's, whose tensors this run would take
            self._check_step(request.step_id, peer)
            raise errors.AlreadyExistsError.of(f"Step {request.step_id} runs on {self.worker.task} already.")
        try:
            graph = graph or self.worker.graph(request.graph_handle)
            run = self.worker.run_graph(graph, request.step_id, request.feed_values, done)
        except errors.OpError as error:
            self.worker.forget_step(request.step_id)
            respond(error)
            return
        if respond.is_open:
            respond.on_cancel(lambda: self.worker.abort_step(run.step_id, _given_up(run.step_id)))

    def _check_step(self, step_id: int, peer: Peer) -> None:
        """Raises PermissionDeniedError if the step runs here for another process's session."""
        run = self.worker.runs.get(step_id)
        if run is not None:
            self._owners.check(run.graph.session_handle, peer)

    def cleanup_all(self, peer: Peer, request: m.CleanupAll) -> None:
        self.worker.cleanup_all(request.containers, peer.describe())

    def logging(self, peer: Peer, request: m.Logging, respond: Responder) -> None:
        if not request.step_id:
            respond(m.LoggingReply(time.time_ns(), b""))
        elif not self.worker.threads.run_in_pool(self._report, request.step_id, respond):
            respond(errors.shutting_down(self.worker.task))

    def _report(self, step_id: int, respond: Responder) -> None:
        """Many ops make much to report: this is not for the thread that owns the sockets."""
        try:
            respond(m.LoggingReply(time.time_ns(), self.worker.step_stats(step_id)))
        except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and the master wait for ever
            text = f"step {step_id} cannot be reported: {type(error).__name__}: {error}"
            respond(errors.InternalError.of(text))

    def describe_step(self, peer: Peer, request: m.DescribeStep) -> m.DescribeStepReply:
        run = self.worker.runs.get(request.step_id)
        return m.DescribeStepReply("" if run is None else run.describe_wait())

    def get_step_outcome(self, peer: Peer, request: m.GetStepOutcome, respond: Responder) -> None:
        self._check_session(request.session_handle, peer)
        self._check_step(request.step_id, peer)

        def told(outcome: StepOutcome) -> None:
            respond(m.GetStepOutcomeReply(tuple(sorted(outcome.made)), tuple(sorted(outcome.uncertain))))

        self.worker.final_outcome(request.session_handle, request.step_id, told)

    def send_tensors(self, peer: Peer, request: m.SendTensors, respond: None) -> None:
        step_id = request.step_id
        try:
            self.worker.receive(step_id, request.group, request.values, request.dead, request.iteration, peer)
        except errors.InvalidArgumentError as error:
            self.worker.abort_step(step_id, error)
        except Exception as error:  # noqa: BLE001 - the tensors are lost, and their step would wait for them
            text = f"{self.worker.task} cannot use tensors that {peer} sent for step {step_id}:"
            failure = errors.InternalError.of(f"{text} {type(error).__name__}: {error}", task=peer.task)
            self.worker.abort_step(step_id, failure)

    def abort_step(self, peer: Peer, request: m.AbortStep, respond: None) -> None:
        self._check_step(request.step_id, peer)
        self.worker.forget_step(request.step_id)  # first: a run that begins now finds this, and others are found here
        run = self.worker.runs.get(request.step_id)
        awaited = run.awaited() if run is not None else ""
        # The master may tell it: at a deadline it asks nobody else.
        text = f"{run.graph.task} waits for {awaited}." if run is not None and awaited else request.message
        if run is not None:
            run.end_soon(errors.CancelledError.of(text, derived=True))

    def lost_tensors(self, peer: Peer, request: m.LostTensors) -> None:
        steps = request.step_ids
        if not (type(steps) is list and len(steps) <= STEP_LIMIT and all(type(step_id) is int for step_id in steps)):
            raise errors.InvalidArgumentError.of(f"LostTensors of {peer} is malformed: {str(steps):.80}")
        if request.sender:
            for step_id in steps:
                self._check_step(step_id, peer)
            self.worker.tensors_lost(steps, request.sender, request.message, None)
        elif request.receiver:
            self.worker.losses.on_undelivered(steps, peer.task, request.receiver, request.message)
        else:
            self.worker.tensors_lost(steps, peer.task, request.message, peer)


def _given_up(step_id: int) -> errors.OpError:
    return errors.CancelledError.of(f"The master of step {step_id} gave up.", derived=True)
