"""Formats the views of an inspection as terminal text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfmini.graph.op_types import ENTER_OPS
from tfmini.placement.decision import COLOCATED, DEFAULT, EXPLICIT, IGNORED, REFERENCE, SET_APART, SOFT_PLACEMENT
from tfmini.placement.task_graph import Route
from tfmini.placement.wire_table import Transfer, how_often
from tfmini.shapes import RawShape
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.findings import (
    GUESSED_CLUSTER,
    GUESSED_STEP,
    NOT_EXECUTABLE,
    REFUSED,
    DeviceSummary,
    Inspection,
    StepMessage,
    headline,
)
from tfmini.show.inspection.lint import balance
from tfmini.show.inspection.trace import milliseconds
from tfmini.terminal import IfWide, Rows, as_text, plain

_SURPRISE = {SOFT_PLACEMENT: 0, SET_APART: 0, IGNORED: 1, DEFAULT: 3, REFERENCE: 4, COLOCATED: 5, EXPLICIT: 6}
_ROWS = 40
_PARTY, _MESSAGE = 11, 28  # columns of the terminal: of a task in a diagram, and at least of the text of its messages
Links = Mapping[tuple[str, str], Sequence[Transfer]]


def view(found: Inspection, name: str, *, full: bool = False, ops: Sequence[str] = ()) -> RenderableType:
    """Returns one view: ``summary``, ``tasks``, ``wire``, ``why``, ``step`` or ``lint``.

    Args:
      full: show all rows, not only those that fit on a screen.
      ops: for ``why``: show only these.

    Raises:
      ValueError: there is no such view.
    """
    if name == "why":
        return _why(found, full, ops)
    if name not in _VIEWS:
        raise ValueError(f"There is no view {name!r}; the views are {', '.join([*_VIEWS, 'why'])}.")
    return _VIEWS[name](found, full)


def show(found: Inspection, name: str, *, full: bool = False, ops: Sequence[str] = (), width: int = 120) -> str:
    """`view` as plain text."""
    return as_text(view(found, name, full=full, ops=ops), width)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _flops(device: DeviceSummary) -> str:
    if device.flops is None:
        return "?"
    return f"{device.flops:,}{' + ?' if device.leaves_out_flops else ''}{' at most' if device.flops_at_most else ''}"


def _shape(shape: RawShape) -> str:
    return "?" if shape is None else f"[{','.join('?' if d is None else str(d) for d in shape)}]"


def _tasks(found: Inspection, full: bool, rows: int = _ROWS) -> RenderableType:
    more = () if found.measured is None else (">sent B", ">computed ms")
    table = Rows.of(
        "task", ">ops", ">variables", ">state B", ">FLOPs", ">sends B", ">receives B", *more,
        one_line=True, spare=("FLOPs", "variables", "ops"),
    )  # fmt: skip
    out, into = _by_device(found, "src"), _by_device(found, "dst")
    busy = [d for d in found.devices if d.ops or d.variables or d.device in out or d.device in into]
    shown = busy if full else busy[:rows]
    for device in shown:
        table.add_row(short(device.device), str(len(device.ops)), str(len(device.variables)),
                      _number(device.state_bytes), _flops(device), _bytes(out.get(device.device, ())),
                      _bytes(into.get(device.device, ())),
                      *_measured_task(found, device.device))  # fmt: skip
    notes = _named("more tasks (--full)", busy[len(shown) :])
    notes += _named("without a part in this client's step", [d for d in found.devices if d not in busy])
    ratio = balance(found)
    if ratio is not None:
        notes.append(f"state on the busiest ps / mean over the ps: {ratio:.2f}")
    if any(found.nodes[op].op in ENTER_OPS for d in shown for op in d.ops):
        notes.append("of each loop, the FLOPs and bytes are those of one iteration")
    return Group(table, *map(plain, notes))


def _by_device(found: Inspection, end: str) -> dict[str, list[Transfer]]:
    rows: dict[str, list[Transfer]] = {}
    for transfer in found.transfers:
        rows.setdefault(getattr(transfer, end), []).append(transfer)
    return rows


def _named(text: str, devices: Sequence[DeviceSummary]) -> list[str]:
    """A line with the names of tasks; no line if there are none."""
    names = [short(d.device) for d in devices]
    more = f" … {names[-1]}" if len(names) > 4 else ""
    return [f"{len(names)} {text}: {', '.join(names[:4])}{more}"] if names else []


def _measured_task(found: Inspection, device: str) -> list[str]:
    if found.measured is None:
        return []
    sent = found.measured.bytes_of(t for t in found.transfers if t.src == device)
    return [f"{sent:,}", milliseconds(found.measured.busy(device))]


def _bytes(rows: Sequence[Transfer], unit: str = "") -> str:
    unknown = sum(t.bytes is None for t in rows)
    return f"{sum(t.bytes or 0 for t in rows):,}" + (f" + {unknown} ?" if unknown else "") + unit + how_often(rows)


def _wire(found: Inspection, full: bool, rows: int = _ROWS) -> RenderableType:
    if not found.transfers:
        return plain("no transfers between devices")
    links = found.links()
    more = "" if full else "   (--full: also keys, producers and consumers)"
    sent = "".join(f"; {nbytes} B were sent" for nbytes in _measured_bytes(found, found.transfers))
    total = plain(f"all links: {_total(found.transfers)}{sent}{more}")
    if not full and 3 * len(links) > rows:
        return Group(_link_table(links, rows), total)
    each = 10**9 if full else max(1, rows // len(links) - 3)
    blocks: list[RenderableType] = []
    for (src, dst), members in links.items():
        blocks.append(plain(f"{short(src)} -> {short(dst)}: {_total(members)}", style="bold"))
        blocks.append(_transfers(found, members, each, full))
    return Group(*blocks, total)


def _link_table(links: Links, rows: int) -> RenderableType:
    """A table with a row per link, the busiest first, for steps with too many links to show their transfers."""
    table = Rows.of("from", "to", ">bytes", ">transfers", "mostly", one_line=True)
    ranked = sorted(links.items(), key=lambda item: -sum(t.bytes or 0 for t in item[1]))
    for (src, dst), members in ranked[:rows]:
        largest = max(members, key=lambda t: t.bytes or 0)
        table.add_row(short(src), short(dst), _bytes(members), str(len(members)), largest.purpose)
    if len(ranked) > rows:
        rest = [t for _, members in ranked[rows:] for t in members]
        table.add_row(f"… {len(ranked) - rows} more", "", _bytes(rest), str(len(rest)), "")
    return table


def _transfers(found: Inspection, members: Sequence[Transfer], each: int, full: bool) -> RenderableType:
    measured = (">sent B", ">in flight ms") if found.measured is not None else ()
    extra = ("producer", "consumers", "rendezvous key") if full else ()
    table = Rows.of("  tensor", "role", "dtype", "shape", ">bytes", *measured, *extra, one_line=not full)
    controls = [] if full else [t for t in members if t.control]
    shown = [t for t in members if full or not t.control]
    ranked = shown if full else sorted(shown, key=lambda t: -(t.bytes or 0))
    each += len(ranked) == each + 1  # the line that says "1 more" has room for it
    for t in ranked[:each]:
        more = (t.producer, ", ".join(t.consumers), t.key) if full else ()
        times = _measured_transfer(found, t)
        table.add_row(f"  {t.tensor}", t.purpose, t.dtype.name, _shape(t.shape), _number(t.bytes), *times, *more)
    rest = ranked[each:]
    if rest:
        table.add_row(f"  … {len(rest)} more", "", "", "", _bytes(rest), *_measured_bytes(found, rest))
    if controls:
        table.add_row(
            f"  {len(controls)} control edge(s)", "order only", "", "", "0", *_measured_bytes(found, controls)
        )
    return table


def _measured_bytes(found: Inspection, rows: Sequence[Transfer]) -> list[str]:
    return [] if found.measured is None else [f"{found.measured.bytes_of(rows):,}"]


def _measured_transfer(found: Inspection, t: Transfer) -> list[str]:
    if found.measured is None:
        return []
    sent = f"{found.measured.bytes_of([t]):,}" if found.measured.knows(t) else ""
    return [sent, milliseconds(found.measured.time_of(t))]


def _total(rows: Sequence[Transfer]) -> str:
    sent = [t for t in rows if t.route in (Route.SENT, Route.EXCHANGED)]
    messages = len({(t.src, t.dst, t.group) for t in sent}) + sum(t.messages - 1 for t in sent)
    within = sum(t.route is Route.INNER for t in rows)
    inside = len(rows) - len(sent) - within
    parts = [f"{len(sent)} in {messages} message(s)"] if sent else []
    parts += [f"{inside} inside RunGraph or its reply"] if inside else []
    parts += [f"{within} between devices of one task, not over the network"] if within else []
    return f"{', '.join(parts if sent or inside == 0 else ['no separate message', *parts])}, {_bytes(rows, ' B')}"


def _why(found: Inspection, full: bool, ops: Sequence[str]) -> RenderableType:
    names = list(ops) if ops else sorted(found.placement, key=lambda name: _surprise(found, name))
    table = Rows.of("op", "task", "-because", one_line=not (full or ops))
    for name in names if full or ops else names[:_ROWS]:
        device, *reasons = found.why(name)
        table.add_row(name, short(device), "; ".join(reasons))
    hidden = len(names) - _ROWS
    return table if full or ops or hidden <= 0 else Group(table, plain(f"… {hidden} more ops (--full)"))


def _surprise(found: Inspection, name: str) -> int:
    """The sort key of an op by its reasons: soft placement and ignored requests first, explicit requests last."""
    decision = found.placement[name]
    return min((_SURPRISE.get(reason.kind, 2) for reason in decision.reasons), default=9)


def _step(found: Inspection, full: bool) -> RenderableType:
    """A sequence diagram, or where the terminal is too narrow for its columns a list."""
    parties = list(dict.fromkeys(p for m in found.messages() for p in (m.src, m.dst)))
    listed = _step_list(found, full)
    if len(parties) > 8:
        return listed
    return IfWide(len(parties) * _PARTY + _MESSAGE, _diagram(found, full, parties), listed)


def _diagram(found: Inspection, full: bool, parties: Sequence[str]) -> RenderableType:
    """A line per message, a column per task."""
    messages, width = found.messages(), _PARTY
    header = "".join(short(p).ljust(width) for p in parties)
    lines = [plain(header, style="bold")]
    for number, message in enumerate(messages if full else messages[:_ROWS], 1):
        a, b = parties.index(message.src), parties.index(message.dst)
        text = f"{_arrow(a, b, len(parties), width)}{number}  {message.text}{_of_size(message)}"
        lines.append(plain(text, no_wrap=not full, overflow="fold" if full else "ellipsis"))
    return Group(*lines, *_hidden(messages, full))


def _arrow(a: int, b: int, parties: int, width: int) -> str:
    cells = list(" " * (parties * width))
    for i in range(parties):
        cells[i * width + 1] = "|"
    low, high = sorted((a * width + 1, b * width + 1))
    for i in range(low + 1, high):
        cells[i] = "-"
    cells[high - 1 if b > a else low + 1] = ">" if b > a else "<"
    return "".join(cells)


def _step_list(found: Inspection, full: bool) -> RenderableType:
    messages = found.messages()
    table = Rows.of("", "from", "to", "-message", ">bytes", one_line=not full)
    for number, m in enumerate(messages if full else messages[:_ROWS], 1):
        src, dst = (short(p) for p in (m.src, m.dst))
        count = f" in {m.count} messages" if m.count > 1 else ""
        table.add_row(str(number), src, dst, f"{m.text}{count}", _size(m))
    return Group(table, *_hidden(messages, full))


def _hidden(messages: Sequence[StepMessage], full: bool) -> list[Text]:
    hidden = 0 if full else len(messages) - _ROWS
    return [plain(f"… {hidden} more messages (--full)")] if hidden > 0 else []


def _of_size(message: StepMessage) -> str:
    size = _size(message)
    count = f"in {message.count} messages" if message.count > 1 else ""
    told = " ".join(filter(None, [size and f"{size} B", count]))
    return f" ({told})" if told else ""


def _size(message: StepMessage) -> str:
    """The bytes of tensors alone: the client's request and its answer have other sizes."""
    return _number(message.bytes) if message.transfers and message.bytes != 0 else ""


def _lint(found: Inspection, full: bool) -> RenderableType:
    if not found.warnings:
        return plain("no warnings")
    return Group(*(plain(f"{w.kind}: {w.text}", f"    {w.remedy}") for w in found.warnings))


def _summary(found: Inspection, full: bool) -> RenderableType:
    # What the tables are worth comes before them: a guess, or a graph that does not run.
    basis = [w for w in found.warnings if w.kind in (GUESSED_CLUSTER, GUESSED_STEP, REFUSED, NOT_EXECUTABLE)]
    kinds = Counter(w.kind for w in found.warnings if w not in basis)
    warned = ", ".join(f"{kind} ({count})" for kind, count in kinds.items())
    return Group(
        plain(headline(found), no_wrap=True, overflow="ellipsis"), *(plain(str(w)) for w in basis), plain(""),
        _tasks(found, full, _ROWS // 3),
        plain(""), _wire(found, full, 2 * _ROWS // 3), plain(""),
        plain(f"warnings: {warned} (see --view lint)" if warned else f"no {'other ' if basis else ''}warnings"),
    )  # fmt: skip


_VIEWS: dict[str, Callable[[Inspection, bool], RenderableType]] = {
    "summary": _summary,
    "tasks": _tasks,
    "wire": _wire,
    "step": _step,
    "lint": _lint,
}
VIEWS = (*_VIEWS, "why")
