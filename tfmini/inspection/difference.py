"""Compares two inspections: ops, devices and transfers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfmini.inspection.clusters import short
from tfmini.inspection.findings import Inspection


@dataclass(frozen=True)
class Difference:
    """The differences from one inspection to another.

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

    def lines(self) -> list[str]:
        """One line per change, with short names of devices."""
        lines = [f"+ {name}" for name in self.added] + [f"- {name}" for name in self.removed]
        lines += [f"~ {name}: {short(old)} -> {short(new)}" for name, old, new in self.moved]
        lines += [f"+ wire {tensor}: {short(src)} -> {short(dst)}" for tensor, src, dst in self.new_transfers]
        lines += [f"- wire {tensor}: {short(src)} -> {short(dst)}" for tensor, src, dst in self.gone_transfers]
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no difference"


def difference(before: Inspection | Mapping[str, Any], after: Inspection | Mapping[str, Any]) -> Difference:
    """Compares two placements of a graph, or two graphs; each is an inspection or the result of its ``to_json``.

    Raises:
      ValueError: a mapping is no inspection.
    """
    old, was = _read(before)
    new, now = _read(after)
    return Difference(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple((n, old[n], new[n]) for n in old if n in new and old[n] != new[n]),
        tuple(sorted(now - was)),
        tuple(sorted(was - now)),
    )


def _read(found: Inspection | Mapping[str, Any]) -> tuple[dict[str, str], set[tuple[str, str, str]]]:
    """Returns op -> device, and the transfers."""
    data = found.to_json() if isinstance(found, Inspection) else found
    try:
        devices = {name: str(decision["device"]) for name, decision in data["placement"].items()}
        return devices, {(str(t["tensor"]), str(t["src"]), str(t["dst"])) for t in data["transfers"]}
    except (KeyError, TypeError, AttributeError):
        raise ValueError("not the output of tfmini inspect --json: it has no placement and transfers.") from None
