"""Finds a good arrangement: a first guess, then local search on a cost function, within a number of trials.

The cost function may be slow and uneven (a simulation), so the search asks it for few candidates: the neighbours of an
arrangement are tried in the order of an estimate, the sum of squares of the tasks' loads. The same seed gives the same
result.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tfmini.planning import construction
from tfmini.planning.problem import Arrangement, Cost, Problem

_GAIN = 1e-3  # a smaller relative gain is none
NEARLY = 5e-3  # what a plan with fewer cuts and moves may be slower
_NEAR = 24  # neighbours tried in the order of their estimate, before some at random
_AT_RANDOM = 8
_KICKS = 3  # random changes that leave a local optimum


@dataclass
class SearchResult:
    """The result of a search: the best arrangement, its cost, and how many arrangements were tried."""

    best: Arrangement
    cost: float
    trials: int


@dataclass
class _Tries:
    """Asks the cost of each arrangement once, and keeps the best one."""

    problem: Problem
    cost: Cost
    left: int
    known: dict[Arrangement, float] = field(default_factory=dict)
    best: Arrangement | None = None

    def of(self, arrangement: Arrangement) -> float:
        key = self.problem.canonical(arrangement)
        found = self.known.get(key)
        if found is None:
            self.left -= 1
            found = self.known[key] = self.cost(key)
            if self.best is None or found < self.known[self.best]:
                self.best = key
        return found


def search(
    problem: Problem, cost: Cost, *, trials: int = 300, seed: int = 0, starts: Iterable[Arrangement] = ()
) -> SearchResult:
    """Searches for the arrangement of the least cost.

    Args:
      cost: seconds of an arrangement; infinite for one that is impossible.
      trials: how often it may ask for a cost.
      starts: further arrangements to begin with, such as the one that a script has.

    Raises:
      NoRoom: the items do not fit within the limits.
    """
    tries = _Tries(problem, cost, trials)
    first = [construction.by_load(problem, cut=True), construction.by_load(problem, cut=False), *starts]
    allowed = [start for start in first if problem.fits(start)]
    costs = [tries.of(start) for start in allowed]
    rng = random.Random(seed)
    current = allowed[costs.index(min(costs))]
    while tries.left > 0:
        current = _descend(problem, tries, current, rng)
        assert tries.best is not None
        before = tries.left
        current = _kicked(problem, tries.best, rng)
        tries.of(current)
        if tries.left == before and not _unknown_remain(problem, tries):
            break
    return _simplified(problem, tries)


def _unknown_remain(problem: Problem, tries: _Tries) -> bool:
    """Whether the neighbourhood of the best has an arrangement that was not tried."""
    assert tries.best is not None
    return any(problem.canonical(near) not in tries.known for near in neighbours(problem, tries.best))


def _descend(problem: Problem, tries: _Tries, current: Arrangement, rng: random.Random) -> Arrangement:
    """Goes to better neighbours until none of those tried is better."""
    cost = tries.of(current)
    while tries.left > 0:
        for near in _in_order(problem, current, rng):
            found = tries.of(near)
            if found < cost * (1 - _GAIN):
                current, cost = near, found
                break
            if tries.left <= 0:
                return current
        else:
            return current
    return current


def _in_order(problem: Problem, current: Arrangement, rng: random.Random) -> list[Arrangement]:
    """Neighbours to try: changes of moves, the best ones by estimate, some at random."""
    near = list(neighbours(problem, current))
    rng.shuffle(near)
    moves = [n for n in near if n.moved != current.moved]
    placed = sorted((n for n in near if n.moved == current.moved), key=lambda n: _estimate(problem, n))
    rest = placed[_NEAR:]
    return moves + placed[:_NEAR] + rng.sample(rest, min(_AT_RANDOM, len(rest)))


def _estimate(problem: Problem, arrangement: Arrangement) -> float:
    return sum(load * load for load in problem.loads(arrangement))


def neighbours(problem: Problem, current: Arrangement) -> Iterator[Arrangement]:
    """The arrangements that fit and differ by one change: a piece on another task, two items exchanged, an item in one
    piece more or fewer, an op moved or not."""
    for changed in itertools.chain(
        _relocated(problem, current), _exchanged(current), _recut(problem, current), _moves(problem, current)
    ):
        if changed != current and problem.fits(changed):
            yield changed


def _relocated(problem: Problem, current: Arrangement) -> Iterator[Arrangement]:
    for index, tasks in enumerate(current.tasks):
        for piece in range(len(tasks)):
            if piece and tasks[piece] == tasks[piece - 1]:
                continue
            for task in problem.tasks:
                if task != tasks[piece]:
                    yield current.with_item(index, (*tasks[:piece], task, *tasks[piece + 1 :]))


def _exchanged(current: Arrangement) -> Iterator[Arrangement]:
    for (i, first), (j, second) in itertools.combinations(enumerate(current.tasks), 2):
        if first != second:
            yield current.with_item(i, second).with_item(j, first) if len(first) == len(second) else current


def _recut(problem: Problem, current: Arrangement) -> Iterator[Arrangement]:
    for index, tasks in enumerate(current.tasks):
        if len(tasks) < problem.items[index].most:
            for task in problem.tasks:
                yield current.with_item(index, (*tasks, task))
            even = itertools.islice(itertools.cycle(problem.tasks), problem.items[index].most)
            yield current.with_item(index, list(even))
        if len(tasks) > 1:
            for piece in range(len(tasks)):
                yield current.with_item(index, tasks[:piece] + tasks[piece + 1 :])


def _moves(problem: Problem, current: Arrangement) -> Iterator[Arrangement]:
    for op in problem.moves:
        yield Arrangement(current.tasks, current.moved ^ {op})


def _kicked(problem: Problem, current: Arrangement, rng: random.Random) -> Arrangement:
    for _ in range(_KICKS):
        near = list(neighbours(problem, current))
        if near:
            current = rng.choice(near)
    return current


def _simplified(problem: Problem, tries: _Tries) -> SearchResult:
    """Undoes cuts and moves of the best arrangement that gain next to nothing."""
    assert tries.best is not None
    best, limit = tries.best, tries.known[tries.best] * (1 + NEARLY)
    if limit < float("inf"):
        tries.left = max(tries.left, 2 * (best.cuts + len(best.moved)))  # so that a spent budget does not prevent it
        best = _simplest(problem, tries, best, limit)
    return SearchResult(best, tries.of(best), len(tries.known))


def _simplest(problem: Problem, tries: _Tries, best: Arrangement, limit: float) -> Arrangement:
    for index in range(len(best.tasks)):
        while len(best.tasks[index]) > 1 and tries.left > 0:
            fewer = [best.with_item(index, best.tasks[index][:-1]), best.with_item(index, best.tasks[index][1:])]
            good = [near for near in fewer if problem.fits(near) and tries.of(near) <= limit]
            if not good:
                break
            best = good[0]
    for op in sorted(best.moved):
        without = Arrangement(best.tasks, best.moved - {op})
        if tries.left > 0 and tries.of(without) <= limit:
            best = without
    return best
