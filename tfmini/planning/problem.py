"""What a search for a placement decides: items that go to tasks, in pieces or whole, and ops that move.

Nothing here knows graphs or predictors; the cost of an arrangement is a function that the search is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfmini.status.sizes import size


@dataclass(frozen=True)
class Item:
    """What goes to a task together: a variable with its slots and all that is colocated with them.

    Attributes:
      name: of its first variable.
      nbytes: bytes of state.
      load_s: how many seconds of a step it keeps its task busy, roughly; it guides the search.
      most: into how many pieces it may be cut; 1: it stays whole.
      whole_because: why it must stay whole, for errors.
    """

    name: str
    nbytes: int
    load_s: float
    most: int = 1
    whole_because: str = ""


@dataclass(frozen=True)
class Arrangement:
    """A candidate.

    Attributes:
      tasks: for each item the tasks of its pieces, in ascending order; one task for an item that is whole.
      moved: the ops that move.
    """

    tasks: tuple[tuple[int, ...], ...]
    moved: frozenset[str] = frozenset()

    @property
    def cuts(self) -> int:
        """How many pieces there are beyond one per item."""
        return sum(len(tasks) - 1 for tasks in self.tasks)

    def with_item(self, index: int, tasks: Sequence[int]) -> Arrangement:
        """The same with other tasks for one item."""
        changed = (*self.tasks[:index], tuple(sorted(tasks)), *self.tasks[index + 1 :])
        return Arrangement(changed, self.moved)


Cost = Callable[[Arrangement], float]


@dataclass(frozen=True)
class Problem:
    """Items, and the tasks that they may go to.

    Attributes:
      limits: the bytes of state that each task may hold; infinite for no limit.
      moves: the ops that may move.
      alike: whether tasks of equal limits may be exchanged for one another without a change of the cost.
    """

    items: tuple[Item, ...]
    limits: tuple[float, ...]
    moves: tuple[str, ...] = ()
    alike: bool = True

    @property
    def tasks(self) -> range:
        """The numbers of the tasks."""
        return range(len(self.limits))

    def memory(self, arrangement: Arrangement) -> list[float]:
        """The bytes of state of each task; pieces are equal."""
        return self._shares(arrangement, [item.nbytes for item in self.items])

    def loads(self, arrangement: Arrangement) -> list[float]:
        """The seconds that the items keep each task busy, roughly."""
        return self._shares(arrangement, [item.load_s for item in self.items])

    def _shares(self, arrangement: Arrangement, sizes: Sequence[float]) -> list[float]:
        found = [0.0] * len(self.limits)
        for whole, tasks in zip(sizes, arrangement.tasks):
            for task in tasks:
                found[task] += whole / len(tasks)
        return found

    def fits(self, arrangement: Arrangement) -> bool:
        """Whether no task holds more than its limit."""
        return all(held <= limit for held, limit in zip(self.memory(arrangement), self.limits))

    def canonical(self, arrangement: Arrangement) -> Arrangement:
        """The same for all arrangements that differ only in the names of tasks that are alike."""
        if not self.alike or len(set(self.limits)) > 1:
            return arrangement
        names: dict[int, int] = {}
        for tasks in arrangement.tasks:
            for task in tasks:
                names.setdefault(task, len(names))
        return Arrangement(
            tuple(tuple(sorted(names[t] for t in tasks)) for tasks in arrangement.tasks), arrangement.moved
        )


class NoRoom(ValueError):
    """The items do not fit within the limits; the text names what does not fit."""


def check_room(problem: Problem) -> None:
    """Raises NoRoom if the items cannot fit for a reason that is easy to see."""
    largest = max(problem.limits)
    for item in problem.items:
        if item.nbytes / item.most > largest:
            why = (
                f"cannot be cut: {item.whole_because}" if item.most == 1 else f"is cut into {item.most} pieces at most"
            )
            raise NoRoom(
                f"{item.name} has {size_text(item.nbytes)} of state, a ps may hold {size_text(largest)}, and it {why}."
            )
    total, room = sum(item.nbytes for item in problem.items), sum(problem.limits)
    if total > room:
        raise NoRoom(
            f"The variables have {size_text(total)} of state with their slots, but the {len(problem.limits)} ps may"
            f" hold {size_text(room)} together. The largest are {_named(problem.items)}. Give more ps, or more memory."
        )


def no_room(problem: Problem) -> NoRoom:
    """The error of items for which no way to make them fit was found."""
    limits = ", ".join(size_text(limit) for limit in sorted(set(problem.limits)))
    return NoRoom(
        f"No placement was found that leaves each of the {len(problem.limits)} ps within its memory ({limits})."
        f" The largest variables are {_named(problem.items)}. Give more ps, or more memory."
    )


def _named(items: Sequence[Item]) -> str:
    largest = sorted(items, key=lambda item: -item.nbytes)[:3]
    return ", ".join(f"{item.name} ({size_text(item.nbytes)})" for item in largest)


def size_text(nbytes: float) -> str:
    """``1.5 GB``, with powers of 1,000; ``any size`` for infinity."""
    return "any size" if math.isinf(nbytes) else size(nbytes)
