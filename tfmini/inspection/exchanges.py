"""Lists the transfers of collective ops from their cost model, since the partitioner adds no Send or Recv for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfmini.collectives.costs import all_reduce_cost
from tfmini.collectives.schedules import DIRECT_LIMIT
from tfmini.devices import parse
from tfmini.graph.node import Endpoint, Node
from tfmini.graph.traits import ops_with, trait_of
from tfmini.inspection.clusters import task_order
from tfmini.inspection.cost import size
from tfmini.inspection.findings import Inspection
from tfmini.placement.layout import Route
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
    """Yields (from, to, bytes, messages) of a ring, of the chain of a broadcast, or from all to all."""
    count = len(c.devices)
    following = [(src, c.devices[(i + 1) % count]) for i, src in enumerate(c.devices)]
    if c.kind == "broadcast":
        first = next((i for i, d in enumerate(c.devices) if d in c.ops and _is_source(c.ops[d])), 0)
        yield from ((*following[(first + i) % count], c.nbytes, 1) for i in range(count - 1))
    elif c.kind == "all-reduce" and count > 1 and (c.nbytes is None or c.nbytes > DIRECT_LIMIT // (count - 1)):
        nbytes, messages = _ring_cost(c.nbytes, count)
        yield from ((src, dst, nbytes, messages) for src, dst in following)
    else:
        nbytes = c.nbytes
        if nbytes is not None and c.kind in ("all-to-all", "reduce-scatter"):
            nbytes = round(nbytes / count)  # of an all-to-all with splits: the mean
        yield from ((src, dst, nbytes, 1) for src in c.devices for dst in c.devices if src != dst)


def _is_source(node: Node) -> bool:
    return node.op == "CollectiveBcastSend" or bool(node.attrs.get("is_source"))


def _ring_cost(nbytes: int | None, count: int) -> tuple[int | None, int]:
    if nbytes is None:
        return None, 2 * (count - 1)
    cost = all_reduce_cost(nbytes, count)
    return round(cost.nbytes), cost.messages


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
