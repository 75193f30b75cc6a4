"""Reads a traced step from its StepStats: the times of all ops, transfers and waits, on all tasks."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.devices import task_of_device
from tfmini.graph import node_types
from tfmini.graph.traits import ops_with
from tfmini.numerics.inflation import inflate
from tfmini.runtime.trace import labels as labels

OP, SEND, WIRE, RECEIVE, WAIT, DISPATCH = "op", "send", "wire", "receive", "wait", "dispatch"
CONTROL, TASK, STEP, EXCHANGE = "control", "task", "step", "exchange"
_KIND_OF_OP = {
    **dict.fromkeys((node_types.SEND, "_HostSend"), SEND),
    **dict.fromkeys((node_types.RECEIVE, "_HostRecv"), RECEIVE),
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
      bytes: of the outputs, or of the values in flight.
      thread: number of the thread in its task.
      messages, way: of an exchange: how many messages, and whether the data went in ``messages`` or ``shared memory``.
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


@dataclass(repr=False)
class StepTrace:
    """A traced step, made by `StepTrace.of` or `read_trace`.

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
    def of(cls, step_stats: Any) -> StepTrace:
        """Reads a StepStats message of tfmini or TensorFlow.

        Raises:
          ValueError: it has no entries.
        """
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

    def attributed(self) -> float:
        """The share of the step's wall time in which a task computed or dispatched, or a transfer was in flight.

        Waits do not count: the work of other tasks explains them.
        """
        return covered([s for s in self.spans if s.kind in _WORK], self.start, self.end) / max(self.duration, 1e-9)

    def busy(self, task: str) -> float:
        """Microseconds in which a task computed, sent or received."""
        work = [s for s in self.spans if s.task == task and (s.computes or s.kind in (SEND, RECEIVE))]
        return covered(work, self.start, self.end)

    def clocks_to_json(self) -> dict[str, Any]:
        """The alignment of the tasks' clocks."""
        return {task: {"correction_us": fit.correction, "error_us": fit.error} for task, fit in self.clocks.items()}

    def _repr_html_(self) -> str:
        """The page of `tfmini trace --html`, for notebooks."""
        from tfmini.inspection.page_html import framed
        from tfmini.inspection.trace_events import trace_page

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


def read_trace(path: str | Path) -> StepTrace:
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
        return Span(OP, entry.node_name, op, device, start, end, size, inputs=tuple(inputs), thread=entry.thread_id)
    return Span(kind, ", ".join(inputs), "", device, start, end, size)


def _times(entry: Any) -> tuple[float, float]:
    if entry.all_start_nanos:
        return entry.all_start_nanos / 1e3, (entry.all_start_nanos + entry.all_end_rel_nanos) / 1e3
    # TensorFlow records transfers only in microseconds.
    end = max(entry.all_end_rel_micros, entry.op_end_rel_micros)
    return float(entry.all_start_micros), float(entry.all_start_micros + end)
