"""Checks of a graph's state: its placement, initialisation, updates and sharing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini.devices import parse
from tfmini.graph.node import Node
from tfmini.graph.traits import ops_with
from tfmini.inspection.checking import Check, holder_of, local_variables, ps_devices, running, some, variables
from tfmini.inspection.findings import Finding, Inspection

_LARGE_CONSTANT = 10 << 20
_IMBALANCE = 1.8  # the maximum is 2 with two ps, 3 with three
_SMALL_STATE = 1 << 20
_WRITES, _ASSIGNS, _OPTIMIZES = ops_with("writes"), ops_with("writes", "assign"), ops_with("writes", "optimize")
_ACCUMULATES = ops_with("accumulator", "apply")
_DESCRIBES = ("dtype", "shape", "component_types", "shapes", "capacity", "key_dtype", "value_dtype")


def balance(found: Inspection) -> float | None:
    """The largest state of a ps divided by the mean over all ps; None without ps or without known state."""
    ps = set(ps_devices(found))
    shares = [d.state_bytes or 0 for d in found.devices if d.device in ps]
    return max(shares) * len(shares) / sum(shares) if sum(shares) else None


def _state_on_workers(found: Inspection) -> Iterator[Finding]:
    if not ps_devices(found):
        return
    local = local_variables(found)
    by_device: dict[str, list[str]] = {}
    for name in variables(found):
        device = found.placement[name].device
        if parse(device).job != "ps" and name not in local:
            by_device.setdefault(device, []).append(name)
    for device, names in by_device.items():
        yield Finding(
            "state on a worker", f"{some(names)} on {device}: other workers do not share it.",
            "Create shared variables under tf.device(tf.train.replica_device_setter(...)).", tuple(names),
        )  # fmt: skip


def _local_state_on_ps(found: Inspection) -> Iterator[Finding]:
    """Finds local variables on a ps, which all workers share by name."""
    ps = set(ps_devices(found))
    names = [name for name in local_variables(found) if name in found.placement and found.placement[name].device in ps]
    if names:
        yield Finding(
            "shared local variable", f"{some(names)} on {found.placement[names[0]].device}: a local variable, but all"
            " workers' graphs share the variables of a ps by name.",
            "Create it under the worker's own tf.device('/job:worker/task:N').", tuple(names),
        )  # fmt: skip


def _ps_imbalance(found: Inspection) -> Iterator[Finding]:
    ratio = balance(found)
    ps = set(ps_devices(found))
    shares = {d.device: d.state_bytes or 0 for d in found.devices if d.device in ps}
    if ratio is None or len(ps) < 2 or sum(shares.values()) < _SMALL_STATE or ratio < _IMBALANCE:
        return
    fullest = max(shares, key=lambda device: shares[device])
    emptiest = min(shares, key=lambda device: shares[device])
    yield Finding(
        "ps imbalance", f"{fullest} holds {shares[fullest]:,} of {sum(shares.values()):,} B, {emptiest}"
        f" {shares[emptiest]:,} (max/mean {ratio:.1f}).",
        "Use GreedyLoadBalancingStrategy as ps_strategy, or a partitioner for the large variable.",
    )  # fmt: skip


def _idle_ps(found: Inspection) -> Iterator[Finding]:
    ps = [d for d in found.devices if d.device in set(ps_devices(found))]
    idle = [d.device for d in ps if not d.variables and not d.ops]
    # If no ps has variables, the graph may use them for other state, such as queues.
    if idle and any(d.variables for d in ps):
        yield Finding(
            "idle ps", f"{some(idle)} hold(s) no variable: there are fewer variables than ps tasks, or the device"
            " setter has fewer ps.", "Start fewer ps tasks, give the setter the whole cluster, or partition.",
        )  # fmt: skip


def _large_constants(found: Inspection) -> Iterator[Finding]:
    for name, node in found.nodes.items():
        value: Any = node.attrs.get("value")
        if node.op == "Const" and isinstance(value, np.ndarray) and value.nbytes >= _LARGE_CONSTANT:
            yield Finding(
                "large constant", f"{name} holds {value.nbytes:,} B, which are part of every copy of the graph.",
                "Feed it, read it in the graph, or initialise a variable from a placeholder.", (name,),
            )  # fmt: skip


def _never_updated(found: Inspection) -> Iterator[Finding]:
    """Finds weights that a training step reads and that only initialisers and restores change."""
    here = running(found)
    if not any(found.nodes[name].op in _OPTIMIZES or found.nodes[name].op in _ACCUMULATES for name in here):
        return
    changed: set[str] = set()
    for name, node in found.nodes.items():
        initialises = node.op in _ASSIGNS and name not in here
        if node.op in _WRITES and not initialises:
            changed.update(source for source, _ in node.inputs)
    names = [v for v in variables(found) if v in here and v not in changed and _is_weight(found.nodes[v])]
    if names:
        yield Finding(
            "never updated", f"{some(names)}: read in this step, but no op of the graph updates it.",
            "Is it on the loss's path, and in var_list? Mark it trainable=False if it is meant to be constant.",
            tuple(names),
        )  # fmt: skip


def _is_weight(node: Node) -> bool:
    # Scalars, such as learning rates in variables, are no weights.
    return bool(getattr(node.attrs.get("dtype"), "is_floating", False)) and node.attrs.get("shape") != ()


def _never_set(found: Inspection) -> Iterator[Finding]:
    assigned = {holder_of(found, node) for node in found.nodes.values() if node.op in _ASSIGNS}
    here = running(found)
    names = [v for v in variables(found) if v in here and v not in assigned]
    if names:
        yield Finding(
            "never initialised", f"{some(names)}: the step uses it, but no op of the graph initialises it.",
            "Give it an initializer before the graph is saved, or add a Saver that restores it.", tuple(names),
        )  # fmt: skip


def _shared_names(found: Inspection) -> Iterator[Finding]:
    """Finds two ops with one shared object and different descriptions of it."""
    first: dict[tuple[str, str, str], str] = {}
    for name, node in found.nodes.items():
        shared = node.attrs.get("shared_name") or b""
        if not shared or node.inputs:
            continue
        key = node.op, found.placement[name].device, shared.decode()
        other = found.nodes[first.setdefault(key, name)]
        differing = [a for a in _DESCRIBES if str(node.attrs.get(a)) != str(other.attrs.get(a))]
        if differing:
            yield Finding(
                "shared name", f"{other.name} and {name} are both '{key[2]}' on {key[1]}, with different"
                f" {some(differing)}: {other.attrs.get(differing[0])} and {node.attrs.get(differing[0])}.",
                "Give one of them another shared_name.", (other.name, name),
            )  # fmt: skip


STATE_CHECKS: tuple[Check, ...] = (
    _state_on_workers, _local_state_on_ps, _ps_imbalance, _idle_ps, _large_constants, _never_updated, _never_set,
    _shared_names,
)  # fmt: skip
