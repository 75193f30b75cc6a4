"""Programs, the output of the compiler: a level outside all while loops, and one per loop that has to wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tfmini.graph.node import Node
from tfmini.locks import lock
from tfmini.runtime.resources import Resources
from tfmini.runtime.trace import TraceTable

LONG_S = 0.003  # a longer segment runs in the pool


@dataclass
class Segment:
    """A run of units between two waits.

    Attributes:
      run: ``run(step, slots)``, the generated function.
      pending: how many arrivals and predecessor segments must come first.
      successors: indices of the segments that wait for this one.
      marks: the nodes in it that change shared state, as `graph.omission` defines them: each with its own name, or of a
        loop that runs at once with the names of those inside it.
      taken: such nodes among those for whose answers it waits, or inside loops for whose end it waits.
      begins: such nodes inside the loops that it starts and that end later.
      seconds: a lower bound of the times of its latest runs; 0 before the first.
      is_apart: whether it computes for one of several devices of the task; another device's may run at the same time.
      is_open_ended: whether a loop or the reading of a dataset in it may go on for ever, however short it was before.
    """

    run: Callable[[Any, list[Any]], None]
    pending: int
    successors: list[int]
    marks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    taken: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    seconds: float = 0.0
    is_apart: bool = False
    is_open_ended: bool = False

    @property
    def updates(self) -> tuple[str, ...]:
        """All the names of its `marks`."""
        return tuple(name for _, names in self.marks for name in names)

    @property
    def is_long(self) -> bool:
        """Whether the worker's pool should run it, so that the thread that polls the sockets can answer."""
        return self.seconds >= LONG_S

    def note(self, seconds: float) -> None:
        """Notes the time of a run. It takes several long runs in a row to be long: one may have been interrupted."""
        self.seconds = min(seconds, 1.5 * self.seconds + 0.0005)


@dataclass
class Level:
    """Segments with their slots.

    Attributes:
      template: the initial slots.
      arrivals: received group (0 and up) or answered event (below 0) -> (slots of its values, segment).
      pending: the segments' counts, to be copied.
    """

    segments: list[Segment]
    template: list[Any]
    arrivals: dict[int, tuple[list[int], int]]
    pending: list[int]


@dataclass
class LoopEntry:
    """Values that come into a loop together.

    Attributes:
      key: the arrival to which they lead in each iteration; None if an iteration does not begin without them.
      constants: (position among the values, slot): the same in every iteration.
      once: likewise, in the first iteration only; in later ones the slot holds `DEAD`.
      initial: (number of a round, positions of its first values; -1 for a value that is absent then).
    """

    key: int | None
    constants: list[tuple[int, int]]
    once: list[tuple[int, int]]
    initial: list[tuple[int, list[int]]]


@dataclass
class Round:
    """Values that go from iteration to iteration together, because one segment computes them.

    Attributes:
      key: the arrival to which they lead; None if an iteration does not begin without them.
      slots: where they lie.
    """

    key: int | None
    slots: list[int]


@dataclass
class WaitingLoop:
    """A while loop that receives, sends or waits on its way: a level that runs once per iteration.

    Attributes:
      entries: the values that enter, by the segment around the loop that has them.
      rounds: the values that go round.
      leads: whether the values of the first round decide alone whether there is another iteration.
      exits: slot per value that leaves.
      window: how many iterations may be under way.
    """

    name: str
    level: Level
    entries: list[LoopEntry]
    rounds: list[Round]
    leads: bool
    exits: list[int]
    window: int


@dataclass
class Program(Level):
    """The compiled part of a graph that one task runs.

    Attributes:
      feeds: how many values are fed. They take the first slots, in the order of the request.
      fetches: slot per fetched value.
      keeps_feeds: whether fed values may go into state that outlives the step, such as a queue.
      sends: sent group -> destination task.
      waits: event -> the node that answers it.
      loops: event -> the loop that leads to it; ``loop_groups`` are received inside loops.
      uncertain: whether a fetch may be dead; ``uncertain_sends``: groups with values that may be.
      trace: for a traced program, the meaning of the numbers in its text.
    """

    feeds: int
    fetches: list[int]
    keeps_feeds: bool
    sends: dict[int, str]
    states: dict[str, Callable[[Resources], Any]]
    namespace: dict[str, Any]
    node_count: int
    waits: dict[int, Node]
    loops: dict[int, WaitingLoop]
    loop_groups: set[int]
    uncertain: bool
    uncertain_sends: set[int]
    generation: int = -1
    trace: TraceTable | None = None
    _lock: Any = field(default_factory=lambda: lock("bind"))

    def bind(self, resources: Resources) -> None:
        """Looks up the variables and other resources that the program names, if that is due."""
        if self.generation == resources.generation:
            return
        with self._lock:
            generation = resources.generation
            for name, create in self.states.items():
                self.namespace[name] = create(resources)
            self.generation = generation

    @property
    def is_simple(self) -> bool:
        """One segment that neither sends, receives nor waits: it can run as a function call."""
        return len(self.segments) <= 1 and not self.arrivals and not self.sends
