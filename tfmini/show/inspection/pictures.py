"""Pictures of an inspection: for Graphviz, and as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfmini.devices import parse
from tfmini.placement.wire_table import Transfer, sum_note
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.drawing import Arrow, Picture, Sample, Tile, colour_of
from tfmini.show.inspection.findings import Inspection, Load, fold_label, headline, overview
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
    label = _quoted(transfer.purpose, *size)
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


def condense(found: Inspection, most: int, across: int | None = None) -> Condensed:
    """Collapses scopes, inner ones first, until at most ``most`` groups remain (or only the outermost scopes).

    Args:
      across: how many groups of a task may stand in a row, each feeding the next; no limit by default.
    """
    deepest = max((op.count("/") + 1 for d in found.devices for op in d.ops), default=1)
    for depth in range(deepest, 0, -1):
        result = _at_depth(found, depth)
        if depth > 1 and sum(map(len, result.groups.values())) > most:
            continue
        _join(found, result)
        if across is None or max((len(_layers(result, device)) for device in result.groups), default=0) <= across:
            break
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
# Writes an inspection as a picture: of few tasks with their ops by name scope, of more as closed boxes.

_MOST_GROUPS = 28
_ACROSS = 6  # of them in a row, so that a picture fits on a screen
_MOST_FLAT = 3  # times as many, where ops are in no scope that could be collapsed
FEW_TASKS = 5  # of so many the ops are shown
FOLD_ABOVE = 8  # of more, equal ones are one box


def svg(found: Inspection, most: int = _MOST_GROUPS) -> str:
    """Returns SVG text: few tasks with their ops, more of them alone, and of many equal ones as one box.

    Lines between tasks have the colour of the sender and the bytes of one direction; tooltips have the details.

    Args:
      most: the maximum number of boxes of ops; name scopes are collapsed until it holds.
    """
    shown = picture(found, most)
    shown.title = headline(found)
    return shown.svg(by_itself=True)


def picture(found: Inspection, most: int = _MOST_GROUPS) -> Picture:
    """Of up to `FEW_TASKS` tasks that with their ops, unless too many of these have no scope, else that of tasks."""
    if len(found.devices) <= FEW_TASKS:
        shown = condense(found, most, _ACROSS)
        if sum(map(len, shown.groups.values())) <= _MOST_FLAT * most:
            return picture_of_ops(found, shown)
    return picture_of_tasks(found, folded=len(found.devices) > FOLD_ABOVE)


def picture_of_tasks(found: Inspection, folded: bool) -> Picture:
    """The tasks as closed boxes; ``folded``: equal ones are one box, and a line stands for all pairs of its tasks."""
    seen = overview(found)
    groups = seen.folds() if folded else [[load] for load in seen.loads]
    key = {load.device: fold_label(group) for group in groups for load in group}
    factors = {load.device: factor for load, factor in seen.overloaded}
    ways: dict[tuple[str, str], list[int]] = {}
    for (src, dst), nbytes in seen.links.items():
        ways.setdefault((key[src], key[dst]), []).append(nbytes)
    colours = {fold_label(group): colour_of(i) for i, group in enumerate(groups)}
    order = list(colours)  # lines come in the order of the boxes, so that they cross little
    beyond = {(key[src], key[dst]): text for (src, dst), text in seen.beyond.items()}
    is_partial = any("?" in text for text in beyond.values())
    most = _scale((max(sizes) for sizes in ways.values()), is_partial)
    wires = [
        _link(way, ways[way], most, colours[way[0]], beyond.get(way))
        for way in sorted(ways, key=lambda way: (order.index(way[0]), order.index(way[1])))
    ]
    boxes = [_task_box(group, factors, colours[fold_label(group)]) for group in groups]
    legend = [*_LINES, *(_PARTIAL if is_partial else []), *_TASKS]
    return Picture(boxes, wires, [*legend, *([Sample("box many", "several equal tasks")] if folded else [])])


def _scale(sizes: Iterable[int], is_partial: bool) -> int:
    """The bytes of the thickest line. Beside unknown sizes a few bytes are not drawn as if they were the most."""
    return max(max(sizes, default=0), _SCALE_FROM if is_partial else 1)


_LINES = [
    Sample("wire", "tensors: the colour is the sender's, the width and the number say the bytes of a step, one way"),
    Sample("order", "dashed: order only, no bytes"),
]
_PARTIAL = [Sample("wire unknown", "dotted, ?: the bytes depend on the data, so the width does not say them")]
_SCALE_FROM = 1 << 14
_UNKNOWN_SHARE = 0.3  # of the width of the thickest line
_TASKS = [Sample("box ps", "ps"), Sample("box", "other task"), Sample("box idle", "no part in this step")]
_OPS = [
    Sample("op", "an op"),
    Sample("scope", "a closed name scope; (54) is its number of ops"),
    Sample("data", "values inside a task"),
]


def _task_box(group: Sequence[Load], factors: Mapping[str, float], colour: int) -> Tile:
    name, job = fold_label(group), parse(group[0].device).job or ""
    over = max((factors.get(load.device, 0.0) for load in group), default=0.0)
    kinds = [job if job == "ps" else "", "many" if len(group) > 1 else "", "overloaded" if over else ""]
    idle = all(load.is_idle for load in group)
    told = [load.device for load in group[:20]]
    return Tile(name, task_lines(group, over), " ".join([*kinds, "idle" if idle else ""]), told, job, colour)


def task_lines(group: Sequence[Load], over: float) -> list[str]:
    """The text of the box of a task, or of equal ones."""
    name = fold_label(group)
    if all(load.is_idle for load in group):
        return [name, "no part in this step"]
    ops, each = max(load.ops for load in group), " each" if len(group) > 1 else ""
    states = [load.state_bytes for load in group]
    holds = f", holds {_range(states)}" if any(states) else ""
    sends = _range([load.sends for load in group]) + group[0].sends_more
    receives = _range([load.receives for load in group]) + group[0].receives_more
    return [
        f"{name}  overloaded ×{over:.1f}" if over else name,
        (f"{ops:,} ops" if ops else "runs another client's graph") + holds,
        f"sends {sends}, receives {receives}{each}",
    ]


def _range(values: Sequence[int]) -> str:
    low, high = human(min(values)), human(max(values))
    return high if low == high else f"{low} to {high}"


def human(nbytes: int) -> str:
    """Bytes in two or three digits: ``18 kB``."""
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < 4:
        value, unit = value / 1000, unit + 1
    text = f"{value:.2g}" if unit and value < 99.5 else f"{value:.0f}"
    return f"{text} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"


def _link(way: tuple[str, str], sizes: list[int], most: int, colour: int, beyond: str | None) -> Arrow:
    """``beyond``: what the sizes leave out; None: the line has an order without tensors."""
    high = max(sizes)
    times = f" × {len(sizes)}" if len(sizes) > 1 else ""
    known = f"{'' if min(sizes) > 0.9 * high else 'up to '}{human(high)}{beyond}{times}"
    label = "" if beyond is None else known if high else f"? B{times}"
    told = [f"{way[0]} → {way[1]}: {sum(sizes):,} B{beyond or ''}" + (f" in {len(sizes)} links" if times else "")]
    kind = "order" if beyond is None else "wire unknown" if "?" in beyond else "wire"
    return Arrow(*way, label, kind, _share(high, most, kind), told, colour)


def _share(nbytes: int, most: int, kind: str) -> float:
    return max(nbytes / most, _UNKNOWN_SHARE if "unknown" in kind else 0.0)


def picture_of_ops(found: Inspection, shown: Condensed) -> Picture:
    """The tasks with their ops by name scope."""
    numbers = {summary.device: i for i, summary in enumerate(found.devices)}
    boxes = [
        Tile(
            (device, ""), [short(device)] + ([] if groups else ["no part in this step"]), "" if groups else "idle",
            [device], parse(device).job or "", colour_of(numbers[device]),
            [[_group(found, shown, device, name) for name in column] for column in _layers(shown, device)],
        )
        for device, groups in shown.groups.items()
    ]  # fmt: skip
    inner = [
        Arrow((device, a), (device, b), kind="data") for device in shown.inner for a, b in sorted(shown.inner[device])
    ]
    is_partial = any(t.bytes is None for t in found.transfers)
    return Picture(
        boxes, [*inner, *_wires(shown, numbers, is_partial)], [*_LINES, *(_PARTIAL if is_partial else []), *_OPS]
    )


def _wires(shown: Condensed, numbers: Mapping[str, int], is_partial: bool) -> list[Arrow]:
    """The transfers between the boxes of two tasks. The first line of a box to a task has the bytes of all its lines
    there, since a tensor goes once to a task, however many boxes use it."""
    ways: dict[tuple[End, str], dict[int, Transfer]] = {}
    for (src, dst), rows in shown.wires.items():
        ways.setdefault((src, dst[0]), {}).update((id(row), row) for row in rows)
    most = _scale((sum(t.bytes or 0 for t in rows) for rows in shown.wires.values()), is_partial)
    found = []
    for (src, dst), rows in shown.wires.items():
        control, together = all(t.control for t in rows), list(ways.pop((src, dst[0]), {}).values())
        label = _size(together) if any(not t.control for t in together) else ""
        told = [f"{t.tensor}: {t.purpose}" + ("" if t.control else f", {_size([t])}") for t in rows]
        kind = "order" if control else "wire unknown" if any(t.bytes is None for t in rows) else "wire"
        share = _share(sum(t.bytes or 0 for t in rows), most, kind)
        found.append(Arrow(src, dst, label, kind, share, told, colour_of(numbers[src[0]])))
    return found


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


def _group(found: Inspection, shown: Condensed, device: str, group: str) -> Tile:
    ops = shown.groups[device][group]
    if len(ops) > 1:
        return Tile((device, group), [_clipped(f"{group} ({len(ops)})", 22)], "scope", [group, *ops[:20]])
    kind = found.nodes[ops[0]].op
    return Tile((device, group), [_clipped(ops[0], 22), _clipped(kind, 22)], "op", [ops[0], *found.why(ops[0])[1:]])


def _size(rows: list[Transfer]) -> str:
    sizes = [t.bytes for t in rows if not t.control]
    return "? B" if None in sizes else f"{sum(size or 0 for size in sizes):,} B{sum_note(rows)}"


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:8]}…{text[-(most - 9) :]}"
