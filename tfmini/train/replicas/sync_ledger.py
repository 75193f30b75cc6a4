"""The ledger of synchronous training: per step, who contributed and whose gradients were dropped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfmini.ops import accumulator_ops
from tfmini.ops.scoping import device


@dataclass(frozen=True)
class SyncStep:
    """One global step, in gradients (a worker sends one per variable).

    Attributes:
      step: the global step that the gradients were meant to advance.
      applied: contributor -> how many of its gradients are in the update.
      stale: contributor -> how many of its gradients came too late and were dropped during this step.
      waiting: contributor -> how many were accepted, while the update has not happened (yet).
    """

    step: int
    applied: Mapping[str, int]
    stale: Mapping[str, int]
    waiting: Mapping[str, int]


@dataclass(frozen=True)
class SyncLedger:
    """What became of all gradients that have reached the parameter servers.

    A gradient that was computed but is neither applied nor stale was lost: it waits in an accumulator for
    an update that nobody will make, or it never arrived because its worker or the run ended. So for the
    number of gradients that the workers produced: ``produced = applied + stale + lost``.

    Attributes:
      steps: oldest first, summed over the variables; the oldest of very long runs are forgotten.
      by_variable: the same for each variable, by the name of its op.
      applied, stale, waiting: totals, including the forgotten steps.
    """

    steps: tuple[SyncStep, ...]
    by_variable: Mapping[str, tuple[SyncStep, ...]]
    applied: int
    stale: int
    waiting: int

    @property
    def arrived(self) -> int:
        """How many gradients have reached their accumulators."""
        return self.applied + self.stale + self.waiting

    def contributors(self, step: int) -> dict[str, int]:
        """Whose gradients, and how many, the update of a global step used."""
        return dict(next((s.applied for s in self.steps if s.step == step), {}))

    def dropped(self) -> dict[str, int]:
        """Whose gradients were dropped as stale, and how many, over all steps."""
        return dict(sum((Counter(s.stale) for s in self.steps), Counter()))

    @staticmethod
    def from_json(found: Mapping[str, bytes]) -> SyncLedger:
        """The ledger from what the accumulators answer, by the name of their variable."""
        plain = {name: json.loads(text) for name, text in found.items()}
        by_variable = {name: _steps([ledger]) for name, ledger in plain.items()}
        forgotten: Counter[str] = sum((Counter(ledger["forgotten"]) for ledger in plain.values()), Counter())
        steps = _steps(plain.values())

        def total(kind: str) -> int:
            return forgotten[kind] + sum(sum(getattr(s, kind).values()) for s in steps)

        return SyncLedger(steps, by_variable, total("applied"), total("stale"), total("waiting"))

    def __str__(self) -> str:
        lines = [f"{'step':>8}  applied / stale / waiting"]
        lines += [
            f"{s.step:>8}  {_names(s.applied)}"
            + (f" / stale: {_names(s.stale)}" if s.stale else "")
            + (f" / waiting: {_names(s.waiting)}" if s.waiting else "")
            for s in self.steps
        ]
        lines.append(f"   total  {self.applied} applied, {self.stale} stale, {self.waiting} waiting")
        return "\n".join(lines)


@dataclass
class _Sums:
    applied: Counter[str] = field(default_factory=Counter)
    stale: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)


def _steps(ledgers: Any) -> tuple[SyncStep, ...]:
    sums: dict[int, _Sums] = {}
    for ledger in ledgers:
        for entry in ledger["entries"]:
            found = sums.setdefault(entry["step"], _Sums())
            (found.applied if entry["taken"] else found.waiting).update(entry["accepted"])
            found.stale.update(entry["stale"])
    return tuple(SyncStep(step, dict(s.applied), dict(s.stale), dict(s.waiting)) for step, s in sorted(sums.items()))


def _names(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{who or 'unnamed'} {n}" for who, n in sorted(counts.items())) or "-"


def ledger_ops(accumulators: Sequence[tuple[str, Any, str]]) -> dict[str, Any]:
    """The ops that read the ledgers, by variable; they are added to the graph at the first call, finalized or not.

    Args:
      accumulators: (name of the variable, accumulator, device).
    """
    graph = accumulators[0][1].accumulator_ref.graph
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        return {name: _ledger_op(graph, accumulator, place) for name, accumulator, place in accumulators}
    finally:
        if finalized:
            graph.finalize()


def _ledger_op(graph: Any, accumulator: Any, place: str) -> Any:
    made = getattr(accumulator, "_ledger_op", None)
    if made is None:
        with graph.as_default(), device(place):
            is_resource = accumulator.accumulator_ref.dtype.base_dtype.name == "resource"
            read = accumulator_ops.ledger if is_resource else accumulator_ops.ledger_v1
            made = accumulator._ledger_op = read(accumulator.accumulator_ref, name="ledger")
    return made
