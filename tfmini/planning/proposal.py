"""`propose`: the whole of `tfmini place` but its output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tfmini.placement.plans import PlacementPlan
from tfmini.planning import construction
from tfmini.planning.exhaustive import count, exhaustive
from tfmini.planning.models import Models
from tfmini.planning.problem import Arrangement, Problem
from tfmini.planning.search import NEARLY, SearchResult, search
from tfmini.progress import work

_ENOUGH = 1.02  # fewer ps are enough if the step is at most this much slower


@dataclass(frozen=True)
class Proposal:
    """A proposed placement.

    Attributes:
      problem, arrangement: what was decided.
      plan: the same for `tfmini.placement.plan`.
      step_s: the predicted seconds of a step.
      others: name of another placement -> its predicted seconds; None where it does not fit or does not exist.
      by_ps: number of ps -> predicted seconds of the best placement on the first ones; infinite where it does not fit.
      trials: how many placements were predicted.
    """

    problem: Problem
    arrangement: Arrangement
    plan: PlacementPlan
    step_s: float
    others: Mapping[str, float | None]
    by_ps: Mapping[int, float]
    trials: int

    @property
    def enough(self) -> int:
        """The least number of ps with which a step is nearly as fast."""
        best = min(self.by_ps.values())
        return min(ps for ps, seconds in self.by_ps.items() if seconds <= best * _ENOUGH)


def propose(models: Models, *, trials: int = 300, seed: int = 0, described: Mapping[str, object]) -> Proposal:
    """Searches for a placement.

    Args:
      trials: how many placements to predict, beside those for fewer ps.
      seed: the same seed gives the same proposal.
      described: what the prediction is for, for the plan's file.

    Raises:
      NoRoom: the variables do not fit.
    """
    problem = models.problem
    with work(f"trying placements of {len(problem.items)} variables on {len(problem.limits)} ps"):
        others = _others(models)
        found = best_of(problem, models.cost, trials, seed, [start for start in others.values() if start is not None])
        steps = {name: None if start is None else models.exact(start) for name, start in others.items()}
        best, step_s = found.best, models.exact(found.best)
        for name, start in others.items():  # the search does not see what `exact` sees
            seconds = steps[name]
            if start is not None and seconds is not None and problem.fits(start) and seconds < step_s:
                best, step_s = start, seconds
        by_ps = {ps: _on_fewer(models, ps, trials // 8, seed) for ps in range(1, len(problem.limits))}
    figures = {"step_s": step_s, **{_key(name): seconds for name, seconds in steps.items()}, **described}
    by_ps[len(problem.limits)] = step_s
    return Proposal(problem, best, models.plan(best, figures), step_s, steps, by_ps, found.trials)


def _key(name: str) -> str:
    """The name of a figure in a plan's file: ``round_robin_s``."""
    return f"{name.removeprefix('the ').replace(chr(39), '').replace(' ', '_')}_s"


def best_of(
    problem: Problem, cost: Callable[[Arrangement], float], trials: int, seed: int, starts: list[Arrangement]
) -> SearchResult:
    """Tries all arrangements if they are few, else searches."""
    if count(problem) <= trials:
        return _plainest(problem, cost)
    return search(problem, cost, trials=trials, seed=seed, starts=starts)


def _plainest(problem: Problem, cost: Callable[[Arrangement], float]) -> SearchResult:
    """Of all arrangements that are nearly the best, one with the fewest cuts and moves."""
    known: dict[Arrangement, float] = {}

    def kept(arrangement: Arrangement) -> float:
        known[arrangement] = cost(arrangement)
        return known[arrangement]

    least = exhaustive(problem, kept).cost
    near = [arrangement for arrangement, seconds in known.items() if seconds <= least * (1 + NEARLY)]
    best = min(near, key=lambda arrangement: (arrangement.cuts + len(arrangement.moved), known[arrangement]))
    return SearchResult(best, known[best], len(known))


def _others(models: Models) -> dict[str, Arrangement | None]:
    return {
        "the script's own": models.own(),
        "round robin": construction.round_robin(models.problem),
        "greedy by bytes": construction.greedy_by_bytes(models.problem, models.sizes),
    }


def _on_fewer(models: Models, ps: int, trials: int, seed: int) -> float:
    """The predicted seconds with the first ``ps`` only."""
    items = tuple(replace(item, most=min(item.most, ps)) for item in models.problem.items)
    fewer = replace(models.problem, items=items, limits=models.problem.limits[:ps])
    try:
        return models.exact(best_of(fewer, models.cost, max(trials, 2), seed, []).best)
    except ValueError:  # they do not fit
        return math.inf
