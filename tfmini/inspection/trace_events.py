"""Writes a traced step as a timeline for Perfetto (ui.perfetto.dev) and ``chrome://tracing``.

Each task is a process, with tracks for its ops (per thread), sends, tensors in flight to it, receives and waits.
The tensors of one message are one bar. An arrow leads from each Send over the wire to its Recv.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini.inspection.clusters import short
from tfmini.inspection.step_trace import (
    CONTROL,
    DISPATCH,
    EXCHANGE,
    OP,
    RECEIVE,
    SEND,
    STATS_KEY,
    STEP,
    TASK,
    WAIT,
    WIRE,
    Span,
    StepTrace,
    packed_stats,
)

# Tracks from top to bottom: title, and the kinds of spans on it.
_TRACKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("step", (STEP, TASK)),
    ("control", (CONTROL,)),
    ("ops", (OP,)),
    ("send", (SEND,)),
    ("in flight to here", (WIRE,)),
    ("receive", (RECEIVE,)),
    ("collectives", (EXCHANGE,)),
    ("wait and dispatch", (WAIT, DISPATCH)),
)
_LANES_PER_TRACK = 1000


@dataclass(frozen=True)
class _Bar:
    """One bar of the timeline: a span, or the tensors of one message."""

    spans: tuple[Span, ...]

    @property
    def first(self) -> Span:
        return self.spans[0]

    @property
    def title(self) -> str:
        span = self.first
        more = f" and {len(self.spans) - 1} more" if len(self.spans) > 1 else ""
        if span.kind in (SEND, WIRE, RECEIVE):
            direction = "to" if span.kind == SEND else "from"
            return f"{span.name}{more} {direction} {short(span.peer)}"
        if span.kind == EXCHANGE:
            return f"{span.op} in {span.way} to {', '.join(short(each.peer) for each in self.spans)}"
        if span.kind in (WAIT, DISPATCH):
            return f"{'waits for' if span.kind == WAIT else 'before'} {span.name}"
        return span.op or span.name

    def arguments(self) -> dict[str, Any]:
        span = self.first
        found: dict[str, Any] = {"device": span.device}
        if span.kind == OP:
            found |= {"name": span.name, "op": span.op}
            found |= {f"input{i}": name for i, name in enumerate(span.inputs)}
        if span.kind == EXCHANGE:
            found |= {"name": span.name, "messages": sum(each.messages for each in self.spans)}
            found["bytes to"] = {short(each.peer): each.bytes for each in self.spans}
        elif len(self.spans) > 1:
            found["tensors"] = {each.name: each.bytes for each in self.spans}
        total = sum(each.bytes for each in self.spans)
        return found | ({"bytes": total} if total else {})


def timeline(trace: StepTrace) -> str:
    """Returns the timeline as JSON text; it contains the step stats, so that `read_trace` can read it."""
    return json.dumps({
        "displayTimeUnit": "ns",
        "otherData": {
            "start_us": trace.start,
            "duration_us": trace.duration,
            "attributed": round(trace.attributed(), 4),
            "clocks": {
                task: {"correction_us": fit.correction, "error_us": fit.error} for task, fit in trace.clocks.items()
            },
            STATS_KEY: packed_stats(trace.stats),
        },
        "traceEvents": events(trace),
    })  # fmt: skip


def events(trace: StepTrace) -> list[dict[str, Any]]:
    """Returns the events in Chrome's trace format; times in microseconds since the step's start."""
    found: list[dict[str, Any]] = []
    places: dict[int, tuple[int, int]] = {}
    for pid, task in enumerate(trace.tasks):
        found += _names(pid, task, trace)
        mine = [span for span in trace.spans if span.task == task]
        for row, (title, kinds) in enumerate(_TRACKS):
            bars = _bars([span for span in mine if span.kind in kinds])
            for lane, members in enumerate(_lanes(bars)):
                tid = row * _LANES_PER_TRACK + lane
                found += _track_names(pid, tid, title if not lane else f"{title} ({lane + 1})")
                for bar in members:
                    found.append(_bar_event(bar, pid, tid, trace.start))
                    places.update({id(span): (pid, tid) for span in bar.spans})
    return found + _arrows(trace, places)


def _names(pid: int, task: str, trace: StepTrace) -> list[dict[str, Any]]:
    fit = trace.clocks.get(task)
    clock = "" if fit is None or not fit.error else f" (clock within {fit.error:.0f} µs)"
    return [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"{short(task)}{clock}"}},
        {"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}},
    ]


def _track_names(pid: int, tid: int, title: str) -> list[dict[str, Any]]:
    return [
        {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": title}},
        {"name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid, "args": {"sort_index": tid}},
    ]


def _bars(spans: Sequence[Span]) -> list[_Bar]:
    """The bars in order of their starts; the spans of one message form one bar."""
    groups: dict[Any, list[Span]] = {}
    for number, span in enumerate(spans):
        together = span.kind in (SEND, WIRE, RECEIVE, EXCHANGE)
        what = span.name if span.kind == EXCHANGE else span.peer
        key = (span.kind, what, span.start, span.end) if together else number
        groups.setdefault(key, []).append(span)
    return [_Bar(tuple(members)) for members in groups.values()]


def _lanes(bars: Iterable[_Bar]) -> list[list[_Bar]]:
    """Distributes bars over as few lanes as possible: bars of a lane are disjoint, or nested and of one thread."""
    lanes: list[tuple[list[_Bar], list[Span]]] = []
    for bar in bars:
        span = bar.first
        lane = next((lane for lane in lanes if _fits(lane[1], span)), None)
        if lane is None:
            lane = ([], [])
            lanes.append(lane)
        lane[0].append(bar)
        lane[1].append(span)
    return [members for members, _ in lanes]


def _fits(open_spans: list[Span], span: Span) -> bool:
    """Whether a span begins after the open spans of a lane, or is inside the last one; removes the ended spans."""
    while open_spans and open_spans[-1].end <= span.start:
        open_spans.pop()
    return not open_spans or span.end <= open_spans[-1].end and span.thread == open_spans[-1].thread


def _bar_event(bar: _Bar, pid: int, tid: int, zero: float) -> dict[str, Any]:
    span = bar.first
    return {
        "ph": "X", "cat": span.kind, "name": bar.title, "pid": pid, "tid": tid,
        "ts": round(span.start - zero, 3), "dur": round(span.duration, 3), "args": bar.arguments(),
    }  # fmt: skip


def _arrows(trace: StepTrace, places: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
    """Arrows from each Send over the wire to its Recv: the n-th spans of an edge belong together."""
    ends: dict[tuple[str, str, str], tuple[list[Span], list[Span], list[Span]]] = {}
    for span in trace.spans:
        if span.kind in (SEND, WIRE, RECEIVE):
            way = (span.edge, span.device, span.peer) if span.kind == SEND else (span.edge, span.peer, span.device)
            ends.setdefault(way, ([], [], []))[(SEND, WIRE, RECEIVE).index(span.kind)].append(span)
    found: list[dict[str, Any]] = []
    number = 0
    for sends, wires, receives in ends.values():
        for members in zip(sends, wires, receives):
            number += 1
            for phase, span in zip("stf", members):
                pid, tid = places[id(span)]
                event = {"ph": phase, "cat": "tensor", "name": span.name, "id": number, "pid": pid, "tid": tid,
                         "ts": round(span.start - trace.start, 3)}  # fmt: skip
                found.append(event | ({"bp": "e"} if phase == "f" else {}))
    return found
