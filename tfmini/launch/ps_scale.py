"""`tfmini scale --ps N`: the number of ps of a running job that have variables.

A ps that is added gets groups of variables from the fullest ones: a ps that is full ends the job, and bytes do not
depend on the moment, as loads do. `tfmini place --live` goes by loads (`tfmini.show.planning.live`). One that is
drained gives all of its variables away; its process stays, since it alone can tell those that come later where they
are. It is never filled again: a later order to have more ps adds another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tfmini import errors
from tfmini.devices import parse
from tfmini.jobs import Job
from tfmini.launch.supervision import SERVICE_JOBS
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import load_keys
from tfmini.rpc.reactor import get_reactor
from tfmini.runtime.client.variable_mover import MoveResult, TaskVariables, VariableMover
from tfmini.runtime.process import current_process
from tfmini.runtime.worker.departures import VariableKey
from tfmini.show.status.explanation import short

Moves = dict[str, dict[VariableKey, str]]
"""Task that has variables -> variable -> the task that is to have it."""
_START_S = 120.0  # until a new ps serves
_LOOK_S = 0.1


def balanced(variables: Mapping[str, TaskVariables], new: Iterable[str]) -> Moves:
    """Moves groups of variables to new tasks until no further one makes the fullest task emptier.

    Args:
      variables: of all tasks, the new ones too.
    """
    loads = {task: sum(there.sizes.values()) for task, there in variables.items()}
    targets, found = list(new), Moves()
    units = [(unit, task) for task, there in variables.items() if task not in targets for unit in there.units()]
    for unit, task in sorted(units, key=lambda each: (-each[0].size, each[0].keys)):
        target = min(targets, key=lambda each: loads[each])
        if unit.size and loads[task] > loads[target] + unit.size and loads[task] > sum(loads.values()) / len(loads):
            loads[task] -= unit.size
            loads[target] += unit.size
            found.setdefault(task, {}).update(dict.fromkeys(unit.keys, target))
    return found


def drained(variables: Mapping[str, TaskVariables], going: str) -> tuple[Moves, str]:
    """Moves all variables of a task to the others, the largest group to the emptiest one.

    Returns:
      The moves, and the task that gets whatever else names the drained one.
    """
    loads = {task: sum(there.sizes.values()) for task, there in variables.items() if task != going}
    moves: dict[VariableKey, str] = {}
    for unit in variables[going].units():
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
        variables = self._mover.variables(_services(self._job))
        here = [task for task, there in variables.items() if there.forwarding.rest is None]
        if not here:
            raise errors.FailedPreconditionError.of("The job has no ps.")
        if len(here) > count:
            return [
                line for going in reversed(here[count:]) for line in self._drain(here[: here.index(going) + 1], going)
            ]
        empty = [task for task in here if not variables[task].sizes]  # perhaps since an order before has failed
        if len(here) == count and not empty:
            return [f"{count} ps have the variables already."]
        said = [self._start(count - len(here))] if len(here) < count else []
        new = self._started(count - len(here))
        variables = self._mover.variables([*here, *new])
        moved = moved_lines(self._mover.move(balanced(variables, [*empty, *new])), variables)
        return [*said, *moved, f"the ps share their bytes; by what they do: tfmini place --live {self._job.name}"]

    def _started(self, count: int) -> list[str]:
        """So many tasks, once they have joined the job."""
        known = set(self._job.tasks)
        process = current_process()
        until = process.now() + _START_S
        new: list[str] = []
        while len(new) < count:
            job = self._find()
            if job is None:
                raise errors.UnavailableError.of("The job has ended.")
            if process.now() > until:
                raise errors.UnavailableError.of(
                    f"{count - len(new)} of {count} new ps have not started within {_START_S:g} s; the output of the"
                    " launcher says why. All that are there get variables when the order is given again."
                )
            new = [task for task in _services(job) if task not in known]
            self._mover.learn(job.tasks)
            process.sleep(_LOOK_S)
        return new

    def _drain(self, tasks: Sequence[str], going: str) -> list[str]:
        variables = self._mover.variables(tasks)
        if variables[going].others:
            raise errors.FailedPreconditionError.of(
                f"{short(going)} has state that cannot move: {', '.join(variables[going].others[:8])}. Only variables"
                " move; a ps with queues, accumulators, tables or iterators cannot be drained."
            )
        if variables[going].fixed:
            names = sorted(name for _, name in variables[going].fixed)
            raise errors.FailedPreconditionError.of(
                f"{short(going)} has variables that cannot move: {', '.join(names[:8])}. They are colocated with state"
                " such as queues; a ps that has them cannot be drained."
            )
        moves, rest = drained(variables, going)
        lines = moved_lines(self._mover.move(moves, rest), variables)
        return [*lines, f"{short(going)} is drained; its process stays, to tell who comes later where they are."]


def _services(job: Job) -> list[str]:
    found = [task for task in job.tasks if parse(task).job in SERVICE_JOBS]
    return sorted(found, key=lambda task: parse(task).task or 0)


def moved_lines(moved: MoveResult, variables: Mapping[str, TaskVariables]) -> list[str]:
    """What a move has done, for people."""
    sizes = {key[1]: size for there in variables.values() for key, size in there.sizes.items()}
    lines = []
    for task in sorted(set(moved.places.values())):
        names = [name for name, place in moved.places.items() if place == task]
        size = sum(sizes.get(name, 0) for name in names)
        lines.append(f"moved {len(names)} variables ({size / 1e6:,.1f} MB) to {short(task)}.")
    if moved.held_s:
        lines.append(f"steps that use them had to wait for {max(moved.held_s.values()):.2f} s at most.")
    return lines or ["no variable had to move."]
