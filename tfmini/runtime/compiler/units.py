"""Units: the pieces of a program before its text is written, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tfmini.graph.liveness import Atom
from tfmini.graph.node import Endpoint, Node
from tfmini.placement.waves import Wave

Condition = tuple[Atom, ...]
"""Atoms that must all hold, in the order in which they can be looked at."""


class Form(Enum):
    """How a unit is written."""

    COMPUTE = "a call of the node's kernel, or its inline expression"
    SEND = "the sending of a group of values"
    SELECT = "the first input whose condition holds"
    BEGIN = "the start of a kernel that answers later"
    LOOP = "a loop that runs at once, as a function call"
    BEGIN_LOOP = "the start of a loop that has to wait on its way, or more values that enter it"
    HAND_ON = "in such a loop, the handing of values to the next iteration"


@dataclass
class Unit:
    """A piece of a program.

    Attributes:
      inputs: where each flat input comes from.
      derefs: whether an input is a variable whose value is wanted.
      outputs: the number of flat outputs.
      wave: the arrivals that it needs.
      block: the number of its block, the scope of local names.
      key: the group that is sent, or the arrival that a BEGIN leads to; for HAND_ON, the number of the values' round.
      entry: for BEGIN_LOOP, which of the loop's entries has come.
      guard: when it runs; else its outputs stay unset.
      ways: for SELECT, per input when to take it; all false gives `DEAD`.
      certain: for SELECT, whether one of the ways always holds.
      function: for LOOP, the name of its function in the namespace.
      updates: for a loop, the names of the updates inside it, as `graph.omission` defines them.
    """

    node: Node
    inputs: list[Endpoint]
    derefs: list[bool]
    outputs: int
    wave: Wave = 0
    form: Form = Form.COMPUTE
    block: int = 0
    key: int = 0
    entry: int = 0
    guard: Condition = ()
    ways: list[Condition] = field(default_factory=list)
    certain: bool = False
    function: str = ""
    updates: tuple[str, ...] = ()

    def reads(self) -> list[Endpoint]:
        """Every value that its text names: inputs, and the values of its conditions. The caller must not change it."""
        if not self.guard and not self.ways:
            return self.inputs
        conditions = [self.guard, *self.ways]
        return [*self.inputs, *(endpoint for condition in conditions for endpoint, _ in condition)]
