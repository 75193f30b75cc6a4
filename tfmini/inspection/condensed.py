"""Collapses the name scopes of a step, so that a picture of it fits on one page."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmini.inspection.findings import Inspection
from tfmini.placement.wire_table import Transfer

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
