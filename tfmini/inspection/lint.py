"""Set-ups that deserve a warning: one function per kind, each with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfmini.devices import parse, task_of_device
from tfmini.inspection import cost
from tfmini.inspection.findings import Finding, Inspection
from tfmini.placement.decision import SOFT_PLACEMENT
from tfmini.placement.layout import Route

_LARGE_CONSTANT = 10 << 20
_IMBALANCE = 2.0
_SMALL_STATE = 1 << 20
_UPDATES = ("Apply", "SparseApply", "ResourceApply", "ResourceSparseApply", "Scatter", "ResourceScatter",
            "Assign", "ResourceAssign")  # fmt: skip


def lint(found: Inspection) -> list[Finding]:
    """All warnings about an inspection."""
    return [warning for check in _CHECKS for warning in check(found)]


def ps_devices(found: Inspection) -> list[str]:
    """The devices of the job ``ps``."""
    return [d.device for d in found.devices if parse(d.device).job == "ps"]


def balance(found: Inspection) -> float | None:
    """The largest share of state among the ps over the mean one, None without ps or without known state."""
    ps = set(ps_devices(found))
    shares = [d.state_bytes or 0 for d in found.devices if d.device in ps]
    return max(shares) * len(shares) / sum(shares) if sum(shares) else None


def _variables(found: Inspection) -> list[str]:
    return [name for name, node in found.nodes.items() if node.op in cost.VARIABLES]


def _state_on_workers(found: Inspection) -> Iterator[Finding]:
    if not ps_devices(found):
        return
    local = _local_variables(found)
    by_device: dict[str, list[str]] = {}
    for name in _variables(found):
        device = found.placement[name].device
        if parse(device).job != "ps" and name not in local:
            by_device.setdefault(device, []).append(name)
    for device, names in by_device.items():
        yield Finding(
            "state on a worker", f"{_some(names)} on {device}: other workers' replicas of it, if any, are not shared.",
            "Create shared variables under tf.device(tf.train.replica_device_setter(...)).", tuple(names),
        )  # fmt: skip


def _local_variables(found: Inspection) -> set[str]:
    """Variables that are private on purpose: those of synchronous replicas say so by their names."""
    return {name for name in _variables(found) if "local_step" in name or name.split("/")[-1] in ("count", "total")}


def _ps_imbalance(found: Inspection) -> Iterator[Finding]:
    ratio = balance(found)
    ps = set(ps_devices(found))
    shares = {d.device: d.state_bytes or 0 for d in found.devices if d.device in ps}
    if ratio is None or len(ps) < 2 or sum(shares.values()) < _SMALL_STATE or ratio < _IMBALANCE:
        return
    fullest = max(shares, key=lambda device: shares[device])
    yield Finding(
        "ps imbalance", f"{fullest} holds {shares[fullest]:,} of {sum(shares.values()):,} B (max/mean {ratio:.1f}).",
        "Use GreedyLoadBalancingStrategy as ps_strategy, or a partitioner for the large variable.",
    )  # fmt: skip


def _ping_pong(found: Inspection) -> Iterator[Finding]:
    """A tensor that another task hands back unchanged."""
    sent = {(t.tensor, t.src, t.dst) for t in found.transfers if not t.control}
    for t in found.transfers:
        node = found.nodes.get(t.producer)
        if t.control or node is None or node.op not in ("Identity", "Reshape", "Cast") or not node.inputs:
            continue
        source, index = node.inputs[0]
        if (f"{source}:{index}", t.dst, t.src) in sent:
            yield Finding(
                "ping-pong", f"{source}:{index} goes from {t.dst} to {t.src} and comes back as {t.tensor}.",
                f"Place {t.producer} with {source}: tf.colocate_with.", (t.producer,),
            )  # fmt: skip


def _large_constants(found: Inspection) -> Iterator[Finding]:
    for name, node in found.nodes.items():
        value: Any = node.attrs.get("value")
        if node.op == "Const" and isinstance(value, np.ndarray) and value.nbytes >= _LARGE_CONSTANT:
            yield Finding(
                "large constant", f"{name} holds {value.nbytes:,} B, which every copy of the graph carries.",
                "Feed it, read it in the graph, or initialise a variable from a placeholder.", (name,),
            )  # fmt: skip


def _fallbacks(found: Inspection) -> Iterator[Finding]:
    by_request: dict[str, list[str]] = {}
    for name, decision in found.placement.items():
        if any(reason.kind == SOFT_PLACEMENT for reason in decision.reasons):
            by_request.setdefault(found.nodes[name].device, []).append(name)
    for request, names in by_request.items():
        yield Finding(
            "cpu fallback", f"{_some(names)} asked for '{request}' and run on another device of the task.",
            "Ask for a CPU device, or none.", tuple(names),
        )  # fmt: skip


def _never_updated(found: Inspection) -> Iterator[Finding]:
    """Weights that a training step reads, and that no op of the graph but an initialiser or a restore changes."""
    running = {name for part in found.layout.tasks.values() for name in part}
    if not any(name in running and "Apply" in found.nodes[name].op for name in running & found.nodes.keys()):
        return
    changed: set[str] = set()
    for name, node in found.nodes.items():
        initialises = node.op in ("Assign", "AssignVariableOp") and name not in running
        if node.op.startswith(_UPDATES) and not initialises:
            changed.update(source for source, _ in node.inputs)
    names = [v for v in _variables(found) if v in running and v not in changed and _is_read_as_weight(found, v)]
    if names:
        yield Finding(
            "never updated", f"{_some(names)}: read in this step, and nothing in the graph updates it.",
            "Is it on the loss's path, and in var_list? Mark it trainable=False if it is meant to be constant.",
            tuple(names),
        )  # fmt: skip


def _is_read_as_weight(found: Inspection, name: str) -> bool:
    dtype = found.nodes[name].attrs.get("dtype")
    floating = getattr(dtype, "is_floating", False)
    # Slots and learning rates kept in variables are no weights.
    shape = found.nodes[name].attrs.get("shape")
    return bool(floating) and shape != ()


def _sync_deadlock(found: Inspection) -> Iterator[Finding]:
    """More gradients are asked for than there are workers to give them."""
    workers = {task_of_device(d.device) for d in found.devices if parse(d.device).job in ("worker", "chief", "master")}
    if not workers:
        return
    for name, node in found.nodes.items():
        if node.op.endswith("TakeGradient") and len(node.inputs) > 1:
            wanted = found.nodes.get(node.inputs[1][0])
            value: Any = wanted.attrs.get("value") if wanted is not None else None
            if value is not None and int(np.asarray(value).reshape(-1)[0]) > len(workers):
                yield Finding(
                    "sync deadlock",
                    f"{name} waits for {int(np.asarray(value).reshape(-1)[0])} gradients, the cluster has"
                    f" {len(workers)} worker task(s): a worker gives one per update, so the first update never comes.",
                    "Set replicas_to_aggregate to at most the number of workers (or start more workers).", (name,),
                )  # fmt: skip
                return


def _many_small_messages(found: Inspection) -> Iterator[Finding]:
    for (src, dst), members in found.links().items():
        messages = {t.group for t in members if t.route is Route.SENT}
        if len(messages) > 50:
            yield Finding(
                "chatty link", f"{src} sends {len(messages)} messages to {dst} in one step.",
                "Ops that alternate between the two could share a device: tf.colocate_with.",
            )  # fmt: skip


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


_CHECKS: tuple[Callable[[Inspection], Iterator[Finding]], ...] = (
    _state_on_workers, _ps_imbalance, _ping_pong, _large_constants, _fallbacks, _never_updated, _sync_deadlock,
    _many_small_messages,
)  # fmt: skip
