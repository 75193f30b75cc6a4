"""A task's snapshot of itself, made when somebody asks, and what it has seen happen to the other tasks."""

from __future__ import annotations

import collections
import os
import resource
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfmini.devices import parse
from tfmini.graph.device_types import type_of
from tfmini.journal import journal
from tfmini.locks import lock
from tfmini.rpc.endpoint import Endpoint, Peer, State
from tfmini.rpc.messages import GetTaskStatus, GetTaskStatusReply
from tfmini.rpc.peer import Traffic, label, plus
from tfmini.runtime.executor.registered_graph import RegisteredGraph
from tfmini.runtime.executor.waiting_run import WaitingRun
from tfmini.runtime.master.master import Master
from tfmini.runtime.master.registration import Plan
from tfmini.runtime.resources import SessionOwners
from tfmini.runtime.snapshot import (
    ANSWER,
    OK,
    OTHER,
    STUCK,
    CollectiveSnapshot,
    DeviceSnapshot,
    EventSnapshot,
    LinkSnapshot,
    MovedSnapshot,
    ScalarSnapshot,
    SessionSnapshot,
    StalenessSnapshot,
    StepSnapshot,
    TaskSnapshot,
    WaitSnapshot,
    to_json,
)
from tfmini.runtime.waits import (
    Waits,
    accumulator_snapshots,
    queue_snapshots,
    variable_snapshots,
)
from tfmini.runtime.worker.worker import Worker
from tfmini.runtime.worker.worker_service import describe_computing, innermost, thread_stacks

if TYPE_CHECKING:
    from tfmini.rpc.calls import Responder


# ---- What has happened to the other tasks of a cluster, as one task has seen it ------------------------------------

_KEPT = 100
JOINED, LOST, RESTARTED = "joined", "lost", "restarted"


class TaskEvents:
    """The latest events: a task joined, was lost, or came back as another incarnation.

    Args:
      endpoint: tells of connections.
      wall_time: seconds since 1970.
    """

    def __init__(self, endpoint: Endpoint, wall_time: Callable[[], float]) -> None:
        self._wall_time = wall_time
        self._lock = lock("status events")
        self._events: collections.deque[EventSnapshot] = collections.deque(maxlen=_KEPT)
        self._incarnations: dict[str, int] = {}
        self._ready: dict[str, set[Peer]] = {}  # the connections of each task
        self._watched: weakref.WeakSet[Peer] = weakref.WeakSet()
        endpoint.on_peer_ready(self._on_ready)

    def all(self) -> list[EventSnapshot]:
        """The events, oldest first."""
        return list(self._events)

    def _on_ready(self, peer: Peer) -> None:
        if peer.task and self._changed(peer, None):
            peer.on_lost(self._changed)

    def _changed(self, peer: Peer, why: str | None) -> bool:
        """A connection has been made, or (with the reason) lost; returns whether it is the peer's first one."""
        with self._lock:
            ready = self._ready.setdefault(peer.task, set())
            if why is not None:
                if peer in ready:
                    ready.discard(peer)
                    if not ready:
                        self._note(LOST, peer.task, why)
                return False
            before, self._incarnations[peer.task] = self._incarnations.get(peer.task, 0), peer.incarnation
            if before and before != peer.incarnation:
                self._note(RESTARTED, peer.task, "it has another incarnation")
            elif not ready:
                self._note(JOINED, peer.task)
            ready.add(peer)
            is_new = peer not in self._watched
            self._watched.add(peer)
            return is_new

    def _note(self, kind: str, subject: str, text: str = "") -> None:
        self._events.append(EventSnapshot(self._wall_time(), kind, subject, text))


# ---- What a task tells of itself -----------------------------------------------------------------------------------

_PAGE = os.sysconf("SC_PAGE_SIZE")
_NAMES = "sent_bytes", "received_bytes", "sent_messages", "received_messages"
_WINDOW_S, _LEAST_S, _SAMPLES = 10.0, 0.3, 40


def memory_bytes() -> int:
    """Resident memory; where the system does not tell, the most that it has been."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class CounterRates:
    """What counters have gained since somebody asked before: their latest readings. Who does not ask costs nothing."""

    def __init__(self) -> None:
        self._samples: collections.deque[tuple[float, Mapping[str, float]]] = collections.deque(maxlen=_SAMPLES)

    def read(self, now: float, counters: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """Returns (the window in seconds, rate per second by counter); (0.0, {}) the first time.

        Args:
          now: seconds.
          counters: their values now. One that was not there before counts from 0; one that has fallen has begun anew.
        """
        samples = self._samples
        while len(samples) > 1 and now - samples[0][0] > _WINDOW_S:
            samples.popleft()
        window_s, before = (now - samples[0][0], samples[0][1]) if samples else (0.0, {})
        if not samples or now - samples[-1][0] >= _LEAST_S:
            samples.append((now, dict(counters)))
        if window_s < _LEAST_S:
            return 0.0, {}
        gained = {name: value - before.get(name, 0.0) for name, value in counters.items()}
        return window_s, {name: max(0.0, more) / window_s for name, more in gained.items()}


def link_counters(endpoint: Endpoint) -> dict[str, Traffic]:
    """What has been exchanged with each peer, by its `label`."""
    sums = endpoint.past_traffic.sums()
    for link in endpoint.links():
        if link.peer is not None:
            name = label(link.peer)
            sums[name] = plus(sums.get(name, (0, 0, 0, 0)), link.traffic())
    return sums


def as_counters(traffic: dict[str, Traffic]) -> dict[str, float]:
    """The same as flat counters, for `CounterRates`."""
    return {f"{peer} {name}": float(value) for peer, sums in traffic.items() for name, value in zip(_NAMES, sums)}


def link_snapshots(endpoint: Endpoint, traffic: dict[str, Traffic], rates: dict[str, float]) -> list[LinkSnapshot]:
    """One snapshot per peer, the busiest first."""
    states: dict[str, dict[str, Any]] = {}
    for peer in endpoint.peers():
        link = peer.link
        entry = states.setdefault(label(peer), {"state": "", "transport": "", "backlog_bytes": 0})
        if peer.state is State.READY or not entry["state"]:
            entry["state"] = peer.state.name.lower()
        if peer.address:
            entry |= {"address": peer.where, "why": peer.trouble}
        if link is not None:
            entry["transport"] = link.connection.kind or entry["transport"]
            entry["backlog_bytes"] += peer.backlog
    found = []
    for name in {**traffic, **states}:
        sums: dict[str, Any] = dict(zip(_NAMES, traffic.get(name, (0, 0, 0, 0))))
        speeds: dict[str, Any] = {f"{each}_s": rates.get(f"{name} {each}", 0.0) for each in _NAMES}
        found.append(LinkSnapshot(name, **{"state": "closed", **states.get(name, {})}, **sums, **speeds))
    return sorted(found, key=lambda each: -(each.sent_bytes + each.received_bytes))


LIST_LIMIT = 1000  # entries of each list; a snapshot of 10,000 variables would be megabytes
_FETCHES = 4
_STUCK_S = 2.0  # for so long the loop of a busy machine may be late


class TaskStatus:
    """Makes the snapshots of one task. It waits for nothing that a step or a handler may hold."""

    def __init__(self, worker: Worker, master: Master, owners: SessionOwners, endpoint: Endpoint) -> None:
        self._worker, self._master, self._owners, self._endpoint = worker, master, owners, endpoint
        self._began = worker.now()
        self._rates = CounterRates()
        self._events = TaskEvents(endpoint, worker.process.wall_time)

    def tasks(self) -> dict[str, str]:
        """Full task name -> address, of the whole cluster."""
        return dict(self._master.addresses())

    def snapshot(self, stacks: bool = False) -> TaskSnapshot:
        """The task now; ``stacks``: with the Python stacks of its threads."""
        worker, master = self._worker, self._master
        traffic = link_counters(self._endpoint)
        graphs = list(worker.graphs.values())
        executed = worker.counts.executed + sum(graph.executed for graph in graphs)
        steps = master.counts.steps + worker.counts.trained + sum(graph.executed for graph in graphs if graph.trains)
        parts = worker.counts.parts + executed
        running = self._running()
        counters = {**as_counters(traffic), "steps": steps, "parts": parts}
        window_s, rates = self._rates.read(worker.now(), counters)
        waits = Waits(worker, self._owner_task)
        variables = variable_snapshots(worker)
        snapshot = TaskSnapshot(
            worker.task, self.tasks().get(worker.task, ""), *self._condition(),
            incarnation=f"{worker.incarnation:016x}",
            host=socket.gethostname(),
            taken_s=worker.process.wall_time(),
            uptime_s=worker.now() - self._began,
            window_s=window_s,
            steps=steps,
            steps_failed=master.counts.failed,
            steps_in_flight=sum(step.trains for step in running),
            steps_s=rates.get("steps", 0.0),
            runs=master.counts.runs + executed,
            runs_in_flight=len(running),
            parts=parts,
            parts_in_flight=len(worker.runs),
            parts_s=rates.get("parts", 0.0),
            sessions=tuple(self._sessions(graphs, running)),
            running=tuple(running),
            waits=(*_answers(running, worker.task), *self._held(), *waits.waits()),
            pending=tuple(waits.pending()),
            devices=tuple(_devices(worker)),
            variables=tuple(variables),
            variable_bytes=sum(variable.bytes for variable in variables),
            moved=tuple(_moved(worker)),
            links=tuple(link_snapshots(self._endpoint, traffic, rates)),
            queues=tuple(queue_snapshots(worker)),
            accumulators=tuple(accumulator_snapshots(worker)),
            staleness=tuple(self._staleness()),
            collectives=tuple(self._collectives()),
            events=(*self._events.all(), *_checkpoints()),
            scalars=tuple(ScalarSnapshot(*scalar) for scalar in journal.scalars()),
            stacks=thread_stacks() if stacks else (),
            counters=dict(self._endpoint.counters),
        )  # fmt: skip
        return limited(self._with_process(snapshot))

    def _condition(self) -> tuple[str, str]:
        """The state of the task, and why it is stuck."""
        if self._endpoint.stuck_s < _STUCK_S:
            return OK, ""
        threads = self._endpoint.loop_threads()
        doing = describe_computing(threads) or innermost(threads)
        return STUCK, f"no thread has been free to handle messages for {self._endpoint.stuck_s:.1f} s: {doing}"

    @staticmethod
    def _with_process(snapshot: TaskSnapshot) -> TaskSnapshot:
        return replace(
            snapshot, pid=os.getpid(), cpu_s=time.process_time(),
            memory_bytes=memory_bytes(), threads=threading.active_count(),
        )  # fmt: skip

    # ---- sessions and steps -----------------------------------------------------------------

    def _owner(self, handle: str) -> str:
        """Who opened a session: a script in the process of this task has no owner beside the task."""
        return self._owners.owner_of(handle) or self._worker.task

    def _owner_task(self, handle: str) -> str:
        """The task whose master runs a session's steps."""
        if handle in self._master.sessions:
            return self._worker.task
        return self._owners.owner_of(handle) or self._worker.task

    def _sessions(self, graphs: list[RegisteredGraph], running: list[StepSnapshot]) -> list[SessionSnapshot]:
        now = self._worker.now()
        found = []
        for handle, session in list(self._master.sessions.items()):
            own = [graph for graph in graphs if graph.session_handle == handle]
            found.append(SessionSnapshot(
                handle[:8], self._owner(handle), now - session.opened_at,
                session.counts.steps + sum(graph.executed for graph in own if graph.trains),
                sum(step.session == handle[:8] for step in running),
                session.counts.runs + sum(graph.executed for graph in own),
            ))  # fmt: skip
        return found

    def _running(self) -> list[StepSnapshot]:
        """The steps of the task's master, and those that clients' threads run alone; the oldest first."""
        now, found = self._worker.now(), dict[int, StepSnapshot]()
        for run in list(self._worker.runs.values()):  # first: a step that is in both is told by its master
            graph, handle = run.graph, run.graph.session_handle
            session = self._master.sessions.get(handle)
            if graph.driver.is_blocking and session is not None:
                age_s = now - run.started_at if isinstance(run, WaitingRun) else 0.0
                plan = next((plan for plan in list(session.book.plans.values()) if plan.local is graph), None)
                found[run.step_id] = self._step(run.step_id, handle, age_s, plan)
        for handle, session in list(self._master.sessions.items()):
            for step in session.steps():
                awaits = tuple(part.task for part in step.waiting_parts())
                age_s = now - step.started_at
                found[step.step_id] = self._step(step.step_id, handle, age_s, step.plan, awaits)
            for step in session.held_steps():
                found[step.step_id] = self._step(step.step_id, handle, now - step.started_at, step.plan)
        return sorted(found.values(), key=lambda step: -step.age_s)

    def _held(self) -> list[WaitSnapshot]:
        """The waits of steps that have not begun, since variables that they use move."""
        now = self._worker.now()
        return [
            WaitSnapshot(
                str(step.step_id), handle[:8], OTHER, f"variables that move away from {step.plan.moves_from}",
                now - step.started_at, from_tasks=(step.plan.moves_from,),
            )
            for handle, session in list(self._master.sessions.items())
            for step in session.held_steps()
        ]  # fmt: skip

    def _step(
        self, step_id: int, handle: str, age_s: float, plan: Plan | None, awaits: tuple[str, ...] = ()
    ) -> StepSnapshot:
        step = StepSnapshot(str(step_id), handle[:8], self._owner(handle), age_s, awaits=awaits)
        if plan is None:  # it has been forgotten
            return step
        fetches = (*plan.fetches, *plan.targets)[:_FETCHES]
        return replace(step, fetches=fetches, trains=plan.trains, fills=plan.fills)

    # ---- the rest ---------------------------------------------------------------------------

    def _staleness(self) -> list[StalenessSnapshot]:
        found = []
        for handle, stale in list(self._worker.counts.staleness.items()):
            updates, mean, most, buckets = stale.summary()
            found.append(StalenessSnapshot(self._owner_task(handle), updates, mean, stale.latest, most, buckets))
        return sorted(found, key=lambda each: each.worker)

    def _collectives(self) -> list[CollectiveSnapshot]:
        collectives = self._worker.collectives
        sent = collectives.traffic.snapshot()
        if not sent.messages and not sent.bytes:
            return []
        members = list(collectives.members.values())
        group = ", ".join(str(key) for key in sorted({member.group_key for member in members}))
        size = max((member.group_size for member in members), default=0)
        runs = sum(sum(member.counts.values()) for member in members)
        return [CollectiveSnapshot(group, size, runs, sent.messages, sent.bytes)]


def _moved(worker: Worker) -> list[MovedSnapshot]:
    """The variables that have moved away, by name."""
    places = dict(worker.resources.moved)
    return [MovedSnapshot(name, place.task) for (_, name), place in sorted(places.items())]


def _devices(worker: Worker) -> list[DeviceSnapshot]:
    """The devices that compile, with their memory. It imports no backend for that."""
    found = []
    for device in worker.devices:
        kind = type_of(device.name)
        if kind.compiles:
            name = f"{device.device_type}:{parse(device.name).device_index or 0}"
            found.append(DeviceSnapshot(name, *kind.memory(device.name), device.memory_limit))
    return found


def _answers(running: Sequence[StepSnapshot], own: str) -> list[WaitSnapshot]:
    """The master's waits for the parts of other tasks than its own."""
    return [
        WaitSnapshot(
            step.step_id, step.session, ANSWER, f"the part of {task}", step.age_s, holder=own, from_tasks=(task,)
        )
        for step in running
        for task in step.awaits
        if task != own
    ]


def _checkpoints() -> list[EventSnapshot]:
    return [EventSnapshot(each.time_s, each.kind, each.subject) for each in journal.happenings()]


def limited(snapshot: TaskSnapshot) -> TaskSnapshot:
    """The snapshot with the first `LIST_LIMIT` entries of each list; ``omitted`` says how many are left out."""
    cut: dict[str, Any] = {}
    omitted: dict[str, int] = {}
    for name, value in vars(snapshot).items():
        if isinstance(value, tuple) and len(value) > LIST_LIMIT:
            cut[name], omitted[name] = value[:LIST_LIMIT], len(value) - LIST_LIMIT
    return replace(snapshot, **cut, omitted=omitted) if cut else snapshot


# ---- The answers to `GetTaskStatus` --------------------------------------------------------------------------------

FRESH_S = 0.1
"""An answer that is not older is given again, so that many who ask cost no more than ten answers a second."""


def status_handlers(status: TaskStatus, now: Callable[[], float]) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""
    return {GetTaskStatus: StatusService(status, now).get_task_status}


class StatusService:
    """Answers requests for the task's snapshot.

    Args:
      now: the clock, in seconds.
    """

    def __init__(self, status: TaskStatus, now: Callable[[], float]) -> None:
        self._status = status
        self._now = now
        self._lock = lock("status")
        self._latest: dict[bool, tuple[float, Any]] = {}  # with stacks or without: when, answer

    def get_task_status(self, peer: Peer, request: GetTaskStatus, respond: Responder) -> None:
        """The handler."""
        respond(GetTaskStatusReply(self._status.tasks(), self._answer(request.stacks)))

    def _answer(self, stacks: bool) -> Any:
        with self._lock:
            when, answer = self._latest.get(stacks, (float("-inf"), None))
            if self._now() - when > FRESH_S:
                answer = to_json(self._status.snapshot(stacks))
                self._latest[stacks] = self._now(), answer
            return answer
