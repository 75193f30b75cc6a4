"""Draws tasks, the ops in them and the lines between them as SVG, in the colours of a light and of a dark screen.

The commands, the inspector's page and the live page have the same picture. A colour says a task: its box has it, the
lines of what it sends have it, and so do its lines in charts. No task is red: red says that something is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby

from tfmini.show.inspection.layout import Frame, Label, Line, Point, Rect, Scene, laid_out
from tfmini.text import printable

# name -> on a light and on a dark screen
_THEME = {
    "ink": ("#222222", "#e4e6ea"), "soft": ("#5f6368", "#a3a9b3"), "paper": ("#ffffff", "#16181d"),
    "pane": ("#fafafa", "#1b1e24"), "edge": ("#cccccc", "#41464f"), "hover": ("#e8eefc", "#2b3345"),
    "alarm": ("#b3261e", "#ff8f85"), "alarmed": ("#fdecea", "#45211e"), "orange": ("#d97700", "#ffb454"),
    "good": ("#2a7a3a", "#7bd88f"), "link": ("#1f5fa8", "#8ab8f0"), "frame": ("#f3f4f6", "#20242b"),
    "ps": ("#ebe8f7", "#2d2a40"), "task": ("#e4eef7", "#22303d"), "op": ("#d6e7f5", "#27425a"),
    "scope": ("#9fc5e8", "#356089"), "data": ("#9aa0a6", "#737b87"), "waits": ("#fff1c9", "#463b16"),
    "stuck": ("#ffe0c2", "#4d3113"), "found": ("#ffe680", "#5e4c00"), "ring": ("#f09000", "#ffb300"),
}  # fmt: skip
_TASKS = (
    ("#1f77b4", "#6cb4ee"), ("#2c9a2c", "#78d478"), ("#8e63c0", "#c3a5ec"), ("#c9690a", "#ffb066"),
    ("#0f9fb4", "#5cdcec"), ("#8c564b", "#cf9f92"), ("#d35fb0", "#f6a6dc"), ("#85860f", "#d6d75a"),
    ("#3f51b5", "#96a3f7"), ("#00796b", "#4fd1bd"), ("#6a9a1f", "#b5e07a"), ("#607d8b", "#9fb8c6"),
)  # fmt: skip
_STYLE = """
.picture text { font: 11px sans-serif; fill: var(--ink); }
.picture .paper { fill: var(--paper); }
.picture .frame > rect { fill: var(--frame); stroke: var(--soft); stroke-width: 1.2; }
.picture .box > rect { fill: var(--task); stroke: var(--soft); stroke-width: 1.2; }
.picture .ps > rect { fill: var(--ps); }
.picture .op > rect { fill: var(--op); stroke: var(--data); stroke-width: 1; }
.picture .scope > rect { fill: var(--scope); stroke: var(--data); stroke-width: 1; }
.picture .idle > rect { fill: var(--pane); stroke-dasharray: 2 3; }
.picture .waits > rect { fill: var(--waits); stroke: var(--orange); }
.picture .stuck > rect { fill: var(--stuck); stroke: var(--orange); stroke-width: 2; }
.picture .silent > rect { fill: var(--alarmed); stroke: var(--alarm); stroke-width: 2; stroke-dasharray: 6 4; }
.picture .bottleneck > rect { stroke: var(--orange); stroke-width: 5; }
.picture .culprit > rect, .picture .overloaded > rect { stroke: var(--alarm); stroke-width: 4; }
.picture .culprit > rect { fill: var(--alarmed); }
.picture .box text, .picture .op text, .picture .scope text, .picture .title { text-anchor: middle; }
.picture .op text, .picture .scope text { font-size: 10px; }
.picture .name, .picture .title { font-weight: bold; font-size: 12px; }
.picture .box .edge { fill: none; pointer-events: none; }
.picture .line { fill: none; stroke-linejoin: round; }
.picture .data .line { stroke: var(--data); }
.picture .data .head { fill: var(--data); }
.picture .order .line { stroke-dasharray: 4 3; }
.picture .unknown .line { stroke-dasharray: 0.1 6; stroke-linecap: round; }
.picture .broken .line { stroke: var(--alarm); stroke-dasharray: 6 4; stroke-width: 3px; }
.picture .broken .head { fill: var(--alarm); }
.picture .touch { fill: none; stroke: none; stroke-width: 10px; pointer-events: stroke; }
.picture .label { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.picture .legend text { fill: var(--soft); }
.picture .legend .wire .line, .picture .legend .order .line { stroke: var(--ink); }
.picture .legend .wire .head, .picture .legend .order .head { fill: var(--ink); }
.picture [data-id], .picture [data-from] { cursor: pointer; }
.picture [data-id]:focus { outline: 3px solid var(--ring); outline-offset: 2px; }
.picture [data-from]:hover .line, .picture .found .line { stroke: var(--ring); stroke-width: 5px; }
.picture .found .head { fill: var(--ring); }
.picture .found > rect { stroke: var(--ring); stroke-width: 4; }
"""


def theme() -> str:
    """CSS: the colours of pages as variables, ``--t0`` and so on for tasks, and the style of pictures."""
    light, dark = (
        "".join(f"--{name}: {value};" for name, value in _colours(dark=is_dark).items()) for is_dark in (False, True)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{_rules()}"
    )


def style() -> str:
    """CSS for a picture by itself: with plain colours, since not everything that shows SVG knows variables."""
    light, dark = (_filled(_rules(), _colours(dark=is_dark)) for is_dark in (False, True))
    return f"{light}@media screen and (prefers-color-scheme: dark) {{{dark}}}"


def _colours(dark: bool) -> dict[str, str]:
    tasks = {f"t{i}": pair for i, pair in enumerate(_TASKS)}
    return {name: pair[dark] for name, pair in (_THEME | tasks).items()}


def _rules() -> str:
    """The colours of tasks come first: what is found, broken or under the mouse has another one."""
    return (
        "".join(
            f".picture .c{i} .line, .picture .box.c{i} .edge {{ stroke: var(--t{i}); }}"
            f" .picture .c{i} .head, .picture .c{i} .stripe {{ fill: var(--t{i}); stroke: none; }}\n"
            for i in range(len(_TASKS))
        )
        + _STYLE
    )


def _filled(text: str, colours: Mapping[str, str]) -> str:
    for name, colour in colours.items():
        text = text.replace(f"var(--{name})", colour)
    return text


def colour_of(number: int) -> int:
    """The number of the colour of the task with this place in its cluster."""
    return number % len(_TASKS)


# ---- what is drawn -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """A task, several equal ones, or inside of a task an op or a name scope.

    Attributes:
      lines: the text; the first line is the name.
      kinds: classes of its style: ``op``, ``scope``, ``ps``, ``idle``, ``many``, ``overloaded`` and so on.
      told: the tooltip.
      job: of a task; jobs are rows, ps first.
      colour: of a task.
      columns: the boxes inside, each to the right of those that feed it.
    """

    key: Hashable
    lines: Sequence[str]
    kinds: str = ""
    told: Sequence[str] = ()
    job: str = ""
    colour: int | None = None
    columns: Sequence[Sequence[Tile]] = ()


@dataclass(frozen=True)
class Arrow:
    """A line; ``share``: of the widest one, from 0 to 1; ``kind``: ``data``, ``wire``, ``order`` or ``broken``."""

    source: Hashable
    target: Hashable
    label: str = ""
    kind: str = "wire"
    share: float = 0.0
    told: Sequence[str] = ()
    colour: int | None = None


@dataclass(frozen=True)
class Sample:
    """An entry of the legend: what a line or box of such kinds means."""

    kinds: str
    text: str


@dataclass
class Picture:
    """Boxes and lines, in the order in which the keyboard reaches them; ``joins_labels``: as in `laid_out`."""

    boxes: list[Tile] = field(default_factory=list)
    wires: list[Arrow] = field(default_factory=list)
    legend: list[Sample] = field(default_factory=list)
    title: str = ""
    joins_labels: bool = True

    def svg(self, by_itself: bool = False) -> str:
        """The SVG element; ``by_itself``: as a whole file, with its style."""
        return _svg(self, laid_out(*placed(self), self.joins_labels), by_itself)


_LETTER, _LINE = 6.6, 15  # of the text in boxes
_BOLD = 1.2  # how much wider a bold one is
_NARROWEST, _STEP = 96.0, 24.0
_WIDE, _WIDE_OPEN = 1500.0, 1000.0  # a row of closed tasks, of open ones
_TOP = 24.0  # the title
_TITLE = 20.0  # that of a frame
_SPACE = 62.0  # about as much as a lane takes


def placed(shown: Picture) -> tuple[list[Frame], list[Line]]:
    """The frames and lines of a picture: jobs are rows, ps first."""
    ordered = sorted(shown.boxes, key=lambda box: box.job != "ps")
    frames, row = [], 0
    for _, members in groupby(ordered, key=lambda box: box.job):
        for line in _rows([_frame(box) for box in members], len(ordered)):
            frames += [Frame(f.key, row, f.width, f.height, f.columns) for f in line]
            row += 1
    links = [Line(wire.source, wire.target, wire.label, wire.kind) for wire in shown.wires]
    return frames, links


def _rows(frames: Sequence[Frame], count: int) -> Iterable[list[Frame]]:
    """The frames of a job in rows that make a picture of so many tasks wider than high, all about as long."""
    widest = _WIDE_OPEN if any(f.columns for f in frames) else max(_WIDE, math.sqrt(4 * count) * 180)
    widths = [f.width if not f.columns else len(f.columns) * (f.box[0] + _SPACE) for f in frames]
    rows = max(1, math.ceil(sum(widths) / widest))
    across = math.ceil(len(frames) / rows)
    for i in range(0, len(frames), across):
        yield list(frames[i:i + across])  # fmt: skip


def _frame(box: Tile) -> Frame:
    # In steps, so that a number with another digit does not move the picture of a running cluster.
    longest = max(_BOLD * len(box.lines[0]), *map(len, box.lines))
    width = max(_NARROWEST, _STEP * math.ceil((_LETTER * longest + 26) / _STEP))
    columns = tuple(tuple(inner.key for inner in column) for column in box.columns)
    return Frame(box.key, 0, width, _LINE * len(box.lines) + 14, columns)


# ---- SVG -----------------------------------------------------------------------------------------------------------


def _svg(shown: Picture, at: Scene, by_itself: bool) -> str:
    width = max(at.width, _LETTER * len(shown.title) + 20, 460, *(_room(sample) + 32 for sample in shown.legend))
    legend, deep = _legend(shown.legend, width)
    top = _TOP if shown.title else 0.0
    area = Rect(0, -top, width, top + at.height + deep)
    size = f'viewBox="0 {area.y:.0f} {area.w:.0f} {area.h:.0f}" width="{area.w:.0f}" height="{area.h:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="group" aria-label="Tasks" {size}>',
        f'<style>{style()}</style><rect class="paper" {_at(area)}/>' if by_itself else "",
        f'<text class="title" x="{width / 2:.0f}" y="-8">{_text(shown.title)}</text>' if top else "",
        f'<g transform="translate({(width - at.width) / 2:.0f},0)">',
        *(_task(box, at) for box in shown.boxes),
        *(_wire(wire, line) for wire, line in zip(shown.wires, at.lines)),
        *map(_label, at.labels),
        f'</g><g class="legend" transform="translate(16,{at.height:.0f})">{legend}</g>',
        "</svg>", "",
    ])  # fmt: skip


def _task(box: Tile, at: Scene) -> str:
    rect, colour = at.boxes[box.key], f" c{box.colour}" if box.colour is not None else ""
    if not box.columns:
        return _closed(box, rect, f"box {box.kinds}{colour}")
    inner = [_closed(each, at.boxes[each.key], each.kinds) for column in box.columns for each in column]
    is_below = min(at.boxes[each.key].y for column in box.columns for each in column) - rect.y < _TITLE
    y = rect.y + rect.h - 8 if is_below else rect.y + 16
    name = f'<text class="title label" x="{rect.x + rect.w / 2:.0f}" y="{y:.0f}">{_text(box.lines[0])}</text>'
    stripe = f'<rect class="stripe" {_at(Rect(rect.x, rect.y, 5, rect.h))}/>'
    frame = f"{_told(box.told)}<rect {_at(rect)}/>{stripe}{name}"
    return "\n".join([f'<g class="frame {box.kinds}{colour}" {_names(box)}>{frame}</g>', *inner])


def _closed(box: Tile, rect: Rect, kinds: str) -> str:
    small = "op" in kinds.split() or "scope" in kinds.split()
    step = 11 if small else _LINE
    first = rect.y + rect.h / 2 - step * (len(box.lines) - 1) / 2 + 4
    lines = "".join(
        f'<text class="{"more" if small or i else "name"}" x="{rect.x + rect.w / 2:.1f}" y="{first + step * i:.1f}">'
        f"{_text(line)}</text>"
        for i, line in enumerate(box.lines)
    )
    stripe = "" if small else f'<rect class="stripe" {_at(Rect(rect.x + 1, rect.y + 1, 5, rect.h - 2))}/>'
    double = f'<rect class="edge" {_at(Rect(rect.x + 4, rect.y + 4, rect.w - 8, rect.h - 8))} rx="3"/>'
    many = double if "many" in kinds.split() else ""
    return f'<g class="{kinds}" {_names(box)}>{_told(box.told)}<rect rx="5" {_at(rect)}/>{stripe}{many}{lines}</g>'


def _names(box: Tile) -> str:
    """What makes a box a button of a page."""
    said = _text(" ".join(box.lines))
    return f'data-id="{_text(_key(box.key))}" tabindex="0" role="button" aria-label="{said}"'


def _key(key: Hashable) -> str:
    return "|".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _wire(wire: Arrow, points: Sequence[Point]) -> str:
    colour = f" c{wire.colour}" if wire.colour is not None else ""
    thick = 1.0 if wire.kind == "data" else 1.3 + 4.7 * wire.share
    way = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    ends = f'data-from="{_text(_key(wire.source))}" data-to="{_text(_key(wire.target))}"'
    return (
        f'<g class="{wire.kind}{colour}" {"" if wire.kind == "data" else ends}>{_told(wire.told)}'
        f'<path class="touch" d="{way}"/><path class="line" stroke-width="{thick:.1f}" d="{way}"/>'
        f'<path class="head" d="{_head(points, thick)}"/></g>'
    )


def _head(points: Sequence[Point], thick: float) -> str:
    """The arrowhead at the end of a line."""
    (x0, y0), (x, y) = points[-2], points[-1]
    dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
    long, half = 7 + thick / 2, 3 + thick / 2
    back = x - long * dx, y - long * dy
    return (
        f"M{x:.1f},{y:.1f} L{back[0] + half * dy:.1f},{back[1] + half * dx:.1f}"
        f" L{back[0] - half * dy:.1f},{back[1] - half * dx:.1f} z"
    )


def _label(label: Label) -> str:
    place = label.place
    if label.is_upright:
        x, y = place.x + place.w - 2, place.y + place.h
        return f'<text class="label" transform="translate({x:.1f},{y:.1f}) rotate(-90)">{_text(label.text)}</text>'
    return f'<text class="label" x="{place.x:.1f}" y="{place.y + place.h - 3:.1f}">{_text(label.text)}</text>'


def _legend(samples: Sequence[Sample], width: float) -> tuple[str, float]:
    """The samples side by side in lines, and their height."""
    found, x, y = [], 0.0, 0.0
    for sample in samples:
        if x and x + _room(sample) > width - 32:
            x, y = 0.0, y + 20
        found.append(f'<g transform="translate({x:.0f},{y:.0f})">{_sample(sample)}</g>')
        x += _room(sample)
    return "".join(found), y + 24 if samples else 0.0


def _room(sample: Sample) -> float:
    """The width of a sample, with its text and the gap behind it."""
    return 50 + 6.4 * len(sample.text)


def _sample(sample: Sample) -> str:
    text = f'<text x="32" y="10">{_text(sample.text)}</text>'
    if any(kind in sample.kinds.split() for kind in ("wire", "order", "data", "broken")):
        head = '<path class="head" d="M26,6 L19,3 L19,9 z"/>'
        return f'<g class="{sample.kinds}"><path class="line" stroke-width="2" d="M0,6 L20,6"/>{head}</g>{text}'
    inner = '<rect class="edge" x="3" y="3" width="20" height="6"/>' if "many" in sample.kinds.split() else ""
    return f'<g class="{sample.kinds}"><rect width="26" height="12" rx="3"/>{inner}</g>{text}'


def _told(lines: Sequence[str]) -> str:
    return "<title>" + "\n".join(map(_text, lines)) + "</title>" if lines else ""


def _at(rect: Rect) -> str:
    return f'x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.w:.1f}" height="{rect.h:.1f}"'


def _text(text: str) -> str:
    """A text as text of XML, which may not have control characters at all."""
    return escape(printable(text))
