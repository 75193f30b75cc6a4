"""What takes the place of kernels where the runtime runs in virtual time: the interface for a simulation.

The lowering, the segments and their order are the compiler's own. The model writes the text of the units, says how long
a segment takes before it has run, and may add to what a run of the program begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tfmini.placement.task_graph import TaskGraph
    from tfmini.runtime.compiler.codegen import BlockContext, BlockWriter
    from tfmini.runtime.compiler.levels import Program, Segment
    from tfmini.runtime.compiler.units import Unit


class KernelModel(Protocol):
    """See the module."""

    def writer(self, context: BlockContext, units: list[Unit]) -> BlockWriter:
        """Returns the writer of the text of one block. `BlockWriter` says what it may override."""
        ...

    def segment(self, segment: Segment, units: Sequence[Unit]) -> Segment:
        """Returns a laid-out segment with its `seconds` set, since segments of 3 ms and more go to the pool."""
        ...

    def known(self, graph: TaskGraph) -> Program | None:
        """Called before a graph is compiled; a program that it returns is used as it is. None: compile it."""
        ...

    def program(self, program: Program, graph: TaskGraph) -> Program:
        """Called after a graph has been compiled; returns the program to register, which may be a wrapped one."""
        ...
