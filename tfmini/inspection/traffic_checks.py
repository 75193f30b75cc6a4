"""Checks of a step's work and transfers."""

from __future__ import annotations

from collections.abc import Iterator

from tfmini.graph.traits import ops_with
from tfmini.inspection.checking import Check, ps_devices, some
from tfmini.inspection.findings import Finding, Inspection
from tfmini.placement.decision import EXPLICIT, SOFT_PLACEMENT
from tfmini.placement.task_graph import Route

_LARGE_TABLE = 1 << 20
_MANY_MESSAGES = 50
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


TRAFFIC_CHECKS: tuple[Check, ...] = (_round_trips, _whole_tables, _work_on_ps, _fallbacks, _many_small_messages)
