"""What one task runs in a step: the compiler's segments, with the cost of each op instead of its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfmini.collectives.costs import all_reduce_cost
from tfmini.devices import task_of_device
from tfmini.graph.node import Node
from tfmini.graph.traits import trait_of
from tfmini.inspection.cost import size
from tfmini.runtime.compiler.program import outline_program
from tfmini.runtime.compiler.units import Form, Unit
from tfmini.runtime.resources import ResourceManager
from tfmini.simulation.kernel_costs import KernelCosts, Shapes
from tfmini.simulation.profile import Link

LONG_S = 0.003  # a longer segment runs in the task's pool: see `runtime.compiler.levels`


@dataclass(frozen=True)
class Piece:
    """A stretch of a segment: seconds of CPU, then an action.

    Attributes:
      sends: the group that is sent after it, else -1.
      begins: the event (below 0) whose wait begins after it, else 0.
      wait_s: until that event is answered.
      op: the op that takes most of the time; "" without one.
    """

    seconds: float
    sends: int = -1
    begins: int = 0
    wait_s: float = 0.0
    op: str = ""


@dataclass(frozen=True)
class SegmentCosts:
    """A segment: its pieces, how many predecessors and arrivals it needs, and the segments that need it."""

    pieces: tuple[Piece, ...]
    pending: int
    successors: tuple[int, ...]
    seconds: float

    @property
    def is_long(self) -> bool:
        """Whether the task's pool runs it."""
        return self.seconds >= LONG_S


@dataclass(frozen=True)
class TaskProgram:
    """The segments of one task, and the segment that each group or event completes."""

    segments: tuple[SegmentCosts, ...]
    arrivals: Mapping[int, int]


def task_program(nodes: Sequence[Node], costs: KernelCosts, segment_s: float, waits: CollectiveWaits) -> TaskProgram:
    """Makes the program of one task from the nodes that it registers, in topological order.

    Args:
      segment_s: CPU of a segment beside its ops.
    """
    found = outline_program(nodes, task_of_device, ResourceManager("localhost"))
    pending = [len(before) for before in found.predecessors]
    successors: list[list[int]] = [[] for _ in pending]
    for index, before in enumerate(found.predecessors):
        for source in sorted(before):
            successors[source].append(index)
    for segment in found.arrivals.values():
        pending[segment] += 1
    segments = []
    for index, units in enumerate(found.units):
        pieces = tuple(_pieces(units, costs, segment_s if units else 0.0, waits))
        total = sum(piece.seconds for piece in pieces)
        segments.append(SegmentCosts(pieces, pending[index], tuple(successors[index]), total))
    return TaskProgram(tuple(segments), found.arrivals)


def _pieces(units: Sequence[Unit], costs: KernelCosts, seconds: float, waits: CollectiveWaits) -> list[Piece]:
    pieces: list[Piece] = []
    op, longest = "", 0.0
    for unit in units:
        if unit.form is Form.SEND:
            pieces.append(Piece(seconds, sends=unit.key, op=op))
        elif unit.form in (Form.BEGIN, Form.BEGIN_LOOP):
            seconds += costs.seconds(unit.node)
            pieces.append(Piece(seconds, begins=unit.key, wait_s=waits.seconds(unit.node), op=op))
        else:
            cost = 0.0 if unit.form is Form.SELECT else costs.seconds(unit.node)
            seconds += cost
            if cost > longest:
                op, longest = unit.node.name, cost
            continue
        seconds, op, longest = 0.0, "", 0.0
    return [*pieces, Piece(seconds, op=op)] if seconds else pieces


@dataclass(frozen=True)
class CollectiveWaits:
    """How long a waiting op waits: a collective by the cost model, any other op not at all."""

    link: Link
    shapes: Shapes

    def seconds(self, node: Node) -> float:
        """From the begin of the op to its answer."""
        if trait_of(node.op, "collective") is None:
            return 0.0
        count = size(self.shapes.get(node.inputs[0] if node.inputs else (node.name, 0))) or 0
        cost = all_reduce_cost(count * node.attrs["T"].size, node.attrs["group_size"])
        link = self.link
        per_message = link.latency_s + link.send_s + link.receive_s
        return cost.messages * per_message + cost.nbytes * (1 / link.bytes_per_s + 2 * link.copy_s_per_byte)
