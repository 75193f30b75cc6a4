"""What one task runs in a step: the compiler's segments, with the cost of each op instead of its text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfmini.graph.node import Node
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler.levels import LONG_S
from tfmini.runtime.compiler.program import outline_program
from tfmini.runtime.compiler.units import Form, Unit
from tfmini.runtime.resources import ResourceManager
from tfmini.simulation.kernel_costs import KernelCosts
from tfmini.simulation.waits import Wait


@dataclass(frozen=True)
class Piece:
    """A stretch of a segment: seconds of CPU, then an action.

    Attributes:
      sends: the group that is sent after it, else -1.
      begins: the event (below 0) that is answered later, else 0.
      wait: what its last op does to other steps, or None.
      op: the op that takes most of the time; "" without one.
    """

    seconds: float
    sends: int = -1
    begins: int = 0
    wait: Wait | None = None
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


WaitOf = Callable[[Node], "Wait | None"]


def task_program(graph: TaskGraph, costs: KernelCosts, segment_s: float, wait_of: WaitOf) -> TaskProgram:
    """Makes the program of one task from the graph that it registers.

    Args:
      segment_s: CPU of a segment beside its ops.
      wait_of: node -> what it does to other steps.
    """
    found = outline_program(graph, ResourceManager("localhost"))
    pending = [len(before) for before in found.predecessors]
    successors: list[list[int]] = [[] for _ in pending]
    for index, before in enumerate(found.predecessors):
        for source in sorted(before):
            successors[source].append(index)
    for segment in found.arrivals.values():
        pending[segment] += 1
    segments = []
    for index, units in enumerate(found.units):
        pieces = tuple(_pieces(units, costs, segment_s if units else 0.0, wait_of))
        total = sum(piece.seconds for piece in pieces)
        segments.append(SegmentCosts(pieces, pending[index], tuple(successors[index]), total))
    return TaskProgram(tuple(segments), found.arrivals)


def _pieces(units: Sequence[Unit], costs: KernelCosts, seconds: float, wait_of: WaitOf) -> list[Piece]:
    pieces: list[Piece] = []
    op, longest = "", 0.0
    for unit in units:
        wait = None
        if unit.form is not Form.SEND:
            cost = 0.0 if unit.form is Form.SELECT else costs.seconds(unit.node)
            seconds += cost
            if cost > longest:
                op, longest = unit.node.name, cost
            wait = wait_of(unit.node)
        if unit.form is Form.SEND:
            pieces.append(Piece(seconds, sends=unit.key, op=op))
        elif unit.entry:
            continue  # its loop has begun with the first entry
        elif wait is not None or unit.form in (Form.BEGIN, Form.BEGIN_LOOP):
            pieces.append(Piece(seconds, begins=unit.key if unit.form is not Form.COMPUTE else 0, wait=wait, op=op))
        else:
            continue
        seconds, op, longest = 0.0, "", 0.0
    return [*pieces, Piece(seconds, op=op)] if seconds else pieces
