"""`tfmini scale --ps N`: the number of ps of a running job that have variables.

A ps that is added gets groups of variables from the fullest ones. One that is drained gives all of its variables away;
its process stays, since it alone can tell those that come later where they are. It is never filled again: a later order
to have more ps adds another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfmini import errors
from tfmini.devices import parse
from tfmini.jobs import Job
from tfmini.launch.supervision import SERVICE_JOBS
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import load_keys
from tfmini.rpc.reactor import get_reactor
from tfmini.runtime.client.moving import Holding, Moved, VariableMover
from tfmini.runtime.process import current_process
from tfmini.runtime.worker.moved import VariableKey

Moves = dict[str, dict[VariableKey, str]]
"""Task that has variables -> variable -> the task that is to have it."""
_START_S = 120.0  # until a new ps serves
_LOOK_S = 0.1


@dataclass(frozen=True)
class VariableUnit:
    """Variables that move together. ``size``: in bytes."""

    keys: tuple[VariableKey, ...]
    size: int


def units_of(holding: Holding) -> list[VariableUnit]:
    """What a task can give away, the largest first."""
    left, found = dict(holding.sizes), list[VariableUnit]()
    for key in sorted(holding.sizes):
        if key not in left:
            continue
        keys, before = {key}, 0
        while len(keys) > before:
            before = len(keys)
            keys = keys.union(*(group for group in holding.groups if not keys.isdisjoint(group)))
        here = tuple(sorted(each for each in keys if each in left))
        size = sum(left.pop(each) for each in here)
        if keys.isdisjoint(holding.fixed):
            found.append(VariableUnit(here, size))
    return sorted(found, key=lambda unit: (-unit.size, unit.keys))


def balanced(holdings: Mapping[str, Holding], new: Iterable[str]) -> Moves:
    """Moves groups of variables to new tasks until no further one makes the fullest task emptier.

    Args:
      holdings: of all tasks, the new ones too.
    """
    loads = {task: sum(holding.sizes.values()) for task, holding in holdings.items()}
    targets, found = list(new), Moves()
    units = [(unit, task) for task, holding in holdings.items() if task not in targets for unit in units_of(holding)]
    for unit, task in sorted(units, key=lambda each: (-each[0].size, each[0].keys)):
        target = min(targets, key=lambda each: loads[each])
        if unit.size and loads[task] >= loads[target] + unit.size and loads[task] > sum(loads.values()) / len(loads):
            loads[task] -= unit.size
            loads[target] += unit.size
            found.setdefault(task, {}).update(dict.fromkeys(unit.keys, target))
    return found


def drained(holdings: Mapping[str, Holding], going: str) -> tuple[Moves, str]:
    """Moves all variables of a task to the others, the largest group to the emptiest one.

    Returns:
      The moves, and the task that gets whatever else names the drained one.
    """
    loads = {task: sum(holding.sizes.values()) for task, holding in holdings.items() if task != going}
    moves: dict[VariableKey, str] = {}
    for unit in units_of(holdings[going]):
        target = min(loads, key=lambda task: (loads[task], task))
        loads[target] += unit.size
        moves |= dict.fromkeys(unit.keys, target)
    return {going: moves}, min(loads, key=lambda task: (loads[task], task))


class PsScale:
    """The order to a job of `tfmini launch` to have another number of ps.

    Args:
      job: as it is now.
      find: the job again, with tasks that have joined it.
      start: asks the launcher for so many more ps; returns what it says.
    """

    def __init__(self, job: Job, find: Callable[[], Job | None], start: Callable[[int], str]) -> None:
        self._job, self._find, self._start = job, find, start
        keys = load_keys(job.key_file) if job.key_file else None
        endpoint = Endpoint(get_reactor(), "", current_process().randbits(62) | 1, keys=keys, lanes=False)
        self._mover = VariableMover(job.tasks, endpoint)
        self._endpoint = endpoint

    def close(self) -> None:
        """Ends its connections."""
        self._endpoint.close("has ended")

    def to(self, count: int) -> list[str]:
        """Adds or drains ps until so many have variables; returns lines about what was done.

        Raises:
          OpError: a task refuses, or does not answer.
        """
        holdings = self._mover.holdings(_services(self._job))
        here = [task for task, holding in holdings.items() if holding.forwarding.rest is None]
        if not here:
            raise errors.FailedPreconditionError.of("The job has no ps.")
        if len(here) == count:
            return [f"{count} ps have the variables already."]
        if len(here) < count:
            said = self._start(count - len(here))
            return [said, *self._fill(here, count - len(here))]
        return [line for going in reversed(here[count:]) for line in self._drain(here[: here.index(going) + 1], going)]

    def _fill(self, before: Sequence[str], count: int) -> list[str]:
        known = set(self._job.tasks)
        process = current_process()
        until = process.now() + _START_S
        new: list[str] = []
        while len(new) < count:
            job = self._find()
            if job is None or process.now() > until:
                raise errors.UnavailableError.of(f"The new ps have not started within {_START_S:g} s.")
            new = [task for task in _services(job) if task not in known]
            self._mover.learn(job.tasks)
            process.sleep(_LOOK_S)
        holdings = self._mover.holdings([*before, *new])
        return _lines(self._mover.move(balanced(holdings, new)), holdings)

    def _drain(self, tasks: Sequence[str], going: str) -> list[str]:
        holdings = self._mover.holdings(tasks)
        if holdings[going].others:
            raise errors.FailedPreconditionError.of(
                f"{_short(going)} has state that cannot move: {', '.join(holdings[going].others[:8])}. Only variables"
                " move; a ps with queues, accumulators, tables or iterators cannot be drained."
            )
        if holdings[going].fixed:
            names = sorted(name for _, name in holdings[going].fixed)
            raise errors.FailedPreconditionError.of(
                f"{_short(going)} has variables that cannot move: {', '.join(names[:8])}. They are colocated with state"
                " such as queues; a ps that has them cannot be drained."
            )
        moves, rest = drained(holdings, going)
        lines = _lines(self._mover.move(moves, rest), holdings)
        return [*lines, f"{_short(going)} is drained; its process stays, to tell who comes later where they are."]


def _services(job: Job) -> list[str]:
    found = [task for task in job.tasks if parse(task).job in SERVICE_JOBS]
    return sorted(found, key=lambda task: parse(task).task or 0)


def _short(task: str) -> str:
    found = parse(task)
    return f"{found.job}/{found.task}"


def _lines(moved: Moved, holdings: Mapping[str, Holding]) -> list[str]:
    sizes = {key[1]: size for holding in holdings.values() for key, size in holding.sizes.items()}
    lines = []
    for task in sorted(set(moved.places.values())):
        names = [name for name, place in moved.places.items() if place == task]
        size = sum(sizes.get(name, 0) for name in names)
        lines.append(f"moved {len(names)} variables ({size / 1e6:,.1f} MB) to {_short(task)}.")
    if moved.held_s:
        lines.append(f"steps that use them had to wait for {max(moved.held_s.values()):.2f} s at most.")
    return lines or ["no variable had to move."]
