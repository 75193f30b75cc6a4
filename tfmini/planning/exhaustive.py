"""All arrangements of a small problem: the reference for `search`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tfmini.planning.problem import Arrangement, Cost, Problem, no_room
from tfmini.planning.search import SearchResult


def arrangements(problem: Problem) -> Iterator[Arrangement]:
    """All that fit; of those that differ only in the names of tasks that are alike, one."""
    seen = set()
    choices = [_ways(problem, item.most) for item in problem.items]
    subsets = [
        frozenset(some) for k in range(len(problem.moves) + 1) for some in itertools.combinations(problem.moves, k)
    ]
    for tasks in itertools.product(*choices):
        for moved in subsets:
            key = problem.canonical(Arrangement(tasks, moved))
            if key not in seen and problem.fits(key):
                seen.add(key)
                yield key


def _ways(problem: Problem, most: int) -> list[tuple[int, ...]]:
    return [tasks for k in range(1, most + 1) for tasks in itertools.combinations_with_replacement(problem.tasks, k)]


def count(problem: Problem) -> int:
    """At most how many arrangements there are, without those that do not fit or are alike."""
    ways = math.prod(len(_ways(problem, item.most)) for item in problem.items)
    return int(ways * 2 ** len(problem.moves))


def exhaustive(problem: Problem, cost: Cost) -> SearchResult:
    """The arrangement of the least cost of all.

    Raises:
      NoRoom: none fits.
    """
    known = [(cost(arrangement), index, arrangement) for index, arrangement in enumerate(arrangements(problem))]
    if not known:
        raise no_room(problem)
    least, _, best = min(known)
    return SearchResult(best, least, len(known))
