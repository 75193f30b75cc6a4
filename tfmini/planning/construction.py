"""First arrangements: by load, by memory, and those that a script gets without a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tfmini.planning.problem import Arrangement, Item, Problem, check_room, no_room

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
    check_room(problem)
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
