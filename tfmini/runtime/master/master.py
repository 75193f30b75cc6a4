"""The master service of a task: sessions, and what the cluster looks like from here."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.devices import task_of_device
from tfmini.graph.graph_def import nodes_to_graph_def
from tfmini.graph.node import Node
from tfmini.locks import lock
from tfmini.placement.partition import as_in_tensorflow
from tfmini.placement.placer import DeviceAttributes
from tfmini.protos import ConfigProto, RunOptions
from tfmini.rpc.fan_out import fan_out, first_error
from tfmini.rpc.messages import CleanupAll
from tfmini.runtime.gathered_trace import GatheredTrace
from tfmini.runtime.master.cluster import ANSWER_TIMEOUT_S, ClusterView, SessionCluster
from tfmini.runtime.master.holding import StepHolds
from tfmini.runtime.master.master_session import CLOSED_BY_CLIENT, MasterSession
from tfmini.runtime.master.registration import Plan
from tfmini.runtime.master.step import StepCounts, TraceRequest
from tfmini.runtime.native_libraries import keep_freed_memory
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.process import random_name
from tfmini.runtime.worker.worker import Worker

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


_log = logging.getLogger("tfmini.runtime")

_REMEMBERED_SESSIONS = 1000


class Master(ClusterView):
    """See the module.

    Attributes:
      closed: whether its server has been stopped.
      counts: of the steps of all its sessions that have ended.
      ended: why sessions have ended that their clients did not close, by handle; the latest.
      trace_request: somebody wants one of the next steps to be traced.
      resets: how often all sessions were closed by `reset`.
      holds: lets steps wait while variables move.
    """

    def __init__(
        self,
        worker: Worker,
        tasks: Mapping[str, str] | None = None,
        peer_for: Callable[[str, str], Any] | None = None,
        reactor: Any = None,
        config: ConfigProto | None = None,
    ) -> None:
        keep_freed_memory()  # here, because each process that runs steps has a master
        super().__init__(worker, tasks, peer_for, reactor)
        self.config = config
        self.sessions: dict[str, MasterSession] = {}
        self.trace_request: TraceRequest | None = None
        self.ended: collections.OrderedDict[str, str] = collections.OrderedDict()
        self.closed = False
        self.counts = StepCounts()
        self.resets = 0
        self.holds = StepHolds(worker.task, self._movable_sessions, reactor)
        self._lock = lock("master")  # guards `ended`, and who traces

    # ---- sessions ---------------------------------------------------------------------------

    def create_session(
        self,
        nodes: Sequence[Node],
        options: SessionOptions,
        in_process: bool = False,
        cluster: ClusterView | None = None,
    ) -> MasterSession:
        """Opens a session with its first graph.

        Args:
          in_process: whether the client is in this process.
          cluster: the session's own one; None: the master's.

        Raises:
          InvalidArgumentError: when the graph cannot be placed.
          UnavailableError: when the server has been stopped.
        """
        handle = random_name(self.worker.process)
        options = options.merged_with(self.config)
        session = MasterSession(
            cluster or self, handle, options, self.counts.add, self._forget, in_process, self.has_training
        )
        if nodes:
            session.extend(nodes)
        session.on_halted_step_ended = self.holds.halted_step_ended
        self.sessions[session.handle] = session
        if not options.isolate_session_state and session.cluster is self:
            self.holds.admit(session)
        if self.closed:  # perhaps `close` was too early to find it there
            self._end(session)
            raise self.stopped()
        return session

    def has_training(self) -> bool:
        """Whether the graph of an open session has ops that train."""
        return any(session.has_training for session in list(self.sessions.values()))

    def open_trace_request(self, request: TraceRequest) -> bool:
        """Notes a request for a trace; False if another one is open. Handlers for several peers run at once."""
        with self._lock:
            is_free = self.trace_request is None
            if is_free:
                self.trace_request = request
        return is_free

    def end_trace_request(self) -> None:
        """Notes that the open request for a trace has been answered."""
        self.trace_request = None

    def tensors_undelivered(self, step_ids: Sequence[int], sender: str, receiver: str, why: str) -> None:
        """Ends steps that run and whose tensors a task could not send to another one, which waits for them."""
        wanted = set(step_ids)
        for step in [step for session in list(self.sessions.values()) for step in session.steps()]:
            if step.step_id in wanted:
                what = f"{sender} could not send tensors of step {step.step_id} to {receiver}"
                text = f"{what}, which waits for them: {why}"
                step.cancel(errors.UnavailableError.of(text, task=receiver))

    def task_lost(self, peer: Peer, why: str) -> None:
        """A task can no longer be reached: steps may wait for tensors that it has sent."""
        for step in [step for session in list(self.sessions.values()) for step in session.steps()]:
            step.task_lost(peer, why)
        self.holds.task_lost(peer.task)

    def task_returned(self, peer: Peer) -> None:
        """A task has connected, perhaps another process than before."""
        for session in list(self.sessions.values()):
            session.task_returned(peer.task, peer.incarnation)

    def _movable_sessions(self) -> list[MasterSession]:
        """The sessions that use the variables that the cluster shares, by the cluster's own names of the tasks."""
        shared = [each for each in list(self.sessions.values()) if not each.options.isolate_session_state]
        return [each for each in shared if each.cluster is self]

    def session(self, handle: str) -> MasterSession:
        """The session of that handle.

        Raises:
          AbortedError: when there is none, as after a reset or a restart of this task.
        """
        session = self.sessions.get(handle)
        if session is None:
            text = f"Session {handle} is not found. Possibly, this master ({self.task}) has restarted."
            raise errors.AbortedError.of(self.ended.get(handle, text))
        return session

    def _forget(self, session: MasterSession) -> None:
        """Forgets a session that has been closed, but not why, if its client did not close it."""
        self.sessions.pop(session.handle, None)
        if session.closed_because != CLOSED_BY_CLIENT:
            with self._lock:
                self.ended[session.handle] = session.closed_because
                while len(self.ended) > _REMEMBERED_SESSIONS:
                    self.ended.popitem(last=False)

    def reset(
        self, containers: Sequence[str], filters: Sequence[str], on_done: Callable[[errors.OpError | None], None],
        who: str = "",
    ) -> None:  # fmt: skip
        """Closes all sessions of this master and clears containers on all tasks that pass the filters.

        As in TensorFlow, every client of the cluster may ask for it.

        Args:
          who: asks for it, for the log and the errors; "": a client in this process.

        Raises:
          ValueError: a filter is no device.
        """
        tasks = {task_of_device(d.name) for d in self.devices(filters)} - {self.task}  # first: a filter may be wrong
        who = who or f"a client in the process of {self.task}"
        sessions = list(self.sessions.values())
        self.resets += 1
        _log.warning("%s: reset by %s, which closes %d sessions", self.task, who, len(sessions))
        for session in sessions:
            text = f"Session {session.handle} was reset by {who}: tf.Session.reset closes all sessions of {self.task}."
            session.close(f"{text} Make a new session.", errors.AbortedError.of)
        self.worker.cleanup_all(containers, who)
        request = CleanupAll(tuple(containers))

        def ask(task: str, answered: Callable[[Any], None]) -> None:
            self.peer(task).call(request, answered, timeout_s=ANSWER_TIMEOUT_S)

        fan_out({task: partial(ask, task) for task in tasks}, lambda outcomes: on_done(first_error(outcomes)))

    def close(self) -> None:
        """Closes all sessions, and opens no more."""
        self.closed = True
        for session in list(self.sessions.values()):
            self._end(session)

    def _end(self, session: MasterSession) -> None:
        session.close(f"{self.task} is shutting down.")

    def stopped(self) -> errors.UnavailableError:
        """The error of a session that comes too late."""
        return errors.UnavailableError.of(f"The server of {self.task} has been stopped: make another one.")


# ---- RunOptions as the runtime reads them, and RunMetadata as it fills it -------------------------------------------
# Protobuf is imported for runs that have any.


def parsed(options: bytes) -> Any:
    """Serialized RunOptions as a message, or None for no bytes."""
    if not options:
        return None
    from tfmini import protos

    return protos.RunOptions.FromString(options)


def timeout_seconds(options: RunOptions) -> float | None:
    """The timeout that RunOptions (or None) ask for, or None."""
    return options.timeout_in_ms / 1000 if options is not None and options.timeout_in_ms > 0 else None


def is_traced(options: RunOptions) -> bool:
    """Whether RunOptions (or None) ask for step stats. As in TensorFlow, every trace level but NO_TRACE does."""
    return options is not None and options.trace_level > 0


def wants_metadata(options: RunOptions) -> bool:
    """Whether RunOptions (or None) ask for anything that a RunMetadata brings."""
    return options is not None and bool(options.trace_level or options.output_partition_graphs)


def run_metadata(options: RunOptions, plan: Plan, trace: GatheredTrace | None, with_costs: bool = False) -> Any:
    """The RunMetadata of a run with these RunOptions.

    Args:
      trace: the record of a traced step.
      with_costs: whether the session's ConfigProto asks for a cost model.
    """
    from tfmini import protos

    found = protos.RunMetadata()
    if trace is not None:
        found.step_stats.CopyFrom(trace.step_stats())
    if options.output_partition_graphs:
        for device in plan.partitions.parts:
            found.partition_graphs.append(nodes_to_graph_def(as_in_tensorflow(plan.partitions, device)))
    if with_costs:
        fill_cost_graph(found.cost_graph, plan.partitions.parts.values(), found.step_stats)
    return found


def fill_cost_graph(cost_graph: Any, partitions: Iterable[Mapping[str, Node]], step_stats: Any) -> None:
    """Adds all nodes of a step to a CostGraphDef.

    Args:
      partitions: of each device, name -> node.
      step_stats: the StepStats of the step, without entries if it was not traced. They give the time of a node, in
        microseconds. A trace does not have the sizes of outputs, so nodes have no output_info.
    """
    nodes = [node for partition in partitions for node in partition.values()]
    ids = {node.name: number for number, node in enumerate(nodes)}
    entries = {entry.node_name: entry for device in step_stats.dev_stats for entry in device.node_stats}
    for node in nodes:
        made = cost_graph.node.add(name=node.name, device=node.device, id=ids[node.name])
        for source, port in node.inputs:
            if source in ids:
                made.input_info.add(preceding_node=ids[source], preceding_port=port)
        made.control_input.extend(ids[source] for source in node.controls if source in ids)
        entry = entries.get(node.name)
        if entry is not None:
            made.compute_cost = entry.op_end_rel_micros - entry.op_start_rel_micros


# ---- How a session begins -------------------------------------------------------------------------------------------

OnSession = Callable[[errors.OpError | None, MasterSession | None], None]


def open_session(
    server: Master, nodes: Sequence[Node], options: SessionOptions, target: str, on_done: OnSession,
    in_process: bool = False,
) -> None:  # fmt: skip
    """Opens a session with its first graph, in its own cluster if it brings one.

    Args:
      server: the master of the target.
      target: the address by which the client reached it.
      in_process: whether the client is in this process.

    Raises:
      InvalidArgumentError: see `SessionCluster`.
      UnavailableError: when the server has been stopped.
    """
    if server.closed:
        raise server.stopped()
    if not options.cluster:
        session = server.create_session((), options, in_process)

        def extended(error: errors.OpError | None) -> None:
            if error is not None:
                session.close()
            on_done(error, session if error is None else None)

        session.extend_when_known(nodes, extended)
        return
    cluster = SessionCluster(server, dict(options.cluster), target)
    isolated = replace(options, isolate_session_state=options.isolate_session_state or not options.share_state)

    def listed(_: errors.OpError | None, devices: Sequence[DeviceAttributes]) -> None:
        try:
            session = server.create_session(nodes, isolated, in_process, cluster)
        except errors.OpError as error:
            on_done(error, None)
        except BaseException as error:
            # Without an answer the client would wait for ever.
            on_done(errors.InternalError.of(f"{type(error).__name__}: {error}"), None)
            raise
        else:
            on_done(None, session)

    cluster.list_devices(listed, options.device_filters)
