"""A snapshot as metrics, in Prometheus's text format.

The names are documented in docs/guides/status.md and stay as they are. A task that does not answer has ``tfmini_up 0``
and no other metric, so counters do not fall to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tfmini.status.explanation import explain
from tfmini.status.snapshot import SILENT, STUCK, ClusterSnapshot, StalenessSnapshot, TaskSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
Labels = dict[str, str]
Sample = tuple[Labels, float]


class Metric(NamedTuple):
    """One metric of a task. ``labels``: beside ``task``. ``samples``: its values in a task's snapshot."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[TaskSnapshot], Iterable[Sample]]


def _one(value: Callable[[TaskSnapshot], float]) -> Callable[[TaskSnapshot], list[Sample]]:
    return lambda task: [({}, value(task))]


def _link(field: str) -> Callable[[TaskSnapshot], Iterable[Sample]]:
    return lambda task: [({"peer": link.peer}, getattr(link, field)) for link in task.links]


def _waits(task: TaskSnapshot) -> Iterator[Sample]:
    for kind in sorted({wait.kind for wait in task.waits}):
        yield {"kind": kind}, sum(wait.kind == kind for wait in task.waits)


def _contributions(field: str) -> Callable[[TaskSnapshot], Iterable[Sample]]:
    return lambda task: [
        ({"accumulator": found.name, "worker": each.task}, getattr(each, field))
        for found in task.accumulators
        for each in found.contributions
    ]


METRICS = (
    Metric("tfmini_up", GAUGE, "1 if the task answers, else 0.", (), _one(lambda t: t.state != SILENT)),
    Metric("tfmini_stuck", GAUGE, "1 if no thread of the task is free to handle messages.", (),
           _one(lambda t: t.state == STUCK)),
    Metric("tfmini_uptime_seconds", GAUGE, "Seconds since the task began.", (), _one(lambda t: t.uptime_s)),
    Metric("tfmini_cpu_seconds_total", COUNTER, "CPU time of the task's process.", (), _one(lambda t: t.cpu_s)),
    Metric("tfmini_memory_bytes", GAUGE, "Resident memory of the task's process.", (), _one(lambda t: t.memory_bytes)),
    Metric("tfmini_threads", GAUGE, "Python threads of the task's process.", (), _one(lambda t: t.threads)),
    Metric("tfmini_sessions", GAUGE, "Open sessions of the task's master.", (), _one(lambda t: len(t.sessions))),
    Metric("tfmini_steps_total", COUNTER, "Steps that the task's master has ended.", (), _one(lambda t: t.steps)),
    Metric("tfmini_steps_failed_total", COUNTER, "Steps that have ended with an error.", (),
           _one(lambda t: t.steps_failed)),
    Metric("tfmini_steps_in_flight", GAUGE, "Steps that the task's master runs now.", (),
           _one(lambda t: t.steps_in_flight)),
    Metric("tfmini_parts_total", COUNTER, "Parts of steps that the task's worker has run for any master.", (),
           _one(lambda t: t.parts)),
    Metric("tfmini_parts_in_flight", GAUGE, "Parts of steps that run now.", (), _one(lambda t: t.parts_in_flight)),
    Metric("tfmini_waits", GAUGE, "What steps wait for on the task now, by kind.", ("kind",), _waits),
    Metric("tfmini_longest_wait_seconds", GAUGE, "How long the longest wait on the task has lasted.", (),
           _one(lambda t: max((wait.since_s for wait in t.waits), default=0.0))),
    Metric("tfmini_variables", GAUGE, "Variables that the task holds.", (),
           _one(lambda t: len(t.variables) + t.omitted.get("variables", 0))),
    Metric("tfmini_variables_bytes", GAUGE, "Bytes of the values of the task's variables.", (),
           _one(lambda t: t.variable_bytes)),
    Metric("tfmini_link_sent_bytes_total", COUNTER, "Bytes sent to a peer, with those in shared memory.", ("peer",),
           _link("sent_bytes")),
    Metric("tfmini_link_received_bytes_total", COUNTER, "Bytes received from a peer.", ("peer",),
           _link("received_bytes")),
    Metric("tfmini_link_sent_messages_total", COUNTER, "Messages sent to a peer.", ("peer",), _link("sent_messages")),
    Metric("tfmini_link_received_messages_total", COUNTER, "Messages received from a peer.", ("peer",),
           _link("received_messages")),
    Metric("tfmini_link_backlog_bytes", GAUGE, "Bytes queued for a peer and not sent yet.", ("peer",),
           _link("backlog_bytes")),
    Metric("tfmini_queue_elements", GAUGE, "Elements in a queue.", ("queue",),
           lambda t: [({"queue": q.name}, q.length) for q in t.queues]),
    Metric("tfmini_queue_capacity", GAUGE, "The most elements that a queue holds; -1: no limit.", ("queue",),
           lambda t: [({"queue": q.name}, q.capacity) for q in t.queues]),
    Metric("tfmini_accumulator_step", GAUGE, "Global step of an accumulator of synchronous updates.", ("accumulator",),
           lambda t: [({"accumulator": a.name}, a.global_step) for a in t.accumulators]),
    Metric("tfmini_accumulator_gradients", GAUGE, "Gradients that an accumulator holds now.", ("accumulator",),
           lambda t: [({"accumulator": a.name}, a.count) for a in t.accumulators]),
    Metric("tfmini_gradients_accepted_total", COUNTER, "Gradients that an accumulator has accepted from a worker.",
           ("accumulator", "worker"), _contributions("accepted")),
    Metric("tfmini_gradients_dropped_total", COUNTER, "Gradients that an accumulator has dropped as stale.",
           ("accumulator", "worker"), _contributions("dropped")),
    Metric("tfmini_collective_runs_total", COUNTER, "Collectives that the task has run.", (),
           _one(lambda t: sum(c.runs for c in t.collectives))),
    Metric("tfmini_collective_bytes_total", COUNTER, "Bytes that the task has sent in collectives.", (),
           _one(lambda t: sum(c.bytes for c in t.collectives))),
    Metric("tfmini_collective_messages_total", COUNTER, "Messages that the task has sent in collectives.", (),
           _one(lambda t: sum(c.messages for c in t.collectives))),
    Metric("tfmini_scalar", GAUGE, "Latest value of a scalar that the script writes as a summary.", ("tag",),
           lambda t: [({"tag": s.tag}, s.value) for s in t.scalars]),
    Metric("tfmini_scalar_step", GAUGE, "Step of that value.", ("tag",),
           lambda t: [({"tag": s.tag}, s.step) for s in t.scalars]),
    Metric("tfmini_connection_events_total", COUNTER, "Messages that were malformed, dropped, late, and the like.",
           ("event",), lambda t: [({"event": name}, count) for name, count in sorted(t.counters.items())]),
)  # fmt: skip

STALENESS = "tfmini_update_staleness"
CLUSTER = (
    ("tfmini_deadlocks", "Deadlocks of steps in the cluster."),
    ("tfmini_snapshot_seconds", "For how long the tasks were asked."),
)


def to_prometheus(cluster: ClusterSnapshot) -> str:
    """The metrics of a cluster, in Prometheus's text format (`CONTENT_TYPE`)."""
    lines: list[str] = []
    for metric in METRICS:
        samples = [
            _line(metric.name, {"task": task.task, **labels}, value)
            for task in cluster.tasks
            if task.state != SILENT or metric.name == "tfmini_up"
            for labels, value in metric.samples(task)
        ]
        if samples:
            lines += [*_head(metric.name, metric.kind, metric.help), *samples]
    stale = [(task.task, each) for task in cluster.tasks for each in task.staleness]
    if stale:
        lines += _head(STALENESS, HISTOGRAM, "Updates by other steps while an asynchronous update's step ran.")
        lines += [line for task, each in stale for line in _histogram({"task": task, "worker": each.worker}, each)]
    for (name, text), value in zip(CLUSTER, (len(explain(cluster).cycles), cluster.took_s)):
        lines += [*_head(name, GAUGE, text), _line(name, {}, value)]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _histogram(labels: Labels, stale: StalenessSnapshot) -> Iterator[str]:
    """The buckets hold 0, 1, 2-3, 4-7, …; the last one all above."""
    total = 0
    for index, count in enumerate(stale.histogram[:-1]):
        total += count
        yield _line(f"{STALENESS}_bucket", {**labels, "le": str(2**index - 1)}, total)
    yield _line(f"{STALENESS}_bucket", {**labels, "le": "+Inf"}, stale.updates)
    yield _line(f"{STALENESS}_sum", labels, stale.mean * stale.updates)
    yield _line(f"{STALENESS}_count", labels, stale.updates)


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{f'{{{shown}}}' if shown else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
