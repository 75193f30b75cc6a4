"""Measurements of a traced step for the inspector's tables: times of ops, times and bytes of transfers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType

from tfmini.inspection.clusters import short
from tfmini.inspection.step_trace import DISPATCH, EXCHANGE, OP, SEND, WAIT, WIRE, Span, StepTrace, covered
from tfmini.placement.wire_table import Transfer
from tfmini.runtime.trace.labels import edge_number_and_producer
from tfmini.terminal import Rows, plain

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
    """

    trace: StepTrace
    ops: dict[str, float]
    transfers: dict[Transfer, list[Span]] = field(default_factory=dict)

    def bytes_of(self, transfers: Iterable[Transfer]) -> int:
        """The measured bytes of transfers."""
        return sum(span.bytes for transfer in transfers for span in self.transfers.get(transfer, ()))

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
    return found


def milliseconds(microseconds: float | None) -> str:
    """Formats a time for a table."""
    return "" if microseconds is None else f"{microseconds / 1000:.3f}"


def summary(trace: StepTrace) -> RenderableType:
    """A summary of a traced step: its duration, the work of each task, and the longest spans."""
    head = f"the step took {milliseconds(trace.duration)} ms; {trace.attributed():.1%} of it is attributed"
    return Group(plain(head), plain(""), _tasks(trace), *_collectives(trace), plain(""), _longest(trace))


def _tasks(trace: StepTrace) -> Rows:
    table = Rows.of("task", ">ops", ">computes ms", ">sends ms", ">waits ms", ">ready ms", ">sends B", ">receives B",
                    "clock")  # fmt: skip
    for task in trace.tasks:
        mine = [span for span in trace.spans if span.task == task]
        times = [
            milliseconds(covered([s for s in mine if chosen(s)], trace.start, trace.end))
            for chosen in (_computes, _is(SEND), _is(WAIT), _is(DISPATCH))
        ]
        sent = sum(span.bytes for span in mine if span.kind in (SEND, EXCHANGE))
        received = sum(span.bytes for span in mine if span.kind == WIRE)
        ops = sum(span.kind == OP for span in mine)
        table.add_row(short(task), f"{ops:,}", *times, f"{sent:,}", f"{received:,}", _clock(trace, task))
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
    table = Rows.of("collective", "kind", "task", "to", "way", ">ms", ">messages", ">B")
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


def _longest(trace: StepTrace) -> Rows:
    table = Rows.of("longest", "kind", "task", ">ms", ">B")
    spans = [span for span in trace.spans if span.kind in (OP, WIRE) and not span.op.startswith("_")]
    for span in sorted(spans, key=lambda span: -span.duration)[:_LONGEST]:
        kind = span.op if span.kind == OP else f"in flight from {short(span.peer)}"
        table.add_row(span.name, kind, short(span.task), milliseconds(span.duration), f"{span.bytes:,}")
    return table
