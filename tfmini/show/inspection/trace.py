"""Reads a traced step from its StepStats: the times of all ops, transfers and waits, on all tasks."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from tfmini import errors
from tfmini.devices import task_of_device
from tfmini.export import export
from tfmini.graph import node
from tfmini.graph.op_types import ops_with
from tfmini.numerics.images import inflate
from tfmini.placement.wire_table import Route, Transfer
from tfmini.runtime import trace as labels
from tfmini.runtime.trace import edge_number_and_producer
from tfmini.show.inspection.clusters import short
from tfmini.terminal import Rows, as_text, plain

OP, SEND, WIRE, RECEIVE, WAIT, DISPATCH = "op", "send", "wire", "receive", "wait", "dispatch"
CONTROL, TASK, STEP, EXCHANGE = "control", "task", "step", "exchange"
_KIND_OF_OP = {
    **dict.fromkeys((node.SEND, "_HostSend"), SEND),
    **dict.fromkeys((node.RECEIVE, "_HostRecv"), RECEIVE),
    **dict.fromkeys((labels.REQUEST, labels.ANSWER), CONTROL),
    **{labels.DISPATCH: DISPATCH, labels.WAIT: WAIT, labels.PART: TASK, labels.STEP: STEP},
}
_WORK = frozenset({OP, SEND, WIRE, RECEIVE, DISPATCH, CONTROL, EXCHANGE})
_PATIENT = (ops_with("collective"), ops_with("queue"), ops_with("accumulator", "take"))
STATS_KEY = "step_stats"
"""The key of a timeline's StepStats below ``otherData``: base64 of zlib of the message."""


@dataclass(frozen=True)
class Span:
    """One interval of a traced step; times in microseconds since 1970.

    Attributes:
      kind: ``op``, ``send``, ``wire`` (a tensor in flight, recorded by its receiver), ``receive``, ``wait`` (a task
        without ready ops), ``dispatch`` (from ready to running), ``control`` (RunGraph and its reply), ``exchange``
        (what a collective has sent to another rank), ``task`` or ``step`` (the whole).
      name: of the node, of the tensor's producer, or of the awaited tensors.
      op: the op type, the kind of a collective (``all-reduce``), or "".
      device: full name. ``peer``: the device at the other end of a transfer, or "".
      bytes: of the outputs, or of the values in flight; of RunGraph those of the client's feeds, of its reply those of
        the fetches. Of texts those of the texts alone.
      thread: number of the thread in its task.
      messages, way: of an exchange: how many messages, and whether the data went in ``messages`` or ``shared memory``.
      variable: the name of the variable that it holds, if that is not its own.
    """

    kind: str
    name: str
    op: str
    device: str
    start: float
    end: float
    bytes: int = 0
    peer: str = ""
    edge: str = ""
    inputs: tuple[str, ...] = ()
    thread: int = 0
    messages: int = 0
    way: str = ""
    variable: str = ""

    @property
    def task(self) -> str:
        return task_of_device(self.device)

    @property
    def computes(self) -> bool:
        """Whether it is an op that computes: a collective or a dequeue lasts as long as it waits."""
        return self.kind == OP and not any(self.op in ops for ops in _PATIENT)

    @property
    def duration(self) -> float:
        """Microseconds."""
        return self.end - self.start


@dataclass(frozen=True)
class ClockFit:
    """The alignment of a task's clock with the master's: the added correction and its maximum error (µs)."""

    correction: float
    error: float


@export("tf.StepTrace")
@dataclass(repr=False)
class StepTrace:
    """What a traced step did on all tasks, made by `StepTrace.of`.

    As the last value of a notebook's cell it shows itself as a timeline.

    Attributes:
      spans: in order of their starts.
      clocks: task -> the alignment of its clock; tasks that reported none are missing.
      start, end: of the step, in microseconds since 1970.
      stats: the StepStats message.
    """

    spans: list[Span]
    clocks: dict[str, ClockFit]
    start: float
    end: float
    stats: Any = field(repr=False, default=None)

    @classmethod
    def of(cls, traced: Any) -> StepTrace:
        """Reads what ``session.run`` has recorded with ``trace_level=FULL_TRACE``.

        Args:
          traced: the RunMetadata of the run or its StepStats, of tfmini or TensorFlow; a `StepTrace`; or the path of a
            RunMetadata, or of a timeline of `tfmini trace` or `save`.

        Raises:
          ValueError: it has no entries, or the file is something else.
        """
        if isinstance(traced, (str, PathLike)):
            return read_trace(traced)
        if isinstance(traced, StepTrace):
            return traced
        step_stats = getattr(traced, "step_stats", traced)
        spans: list[Span] = []
        clocks: dict[str, ClockFit] = {}
        for device in step_stats.dev_stats:
            for entry in device.node_stats:
                read = labels.clock_of(entry.timeline_label) if entry.node_name == labels.CLOCK else None
                if read is not None:
                    clocks[read[0]] = ClockFit(read[1] / 1e3, read[2] / 1e3)
                else:
                    spans.append(_span(device.device, entry))
        if not spans:
            raise ValueError("The step stats are empty: run the step with trace_level=FULL_TRACE and a RunMetadata.")
        spans.sort(key=lambda span: (span.start, -span.end))
        frame = [span for span in spans if span.kind == STEP] or spans
        return cls(spans, clocks, min(s.start for s in frame), max(s.end for s in frame), step_stats)

    def __repr__(self) -> str:
        """Short: a prompt and a notebook show it."""
        return f"<StepTrace: {self.duration / 1000:.3f} ms, {len(self.tasks)} tasks, {len(self.spans):,} spans>"

    def text(self, width: int = 120) -> str:
        """The tables of `tfmini trace`: the work of each task, and the longest ops and transfers."""
        return as_text(summary(self), width)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the timeline for ui.perfetto.dev and `of` (``.json``), or as a page (``.html``).

        Raises:
          ValueError: the name of the file has another ending.
        """
        from tfmini.show.inspection.pages import save_as, timeline, trace_page

        save_as(path, self, {".json": timeline, ".html": trace_page})

    @property
    def duration(self) -> float:
        """Wall time of the step in microseconds."""
        return self.end - self.start

    @property
    def tasks(self) -> list[str]:
        """The tasks of the step."""
        return sorted({span.task for span in self.spans})

    def of_kind(self, *kinds: str) -> list[Span]:
        """The spans of some kinds."""
        return [span for span in self.spans if span.kind in kinds]

    def between_tasks(self) -> list[Span]:
        """What went from task to task: the tensors in flight, and RunGraph and its reply with the client's values."""
        return [s for s in self.spans if s.kind == WIRE or s.kind == CONTROL and s.peer]

    def attributed(self) -> float:
        """The share of the step's wall time in which a task computed or dispatched, or a transfer was in flight.

        Waits do not count: the work of other tasks explains them.
        """
        return covered([s for s in self.spans if s.kind in _WORK], self.start, self.end) / max(self.duration, 1e-9)

    def busy(self, task: str) -> float:
        """Microseconds in which a task computed, sent or received."""
        work = [s for s in self.spans if s.task == task and (s.computes or s.kind in (SEND, RECEIVE))]
        return covered(work, self.start, self.end)

    def waits_of(self, task: str) -> list[Span]:
        """When a task had no op ready to run, and its ops that last as long as they wait for other tasks."""
        return [s for s in self.spans if s.task == task and (s.kind == WAIT or s.kind == OP and not s.computes)]

    def waited(self, task: str) -> float:
        """Microseconds in which a task did nothing but wait."""
        work = [s for s in self.spans if s.task == task and (s.computes or s.kind in (SEND, RECEIVE, DISPATCH))]
        both = covered([*work, *self.waits_of(task)], self.start, self.end)
        return both - covered(work, self.start, self.end)

    def received(self, task: str) -> tuple[int, bool]:
        """(the bytes that a task has received, whether it has received more from ranks that are not in the trace)."""
        came = [s for s in self.between_tasks() if s.task == task]
        exchanged = self.of_kind(EXCHANGE)
        came += [s for s in exchanged if task_of_device(s.peer) == task]
        others = {task_of_device(s.peer) for s in exchanged if s.task == task}
        return sum(s.bytes for s in came), not others <= set(self.tasks)

    def clocks_to_json(self) -> dict[str, Any]:
        """The alignment of the tasks' clocks."""
        return {task: {"correction_us": fit.correction, "error_us": fit.error} for task, fit in self.clocks.items()}

    def _repr_html_(self) -> str:
        """The page of `tfmini trace --html`, for notebooks."""
        from tfmini.show.inspection.pages import framed, trace_page

        return framed(trace_page(self), "tfmini: what a step did")


def covered(spans: Iterable[Span], start: float, end: float) -> float:
    """Microseconds between ``start`` and ``end`` that at least one of the spans covers."""
    total, reached = 0.0, start
    for span in sorted(spans, key=lambda span: span.start):
        begin, finish = max(span.start, reached), min(span.end, end)
        if finish > begin:
            total += finish - begin
            reached = finish
    return total


def read_trace(path: str | PathLike[str]) -> StepTrace:
    """Reads a timeline of `tfmini trace`, or the bytes of a RunMetadata of tfmini or TensorFlow.

    Raises:
      ValueError: the file is neither.
    """
    from tfmini import protos

    data = Path(path).read_bytes()
    what = f"{path} is neither a timeline of `tfmini trace` nor a RunMetadata with step stats"
    with errors.reading(what, ValueError, also_own=True):
        if data.lstrip().startswith(b"{"):
            packed = json.loads(data)["otherData"][STATS_KEY]
            stats = inflate(base64.b64decode(packed), zlib.MAX_WBITS, f"The trace in {path}")
            return StepTrace.of(protos.StepStats.FromString(stats))
        return StepTrace.of(protos.RunMetadata.FromString(data).step_stats)


def packed_stats(step_stats: Any) -> str:
    """Encodes a StepStats message as text, for `STATS_KEY`."""
    return base64.b64encode(zlib.compress(step_stats.SerializeToString())).decode()


def _span(device: str, entry: Any) -> Span:
    start, end = _times(entry)
    label = entry.timeline_label
    size = sum(output.tensor_description.allocation_description.requested_bytes for output in entry.output)
    wire = labels.wire_of(label) if entry.node_name == labels.WIRE else None
    if wire is not None:
        name = labels.edge_number_and_producer(wire.edge)[1]
        return Span(WIRE, name, "", device, start, end, wire.bytes, wire.source, wire.edge)
    sent = labels.exchange_of(label) if entry.node_name == labels.EXCHANGE else None
    if sent is not None:
        return Span(
            EXCHANGE, sent.name, sent.kind, device, start, end, size, sent.target, messages=sent.messages, way=sent.way
        )  # fmt: skip
    op, inputs = labels.op_and_inputs(label)
    kind = _KIND_OF_OP.get(op, OP)
    if kind in (SEND, RECEIVE):
        edge, peer = labels.edge_and_device(label)
        name = labels.edge_number_and_producer(edge)[1]
        return Span(kind, name, op, device, start, end, size, peer, edge, thread=entry.thread_id)
    if kind == OP:
        return Span(
            OP, entry.node_name, op, device, start, end, size, inputs=tuple(inputs), thread=entry.thread_id,
            variable=labels.variable_of(label),
        )  # fmt: skip
    told = ", ".join(inputs)
    return Span(kind, told, "", device, start, end, size, labels.caller_of(told) if kind == CONTROL else "")


def _times(entry: Any) -> tuple[float, float]:
    if entry.all_start_nanos:
        return entry.all_start_nanos / 1e3, (entry.all_start_nanos + entry.all_end_rel_nanos) / 1e3
    # TensorFlow records transfers only in microseconds.
    end = max(entry.all_end_rel_micros, entry.op_end_rel_micros)
    return float(entry.all_start_micros), float(entry.all_start_micros + end)


# ---- Measurements of a traced step for the inspector's tables: times of ops, times and bytes of transfers ----------

_LONGEST = 10
_EDGE = re.compile(r"edge_\d+_[^;]*")

_Link = tuple[str, str, str]  # producer, source device, destination device


@dataclass
class Measured:
    """Measurements for an inspection's rows; times in microseconds.

    Attributes:
      trace: the traced step.
      ops: op -> its run time, summed over the iterations of a loop.
      transfers: transfer -> its spans in flight, for transfers in messages.
      carried: the client's values that went one way inside RunGraph or its reply -> their bytes; a row by itself where
        each has the bytes that were expected.
    """

    trace: StepTrace
    ops: dict[str, float]
    transfers: dict[Transfer, list[Span]] = field(default_factory=dict)
    carried: dict[tuple[Transfer, ...], int] = field(default_factory=dict)

    def knows(self, transfer: Transfer) -> bool:
        """Whether the bytes of a transfer were measured, and not only those of several together."""
        return transfer in self.transfers or (transfer,) in self.carried

    def bytes_of(self, transfers: Iterable[Transfer]) -> int:
        """The measured bytes of transfers; the client's values that were measured only together count together."""
        rows = set(transfers)
        inside = sum(nbytes for together, nbytes in self.carried.items() if rows.issuperset(together))
        return inside + sum(span.bytes for row in rows for span in self.transfers.get(row, ()))

    def time_of(self, transfer: Transfer) -> float | None:
        """The time that a transfer was in flight, summed over iterations; None if it was not measured."""
        spans = self.transfers.get(transfer)
        return sum(span.duration for span in spans) if spans else None

    def busy(self, device: str) -> float:
        """The time in which a device computed."""
        ops = [span for span in self.trace.spans if span.computes and span.device == device]
        return covered(ops, self.trace.start, self.trace.end)

    def to_json(self) -> dict[str, Any]:
        """The object for ``tfmini inspect --json``."""
        return {
            "step_us": round(self.trace.duration, 3),
            "attributed": round(self.trace.attributed(), 4),
            "clocks": self.trace.clocks_to_json(),
            "ops": {name: round(time, 3) for name, time in self.ops.items()},
        }


def measure(trace: StepTrace, transfers: Sequence[Transfer]) -> Measured:
    """Assigns the spans of a trace to the transfers of an inspection of the same step.

    Names of edges differ between plans. So the n-th transfer of a producer between two devices in the trace is
    assigned to the n-th in the inspection.
    """
    ops: dict[str, float] = {}
    for span in trace.of_kind(OP):
        ops[span.name] = ops.get(span.name, 0.0) + span.duration
    seen: dict[_Link, dict[int, list[Span]]] = {}
    for span in trace.of_kind(WIRE):
        number, producer = edge_number_and_producer(span.edge)
        seen.setdefault((producer, span.peer, span.device), {}).setdefault(number, []).append(span)
    rows: dict[_Link, list[tuple[int, Transfer]]] = {}
    for transfer in transfers:
        edge = _EDGE.search(transfer.key)
        number, producer = edge_number_and_producer(edge.group()) if edge else (0, transfer.producer)
        rows.setdefault((producer, transfer.src, transfer.dst), []).append((number, transfer))
    found = Measured(trace, ops)
    for link, numbered in rows.items():
        spans = [spans for _, spans in sorted(seen.get(link, {}).items())]
        found.transfers.update(zip((t for _, t in sorted(numbered, key=lambda item: item[0])), spans))
    found.carried = _carried(trace, transfers)
    return found


def _carried(trace: StepTrace, transfers: Sequence[Transfer]) -> dict[tuple[Transfer, ...], int]:
    """The bytes of the client's values: RunGraph and its reply are measured as a whole."""
    measured: dict[tuple[str, str], int] = {}
    for span in trace.of_kind(CONTROL):
        if span.peer:
            way = (task_of_device(span.peer), span.task)
            measured[way] = measured.get(way, 0) + span.bytes
    rows: dict[tuple[str, str], list[Transfer]] = {}
    for transfer in transfers:
        if transfer.route in (Route.FED, Route.FETCHED):
            rows.setdefault((task_of_device(transfer.src), task_of_device(transfer.dst)), []).append(transfer)
    found: dict[tuple[Transfer, ...], int] = {}
    for way, together in rows.items():
        nbytes = measured.get(way, 0)
        if nbytes == sum(t.bytes or 0 for t in together) and all(t.bytes is not None for t in together):
            found.update({(t,): t.bytes or 0 for t in together})
        else:
            found[tuple(together)] = nbytes
    return found


def milliseconds(microseconds: float | None) -> str:
    """Formats a time for a table."""
    return "" if microseconds is None else f"{microseconds / 1000:.3f}"


def summary(trace: StepTrace) -> RenderableType:
    """A summary of a traced step: its duration, the work of each task, and the longest spans."""
    head = f"the step took {milliseconds(trace.duration)} ms; {trace.attributed():.1%} of it is attributed"
    return Group(plain(head), plain(""), _tasks(trace), *_collectives(trace), plain(""), _longest(trace))


def _tasks(trace: StepTrace) -> Rows:
    table = Rows.of(
        "=task", ">ops", ">computes ms", ">sends ms", ">waits ms", ">ready ms", ">sends B", ">receives B", "=clock",
        spare=("clock", "ready ms", "ops"),
    )  # fmt: skip
    for task in trace.tasks:
        mine = [span for span in trace.spans if span.task == task]
        times = [
            milliseconds(covered([s for s in mine if chosen(s)], trace.start, trace.end))
            for chosen in (_computes, _is(SEND), _is(DISPATCH))
        ]
        times.insert(2, milliseconds(trace.waited(task)))
        sent = sum(span.bytes for span in mine if span.kind in (SEND, EXCHANGE))
        sent += sum(s.bytes for s in trace.of_kind(CONTROL) if s.peer and task_of_device(s.peer) == task)
        received, has_more = trace.received(task)
        ops = sum(span.kind == OP for span in mine)
        came = f"{received:,}{' + ?' if has_more else ''}"
        table.add_row(short(task), f"{ops:,}", *times, f"{sent:,}", came, _clock(trace, task))
    return table


def _computes(span: Span) -> bool:
    return span.computes


def _is(kind: str) -> Callable[[Span], bool]:
    return lambda span: span.kind == kind


def _collectives(trace: StepTrace) -> list[RenderableType]:
    """A table with a row per collective and task; empty for a step without collectives."""
    sent: dict[tuple[str, str, str, str], list[Span]] = {}
    for span in trace.of_kind(EXCHANGE):
        sent.setdefault((span.name, span.op, span.task, span.way), []).append(span)
    if not sent:
        return []
    table = Rows.of("collective", "kind", "=task", "to", "way", ">ms", ">messages", ">B", one_line=True, spare=("way",))
    ranked = sorted(sent.items(), key=lambda item: -sum(span.bytes for span in item[1]))
    for (name, kind, task, way), spans in ranked[:_LONGEST]:
        others = ", ".join(dict.fromkeys(short(span.peer) for span in spans[:4])) + (" …" if len(spans) > 4 else "")
        nbytes, messages = sum(span.bytes for span in spans), sum(span.messages for span in spans)
        longest = milliseconds(max(span.duration for span in spans))
        table.add_row(name, kind, short(task), others, way, longest, f"{messages:,}", f"{nbytes:,}")
    more = [plain(f"… {len(ranked) - _LONGEST} more collectives")] if len(ranked) > _LONGEST else []
    return [plain(""), table, *more]


def _clock(trace: StepTrace, task: str) -> str:
    fit = trace.clocks.get(task)
    if fit is None:
        return "not aligned"
    if not fit.error:
        return "the step's own"
    corrected = f"corrected by {fit.correction:,.0f} µs, " if fit.correction else ""
    return f"{corrected}within {fit.error:,.0f} µs"


_STRETCH = "_Stretch"  # ops of a device that compiles, as one


def _longest(trace: StepTrace) -> Rows:
    table = Rows.of("longest", "kind", "=task", ">ms", ">B", one_line=True)
    own = [span for span in trace.of_kind(OP) if not span.op.startswith("_") or span.op == _STRETCH]
    spans = [*own, *trace.of_kind(WIRE)]
    for span in sorted(spans, key=lambda span: -span.duration)[:_LONGEST]:
        ran = "compiled ops" if span.op == _STRETCH else span.op
        kind = ran if span.kind == OP else f"in flight from {short(span.peer)}"
        table.add_row(span.name, kind, short(span.task), milliseconds(span.duration), f"{span.bytes:,}")
    return table
