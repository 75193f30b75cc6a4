"""Warns about likely mistakes in a graph or cluster, with remedies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfmini.devices import parse, task_of_device
from tfmini.graph.node import Node
from tfmini.graph.op_types import PLACEHOLDER_OPS, VARIABLE_OPS, ops_with
from tfmini.placement.decision import EXPLICIT, SOFT_PLACEMENT
from tfmini.placement.task_graph import Route
from tfmini.show.inspection.findings import (
    COLLECTIVES,
    OVERLOADED,
    SMALL_BYTES,
    Finding,
    Inspection,
    Load,
    overload_text,
    overview,
)

# ---- Functions that the checks of `lint` share ---------------------------------------------------------------------

Check = Callable[[Inspection], Iterator[Finding]]
WORKER_JOBS = ("worker", "chief", "master")
_FORWARDS_VALUE = ops_with("forwards", "value")


def ps_devices(found: Inspection) -> list[str]:
    """The devices of the job ``ps``."""
    return [d.device for d in found.devices if parse(d.device).job == "ps"]


def worker_tasks(found: Inspection) -> set[str]:
    """The tasks that can have a client with its own graph."""
    return {task_of_device(d.device) for d in found.devices if parse(d.device).job in WORKER_JOBS}


def variables(found: Inspection) -> list[str]:
    """The names of all variables of the graph."""
    return [name for name, node in found.nodes.items() if node.op in VARIABLE_OPS]


def local_variables(found: Inspection) -> set[str]:
    """The variables of which every worker has its own; guessed from their names if the source has no collections."""
    if found.local_variables is not None:
        return set(found.local_variables)
    return {
        name for name in variables(found) if "local_step" in name or name.split("/")[-1] in ("count", "total", "epochs")
    }


def running(found: Inspection) -> set[str]:
    """The graph's own ops that the step runs."""
    return {name for d in found.devices for name in d.ops}


def holder_of(found: Inspection, node: Node, slot: int = 0) -> str:
    """The op that owns the state of an input, found through ops that forward it."""
    name = node.inputs[slot][0] if slot < len(node.inputs) else ""
    while name in found.nodes and found.nodes[name].op in _FORWARDS_VALUE:
        if not found.nodes[name].inputs:
            break
        name = found.nodes[name].inputs[0][0]
    return name


def some(names: Sequence[str]) -> str:
    """The first three names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ---- Checks of a graph's state: its placement, initialisation, updates and sharing ---------------------------------

_LARGE_CONSTANT = 10 << 20
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
    if ratio is None or len(ps) < 2 or sum(shares.values()) < SMALL_BYTES or ratio < OVERLOADED:
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


# ---- Checks of a step's work and transfers -------------------------------------------------------------------------

_LARGE_TABLE = 1 << 20
_MANY_MESSAGES = 50
_MOST_OVERLOADED = 3
_HEAVY = ops_with("work", "matmul", "convolution")
_FORWARDS, _LOOKS_UP = ops_with("forwards"), ops_with("looks_up")


def _round_trips(found: Inspection) -> Iterator[Finding]:
    """Finds tensors that another task sends back unchanged."""
    sent = {(t.tensor, t.src, t.dst) for t in found.transfers if not t.control}
    for t in found.transfers:
        node = found.nodes.get(t.producer)
        if t.control or node is None or node.op not in _FORWARDS or not node.inputs:
            continue
        source, index = node.inputs[0]
        if (f"{source}:{index}", t.dst, t.src) in sent:
            yield Finding(
                "round trip", f"{source}:{index} is sent from {t.dst} to {t.src} and returns as {t.tensor}.",
                f"Place {t.producer} with {source}: tf.colocate_with.", (t.producer, source),
            )  # fmt: skip


def _whole_tables(found: Inspection) -> Iterator[Finding]:
    """Finds tables that are sent whole although only some rows are used."""
    for t in found.transfers:
        users = [found.nodes[name] for name in t.consumers if name in found.nodes]
        if t.role != "variable read" or (t.bytes or 0) < _LARGE_TABLE or not users:
            continue
        if all(node.op in _LOOKS_UP for node in users):
            yield Finding(
                "whole table sent", f"{t.tensor} ({t.bytes:,} B) is sent from {t.src} to {t.dst} in each step, where"
                f" {some(t.consumers)} uses only rows of it.",
                "Look up the rows on the table's task: tf.nn.embedding_lookup on the variable, or tf.colocate_with.",
                (t.producer, *t.consumers),
            )  # fmt: skip


def _work_on_ps(found: Inspection) -> Iterator[Finding]:
    ps = set(ps_devices(found))
    for summary in found.devices:
        heavy = [op for op in summary.ops if summary.device in ps and found.nodes[op].op in _HEAVY]
        if heavy:
            yield Finding(
                "work on a ps", f"{some(heavy)} on {summary.device}, where all workers share its processor.",
                "Build the model under a worker's device: replica_device_setter does, tf.device('/job:ps') does not.",
                tuple(heavy),
            )  # fmt: skip


def _fallbacks(found: Inspection) -> Iterator[Finding]:
    by_request: dict[str, list[str]] = {}
    for name, decision in found.placement.items():
        if any(reason.kind == SOFT_PLACEMENT for reason in decision.reasons):
            # An op without a request of its own is colocated with one that has it.
            asked = [name, *(reason.other for reason in decision.reasons if reason.kind == EXPLICIT and reason.other)]
            request = next((found.nodes[op].device for op in asked if found.nodes[op].device), "")
            by_request.setdefault(request, []).append(name)
    for request, names in by_request.items():
        yield Finding(
            "cpu fallback", f"no task has the device '{request}' for {some(names)}: another device is used.",
            "Request a CPU device, or none.", tuple(names),
        )  # fmt: skip


def _many_small_messages(found: Inspection) -> Iterator[Finding]:
    for (src, dst), members in found.links().items():
        messages = {t.group for t in members if t.route is Route.SENT}
        if len(messages) > _MANY_MESSAGES:
            yield Finding(
                "many messages", f"{src} sends {len(messages)} messages to {dst} in one step.",
                "Place ops that alternate between the two on one device: tf.colocate_with.",
            )  # fmt: skip


def _overloaded(found: Inspection) -> Iterator[Finding]:
    """Finds what the page marks: tasks with much more traffic than the others of their job."""
    for load, factor in overview(found).overloaded[:_MOST_OVERLOADED]:
        yield Finding("overloaded task", f"{overload_text(load, factor)}.", _relief(found, load))


def _relief(found: Inspection, load: Load) -> str:
    """What to do for an overloaded task, by what it holds and sends."""
    if load.state_bytes:
        return (
            "Spread what it sends: partition its largest variable, or use GreedyLoadBalancingStrategy as ps_strategy."
        )
    passed = [t for t in found.transfers if load.device in (t.src, t.dst) and t.route in (Route.FED, Route.FETCHED)]
    if any(t.bytes for t in passed):
        return (
            "What the client feeds and fetches passes its task: let each worker read its own input, by tf.data or with"
            " a client of its own."
        )
    return "Move some of its ops to other tasks of the job: --view wire shows what it sends and receives."


TRAFFIC_CHECKS: tuple[Check, ...] = (
    _round_trips, _whole_tables, _work_on_ps, _fallbacks, _many_small_messages, _overloaded,
)  # fmt: skip


# ---- Checks for steps that fail or deadlock, because a value that they wait for never arrives ----------------------

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


# ---- All checks ----------------------------------------------------------------------------------------------------


def lint(found: Inspection) -> list[Finding]:
    """Returns all warnings about an inspection."""
    return [warning for check in (*STATE_CHECKS, *TRAFFIC_CHECKS, *WAITING_CHECKS) for warning in check(found)]
