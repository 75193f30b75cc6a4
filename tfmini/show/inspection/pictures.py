"""Writes an inspection as a Graphviz picture: a cluster of ops per task, and the transfers between the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from tfmini.devices import parse
from tfmini.placement.wire_table import Transfer
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.findings import Inspection, headline
from tfmini.text import printable


def dot(found: Inspection) -> str:
    """Returns DOT text. Transfers are labelled edges between the clusters; control edges are dashed."""
    lines = ["digraph step {", '  rankdir=LR; compound=true; node [shape=box, fontname="sans-serif"];']
    for number, device in enumerate(found.devices):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(device.device)};"]
        lines += [f"    {_quoted(op)} [label={_quoted(op, found.nodes[op].op)}];" for op in device.ops]
        lines.append("  }")
    for device in found.devices:
        lines += _inner_edges(found, set(device.ops))
    for transfer in found.transfers:
        lines += _edges(found, transfer)
    return "\n".join([*lines, "}", ""])


def _inner_edges(found: Inspection, ops: set[str]) -> list[str]:
    lines = []
    for op in sorted(ops):
        node = found.nodes[op]
        lines += [f"  {_quoted(s)} -> {_quoted(op)};" for s in dict.fromkeys(s for s, _ in node.inputs) if s in ops]
        lines += [f"  {_quoted(s)} -> {_quoted(op)} [style=dashed];" for s in node.controls if s in ops]
    return lines


def _edges(found: Inspection, transfer: Transfer) -> list[str]:
    size = [] if transfer.bytes is None or transfer.control else [f"{transfer.bytes:,} B"]
    style = "dashed" if transfer.control else "bold"
    label = _quoted(transfer.role, *size)
    return [
        f"  {_quoted(transfer.producer)} -> {_quoted(user)} [label={label}, style={style}, color=firebrick];"
        for user in transfer.consumers
        if transfer.producer in found.nodes and user in found.nodes
    ]


def _quoted(*lines: str) -> str:
    """A text of one line or several in quotes, which no name can leave: a backslash would escape them."""
    shown = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(shown) + '"'


# ---- Collapses the name scopes of a step, so that a picture of it fits on one page ---------------------------------

End = tuple[str, str]  # a device and a group on it; "" stands for the task as a whole


@dataclass
class Condensed:
    """Groups of ops and the edges between them.

    Attributes:
      groups: device -> group -> its ops, in the order of the graph.
      inner: device -> pairs of groups of which the first feeds the second.
      wires: the transfers between groups of different devices.
    """

    groups: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    inner: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    wires: dict[tuple[End, End], list[Transfer]] = field(default_factory=dict)


def condense(found: Inspection, most: int) -> Condensed:
    """Collapses scopes, inner ones first, until at most ``most`` groups remain (or only the outermost scopes)."""
    deepest = max((op.count("/") + 1 for d in found.devices for op in d.ops), default=1)
    for depth in range(deepest, 0, -1):
        result = _at_depth(found, depth)
        if sum(map(len, result.groups.values())) <= most:
            break
    _join(found, result)
    return result


def _at_depth(found: Inspection, depth: int) -> Condensed:
    result = Condensed()
    for summary in found.devices:
        groups = result.groups[summary.device] = {}
        for op in summary.ops:
            groups.setdefault("/".join(op.split("/")[:depth]), []).append(op)
    return result


def _join(found: Inspection, result: Condensed) -> None:
    group_of = {op: (device, group) for device, groups in result.groups.items() for group in groups
                for op in groups[group]}  # fmt: skip
    for op, (device, group) in group_of.items():
        for source, _ in found.nodes[op].inputs:
            other, feeding = group_of.get(source, ("", ""))
            if other == device and feeding != group:
                result.inner.setdefault(device, set()).add((feeding, group))
    for transfer in found.transfers:
        src = group_of.get(transfer.producer, (transfer.src, ""))
        for user in transfer.consumers or ("",):
            rows = result.wires.setdefault((src, group_of.get(user, (transfer.dst, ""))), [])
            if transfer not in rows:
                rows.append(transfer)


# ---- svg ----------------------------------------
# Writes an inspection as an SVG picture: a frame per task, its ops by name scope, and the transfers between frames.

_MOST_GROUPS = 28
_BOX = (132, 28)  # width and height of a group
_STEP = (160, 38)  # from one group to the next
_PAD, _HEAD, _GAP, _LANE = 14, 22, 30, 240

_STYLE = (
    "text{font:10px sans-serif;text-anchor:middle}"
    ".task{fill:#f1f1f1;stroke:#555;stroke-width:1.5}.name{font-weight:bold;font-size:13px}"
    ".op{fill:#dcebf7;stroke:#9ab}.scope{fill:#9fc5e8;stroke:#68a}"
    ".data{stroke:#bbb;fill:none}.wire{stroke:#c0392b;stroke-width:1.8;fill:none}"
    ".order{stroke:#c0392b;stroke-dasharray:4 3;fill:none}"
    ".size{fill:#a02b1d;paint-order:stroke;stroke:#fff;stroke-width:3px}"
)


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    w: float
    h: float

    @property
    def middle(self) -> float:
        return self.y + self.h / 2


@dataclass(frozen=True)
class _Drawn:
    path: str
    label: str


def svg(found: Inspection, most: int = _MOST_GROUPS) -> str:
    """Returns SVG text. Transfers are red with their bytes, control edges are dashed; tooltips have the details.

    Args:
      most: the maximum number of boxes; name scopes are collapsed until it holds.
    """
    shown = condense(found, most)
    layers = {device: _layers(shown, device) for device in shown.groups}
    frames = _frames(layers)
    boxes = {end: box for device in layers for end, box in _groups(device, frames[device], layers[device]).items()}
    boxes |= {(device, ""): frame for device, frame in frames.items()}
    # Wires are drawn behind the boxes, and their labels on top.
    wires = [_wire(boxes[src], boxes[dst], rows) for (src, dst), rows in shown.wires.items()]
    width = max(frame.x + frame.w for frame in frames.values()) + _GAP
    height = max(frame.y + frame.h for frame in frames.values()) + _GAP
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">',
        f"<style>{_STYLE}</style>", _marker("wire", "#c0392b"), _marker("data", "#bbb"),
        f'<rect width="100%" height="100%" fill="#fff"/>{_text(width / 2, 18, headline(found))}',
        *(_frame(device, frame) for device, frame in frames.items()),
        *(_inner(boxes[device, a], boxes[device, b]) for device in shown.inner for a, b in sorted(shown.inner[device])),
        *(wire.path for wire in wires),
        *(_group(found, shown, end, box) for end, box in boxes.items() if end[1]),
        *(wire.label for wire in wires),
        "</svg>", "",
    ])  # fmt: skip


def _layers(shown: Condensed, device: str) -> list[list[str]]:
    """The groups of a device in columns, each to the right of its inputs."""
    import networkx  # heavy: only for pictures

    graph: Any = networkx.DiGraph()
    graph.add_nodes_from(shown.groups[device])
    graph.add_edges_from(sorted(shown.inner.get(device, ())))
    # Scopes that feed each other share a column.
    whole = networkx.condensation(graph)
    return [
        sorted((name for part in generation for name in whole.nodes[part]["members"]), key=list(graph).index)
        for generation in networkx.topological_generations(whole)
    ]


def _frames(layers: Mapping[str, list[list[str]]]) -> dict[str, _Box]:
    """The frames of the tasks: jobs are side by side, ps first, and the tasks of a job below each other."""
    jobs: dict[str, list[str]] = {}
    for device in sorted(layers, key=lambda name: parse(name).job != "ps"):
        jobs.setdefault(parse(device).job or "", []).append(device)
    frames: dict[str, _Box] = {}
    left = float(_GAP)
    for devices in jobs.values():
        top = float(_GAP + 10)
        for device in devices:
            rows = max(map(len, layers[device]), default=0)
            width = 2 * _PAD + max(1, len(layers[device])) * _STEP[0] - (_STEP[0] - _BOX[0])
            frames[device] = _Box(left, top, width, _HEAD + _PAD + rows * _STEP[1])
            top += frames[device].h + _GAP
        left += max(frames[device].w for device in devices) + _LANE
    return frames


def _groups(device: str, frame: _Box, layers: list[list[str]]) -> dict[End, _Box]:
    return {
        (device, group): _Box(frame.x + _PAD + column * _STEP[0], frame.y + _HEAD + row * _STEP[1], *_BOX)
        for column, groups in enumerate(layers)
        for row, group in enumerate(groups)
    }


def _frame(device: str, box: _Box) -> str:
    name = f'<text class="name" x="{box.x + box.w / 2:.0f}" y="{box.y + 15:.0f}">{_shown(short(device))}</text>'
    return f'<g><title>{_shown(device)}</title><rect class="task" rx="6" {_rectangle(box)}/>{name}</g>'


def _group(found: Inspection, shown: Condensed, end: End, box: _Box) -> str:
    device, group = end
    ops = shown.groups[device][group]
    kind, name, below, told = "scope", group, f"{len(ops)} ops", ops[:20]
    if len(ops) == 1:
        kind, name, below, told = "op", ops[0], found.nodes[ops[0]].op, found.why(ops[0])[1:]
    title = _shown(name, *told)
    x = box.x + box.w / 2
    return (f'<g><title>{title}</title><rect class="{kind}" rx="4" {_rectangle(box)}/>'
            f"{_text(x, box.y + 12, _clipped(name))}{_text(x, box.y + 23, _clipped(below))}</g>")  # fmt: skip


def _inner(a: _Box, b: _Box) -> str:
    return f'<path class="data" marker-end="url(#data)" d="{_curve(a.x + a.w, a.middle, b.x, b.middle, 1, 1)}"/>'


def _wire(a: _Box, b: _Box, rows: list[Transfer]) -> _Drawn:
    """A wire from the side of one frame that faces the other; within a column, on the right side."""
    to_right, to_left = b.x >= a.x + a.w, a.x >= b.x + b.w
    x0, x1 = (a.x if to_left else a.x + a.w), (b.x if to_right else b.x + b.w)
    path = _curve(x0, a.middle, x1, b.middle, -1 if to_left else 1, 1 if to_right else -1)
    control = all(t.control for t in rows)
    told = _shown(*(f"{t.tensor}: {t.role}" + ("" if t.control else f", {_size([t])}") for t in rows))
    kind = "order" if control else "wire"
    drawn = f'<g><title>{told}</title><path class="{kind}" marker-end="url(#wire)" d="{path}"/></g>'
    # The label is at a third of the way, since curves cross in the middle.
    x, y = x0 + (x1 - x0) / 3, a.middle + 0.26 * (b.middle - a.middle) - 3
    return _Drawn(drawn, "" if control else _text(x, y, _size(rows), "size"))


def _curve(x0: float, y0: float, x1: float, y1: float, out: int, into: int) -> str:
    bend = max(20.0, abs(x1 - x0) / 2)
    return f"M{x0:.0f},{y0:.0f} C{x0 + out * bend:.0f},{y0:.0f} {x1 - into * bend:.0f},{y1:.0f} {x1:.0f},{y1:.0f}"


def _size(rows: list[Transfer]) -> str:
    sizes = [t.bytes for t in rows if not t.control]
    return "? B" if None in sizes else f"{sum(size or 0 for size in sizes):,} B"


def _clipped(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:9]}…{text[-14:]}"


def _rectangle(box: _Box) -> str:
    return f'x="{box.x:.0f}" y="{box.y:.0f}" width="{box.w:.0f}" height="{box.h:.0f}"'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.0f}" y="{y:.0f}">{_shown(text)}</text>'


def _marker(name: str, colour: str) -> str:
    return (f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
            f' markerUnits="userSpaceOnUse"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>')  # fmt: skip


def _shown(*lines: str) -> str:
    """Lines as text of XML, which may not have control characters at all."""
    return escape("\n".join(map(printable, lines)))
