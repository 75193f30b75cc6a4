"""Steps that would fail or never end, because nobody gives what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini.inspection.checking import Check, holder_of, running, some, worker_tasks
from tfmini.inspection.exchanges import COLLECTIVES
from tfmini.inspection.findings import Finding, Inspection

_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")


def _gradients(found: Inspection) -> Iterator[Finding]:
    """More gradients are asked for than there are workers to give them."""
    workers = len(worker_tasks(found))
    for name, node in found.nodes.items():
        if not workers or not node.op.endswith("TakeGradient") or len(node.inputs) < 2:
            continue
        wanted = _constant(found, node.inputs[1][0])
        if wanted is not None and wanted > workers:
            yield Finding(
                "sync deadlock", f"{name} waits for {wanted} gradients, the cluster has {workers} worker task(s): a"
                " worker gives one per update, so the first update never comes.",
                "Set replicas_to_aggregate to at most the number of workers (or start more workers).", (name,),
            )  # fmt: skip
            return


def _constant(found: Inspection, name: str) -> int | None:
    node = found.nodes.get(name)
    value: Any = node.attrs.get("value") if node is not None else None
    return None if value is None else int(np.asarray(value).reshape(-1)[0])


def _groups(found: Inspection) -> Iterator[Finding]:
    """Collectives for another number of members than the cluster has."""
    seen: set[int] = set()
    for name in running(found):
        node = found.nodes[name]
        if node.op not in COLLECTIVES or node.attrs["group_key"] in seen:
            continue
        seen.add(node.attrs["group_key"])
        wanted, workers = node.attrs["group_size"], len(worker_tasks(found) or {d.device for d in found.devices})
        if wanted > workers:
            text = f"{name} waits for a group of {wanted} members, the cluster has {workers} worker task(s)."
            yield Finding("sync deadlock", text, "Give the optimizer the number of workers there are.", (name,))
        elif wanted < workers:
            text = f"{name} is for a group of {wanted} members, the cluster has {workers} worker tasks."
            remedy = "More are refused: give the optimizer their number, or each set of workers its own group_key."
            yield Finding("collective group", text, remedy, (name,))


def _empty_queues(found: Inspection) -> Iterator[Finding]:
    """A queue that only this graph knows, from which it takes and to which it gives nothing."""
    filled = {holder_of(found, node) for node in found.nodes.values() if node.op.startswith("QueueEnqueue")}
    for name in sorted(running(found)):
        node = found.nodes[name]
        queue = holder_of(found, node) if node.op.startswith("QueueDequeue") else ""
        if queue in found.nodes and queue not in filled and not found.nodes[queue].attrs.get("shared_name"):
            yield Finding(
                "empty queue", f"{name} takes from {queue}, and no op of the graph puts anything into it.",
                "Add an enqueue op (and a queue runner), or a shared_name if another graph fills it.", (name, queue),
            )  # fmt: skip


def _unfed(found: Inspection) -> Iterator[Finding]:
    fed = {name.rpartition(":")[0] for name in found.feeds}
    names = [name for name in running(found) if found.nodes[name].op in _PLACEHOLDERS and name not in fed]
    if names:
        yield Finding(
            "not fed", f"{some(sorted(names))}: the step needs it, and it is not among the feeds.",
            "Name it with --feed, or fetch less.", tuple(sorted(names)),
        )  # fmt: skip


WAITING_CHECKS: tuple[Check, ...] = (_gradients, _groups, _empty_queues, _unfed)
