"""Self-contained HTML pages, which load nothing from a network; and that of an inspection, drawn by cytoscape."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from tfmini.placement.wire_table import Transfer
from tfmini.progress import work
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.drawing import colour_of, theme
from tfmini.show.inspection.findings import Inspection, Overview, fold_label, headline, overview
from tfmini.show.inspection.pictures import FEW_TASKS, FOLD_ABOVE, picture, picture_of_tasks
from tfmini.show.inspection.trace import (
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
    milliseconds,
    packed_stats,
)
from tfmini.train.timeline import ChromeTrace

_Shown = TypeVar("_Shown")
_LIBRARIES = ("LICENSES.txt", "cytoscape.min.js", "dagre.min.js")
HEIGHT_PX = 560
_SCRIPTS = ("picture.js", "units.js", "model.js", "layout.js", "lines.js", "view.js", "heat.js", "tasks.js", "page.js")
_MOST_UNFOLDED = 24  # of more tasks the page has no picture with a box for each


def page(found: Inspection) -> str:
    """Returns the page's text. It shows the ops that the step runs, by task and name scope."""
    with work("drawing the page"):
        return assembled("page.html", _SCRIPTS, _LIBRARIES, data=_data(found))


def assembled(
    frame: str, scripts: Sequence[str], libraries: Sequence[str] = (), styles: Sequence[str] = (), data: Any = None
) -> str:
    """One page: the file ``frame`` with the data, the scripts, the libraries, the styles and the colours in it.

    Files are those of this package, or of another one: ``dashboard:page.js``.
    """
    parts = {
        "/*THEME*/": theme(),
        "/*STYLES*/": "\n".join(map(_file, styles)),
        "/*LIBRARIES*/": "\n".join(map(_file, libraries)),
        "/*DATA*/": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "/*SCRIPT*/": "\n".join(map(_file, scripts)),
    }
    # In one pass: the data may contain what looks like a mark.
    return re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], _file(frame))


def framed(page: str, title: str) -> str:
    """HTML for ``_repr_html_`` with a whole page in it.

    The page is the ``srcdoc`` of a sandboxed iframe. So its styles and scripts do not meet those of the notebook, it
    cannot read the notebook's origin, and it loads nothing; its button may save a picture. It also runs inside
    JupyterLab's own sandbox, which allows scripts alone.
    """
    return (
        f'<iframe title="{escape(title)}" sandbox="allow-scripts allow-downloads" srcdoc="{escape(page)}"'
        f' style="width: 100%; height: {HEIGHT_PX}px; border: 1px solid #ccc" loading="lazy"></iframe>'
    )


def _file(name: str) -> str:
    package, _, name = name.rpartition(":")
    text = resources.files(f"tfmini.show.{package or 'inspection'}").joinpath("page", name).read_text()
    return f"/*\n{text}\n*/" if name.endswith(".txt") else text


def save_as(path: str | PathLike[str], shown: _Shown, forms: Mapping[str, Callable[[_Shown], str]]) -> None:
    """Writes a file in the form that its ending names; raises ValueError for another one."""
    make = forms.get(Path(path).suffix)
    if make is None:
        raise ValueError(f"{path} can be written as {', '.join(forms)}, by the ending of its name.")
    Path(path).write_text(make(shown))


class _Numbered(dict[str, int]):
    """Numbers texts, since a page with thousands of ops repeats few of them."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _data(found: Inspection) -> dict[str, Any]:
    index = {id(t): i for i, t in enumerate(found.transfers)}
    types, texts = _Numbered(), _Numbered()
    return _overview(overview(found)) | _pictures(found) | {
        "about": headline(found),
        "fewTasks": FEW_TASKS,
        "colours": [colour_of(i) for i in range(len(found.devices))],
        "devices": [d.device for d in found.devices],
        "short": [short(d.device) for d in found.devices],
        "ops": _ops(found, types, texts),
        "types": list(types),
        "texts": list(texts),
        "transfers": [_transfer(t) for t in found.transfers],
        "messages": [
            {"from": short(m.src), "to": short(m.dst), "text": m.text, "bytes": m.bytes, "count": m.count,
             "transfers": [index[id(t)] for t in m.transfers]}
            for m in found.messages()
        ],
        "warnings": [str(w) for w in found.warnings],
    }  # fmt: skip


def _pictures(found: Inspection) -> dict[str, Any]:
    """The picture of tasks; where it has boxes of several tasks, also that with a box for each."""
    count, shown = len(found.devices), picture(found)
    folds = count > FOLD_ABOVE
    return {
        "picture": shown.svg(),
        "isOfOps": any(box.columns for box in shown.boxes),
        "unfolded": picture_of_tasks(found, folded=False).svg() if folds and count <= _MOST_UNFOLDED else "",
    }


def _overview(seen: Overview) -> dict[str, Any]:
    number = {load.device: i for i, load in enumerate(seen.loads)}
    return {
        "sentences": seen.sentences(),
        "loads": [
            {
                "ops": d.ops,
                "sends": d.sends,
                "receives": d.receives,
                "state": d.state_bytes,
                "idle": d.is_idle,
                "sendsMore": d.sends_more,
                "receivesMore": d.receives_more,
            }
            for d in seen.loads
        ],
        "links": [
            [number[src], number[dst], nbytes, seen.beyond.get((src, dst), "")]
            for (src, dst), nbytes in seen.links.items()
        ],
        "overloaded": {number[load.device]: factor for load, factor in seen.overloaded},
        "folds": [
            {"label": fold_label(fold), "devices": [number[load.device] for load in fold]} for fold in seen.folds()
        ],
    }


def _ops(found: Inspection, types: _Numbered, texts: _Numbered) -> list[list[Any]]:
    """Rows of name, type, device, reasons, and the inputs and control inputs on the same device."""
    numbers = {op: i for i, op in enumerate(op for d in found.devices for op in d.ops)}
    rows = []
    for device, summary in enumerate(found.devices):
        own = set(summary.ops)
        for op in summary.ops:
            node = found.nodes[op]
            inputs = sorted({numbers[source] for source, _ in node.inputs if source in own})
            controls = sorted({numbers[source] for source in node.controls if source in own})
            reasons = [texts[text] for text in found.why(op)[1:]]
            rows.append([op, types[node.op], device, reasons, inputs, controls])
    return rows


def _transfer(t: Transfer) -> dict[str, Any]:
    return {
        "tensor": t.tensor, "src": t.src, "dst": t.dst, "dtype": t.dtype.name, "bytes": t.bytes, "role": t.purpose,
        "shape": None if t.shape is None else list(t.shape), "control": t.control, "producer": t.producer,
        "consumers": list(t.consumers), "key": t.key, "send": t.send, "recv": t.recv,
        "loops": bool(t.loop), "conditional": t.is_conditional,
    }  # fmt: skip


# ---- trace events ----------------------------------------
# Draws a traced step: as a timeline for Perfetto (ui.perfetto.dev) and ``chrome://tracing``, and as one HTML page.
# Each task is a process, with tracks for its ops (per thread), sends, tensors in flight to it, receives and waits.
# The tensors of one message are one bar. An arrow leads from each Send over the wire to its Recv.

MOST_BARS = 20_000  # of a page
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
        """The span whose times it has."""
        return self.spans[0]

    @property
    def title(self) -> str:
        """What the bar says."""
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
        """What is worth knowing of it, beside its times."""
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


@dataclass(frozen=True)
class _Track:
    """A row of a task; ``pid``: the task's number, ``tid``: the row's."""

    pid: int
    tid: int
    title: str
    bars: list[_Bar]


def timeline(trace: StepTrace) -> str:
    """Returns the timeline as JSON text; it contains the step stats, so that `read_trace` can read it."""
    return json.dumps({
        "displayTimeUnit": "ns",
        "otherData": {
            "start_us": trace.start,
            "duration_us": trace.duration,
            "attributed": round(trace.attributed(), 4),
            "clocks": trace.clocks_to_json(),
            STATS_KEY: packed_stats(trace.stats),
        },
        "traceEvents": events(trace),
    })  # fmt: skip


def events(trace: StepTrace) -> list[dict[str, Any]]:
    """Returns the events in Chrome's trace format; times in microseconds since the step's start."""
    drawing = ChromeTrace()
    tracks = list(_tracks(trace))
    for pid, task in enumerate(trace.tasks):
        fit = trace.clocks.get(task)
        clock = "" if fit is None or not fit.error else f" (clock within {fit.error:.0f} µs)"
        drawing.describe("process", pid, None, f"{short(task)}{clock}")
    for track in tracks:
        drawing.describe("thread", track.pid, track.tid, track.title)
        for bar in track.bars:
            drawing.add(
                "X", bar.first.kind, bar.title, track.pid, track.tid, _since_start(trace, bar.first),
                dur=round(bar.first.duration, 3), args=bar.arguments(),
            )  # fmt: skip
    places = _places(tracks)
    for number, way in enumerate(_ways(trace), 1):
        for phase, span in zip("stf", way):
            more: dict[str, Any] = {"bp": "e"} if phase == "f" else {}
            drawing.add(phase, "tensor", span.name, *places[id(span)], _since_start(trace, span), id=number, **more)
    return drawing.metadata + drawing.events


def trace_page(trace: StepTrace) -> str:
    """Returns the text of a self-contained page, which loads nothing from a network.

    Of a step with very many spans it shows the longest ones and says so.
    """
    return assembled("trace.html", ("picture.js", "timeline.js"), data=trace_page_data(trace))


def trace_page_data(trace: StepTrace) -> dict[str, Any]:
    tracks = list(_tracks(trace))
    bars = sorted((bar for track in tracks for bar in track.bars), key=lambda bar: -bar.first.duration)
    shown, hidden, places = set(map(id, bars[:MOST_BARS])), len(bars) - MOST_BARS, _places(tracks)
    return {
        "duration": trace.duration,
        "tasks": [
            {"name": short(task), "tracks": [
                {"title": track.title, "tid": track.tid,
                 "bars": [_bar(trace, bar) for bar in track.bars if id(bar) in shown]}
                for track in tracks if track.pid == pid
            ]}
            for pid, task in enumerate(trace.tasks)
        ],
        "arrows": [] if hidden > 0 else [
            [dict(zip(("task", "tid", "time"), (*places[id(span)], _since_start(trace, span)))) for span in way]
            for way in _ways(trace)
        ],
        "sentences": [*sentences(trace), *([f"The {hidden:,} shortest spans are not shown."] if hidden > 0 else [])],
    }  # fmt: skip


def _bar(trace: StepTrace, bar: _Bar) -> dict[str, Any]:
    waits = bar.first.kind == OP and not bar.first.computes  # the colour says so
    return {
        "kind": WAIT if waits else bar.first.kind, "title": bar.title, "start": _since_start(trace, bar.first),
        "duration": round(bar.first.duration, 3),
        "facts": {key: value for key, value in bar.arguments().items() if key != "device"},
    }  # fmt: skip


def _since_start(trace: StepTrace, span: Span) -> float:
    return round(span.start - trace.start, 3)


def _tracks(trace: StepTrace) -> Iterator[_Track]:
    for pid, task in enumerate(trace.tasks):
        mine = [span for span in trace.spans if span.task == task]
        for row, (title, kinds) in enumerate(_TRACKS):
            lanes = _lanes(_bars([span for span in mine if span.kind in kinds]))
            for lane, bars in enumerate(lanes):
                yield _Track(pid, row * _LANES_PER_TRACK + lane, title if not lane else f"{title} ({lane + 1})", bars)


def _places(tracks: Iterable[_Track]) -> dict[int, tuple[int, int]]:
    """The id of a span -> the numbers of its task and track."""
    return {id(span): (track.pid, track.tid) for track in tracks for bar in track.bars for span in bar.spans}


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


def _ways(trace: StepTrace) -> Iterator[tuple[Span, Span, Span]]:
    """The way of each tensor: its Send, the wire and its Recv. The n-th spans of an edge belong together."""
    ends: dict[tuple[str, str, str], tuple[list[Span], list[Span], list[Span]]] = {}
    for span in trace.spans:
        if span.kind in (SEND, WIRE, RECEIVE):
            way = (span.edge, span.device, span.peer) if span.kind == SEND else (span.edge, span.peer, span.device)
            ends.setdefault(way, ([], [], []))[(SEND, WIRE, RECEIVE).index(span.kind)].append(span)
    for members in ends.values():
        yield from zip(*members)


def _awaited(span: Span) -> str:
    """What a wait was for; of many tensors the first: ``dense/kernel/read and 2 more from ps/0``."""
    names, separator, sender = span.name.rpartition(" from ")
    first, *more = (names or span.name).split(", ")
    others = f" and {len(more)} more" if more else ""
    return f"{first}{others}{separator and f' from {short(sender)}'}"


def sentences(trace: StepTrace) -> list[str]:
    """What is worth knowing at first sight: the duration, the longest wait, what was sent."""
    found = [f"The step took {milliseconds(trace.duration)} ms; {trace.attributed():.1%} of it is attributed."]
    for task in trace.tasks:
        spans = trace.waits_of(task)
        if spans:
            longest = max(spans, key=lambda span: span.duration)
            what = f"longest for {_awaited(longest)} ({milliseconds(longest.duration)} ms)"
            found.append(f"{short(task)} waited {milliseconds(trace.waited(task))} ms in all, {what}.")
    sent = sum(span.bytes for span in trace.between_tasks())
    if sent:
        found.append(f"Tensors between tasks: {sent:,} B.")
    exchanged = sum(span.bytes for span in trace.of_kind(EXCHANGE))
    if exchanged:
        found.append(f"Collectives: {exchanged:,} B sent to other ranks.")
    return found
