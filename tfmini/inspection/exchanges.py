"""Lists the transfers of collective ops from their cost model, since the partitioner adds no Send or Recv for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfmini.collectives.costs import flows
from tfmini.devices import parse
from tfmini.graph.node import Endpoint, Node
from tfmini.graph.traits import ops_with, trait_of
from tfmini.inspection.clusters import task_order
from tfmini.inspection.cost import size
from tfmini.inspection.findings import Inspection
from tfmini.placement.task_graph import Route
from tfmini.placement.wire_table import Transfer
from tfmini.shapes import RawShape

COLLECTIVES = ops_with("collective")


@dataclass(frozen=True)
class _Collective:
    """One collective of a step: the ops of one instance, and all devices of the group in the order of the ring."""

    ops: dict[str, Node]  # by device; members that run another graph have none
    devices: list[str]
    shape: RawShape
    nbytes: int | None

    @property
    def node(self) -> Node:
        return next(iter(self.ops.values()))

    @property
    def kind(self) -> str:
        kind: str = trait_of(self.node.op, "collective")
        return kind

    @property
    def role(self) -> str:
        name = self.node.attrs.get("_collective_name", b"").decode()
        parts = name.split("+")
        shown = "+".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        return f"{self.kind} of {shown}" if name else self.kind


def group_devices(found: Inspection, node: Node) -> list[str]:
    """The devices of a collective's group: those with ops of its key, and other workers up to the group's size."""
    key, wanted = node.attrs["group_key"], node.attrs["group_size"]
    here = {found.placement[name].device for name, other in found.nodes.items()
            if other.op in COLLECTIVES and other.attrs["group_key"] == key}  # fmt: skip
    jobs = {parse(device).job for device in here}
    others = [d.device for d in found.devices if parse(d.device).job in jobs and d.device not in here]
    return sorted([*here, *others[: max(0, wanted - len(here))]], key=task_order)


def exchanges(found: Inspection) -> list[Transfer]:
    """The transfers of one step between all members of the groups, including members that run other graphs."""
    groups: dict[tuple[int, int], dict[str, Node]] = {}
    for summary in found.devices:
        for name in summary.ops:
            node = found.nodes[name]
            if node.op in COLLECTIVES:
                instance = node.attrs["group_key"], node.attrs["instance_key"]
                groups.setdefault(instance, {})[summary.device] = node
    rows: list[Transfer] = []
    for number, ops in enumerate(groups.values()):
        collective = _collective(found, ops)
        for src, dst, nbytes, messages in _traffic(collective):
            rows.append(_transfer(collective, number, src, dst, nbytes, messages))
    return rows


def _collective(found: Inspection, ops: dict[str, Node]) -> _Collective:
    node = next(iter(ops.values()))
    endpoint: Endpoint = node.inputs[0] if node.inputs else (node.name, 0)
    shape = found.shapes.get(endpoint)
    count = size(shape)
    return _Collective(ops, group_devices(found, node), shape, None if count is None else count * node.attrs["T"].size)


def _traffic(c: _Collective) -> Iterator[tuple[str, str, int | None, int]]:
    """Yields (from, to, bytes, messages)."""
    root = next((i for i, d in enumerate(c.devices) if d in c.ops and is_source(c.ops[d])), 0)
    for flow in flows(c.kind, c.nbytes, len(c.devices), root):
        yield c.devices[flow.source], c.devices[flow.target], flow.nbytes, flow.messages


def is_source(node: Node) -> bool:
    """Whether the op is the one that broadcasts."""
    return node.op == "CollectiveBcastSend" or bool(node.attrs.get("is_source"))


def _transfer(c: _Collective, number: int, src: str, dst: str, nbytes: int | None, messages: int) -> Transfer:
    node, sender, receiver = c.node, c.ops.get(src), c.ops.get(dst)
    source, index = node.inputs[0] if node.inputs else (node.name, 0)
    return Transfer(
        tensor=f"{source}:{index}", src=src, dst=dst, dtype=node.attrs["T"], shape=c.shape, bytes=nbytes,
        control=False, role=c.role, group=-1 - number, route=Route.EXCHANGED, messages=messages,
        producer=sender.name if sender is not None else "",
        consumers=(receiver.name,) if receiver is not None else (),
        key=f"collective {node.attrs['group_key']}:{node.attrs['instance_key']}",
    )  # fmt: skip
