"""What a traced step records on one task: a stamp before and after each unit, arrivals, and the step's ends.

A traced step runs a variant of the program (``compile_program(traced=True)``), whose text calls
`Trace.note` after each unit. An untraced program has none of it. Stamps are nanoseconds of the
process's monotonic clock; `wall_offset_ns` makes them comparable with other processes'.
"""

from __future__ import annotations

import collections
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfmini import errors
from tfmini.graph.node import FETCH, SEND, Node
from tfmini.placement.task_graph import End, TaskGraph
from tfmini.rpc.messages import Logging

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


# ---- The ``timeline_label`` of a step's entries: how it is written, and read again ---------------------------------
# Ops look as in TensorFlow, ``name = Op(input, input)``, and so do received tensors,
# ``[16B] [0.1Mb/s] edge_4_w/read from <device> to <device>`` under the name ``RecvTensor``. What
# TensorFlow does not report has the form of an op whose type begins with an underscore.

WIRE = "RecvTensor"
WAIT, DISPATCH = "_Wait", "_Dispatch"
EXCHANGE = "_Exchange"
REQUEST, ANSWER, PART, STEP, CLOCK = "_Request", "_Answer", "_RunGraph", "_Step", "_Clock"

_LABEL = re.compile(r"(?:\[.*?\] )*(?P<name>.*?) = (?P<op>\w+)\((?P<inputs>.*)\)?$", re.DOTALL)
_WIRE = re.compile(r"\[(?P<bytes>\d+)B\] (?:\[.*?\] )?(?P<edge>\S+) from (?P<source>\S+) to (?P<target>\S+)$")
_VARIABLE = re.compile(r"\[variable (.*)\] \S+ = \w+\(", re.DOTALL)
_CALL = re.compile(r"(?:RunGraph|done) from (\S+) to \S+")
_EDGE = re.compile(r"edge_(\d+)_(.*)", re.DOTALL)


class Wire(NamedTuple):
    """A tensor's way from one device to another."""

    bytes: int
    edge: str
    source: str
    target: str


class Exchanged(NamedTuple):
    """What a rank of a collective has sent to another rank.

    Attributes:
      name: of the op.
      kind: of the collective: ``all-reduce``, ``broadcast`` or ``all-gather``.
      way: ``messages`` or ``shared memory``.
      target: the other rank's device.
    """

    name: str
    kind: str
    way: str
    messages: int
    target: str


def op_label(name: str, op: str, inputs: Iterable[str], variable: str = "") -> str:
    """The label of an op; ``variable``: the name of the variable that it holds, if that is not the op's."""
    return f"{f'[variable {variable}] ' if variable else ''}{name} = {op}({', '.join(inputs)})"


def variable_of(label: str) -> str:
    """The variable in a label of `op_label`, or ""."""
    return found[1] if (found := _VARIABLE.match(label)) else ""


def op_and_inputs(label: str) -> tuple[str, list[str]]:
    """The op type and the inputs of a label; empty for a label of another form."""
    found = _LABEL.match(label)
    if found is None:
        return "", []
    inputs = found["inputs"].removesuffix(")")
    return found["op"], [each for each in inputs.split(", ") if each]


def transfer_label(name: str, op: str, edge: str, other: str) -> str:
    """The label of a Send or Recv; ``other`` is the device at the other end."""
    return f"{name} = {op}({edge} @{other})"


def edge_and_device(label: str) -> tuple[str, str]:
    """The edge and the device at the other end, of a Send's or Recv's label."""
    edge, _, device = (op_and_inputs(label)[1] or [""])[0].rpartition(" @")
    return edge, device


def wire_label(size: int, seconds: float, edge: str, source: str, target: str) -> str:
    """The label of a tensor under way."""
    speed = f"[{size * 8e-6 / seconds:g}Mb/s] " if seconds > 0 else ""
    return f"[{size}B] {speed}{edge} from {source} to {target}"


def wire_of(label: str) -> Wire | None:
    """The content of the label of a tensor under way; None for another label."""
    found = _WIRE.match(label)
    return None if found is None else Wire(int(found["bytes"]), found["edge"], found["source"], found["target"])


def exchange_label(name: str, kind: str, is_shared: bool, messages: int, target: str) -> str:
    """The label of what a rank of a collective has sent to another one."""
    way = "shared memory" if is_shared else "messages"
    return op_label(EXCHANGE, EXCHANGE, [name, kind, way, f"{messages} messages", f"@{target}"])


def exchange_of(label: str) -> Exchanged | None:
    """The content of a label of `exchange_label`; None for another label."""
    op, inputs = op_and_inputs(label)
    if op != EXCHANGE or len(inputs) != 5:
        return None
    name, kind, way, messages, target = inputs
    return Exchanged(name, kind, way, int(messages.split()[0]), target.removeprefix("@"))


def edge_number_and_producer(edge: str) -> tuple[int, str]:
    """``(4, "w/read")`` for ``edge_4_w/read``."""
    found = _EDGE.match(edge)
    return (int(found[1]), found[2]) if found else (0, edge)


def call_label(kind: str, what: str, source: str, target: str) -> str:
    """The label of a RunGraph (`REQUEST`) or its answer (`ANSWER`) between two tasks, with the client's values."""
    return op_label(kind, kind, [f"{what} from {source} to {target}"])


def caller_of(told: str) -> str:
    """The device that has sent what the text of a `call_label` tells of; "" for other texts."""
    found = _CALL.fullmatch(told)
    return found[1] if found else ""


def clock_label(task: str, offset_ns: int, error_ns: int) -> str:
    """How a task's clock was aligned."""
    return op_label(CLOCK, CLOCK, [task, f"corrected by {offset_ns} ns", f"within {error_ns} ns"])


def clock_of(label: str) -> tuple[str, int, int] | None:
    """(task, correction, error), of `clock_label`, in nanoseconds."""
    op, inputs = op_and_inputs(label)
    if op != CLOCK or len(inputs) != 3:
        return None
    return inputs[0], int(inputs[1].split()[-2]), int(inputs[2].split()[-2])


# ---- What is recorded of a step on one task ------------------------------------------------------------------------

EVENT_LIMIT = 1 << 20  # events of one step, and events of all kept steps of a task
_STEP_LIMIT = 64

clock = time.perf_counter_ns

Size = tuple[np.dtype[Any], tuple[int, ...], int]
"""Of a value: its dtype, shape and bytes."""


def wall_offset_ns() -> int:
    """The difference between nanoseconds since 1970 and `clock`."""
    best: tuple[int, int] | None = None
    for _ in range(5):  # the process may be preempted between two readings: the closest pair counts
        before, wall, after = clock(), time.time_ns(), clock()
        if best is None or after - before < best[0]:
            best = (after - before, wall - (before + after) // 2)
    assert best is not None
    return best[1]


@dataclass
class TraceTable:
    """The meaning of the numbers in a traced program's text.

    Attributes:
      units: number -> the node, and which of its outputs are noted.
      sent: number of a unit that sends -> the group.
      events: key of an answer (below 0) -> the node that gives it.
      silent: nodes that run without code: constants, folded parts, views, variables.
      sends, receives: group -> its nodes and what they send or receive, in the order of the values.
      producers: node that brings a value from elsewhere -> the node there that has made it.
    """

    units: list[tuple[Node, tuple[int, ...]]] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)
    events: dict[int, Node] = field(default_factory=dict)
    silent: list[Node] = field(default_factory=list)
    sends: dict[int, list[tuple[Node, End]]] = field(default_factory=dict)
    receives: dict[int, list[tuple[Node, End]]] = field(default_factory=dict)
    producers: dict[str, str] = field(default_factory=dict)

    def number(self, node: Node, outputs: tuple[int, ...], group: int | None = None) -> int:
        """The number for a unit; the node of a send or fetch may also stand for taking its value, before it leaves."""
        if group is None and node.op in (SEND, FETCH):
            node = node.replace(op="Identity")
        self.units.append((node, outputs))
        number = len(self.units) - 1
        if group is not None:
            self.sent[number] = group
        return number

    def complete(self, graph: TaskGraph, events: dict[int, Node], silent: list[Node]) -> None:
        """Notes what is known when the program has been compiled, with the tensors of each group in order."""
        self.events, self.silent = events, silent
        for found, ends in ((self.sends, graph.sends), (self.receives, graph.receives)):
            for name, end in sorted(ends.items(), key=lambda item: item[1].tensor):
                found.setdefault(end.group, []).append((graph.nodes[name], end))
        self.producers = {name: edge_number_and_producer(end.tensor)[1] for name, end in graph.receives.items()}
        self.producers.update((name, tensor[0]) for name, tensor in graph.feeds)


class UnitEvent(NamedTuple):
    """One run of a unit; times in nanoseconds of `clock`.

    Attributes:
      scheduled: when its segment began.
      done: when it had been noted, which is when the next one began.
    """

    number: int
    thread: int
    scheduled: int
    start: int
    end: int
    done: int
    sizes: tuple[Size | None, ...]


class AnswerEvent(NamedTuple):
    """A node that answers later (a dequeue, a loop that waits), from its start to its answer."""

    key: int
    thread: int
    start: int
    end: int
    sizes: tuple[Size | None, ...]


class ArrivalEvent(NamedTuple):
    """A group of tensors from another task: when it came, and when the step had taken it in."""

    group: int
    thread: int
    arrived: int
    taken: int
    sizes: tuple[Size | None, ...]


class ExchangeEvent(NamedTuple):
    """A collective, from the moment when its group is complete to its result.

    Attributes:
      is_shared: whether the ranks exchanged the data in shared memory.
      sent: (device, bytes, messages) of each rank that this rank has sent to.
    """

    node: Node
    start: int
    end: int
    is_shared: bool
    sent: tuple[tuple[str, int, int], ...]


class Trace:
    """The record of one step on one task. Safe to be written by several threads: each entry is one append.

    Attributes:
      started, finished: the step's ends on this task.
      lost: how many units were not recorded because there were too many.
    """

    def __init__(self) -> None:
        self.started = self.finished = clock()
        self.units: list[UnitEvent] = []
        self.answers: list[AnswerEvent] = []
        self.arrivals: list[ArrivalEvent] = []
        self.exchanges: list[ExchangeEvent] = []
        self.lost = 0
        self._begun: dict[tuple[int, Any], int] = {}
        self._arrived: dict[tuple[int, Any], int] = {}

    def __len__(self) -> int:
        return len(self.units) + len(self.answers) + len(self.arrivals)

    def note(self, number: int, scheduled: int, start: int, end: int, values: Sequence[Any]) -> int:
        """For generated code: a unit has run; returns the time at which the next one begins."""
        if len(self.units) >= EVENT_LIMIT:
            self.lost += 1
            return clock()
        sizes = _sizes(values)
        done = clock()
        self.units.append(UnitEvent(number, threading.get_ident(), scheduled, start, end, done, sizes))
        return done

    def begun(self, key: int, path: Any) -> None:
        """A node that answers later has been started."""
        self._begun[key, path] = clock()

    def arrived(self, group: int, path: Any, when: int) -> None:
        """A group of tensors has come."""
        self._arrived[group, path] = when

    def completed(self, key: int, path: Any, values: Sequence[Any] | None) -> None:
        """Notes the arrival that a segment waited for: a group (0 and up) or an answer (below 0)."""
        event: Any = ArrivalEvent if key >= 0 else AnswerEvent
        start = (self._arrived if key >= 0 else self._begun).pop((key, path), None)
        if start is not None and values is not None:
            record = self.arrivals if key >= 0 else self.answers
            record.append(event(key, threading.get_ident(), start, clock(), _sizes(values)))


def _sizes(values: Sequence[Any]) -> tuple[Size | None, ...]:
    return tuple(
        (value.dtype, value.shape, value_bytes(value)) if isinstance(value, (np.ndarray, np.generic)) else None
        for value in values
    )


def value_bytes(value: Any) -> int:
    """The bytes of a value; of strings those of their texts, since their array has only the addresses; of others 0."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return 0
    if value.dtype != object:
        return value.nbytes
    return sum(len(text) for text in np.asarray(value).flat if isinstance(text, bytes))


class KeptTraces:
    """The records of traced steps on a task. They are kept until a master fetches them or newer ones need the room.

    Not thread-safe: the worker guards them.
    """

    def __init__(self) -> None:
        self._kept: collections.OrderedDict[int, tuple[Trace, Any]] = collections.OrderedDict()

    def keep(self, step_id: int, trace: Trace, graph: Any) -> None:
        """Keeps the trace of a step of ``graph`` (a RegisteredGraph)."""
        self._kept[step_id] = (trace, graph)
        while len(self._kept) > _STEP_LIMIT or len(self._kept) > 1 and self._size() > EVENT_LIMIT:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)

    def _size(self) -> int:
        return sum(len(trace) for trace, _ in self._kept.values())

    def take(self, step_id: int) -> tuple[Trace, Any] | None:
        """The trace and the graph of a step, once; or None."""
        return self._kept.pop(step_id, None)

    def forget_session(self, handle: str) -> None:
        """Drops the records that no master will fetch any more."""
        for step_id in [step for step, (_, graph) in self._kept.items() if graph.session_handle == handle]:
            del self._kept[step_id]


class StepLog:
    """The times that the master of a traced step notes, in nanoseconds of `clock`.

    Attributes:
      called, answered: index of a part in the plan -> when RunGraph left, and when its answer came.
      told: the same -> when the call that sends it to another task returned, which may be after it arrived.
    """

    def __init__(self) -> None:
        self.step_id = 0
        self.started = self.finished = clock()
        self.called: dict[int, int] = {}
        self.told: dict[int, int] = {}
        self.answered: dict[int, int] = {}


# ---- Estimates the offset of another task's clock from requests and answers that carry times, as NTP does ----------

QUESTIONS = 8
_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Alignment:
    """The offset to subtract from a task's times, and its largest error, in nanoseconds."""

    offset_ns: int
    error_ns: int


OWN = Alignment(0, 0)


def alignment(asked_ns: int, theirs_ns: int, answered_ns: int) -> Alignment:
    """From one exchange: our time when we asked, their time in the answer, our time when it came.

    The other task read its clock between our two readings, so the error is at most half their distance. An
    offset smaller than its error counts as 0.
    """
    offset = theirs_ns - (asked_ns + answered_ns) // 2
    error = (answered_ns - asked_ns + 1) // 2
    return Alignment(0 if abs(offset) <= error else offset, error)


def ask_clock(peer: Peer, told: Callable[[Alignment | None], None], questions: int = QUESTIONS) -> None:
    """Asks a task for its time, a few questions one after the other, and keeps the quickest answer's.

    Args:
      told: called once, with None when the task does not answer.
    """
    offset_ns = wall_offset_ns()
    found: list[Alignment] = []

    def ask() -> None:
        asked = clock()
        peer.call(Logging(0), lambda answer: answered(asked, answer), timeout_s=_TIMEOUT_S)

    def answered(asked: int, answer: Any) -> None:
        now = clock()
        if not isinstance(answer, errors.OpError):
            found.append(alignment(asked + offset_ns, answer.clock_ns, now + offset_ns))
            if len(found) < questions:
                ask()
                return
        told(min(found, key=lambda each: each.error_ns, default=None))

    ask()
