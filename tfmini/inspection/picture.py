"""Writes an inspection as a Graphviz picture: a cluster of ops per task, and the transfers between the tasks."""

from __future__ import annotations

from tfmini.inspection.findings import Inspection
from tfmini.placement.wire_table import Transfer
from tfmini.printable import printable


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
