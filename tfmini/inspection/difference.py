"""What differs between two inspections: ops, devices and transfers."""

from __future__ import annotations

from dataclasses import dataclass

from tfmini.inspection.findings import Inspection


@dataclass(frozen=True)
class Difference:
    """From one inspection to another.

    Attributes:
      added, removed: ops.
      moved: ops with their old and new device.
      new_transfers, gone_transfers: (tensor, source, destination).
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    moved: tuple[tuple[str, str, str], ...]
    new_transfers: tuple[tuple[str, str, str], ...]
    gone_transfers: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        lines = [f"+ {name}" for name in self.added] + [f"- {name}" for name in self.removed]
        lines += [f"~ {name}: {old} -> {new}" for name, old, new in self.moved]
        lines += [f"+ wire {tensor}: {src} -> {dst}" for tensor, src, dst in self.new_transfers]
        lines += [f"- wire {tensor}: {src} -> {dst}" for tensor, src, dst in self.gone_transfers]
        return "\n".join(lines) or "no difference"


def difference(before: Inspection, after: Inspection) -> Difference:
    """Compares two placements of a graph, or two graphs."""
    old, new = before.placement, after.placement
    was = {(t.tensor, t.src, t.dst) for t in before.transfers}
    now = {(t.tensor, t.src, t.dst) for t in after.transfers}
    return Difference(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple((n, old[n].device, new[n].device) for n in old if n in new and old[n].device != new[n].device),
        tuple(sorted(now - was)),
        tuple(sorted(was - now)),
    )
