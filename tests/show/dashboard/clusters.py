"""Snapshots of clusters that do not exist."""

from __future__ import annotations

import dataclasses
from typing import Any

from tfmini.runtime import snapshot as s

START = 1_700_000_000.0


def name_of(task: str) -> str:
    """``/job:ps/replica:0/task:0`` for ps/0."""
    job, _, index = task.partition("/")
    return f"/job:{job}/replica:0/task:{index}"


def task(name: str, now: float = START, **fields: Any) -> s.TaskSnapshot:
    """A task that is well."""
    known = {"address": "localhost:1", "incarnation": "1", "taken_s": now, "memory_bytes": 50_000_000, "uptime_s": 9.0}
    return s.TaskSnapshot(name_of(name), **(known | fields))


def link(peer: str, rate: float) -> s.LinkSnapshot:
    return s.LinkSnapshot(name_of(peer), "ready", "local lane", sent_bytes_s=rate, received_bytes_s=rate / 2)


def cluster(*tasks: s.TaskSnapshot, now: float = START) -> s.ClusterSnapshot:
    return s.ClusterSnapshot("localhost:1", now, 0.01, tasks)


def silent(found: s.ClusterSnapshot, name: str, why: str = "connection refused") -> s.ClusterSnapshot:
    """The same cluster with a task that does not answer."""
    return replaced(found, name, s.TaskSnapshot(name_of(name), "localhost:1", s.SILENT, why))


def replaced(found: s.ClusterSnapshot, name: str, other: s.TaskSnapshot) -> s.ClusterSnapshot:
    tasks = tuple(other if each.task == name_of(name) else each for each in found.tasks)
    return dataclasses.replace(found, tasks=tasks)


def working(ps: int, workers: int, now: float = START, steps: int = 100) -> s.ClusterSnapshot:
    """A cluster that trains: each worker exchanges tensors with each ps."""
    since = now - START
    found = [
        task(f"ps/{i}", now, parts=steps, parts_s=10.0 * workers, variable_bytes=4_000_000, cpu_s=since * 0.3,
             links=tuple(link(f"worker/{j}", 2e6 + 1e4 * i) for j in range(workers)),
             staleness=tuple(s.StalenessSnapshot(name_of(f"worker/{j}"), steps, 1.5, 1, 4) for j in range(workers)))
        for i in range(ps)
    ]  # fmt: skip
    found += [
        task(f"worker/{j}", now, steps=steps, steps_s=10.0, parts=steps, cpu_s=since * 0.8,
             scalars=(s.ScalarSnapshot("loss", steps, 1.0 / (1 + since), now),) if j == 0 else ())
        for j in range(workers)
    ]  # fmt: skip
    return cluster(*found, now=now)


def large(ps: int, workers: int, now: float = START) -> s.ClusterSnapshot:
    """A cluster whose tasks are all connected, with 1,000 variables on each ps (what a graph of 10,000 ops has)."""
    found = working(ps, workers, now)
    names = [each.task for each in found.tasks]
    variables = tuple(s.VariableSnapshot(f"layer_{i}/W", "float32", (10, 10), 400) for i in range(1000))
    tasks = []
    for each in found.tasks:
        is_ps = each.task in names[:ps]
        others = [name for name in names if name != each.task]
        links = tuple(s.LinkSnapshot(name, "ready", "zmq", sent_bytes_s=1e5, received_bytes_s=1e5) for name in others)
        senders = names[ps:] if is_ps else names[:ps]
        waits = tuple(s.WaitSnapshot("1", "", s.TENSOR, "W:0", 2.5, from_tasks=(name,)) for name in senders)
        tasks.append(dataclasses.replace(each, links=links, waits=waits, variables=variables if is_ps else ()))
    return dataclasses.replace(found, tasks=tuple(tasks))
