"""Calls of collectives: what all runs of a node share, and the `Call` of one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.collectives import schedules
from tfmini.collectives.fingerprints import Fingerprint
from tfmini.collectives.stages import fingerprint_text
from tfmini.graph.node import Node
from tfmini.graph.traits import trait_of
from tfmini.graph.waiting import Wait
from tfmini.rpc import messages as m
from tfmini.rpc.receive_buffers import POOL_FROM, RECEIVE_BUFFERS
from tfmini.runtime.collectives.groups import canonical

_REMEMBERED_NODES = 10_000
BEGINS = "_collective_begins"
"""An attr of the broadcasts with which a group begins anew."""


@dataclass(frozen=True)
class About:
    """The common part of all calls of a node for values of one shape.

    Attributes:
      device: of the op, which is a member of the group.
      fingerprint: without a step; ``text``: as stages show it.
      cause: the event that the call waits for, for people.
      reduction: (merge op, final op) of an all-reduce.
      pieces: the least number of pieces that each chunk travels in.
      begins: whether the members may have come from different steps: it gives them the same variables.
    """

    device: str
    group_key: int
    group_size: int
    instance: int
    fingerprint: Fingerprint
    text: bytes
    cause: str
    reduction: tuple[str, str] | None
    pieces: int
    begins: bool


class Call:
    """One run of a collective op; ``value`` is None where it only receives."""

    __slots__ = ("wait", "about", "value", "instance", "_node")

    def __init__(self, wait: Wait, about: About, node: Node, value: Any) -> None:
        self.wait, self.about, self.value, self._node = wait, about, value, node
        self.instance = about.instance

    def describe(self) -> str:
        """For people."""
        about = self.about
        name = f' of "{about.fingerprint.name}"' if about.fingerprint.name else ""
        return f"collective {about.fingerprint.op}{name} (group {about.group_key}, instance {about.instance})"

    def schedule(self, rank: int, members: list[str]) -> Any:
        """The schedule by messages, for the members in the order of the ring.

        Raises:
          InvalidArgumentError: when the value does not have the shape that the node says.
        """
        return _SCHEDULES[trait_of(self._node.op, "collective")](self, self._node, rank, members)


class Calls:
    """Makes calls, and keeps the common parts of their nodes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, Any, About]] = {}

    def make(self, wait: Wait, node: Node, value: Any) -> Call:
        """The call that a node stands for."""
        if value is not None and type(value) is not np.ndarray:
            value = np.asarray(value)
        shape = None if value is None else value.shape
        known = self._known.get(id(node))
        if known is None or known[0] is not node or known[1] != shape:
            if len(self._known) >= _REMEMBERED_NODES:
                self._known.clear()
            known = self._known[id(node)] = node, shape, _about(node, shape)
        return Call(wait, known[2], node, value)


def _about(node: Node, shape: tuple[int, ...] | None) -> About:
    attrs = node.attrs
    sizes = list(map(str, attrs["shape"] if shape is None else shape))
    if attrs.get("_collective_any_rows"):
        sizes[:1] = ["?"]
    reduction = None
    if node.op == "CollectiveReduce":
        reduction = attrs["merge_op"].decode(), attrs["final_op"].decode()
    pieces = max(1, len(attrs.get("subdiv_offsets", ())))
    op = _described(node, reduction, pieces)
    name = attrs.get("_collective_name", b"").decode()
    dtype = attrs.get("_collective_dtype", attrs["T"].name.encode()).decode()
    fingerprint = Fingerprint(name, f"[{', '.join(sizes)}]", dtype, op, 0)
    group_key, group_size, instance = attrs["group_key"], attrs["group_size"], attrs["instance_key"]
    quoted = f' of "{name}"' if name else ""
    cause = f"collective {op}{quoted} (group {group_key}, instance {instance}) of {group_size} ranks"
    return About(
        node.device, group_key, group_size, instance, fingerprint, fingerprint_text(fingerprint.without_step()), cause,
        reduction, pieces, BEGINS in attrs,
    )  # fmt: skip


def _described(node: Node, reduction: tuple[str, str] | None, pieces: int) -> str:
    """The op of a fingerprint: with all that ranks must agree on."""
    if reduction is not None:
        return f"all-reduce({', '.join(reduction)}{f', {pieces} pieces' if pieces > 1 else ''})"
    if node.op == "CollectiveGather":
        return "gather"
    root = node.attrs.get("_collective_root")
    return "broadcast" if root is None else f"broadcast(from rank {root})"


def _reduce(call: Call, node: Node, rank: int, members: list[str]) -> Any:
    assert call.about.reduction is not None
    merge, final = call.about.reduction
    out = result_memory(call.value)
    return schedules.all_reduce(rank, len(members), call.value, merge, final, call.about.pieces, out)


def result_memory(value: Any) -> tuple[Any, Any]:
    """Memory for a result, and the array to return; a large result uses a pooled receive buffer."""
    if value.nbytes < POOL_FROM:
        out = np.empty(value.size, value.dtype)
        return out, out
    memory, loan = RECEIVE_BUFFERS.take(value.nbytes)
    return np.frombuffer(memory, value.dtype), loan.view(value.dtype)


def _broadcast(call: Call, node: Node, rank: int, members: list[str]) -> Any:
    wanted = tuple(node.attrs["shape"])
    if call.value is not None and call.value.shape != wanted:
        text = f"Broadcast of shape {list(wanted)} got a tensor of shape {list(call.value.shape)}."
        raise errors.InvalidArgumentError.of(text)
    return schedules.Broadcast(rank, len(members), call.value, wanted, node.attrs["T"].as_numpy_dtype)


def _gather(call: Call, node: Node, rank: int, members: list[str]) -> Any:
    if not call.value.shape:
        raise errors.InvalidArgumentError.of("A collective gather needs a tensor of at least one dimension.")
    order = sorted(range(len(members)), key=lambda r: canonical(members[r]))
    return schedules.Gather(rank, len(members), call.value, order)


_SCHEDULES: dict[str, Callable[[Call, Node, int, list[str]], Any]] = {
    "all-reduce": _reduce,
    "broadcast": _broadcast,
    "all-gather": _gather,
}

def failure_message(epoch: int, error: errors.OpError, task: str) -> m.CollectiveFailure:
    """The news of a failure for the other members of a group."""
    s = m.status_of(error, task)
    return m.CollectiveFailure(epoch, s.code, s.message, s.node, s.device, s.task, s.derived)


def begin_failure(error: Exception, call: Call) -> errors.OpError:
    """Why a call could not begin."""
    if isinstance(error, errors.OpError):
        return error
    kind = errors.ResourceExhaustedError if isinstance(error, MemoryError) else errors.InternalError
    return kind.of(f"{call.describe()} cannot begin: {type(error).__name__}: {error}")
