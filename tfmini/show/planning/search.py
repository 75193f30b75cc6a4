"""Finds a good arrangement: a first guess, then local search on a cost function, within a number of trials.

The cost function may be slow and uneven (a simulation), so the search asks it for few candidates: the neighbours of an
arrangement are tried in the order of an estimate, the sum of squares of the tasks' loads. The same seed gives the same
result.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfmini.placement.device_setter import PlacementPlan
from tfmini.progress import work
from tfmini.show.planning.models import Arrangement, Cost, Item, Models, Problem, check_limits, no_room

# ---- First arrangements: by load, by memory, and those that a script gets without a plan ---------------------------

_MOST_TRIALS = 100_000  # of `packed`


def round_robin(problem: Problem) -> Arrangement:
    """Whole items in turn, in their order, as ``replica_device_setter`` does."""
    return Arrangement(tuple((i % len(problem.limits),) for i in range(len(problem.items))))


def greedy_by_bytes(problem: Problem, sizes: Sequence[int]) -> Arrangement:
    """Whole items in their order, each to the task with the fewest bytes so far, as ``GreedyLoadBalancingStrategy``.

    Args:
      sizes: the bytes that the strategy sees: those of the variables without their slots.
    """
    held, chosen = [0] * len(problem.limits), []
    for size in sizes:
        task = held.index(min(held))
        held[task] += size
        chosen.append((task,))
    return Arrangement(tuple(chosen))


def by_load(problem: Problem, cut: bool) -> Arrangement:
    """The longest processing time first: each item, the largest load first, to the least loaded task with room.

    Args:
      cut: cut items that are more than the fair share of one task.

    Raises:
      NoRoom: the items do not fit.
    """
    fair = sum(item.load_s for item in problem.items) / len(problem.limits)

    def pieces(item: Item) -> int:
        return min(item.most, math.ceil(item.load_s / fair - 1e-9)) if cut and fair and item.load_s > fair else 1

    return _filled(problem, pieces) or packed(problem)


def _filled(problem: Problem, pieces: Callable[[Item], int]) -> Arrangement | None:
    load, room = [0.0] * len(problem.limits), list(problem.limits)
    chosen: dict[str, tuple[int, ...]] = {}
    for item in sorted(problem.items, key=lambda item: (-item.load_s, -item.nbytes, item.name)):
        tasks = []
        for count in range(pieces(item), item.most + 1):
            tasks = _spread(item, count, load, room)
            if tasks:
                break
        if not tasks:
            return None
        for task in tasks:
            load[task] += item.load_s / len(tasks)
            room[task] -= item.nbytes / len(tasks)
        chosen[item.name] = tuple(sorted(tasks))
    return Arrangement(tuple(chosen[item.name] for item in problem.items))


def _spread(item: Item, count: int, load: list[float], room: list[float]) -> list[int]:
    """The tasks of an item's pieces; none if it does not fit."""
    load, room, tasks = load[:], room[:], []
    for _ in range(count):
        free = [t for t in range(len(load)) if room[t] >= item.nbytes / count]
        if not free:
            return []
        task = min(free, key=lambda t: (load[t], -room[t]))
        load[task] += item.load_s / count
        room[task] -= item.nbytes / count
        tasks.append(task)
    return tasks


def packed(problem: Problem) -> Arrangement:
    """An arrangement that fits, by trying: the largest items first, whole before cut.

    Raises:
      NoRoom: there is none, or none was found in a bounded number of trials.
    """
    check_limits(problem)
    order = sorted(range(len(problem.items)), key=lambda i: -problem.items[i].nbytes)
    chosen: dict[int, list[int]] = {}
    trials = 0

    def place(depth: int, room: list[float]) -> bool:
        nonlocal trials
        trials += 1
        if depth == len(order):
            return True
        if trials > _MOST_TRIALS:
            return False
        for tasks in _choices(problem.items[order[depth]], room):
            left = room[:]
            for task in tasks:
                left[task] -= problem.items[order[depth]].nbytes / len(tasks)
            chosen[order[depth]] = tasks
            if place(depth + 1, left):
                return True
        return False

    if not place(0, list(problem.limits)):
        raise no_room(problem)
    return Arrangement(tuple(tuple(sorted(chosen[i])) for i in range(len(problem.items))))


def _choices(item: Item, room: list[float]) -> Iterator[list[int]]:
    """Ways to place an item that fit: whole on each task, then one spread for each number of pieces."""
    seen = set()
    for task in sorted(range(len(room)), key=lambda t: room[t]):
        if room[task] >= item.nbytes and room[task] not in seen:  # tasks with equal room are equal
            seen.add(room[task])
            yield [task]
    for count in range(2, item.most + 1):
        tasks = _spread(item, count, [-r for r in room], room)
        if tasks:
            yield tasks


# ---- The local search from a first arrangement ---------------------------------------------------------------------

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
    first = [by_load(problem, cut=True), by_load(problem, cut=False), *starts]
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


# ---- All arrangements of a small problem: the reference for `search` -----------------------------------------------


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


# ---- `propose`: the whole of `tfmini place` but its output ---------------------------------------------------------

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
        "round robin": round_robin(models.problem),
        "greedy by bytes": greedy_by_bytes(models.problem, models.sizes),
    }


def _on_fewer(models: Models, ps: int, trials: int, seed: int) -> float:
    """The predicted seconds with the first ``ps`` only."""
    items = tuple(replace(item, most=min(item.most, ps)) for item in models.problem.items)
    fewer = replace(models.problem, items=items, limits=models.problem.limits[:ps])
    try:
        return models.exact(best_of(fewer, models.cost, max(trials, 2), seed, []).best)
    except ValueError:  # they do not fit
        return math.inf
