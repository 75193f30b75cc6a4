"""What is wrong with the work of a step and with what it sends."""

from __future__ import annotations

from collections.abc import Iterator

from tfmini.inspection.checking import Check, ps_devices, some
from tfmini.inspection.findings import Finding, Inspection
from tfmini.placement.decision import SOFT_PLACEMENT
from tfmini.placement.layout import Route

_LARGE_TABLE = 1 << 20
_MANY_MESSAGES = 50
_HEAVY = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
                    "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"})  # fmt: skip


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
                f"Place {t.producer} with {source}: tf.colocate_with.", (t.producer, source),
            )  # fmt: skip


def _whole_tables(found: Inspection) -> Iterator[Finding]:
    """A table that is sent whole, for a few of its rows."""
    for t in found.transfers:
        users = [found.nodes[name] for name in t.consumers if name in found.nodes]
        if t.role != "variable read" or (t.bytes or 0) < _LARGE_TABLE or not users:
            continue
        if all(node.op in ("Gather", "GatherV2") for node in users):
            yield Finding(
                "whole table sent", f"{t.tensor} ({t.bytes:,} B) goes from {t.src} to {t.dst} in each step, where"
                f" {some(t.consumers)} takes rows of it.",
                "Look rows up where the table is: tf.nn.embedding_lookup on the variable, or tf.colocate_with.",
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
            by_request.setdefault(found.nodes[name].device, []).append(name)
    for request, names in by_request.items():
        yield Finding(
            "cpu fallback", f"{some(names)} asked for '{request}' and run on another device of the task.",
            "Ask for a CPU device, or none.", tuple(names),
        )  # fmt: skip


def _many_small_messages(found: Inspection) -> Iterator[Finding]:
    for (src, dst), members in found.links().items():
        messages = {t.group for t in members if t.route is Route.SENT}
        if len(messages) > _MANY_MESSAGES:
            yield Finding(
                "chatty link", f"{src} sends {len(messages)} messages to {dst} in one step.",
                "Ops that alternate between the two could share a device: tf.colocate_with.",
            )  # fmt: skip


TRAFFIC_CHECKS: tuple[Check, ...] = (_ping_pong, _whole_tables, _work_on_ps, _fallbacks, _many_small_messages)
