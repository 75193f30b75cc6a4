"""The master service of a task: sessions, and what the cluster looks like from here."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.devices import ParsedDevice, intersects, matches, parse, task_of_device
from tfmini.graph.graph_def import nodes_to_graph_def
from tfmini.graph.node import Node
from tfmini.locks import lock
from tfmini.placement.partition import as_in_tensorflow
from tfmini.placement.placer import DeviceAttributes
from tfmini.protos import ConfigProto, RunOptions
from tfmini.rpc.calls import Outcome
from tfmini.rpc.fan_out import fan_out, first_error
from tfmini.rpc.messages import CleanupAll, DeleteWorkerSession, GetStatus
from tfmini.runtime.gathered_trace import GatheredTrace
from tfmini.runtime.master.master_session import CLOSED_BY_CLIENT, MasterSession
from tfmini.runtime.master.registration import Plan
from tfmini.runtime.master.trace_request import TraceRequest
from tfmini.runtime.native_libraries import keep_freed_memory
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.process import random_name, same_address
from tfmini.runtime.resources import GRACE_S
from tfmini.runtime.worker.worker import Worker

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


_log = logging.getLogger("tfmini.runtime")

_ANSWER_TIMEOUT_S = 10.0
_REMEMBERED_SESSIONS = 1000
OnDevices = Callable[[errors.OpError | None, list[DeviceAttributes]], None]


class Master:
    """See the module.

    Attributes:
      task, own_devices: the worker's, under the name that sessions know it by.
      closed: whether its server has been stopped.
      steps, failed: the number of steps that have ended; of those that have ended with an error.
      ended: why sessions have ended that their clients did not close, by handle; the latest.
      trace_request: somebody wants one of the next steps to be traced.
      resets: how often all sessions were closed by `reset`.

    Args:
      worker: the worker of the same task.
      tasks: full task name -> address, of the whole cluster.
      peer_for: (task, address) -> peer; None without a network.
      reactor: drives timers; None without a network.
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
        self.worker = worker
        self.reactor = reactor
        self.task = worker.task
        self.own_devices = worker.devices
        self.config = config
        self.sessions: dict[str, MasterSession] = {}
        self.trace_request: TraceRequest | None = None
        self.ended: collections.OrderedDict[str, str] = collections.OrderedDict()
        self.closed = False
        self.resets = self.steps = self.failed = 0
        self._tasks = dict(tasks or {})
        self._peer_for = peer_for
        self._lock = lock("master")  # guards `ended`, and who traces
        self._known: dict[str, list[DeviceAttributes]] = {}

    @property
    def default_device(self) -> str:
        """The client device: the first of this task."""
        return self.own_devices[0].name

    def addresses(self) -> dict[str, str]:
        """Full task name -> address."""
        return self._tasks

    def set_address(self, task: str, address: str) -> None:
        """Notes the real address of a task whose port was chosen when it was bound."""
        self._tasks[task] = address

    def devices(self, filters: Sequence[str]) -> list[DeviceAttributes]:
        """All devices that pass the filters, this task's first.

        A task that has not been asked yet counts as one CPU, which is what tasks have by default:
        so a session can be made while tasks that it does not need are down.
        """
        patterns = [parse(f) for f in filters]
        found = list(self.own_devices)
        for task in self._tasks:
            if task == self.task:
                continue
            for device in self._known.get(task) or [DeviceAttributes(f"{task}/device:CPU:0", "CPU", 0, 0)]:
                if not patterns or any(intersects(p, parse(device.name)) for p in patterns):
                    found.append(device)
        return found

    def peer(self, task: str) -> Any:
        """The peer of a task.

        Raises:
          InvalidArgumentError: when the cluster has no such task.
        """
        if self._peer_for is None or task not in self._tasks:
            raise errors.InvalidArgumentError.of(f"{task} is not in the cluster of {self.task}.")
        return self._peer_for(task, self._tasks[task])

    def worker_name(self, task: str) -> str:
        """The name of a task's worker in a session; "" for the worker's own name."""
        return ""

    def peer_without_name(self, task: str, address: str) -> Any:
        """The peer at an address, whatever it calls itself."""
        if self._peer_for is None:
            raise errors.InvalidArgumentError.of(f"{self.task} has no network to reach {task} at {address}.")
        return self._peer_for("", address)

    # ---- sessions ---------------------------------------------------------------------------

    def create_session(self, nodes: Sequence[Node], options: SessionOptions, in_process: bool = False) -> MasterSession:
        """Opens a session with its first graph.

        Args:
          in_process: whether the client is in this process.

        Raises:
          InvalidArgumentError: when the graph cannot be placed.
        """
        handle = random_name(self.worker.process)
        session = MasterSession(self, handle, options.merged_with(self.config), in_process)
        if nodes:
            session.extend(nodes)
        self.sessions[session.handle] = session
        return session

    def open_trace_request(self, request: TraceRequest) -> bool:
        """Notes a request for a trace; False if another one is open. Handlers for several peers run at once."""
        with self._lock:
            is_free = self.trace_request is None
            if is_free:
                self.trace_request = request
        return is_free

    def step_over(self, has_failed: bool) -> None:
        """Counts a step that has ended."""
        self.steps += 1
        self.failed += has_failed

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

    def open_local_session(self, session: MasterSession) -> None:
        """Opens the session on the worker of this task.

        Raises:
          OpError: the session was closed meanwhile.
        """
        if session.handle not in self.worker.sessions:
            isolate = session.options.isolate_session_state
            self.worker.create_session(session.handle, isolate, self._tasks, self.worker_name(self.task))
            if session.closed:  # perhaps `forget` was too early to find it there
                self.worker.delete_session(session.handle, session.closing_error())
                raise session.closing_error()

    def forget(self, session: MasterSession) -> None:
        """A session has been closed: its tasks may forget it."""
        self.sessions.pop(session.handle, None)
        if session.closed_because != CLOSED_BY_CLIENT:
            with self._lock:
                self.ended[session.handle] = session.closed_because
                while len(self.ended) > _REMEMBERED_SESSIONS:
                    self.ended.popitem(last=False)
        self.worker.delete_session(session.handle, session.closing_error())
        for end in session.holds:
            end()
        for task in list(session.asked_tasks):
            self.delete_worker_session(session, task)

    def delete_worker_session(self, session: MasterSession, task: str) -> None:
        """Closes a session on another task, also when the connection is broken now and returns in time.

        A task that cannot be reached for `GRACE_S` drops the session by itself; a restarted one has forgotten it.
        """
        self.peer(task).call(
            DeleteWorkerSession(session.handle), lambda answer: None, timeout_s=GRACE_S,
            incarnation=session.registered_tasks.get(task), wait_for_ready=True,
        )  # fmt: skip

    def list_devices(self, on_done: OnDevices, filters: Sequence[str] = (), patience_s: float = 0.0) -> None:
        """Asks every task that passes the filters for its devices.

        Args:
          on_done: gets an UnavailableError if a task has not answered after ``patience_s``, else the devices.
          patience_s: 0: tasks that cannot be reached now are left out.
        """
        tasks = {task_of_device(d.name) for d in self.devices(filters)} - {self.task}

        def listed(found: Mapping[str, list[DeviceAttributes]]) -> None:
            missing = sorted(tasks - set(found)) if patience_s else []
            error = self._unlisted(missing, patience_s) if missing else None
            on_done(error, self.own_devices + [d for task in sorted(found) for d in found[task]])

        self._ask(dict.fromkeys(tasks, patience_s), listed)

    def _unlisted(self, tasks: Sequence[str], patience_s: float) -> errors.UnavailableError:
        peers = [(task, self.peer(task)) for task in tasks]
        shown = ", ".join(f"{task} at {peer.address} ({peer.why or peer.state.value})" for task, peer in peers)
        return errors.UnavailableError.of(
            f"The devices of {shown} cannot be listed: no answer within {patience_s:g} s. Start what is missing, or"
            " leave it out by ConfigProto(device_filters=...).",
            task=tasks[0],
        )

    def learn_devices(self, nodes: Sequence[Node], options: SessionOptions, on_done: Callable[[], None]) -> None:
        """Asks tasks for the devices in the nodes' requests that this master does not know yet.

        It waits for tasks that a request names; of the others it takes immediate answers only.
        """
        patience_s = options.operation_timeout_s or options.connect_timeout_s
        tasks: dict[str, float] = {}
        for request in unusual_requests(nodes):
            if any(matches(request, parse(d.name)) for d in self.devices(options.device_filters)):
                continue
            where = request._replace(device_type=None, device_index=None)
            others = [t for t in self._tasks if t not in self._known and t != self.task]
            unasked = [t for t in others if intersects(where, parse(t))]
            tasks |= dict.fromkeys(unasked, patience_s if len(unasked) == 1 else 0.0)
        if tasks:
            self._ask(tasks, lambda found: on_done())
        else:
            on_done()

    def _ask(self, tasks: Mapping[str, float], on_done: Callable[[Mapping[str, list[DeviceAttributes]]], None]) -> None:
        """Asks tasks for their devices; each is waited for so many seconds, or (0) not if it cannot be reached."""

        def ask(task: str, patience_s: float, answered: Callable[[Any], None]) -> None:
            timeout_s, is_patient = patience_s or _ANSWER_TIMEOUT_S, bool(patience_s)
            self.peer(task).call(GetStatus(), answered, timeout_s=timeout_s, wait_for_ready=is_patient)

        def asked(outcomes: Mapping[str, Outcome[Any]]) -> None:
            found = {}
            for task, answer in outcomes.items():
                if not isinstance(answer, errors.OpError):
                    devices = renamed([DeviceAttributes(*fields) for fields in answer.devices], task)
                    found[task] = self._known[task] = devices
            on_done(found)

        fan_out({task: partial(ask, task, patience_s) for task, patience_s in tasks.items()}, asked)

    def reset(
        self, containers: Sequence[str], filters: Sequence[str], on_done: Callable[[errors.OpError | None], None],
        who: str = "",
    ) -> None:  # fmt: skip
        """Closes all sessions of this master and clears containers on all tasks that pass the filters.

        As in TensorFlow, every client of the cluster may ask for it.

        Args:
          who: asks for it, for the log and the errors; "": a client in this process.
        """
        who = who or f"a client in the process of {self.task}"
        sessions = list(self.sessions.values())
        self.resets += 1
        _log.warning("%s: reset by %s, which closes %d sessions", self.task, who, len(sessions))
        for session in sessions:
            text = f"Session {session.handle} was reset by {who}: tf.Session.reset closes all sessions of {self.task}."
            session.close(f"{text} Make a new session.", errors.AbortedError.of)
        self.worker.cleanup_all(containers, who)
        tasks = {task_of_device(d.name) for d in self.devices(filters)} - {self.task}
        request = CleanupAll(tuple(containers))

        def ask(task: str, answered: Callable[[Any], None]) -> None:
            self.peer(task).call(request, answered, timeout_s=_ANSWER_TIMEOUT_S)

        fan_out({task: partial(ask, task) for task in tasks}, lambda outcomes: on_done(first_error(outcomes)))

    def close(self) -> None:
        """Closes all sessions, and opens no more."""
        self.closed = True
        for session in list(self.sessions.values()):
            session.close(f"{self.task} is shutting down.")


def renamed(devices: Sequence[DeviceAttributes], task: str) -> list[DeviceAttributes]:
    """Devices as those of a task."""
    return [replace(device, name=task + device.name[device.name.index("/device:") :]) for device in devices]


def unusual_requests(nodes: Sequence[Node]) -> list[ParsedDevice]:
    """The devices that nodes name and that a task need not have: all but its first CPU."""
    found = []
    for device in {node.device for node in nodes}:
        try:
            request = parse(device)
        except ValueError:  # the placer says which node it is
            continue
        if request.device_type not in (None, "CPU") or request.device_index not in (None, 0):
            found.append(request)
    return found


# ---- run options ----------------------------------------
# RunOptions as the runtime reads them and RunMetadata as it fills it; protobuf is imported for runs that have any.


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


# ---- Sessions that bring their own cluster: ``ConfigProto.cluster_def`` --------------------------------------------
# Servers that know little or nothing of each other work together for one session under the names that
# its cluster gives them. The master of such a session is the target's, seen as the task whose address in that
# cluster is the target's; each worker is told its name, and the addresses of the others, when the session
# is opened there. Unless ``share_session_state_in_clusterspec_propagation`` is set, the state is the session's own.

OnSession = Callable[[errors.OpError | None, MasterSession | None], None]


class SessionCluster(Master):
    """A master under the name that a session's cluster gives it.

    Args:
      server: the master of the session's target.
      target: the address by which the client reached it.

    Raises:
      InvalidArgumentError: unless the target is one task of the cluster, and one that the server is not already.
    """

    def __init__(self, server: Master, tasks: Mapping[str, str], target: str) -> None:
        super().__init__(server.worker, tasks, server.peer_without_name, server.reactor, server.config)
        self.task = _own_task(server, tasks, target)
        self.own_devices = renamed(server.own_devices, self.task)
        self.sessions, self.ended, self.step_over = server.sessions, server.ended, server.step_over  # type: ignore[method-assign]

    def worker_name(self, task: str) -> str:
        return task


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
        raise errors.UnavailableError.of(f"The server of {server.task} has been stopped: make another one.")
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
            session = cluster.create_session(nodes, isolated, in_process)
        except errors.OpError as error:
            on_done(error, None)
        else:
            on_done(None, session)

    cluster.list_devices(listed, options.device_filters)


def _own_task(server: Master, tasks: Mapping[str, str], target: str) -> str:
    """The task of a cluster that the target's server is."""
    found = [task for task, address in tasks.items() if same_address(address, target)]
    shown = ", ".join(f"{task} at {address}" for task, address in tasks.items())
    if not found:
        text = (
            "The master (current machine) is not included in the provided cluster_def. The session's target is"
            f" {target}, and the tasks are {shown}: give one of them the target's address."
        )
        raise errors.InvalidArgumentError.of(text)
    if len(found) > 1:
        text = (
            "Found multiple matching tasks that correspond to to the master. Master target: "
            f"'{target}'. ClusterDef: {shown}"
        )
        raise errors.InvalidArgumentError.of(text)
    if found[0] == server.task:
        name = parse(server.task)
        text = (
            "The ClusterSpec names the job and task index to be the same names that were provided when the server"
            f" booted. This is currently not allowed. Job: {name.job}, task index: {name.task}"
        )
        raise errors.InvalidArgumentError.of(text)
    return found[0]
