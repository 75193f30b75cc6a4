"""From a collective op to a `Call`: which schedule computes it, and its fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.collectives import schedules
from tfmini.graph.node import Node
from tfmini.graph.waiting import Wait
from tfmini.runtime.collective_exchange import Call
from tfmini.runtime.collective_groups import canonical


def collective_call(wait: Wait, node: Node, value: Any) -> Call:
    """The call that a node of a collective op stands for; ``value`` is None where it only receives.

    Raises:
      InvalidArgumentError: when the value does not have the shape that the node says.
    """
    attrs = node.attrs
    array = None if value is None else np.asarray(value)
    dtype = attrs["T"].as_numpy_dtype
    shape = tuple(attrs["shape"]) if array is None else array.shape
    kind, make = _KINDS[node.op](node, array, shape, dtype)
    sizes = list(map(str, shape))
    if attrs.get("_collective_any_rows"):
        sizes[:1] = ["?"]
    shown = f"[{', '.join(sizes)}]"
    name = attrs.get("_collective_name", b"").decode()
    return Call(
        wait, node.device, attrs["group_key"], attrs["group_size"], attrs["instance_key"], name, shown,
        attrs["T"].name, kind, make,
    )  # fmt: skip


def _reduce(node: Node, value: Any, shape: tuple[int, ...], dtype: Any) -> tuple[str, Any]:
    merge, final = node.attrs["merge_op"].decode(), node.attrs["final_op"].decode()
    pieces = max(1, len(node.attrs["subdiv_offsets"]))

    def make(rank: int, members: list[str]) -> schedules.Schedule:
        return schedules.all_reduce(rank, len(members), value, merge, final, pieces)

    return f"all-reduce({merge}, {final})", make


def _broadcast(node: Node, value: Any, shape: tuple[int, ...], dtype: Any) -> tuple[str, Any]:
    wanted = tuple(node.attrs["shape"])
    if shape != wanted:
        text = f"Broadcast of shape {list(wanted)} got a tensor of shape {list(shape)}."
        raise errors.InvalidArgumentError(None, None, text)

    def make(rank: int, members: list[str]) -> schedules.Schedule:
        return schedules.Broadcast(rank, len(members), value, shape, dtype)

    return "broadcast", make


def _gather(node: Node, value: Any, shape: tuple[int, ...], dtype: Any) -> tuple[str, Any]:
    if not shape:
        raise errors.InvalidArgumentError(None, None, "A collective gather needs a tensor of at least one dimension.")

    def make(rank: int, members: Sequence[str]) -> schedules.Schedule:
        order = sorted(range(len(members)), key=lambda r: canonical(members[r]))
        return schedules.Gather(rank, len(members), value, order)

    return "gather", make


_KINDS = {
    "CollectiveReduce": _reduce,
    "CollectiveBcastSend": _broadcast,
    "CollectiveBcastRecv": _broadcast,
    "CollectiveGather": _gather,
}
