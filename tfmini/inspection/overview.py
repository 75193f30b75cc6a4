"""The tasks of a step at a glance: what each of them sends and holds, which are alike, and which has too much to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfmini.devices import parse
from tfmini.inspection.clusters import group_label, short
from tfmini.inspection.findings import DeviceSummary, Inspection

OVERLOADED = 1.5
"""A task with so many times the mean traffic of its job has too much to do."""

_ALIKE = (0.1, 0.25, 0.5, 1.0)  # relative differences within a fold, until there are few enough folds
_MOST_FOLDS = 16


@dataclass(frozen=True)
class Load:
    """The work of one device in a step; bytes of unknown size count as 0.

    Attributes:
      device: full name.
      sends, receives: bytes.
    """

    device: str
    ops: int
    sends: int
    receives: int
    state_bytes: int
    flops: int

    @property
    def traffic(self) -> int:
        """Bytes sent and received."""
        return self.sends + self.receives

    @property
    def is_idle(self) -> bool:
        """Whether the device has no part in the step and holds no variable."""
        return not (self.ops or self.traffic or self.state_bytes)


@dataclass(frozen=True)
class Overview:
    """See the module.

    Attributes:
      loads: one per device, in the order of the inspection.
      links: (from, to) -> bytes; only pairs of devices that exchange something.
    """

    loads: tuple[Load, ...]
    links: dict[tuple[str, str], int]

    @cached_property
    def busy(self) -> list[Load]:
        """The devices with a part in the step, or with variables."""
        return [load for load in self.loads if not load.is_idle]

    @cached_property
    def busiest_link(self) -> tuple[str, str] | None:
        """The link with the most bytes."""
        return max(self.links, key=lambda link: self.links[link], default=None)

    @cached_property
    def overloaded(self) -> list[tuple[Load, float]]:
        """Tasks with `OVERLOADED` times the mean traffic of their job, with the factor, the busiest first."""
        found = [
            (load, load.traffic / mean)
            for members, mean in self._jobs()
            for load in members
            if mean and load.traffic >= OVERLOADED * mean
        ]
        return sorted(found, key=lambda item: -item[0].traffic)

    def _jobs(self) -> Iterator[tuple[list[Load], float]]:
        """The tasks of each job and their mean traffic. A ps without work counts; a worker has a client of its own."""
        jobs: dict[str, list[Load]] = {}
        for load in self.loads:
            job = parse(load.device).job or ""
            if job == "ps" or not load.is_idle:
                jobs.setdefault(job, []).append(load)
        yield from ((members, sum(load.traffic for load in members) / len(members)) for members in jobs.values())

    def folds(self) -> list[list[Load]]:
        """The devices in groups of those that are alike: of one job, and about the same bytes, state and FLOPs."""
        found: list[list[Load]] = []
        for tolerance in _ALIKE:
            found = _folds(self.loads, tolerance)
            if len(found) <= _MOST_FOLDS:
                break
        return found

    def sentences(self) -> list[str]:
        """What is worth knowing at first sight."""
        found = [
            f"{short(load.device)} is overloaded: it sends and receives {load.traffic:,} B, {factor:.1f} times the mean"
            f" of the job {parse(load.device).job}."
            for load, factor in self.overloaded[:3]
        ]
        if self.busiest_link is not None:
            src, dst = self.busiest_link
            nbytes = self.links[src, dst]
            others = sum(other == nbytes for other in self.links.values()) - 1
            as_many = f" ({others} other{'s have' if others > 1 else ' has'} as many)" if others else ""
            if nbytes:
                found.append(f"The busiest link is {short(src)} → {short(dst)}: {nbytes:,} B{as_many}.")
        idle = len(self.loads) - len(self.busy)
        if idle:
            found.append(f"{idle} task{'s have' if idle > 1 else ' has'} no part in this client's step.")
        return found


def fold_label(loads: Sequence[Load]) -> str:
    """``worker/0…7 ×8`` for tasks that are alike, ``worker/0`` for a single one."""
    if len(loads) == 1:
        return short(loads[0].device)
    places = [parse(load.device) for load in loads]
    return group_label(places[0].job or "", (place.task or 0 for place in places))


def overview(found: Inspection) -> Overview:
    """Sums up an inspection by device."""
    links: dict[tuple[str, str], int] = {}
    out: dict[str, int] = {}
    into: dict[str, int] = {}
    for transfer in found.transfers:
        nbytes = transfer.bytes or 0
        link = transfer.src, transfer.dst
        links[link] = links.get(link, 0) + nbytes
        out[transfer.src] = out.get(transfer.src, 0) + nbytes
        into[transfer.dst] = into.get(transfer.dst, 0) + nbytes
    loads = tuple(_load(d, out.get(d.device, 0), into.get(d.device, 0)) for d in found.devices)
    return Overview(loads, links)


def _load(d: DeviceSummary, sends: int, receives: int) -> Load:
    return Load(d.device, len(d.ops), sends, receives, d.state_bytes or 0, d.flops or 0)


def _folds(loads: Sequence[Load], tolerance: float) -> list[list[Load]]:
    found: list[list[Load]] = []
    for load in loads:
        fold = next((fold for fold in found if _alike(fold[0], load, tolerance)), None)
        if fold is None:
            found.append([load])
        else:
            fold.append(load)
    return found


def _alike(a: Load, b: Load, tolerance: float) -> bool:
    if parse(a.device).job != parse(b.device).job or bool(a.ops) != bool(b.ops):
        return False
    pairs = ((a.sends, b.sends), (a.receives, b.receives), (a.state_bytes, b.state_bytes), (a.flops, b.flops))
    return all(abs(x - y) <= tolerance * min(x, y) or max(x, y) <= 64 for x, y in pairs)
