"""Checks for steps that fail or deadlock, because a value that they wait for never arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini.graph.traits import PLACEHOLDER_OPS, ops_with
from tfmini.inspection.checking import Check, holder_of, running, some, worker_tasks
from tfmini.inspection.exchanges import COLLECTIVES
from tfmini.inspection.findings import Finding, Inspection

_TAKES = ops_with("accumulator", "take")
_ENQUEUES, _DEQUEUES = ops_with("queue", "enqueue"), ops_with("queue", "dequeue")


def _gradients(found: Inspection) -> Iterator[Finding]:
    """Finds accumulators that wait for more gradients than there are workers."""
    workers = len(worker_tasks(found))
    for name, node in found.nodes.items():
        if not workers or node.op not in _TAKES or len(node.inputs) < 2:
            continue
        wanted = _constant(found, node.inputs[1][0])
        if wanted is not None and wanted > workers:
            yield Finding(
                "sync deadlock", f"{name} waits for {wanted} gradients, but the cluster has {workers} worker task(s): a"
                " worker gives one per update, so the first update never happens.",
                "Set replicas_to_aggregate to at most the number of workers (or start more workers).", (name,),
            )  # fmt: skip
            return


def _constant(found: Inspection, name: str) -> int | None:
    node = found.nodes.get(name)
    value: Any = node.attrs.get("value") if node is not None else None
    return None if value is None else int(np.asarray(value).reshape(-1)[0])


def _groups(found: Inspection) -> Iterator[Finding]:
    """Finds collectives whose number of members differs from the cluster's."""
    seen: set[int] = set()
    for name in running(found):
        node = found.nodes[name]
        if node.op not in COLLECTIVES or node.attrs["group_key"] in seen:
            continue
        seen.add(node.attrs["group_key"])
        wanted, workers = node.attrs["group_size"], len(worker_tasks(found) or {d.device for d in found.devices})
        if wanted > workers:
            text = f"{name} waits for a group of {wanted} members, but the cluster has {workers} worker task(s)."
            yield Finding("sync deadlock", text, "Give the optimizer the actual number of workers.", (name,))
        elif wanted < workers:
            text = f"{name} is for a group of {wanted} members, but the cluster has {workers} worker tasks."
            remedy = "The others are refused: give the optimizer all workers, or each set of workers its own group_key."
            yield Finding("collective group", text, remedy, (name,))


def _empty_queues(found: Inspection) -> Iterator[Finding]:
    """Finds queues of this graph only, from which the step dequeues and into which no op enqueues."""
    filled = {holder_of(found, node) for node in found.nodes.values() if node.op in _ENQUEUES}
    for name in sorted(running(found)):
        node = found.nodes[name]
        queue = holder_of(found, node) if node.op in _DEQUEUES else ""
        if queue in found.nodes and queue not in filled and not found.nodes[queue].attrs.get("shared_name"):
            yield Finding(
                "empty queue", f"{name} dequeues from {queue}, but no op of the graph enqueues into it.",
                "Add an enqueue op (and a queue runner), or a shared_name if another graph fills it.", (name, queue),
            )  # fmt: skip


def _unfed(found: Inspection) -> Iterator[Finding]:
    fed = {name.rpartition(":")[0] for name in found.feeds}
    names = [name for name in running(found) if found.nodes[name].op in PLACEHOLDER_OPS and name not in fed]
    if names:
        yield Finding(
            "not fed", f"{some(sorted(names))}: the step needs it, but it is not fed.",
            "Feed it with --feed, or fetch less.", tuple(sorted(names)),
        )  # fmt: skip


WAITING_CHECKS: tuple[Check, ...] = (_gradients, _groups, _empty_queues, _unfed)
