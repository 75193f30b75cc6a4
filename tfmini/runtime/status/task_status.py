"""A task's snapshot of itself, made when somebody asks."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any, TypeVar

from tfmini.journal import journal
from tfmini.rpc.endpoint import Endpoint
from tfmini.runtime.master.master import Master
from tfmini.runtime.session_owners import SessionOwners
from tfmini.runtime.status import process_facts, stores
from tfmini.runtime.status.computing import innermost, thread_stacks
from tfmini.runtime.status.events import TaskEvents
from tfmini.runtime.status.links import as_counters, link_counters, link_snapshots
from tfmini.runtime.status.rates import Rates
from tfmini.runtime.status.waits import Waits
from tfmini.runtime.worker.computing import describe_computing
from tfmini.runtime.worker.worker import Worker
from tfmini.status.snapshot import (
    ANSWER,
    OK,
    STUCK,
    CollectiveSnapshot,
    EventSnapshot,
    ScalarSnapshot,
    SessionSnapshot,
    StalenessSnapshot,
    StepSnapshot,
    TaskSnapshot,
    WaitSnapshot,
)

T = TypeVar("T")

LIST_LIMIT = 1000  # entries of each list; a snapshot of 10,000 variables would be megabytes
_FETCHES = 4
_STUCK_S = 2.0  # for so long the loop of a busy machine may be late
_THIS_PROCESS = "this process"


class TaskStatus:
    """Makes the snapshots of one task. It waits for nothing that a step or a handler may hold."""

    def __init__(self, worker: Worker, master: Master, owners: SessionOwners, endpoint: Endpoint) -> None:
        self._worker, self._master, self._owners, self._endpoint = worker, master, owners, endpoint
        self._began = worker.now()
        self._rates = Rates()
        self._events = TaskEvents(endpoint, worker.process.wall_time)

    def tasks(self) -> dict[str, str]:
        """Full task name -> address, of the whole cluster."""
        return dict(self._master.addresses())

    def snapshot(self, stacks: bool = False) -> TaskSnapshot:
        """The task now; ``stacks``: with the Python stacks of its threads."""
        worker, master = self._worker, self._master
        traffic = link_counters(self._endpoint)
        steps, parts = self._steps(), worker.counts.parts + self._executed()
        counters = {**as_counters(traffic), "steps": steps, "parts": parts}
        window_s, rates = self._rates.read(worker.now(), counters)
        waits = Waits(worker, self._owner_task)
        variables = stores.variable_snapshots(worker)
        snapshot = TaskSnapshot(
            worker.task, self.tasks().get(worker.task, ""), *self._condition(),
            incarnation=f"{worker.incarnation:016x}",
            host=socket.gethostname(),
            taken_s=worker.process.wall_time(),
            uptime_s=worker.now() - self._began,
            window_s=window_s,
            steps=steps,
            steps_failed=master.failed,
            steps_in_flight=sum(len(session.steps()) for session in list(master.sessions.values())),
            steps_s=rates.get("steps", 0.0),
            parts=parts,
            parts_in_flight=len(worker.runs),
            parts_s=rates.get("parts", 0.0),
            sessions=tuple(self._sessions()),
            running=tuple(self._running()),
            waits=(*self._answers(), *waits.waits()),
            pending=tuple(waits.pending()),
            variables=tuple(variables),
            variable_bytes=sum(variable.bytes for variable in variables),
            links=tuple(link_snapshots(self._endpoint, traffic, rates)),
            queues=tuple(stores.queue_snapshots(worker)),
            accumulators=tuple(stores.accumulator_snapshots(worker)),
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
            snapshot, pid=process_facts.process_id(), cpu_s=process_facts.cpu_seconds(),
            memory_bytes=process_facts.memory_bytes(), threads=process_facts.thread_count(),
        )  # fmt: skip

    # ---- sessions and steps -----------------------------------------------------------------

    def _executed(self) -> int:
        """How many steps clients' threads have run alone."""
        return self._worker.counts.executed + sum(graph.executed for graph in list(self._worker.graphs.values()))

    def _steps(self) -> int:
        return self._master.steps + self._executed()

    def _owner(self, handle: str) -> str:
        """Who opened a session."""
        return self._owners.owner_of(handle) or _THIS_PROCESS

    def _owner_task(self, handle: str) -> str:
        """The task whose master runs a session's steps."""
        if handle in self._master.sessions:
            return self._worker.task
        return self._owners.owner_of(handle) or self._worker.task

    def _sessions(self) -> list[SessionSnapshot]:
        executed: dict[str, int] = {}
        for graph in list(self._worker.graphs.values()):
            executed[graph.session_handle] = executed.get(graph.session_handle, 0) + graph.executed
        now = self._worker.now()
        return [
            SessionSnapshot(
                handle[:8], self._owner(handle), now - session.opened_at, session.ended + executed.get(handle, 0),
                len(session.steps()),
            )
            for handle, session in list(self._master.sessions.items())
        ]  # fmt: skip

    def _running(self) -> list[StepSnapshot]:
        now = self._worker.now()
        found = [
            StepSnapshot(
                str(step.step_id), handle[:8], self._owner(handle), now - step.started_at,
                (*step.plan.fetches, *step.plan.targets)[:_FETCHES], tuple(part.task for part in step.waiting_parts()),
            )
            for handle, session in list(self._master.sessions.items())
            for step in session.steps()
        ]  # fmt: skip
        return sorted(found, key=lambda step: -step.age_s)

    def _answers(self) -> list[WaitSnapshot]:
        """The master's waits for the parts of other tasks."""
        return [
            WaitSnapshot(
                step.step_id, step.session, ANSWER, f"the part of {task}", step.age_s, holder=self._worker.task,
                from_tasks=(task,),
            )
            for step in self._running()
            for task in step.awaits
            if task != self._worker.task
        ]  # fmt: skip

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
