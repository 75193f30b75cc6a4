"""The ledger of synchronous training: per step, the workers whose gradients were applied or dropped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfmini.graph.scoping import device
from tfmini.ops.queues import accumulator_ops


@dataclass(frozen=True)
class SyncStep:
    """The numbers of gradients of one global step; a worker sends one gradient per variable.

    Attributes:
      step: the global step before the update.
      applied: contributor -> number of its gradients in the update.
      stale: contributor -> number of its gradients that were dropped during this step because they were late.
      waiting: contributor -> number of its gradients that were accepted for an update that has not happened yet.
    """

    step: int
    applied: Mapping[str, int]
    stale: Mapping[str, int]
    waiting: Mapping[str, int]


@dataclass(frozen=True)
class SyncLedger:
    """The state of all gradients that have arrived at the parameter servers.

    A computed gradient that is neither applied nor stale was lost: it waits in an accumulator for an update
    that will not happen, or it did not arrive because its worker or the run ended. So
    ``produced = applied + stale + lost``, where ``produced`` is the number of gradients that workers computed.

    Attributes:
      steps: summed over the variables, oldest first; in very long runs the oldest steps are discarded.
      by_variable: variable's op name -> steps of this variable.
      applied, stale, waiting: totals, including the discarded steps.
    """

    steps: tuple[SyncStep, ...]
    by_variable: Mapping[str, tuple[SyncStep, ...]]
    applied: int
    stale: int
    waiting: int

    @property
    def arrived(self) -> int:
        """The number of gradients that have arrived at their accumulators."""
        return self.applied + self.stale + self.waiting

    def contributors(self, step: int) -> dict[str, int]:
        """Contributor -> number of its gradients in the update of a global step."""
        return dict(next((s.applied for s in self.steps if s.step == step), {}))

    def dropped(self) -> dict[str, int]:
        """Contributor -> number of its gradients that were dropped as stale, over all steps."""
        return dict(sum((Counter(s.stale) for s in self.steps), Counter()))

    @staticmethod
    def from_json(found: Mapping[str, bytes]) -> SyncLedger:
        """Builds the ledger from the accumulators' JSON texts: variable's op name -> text."""
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
    """Variable's op name -> op that reads its ledger; added at the first call, even to a finalized graph.

    Args:
      accumulators: triples (name of the variable's op, accumulator, device).
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
