"""Ops that wait for other steps: takes from accumulators and queues, and collectives.

A queue or accumulator is a number of elements. One that no step fills (an input queue, which threads of the script
fill) never runs empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfmini.graph.node import Node, Nodes
from tfmini.graph.traits import ops_with, trait_of
from tfmini.inspection.cost import size
from tfmini.inspection.exchanges import is_source
from tfmini.ops.queues.queue_ops import enqueue_many, enqueue_many_v1
from tfmini.shapes import RawShape
from tfmini.simulation.kernel_costs import Shapes
from tfmini.simulation.prediction import Event

_MANY = frozenset(handle.op_def.name for handle in (enqueue_many, enqueue_many_v1))
COLLECTIVES = ops_with("collective")
ADD, TAKE, MEET = "add", "take", "meet"
Answer = Callable[[Event, float], None]
"""Called with the cause, and with the CPU that the task then spends on the op."""


@dataclass(frozen=True)
class Wait:
    """What an op does to a shared count, or the collective that it takes part in.

    Attributes:
      kind: `ADD` elements, `TAKE` elements as soon as there are enough, or `MEET` the other members of a group.
      key: the op of the queue or accumulator, or the keys of the collective.
      count: of elements, or of members.
      collective: what the members do, the op's trait: ``all-reduce``, ``broadcast`` and so on.
      nbytes: of a member's tensor. ``is_root``: whether this member broadcasts.
    """

    kind: str
    key: str
    count: int
    collective: str = ""
    nbytes: int = 0
    is_root: bool = False


class Member(NamedTuple):
    """A task that has come to a collective."""

    task: str
    wait: Wait
    answer: Answer


def wait_of(node: Node, nodes: Nodes, shapes: Shapes) -> Wait | None:
    """The wait of an op; None for an op that concerns no other step.

    Args:
      nodes: the whole graph: in a partition, inputs may be Recvs.
    """
    node = nodes.get(node.name, node)
    if trait_of(node.op, "collective") is not None:
        return _meeting(node, shapes)
    accumulator, queue = trait_of(node.op, "accumulator"), trait_of(node.op, "queue")
    if accumulator == "apply":
        return Wait(ADD, node.inputs[0][0], 1)
    if accumulator == "take":
        return Wait(TAKE, node.inputs[0][0], _constant(node, 1, nodes))
    if queue == "dequeue":
        return Wait(TAKE, node.inputs[0][0], _constant(node, 1, nodes))
    if queue == "enqueue":
        return Wait(ADD, node.inputs[0][0], _rows(shapes.get(node.inputs[1])) if node.op in _MANY else 1)
    return None


def _constant(node: Node, index: int, nodes: Nodes) -> int:
    """An input that is a number in the graph; 1 without one."""
    source = nodes.get(node.inputs[index][0]) if len(node.inputs) > index else None
    return int(source.attrs["value"]) if source is not None and source.op == "Const" else 1


def _rows(shape: RawShape) -> int:
    return (shape[0] or 1) if shape else 1


def _meeting(node: Node, shapes: Shapes) -> Wait:
    count = size(shapes.get(node.inputs[0] if node.inputs else (node.name, 0))) or 0
    key = f"{node.attrs['group_key']}:{node.attrs['instance_key']}"
    kind: str = trait_of(node.op, "collective")
    return Wait(MEET, key, node.attrs["group_size"], kind, count * node.attrs["T"].size, is_source(node))


@dataclass
class _Store:
    """A queue or an accumulator."""

    elements: int = 0
    waiting: deque[tuple[int, Answer]] = field(default_factory=deque)


class Stores:
    """The queues, accumulators and collectives of a cluster.

    Args:
      filled: the keys of those that steps fill.
      exchange: runs a collective whose members have all come, and answers them.
    """

    def __init__(self, filled: frozenset[str], exchange: Callable[[Sequence[Member], Event], None]) -> None:
        self._filled, self._exchange = filled, exchange
        self._stores: dict[tuple[str, str], _Store] = {}
        self._meetings: dict[str, list[Member]] = {}

    def begin(self, task: str, wait: Wait, cause: Event, answer: Answer | None) -> None:
        """An op on ``task`` begins; ``answer`` is called once, now or later."""
        if wait.kind == MEET:
            self._meet(Member(task, wait, answer or _ignore), cause)
        elif wait.kind == ADD:
            store = self._stores.setdefault((task, wait.key), _Store())
            store.elements += wait.count
            if answer is not None:
                answer(cause, 0.0)
            self._serve(store, cause)
        elif answer is not None:
            if wait.key not in self._filled:
                answer(cause, 0.0)
                return
            store = self._stores.setdefault((task, wait.key), _Store())
            store.waiting.append((wait.count, answer))
            self._serve(store, cause)

    def _serve(self, store: _Store, cause: Event) -> None:
        while store.waiting and store.waiting[0][0] <= store.elements:
            count, answer = store.waiting.popleft()
            store.elements -= count
            answer(cause, 0.0)

    def _meet(self, member: Member, cause: Event) -> None:
        members = self._meetings.setdefault(member.wait.key, [])
        members.append(member)
        if len(members) >= member.wait.count:
            del self._meetings[member.wait.key]
            self._exchange(members, cause)


def _ignore(cause: Event, cpu_s: float) -> None:
    """The answer to an op whose end nothing waits for."""
