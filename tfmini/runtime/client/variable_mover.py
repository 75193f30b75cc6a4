"""``tf.move_variables``: asks the tasks of a running cluster to give variables to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfmini import errors
from tfmini.devices import parse
from tfmini.export import export
from tfmini.rpc import messages as m
from tfmini.rpc.calls import CallHandle
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.fan_out import fan_out, first_error
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.client.master_clients import client_endpoint
from tfmini.runtime.master.following import VariableGroup, closed_under
from tfmini.runtime.process import address_of_target, current_process
from tfmini.runtime.worker.departures import Forwarding, VariableKey, key_from_wire

_ANSWER_S = 30.0
_LOOK_S = 5.0  # for a look at what an attempt has done
_PAUSE_S = 0.2  # between two attempts
_MOST_SEARCH_S = 600.0  # of an attempt
_MOVE_S = 180.0  # a task needs no longer, besides the wait for steps that do not end: `runtime.moving` has its limits


@dataclass(frozen=True)
class VariableUnit:
    """Variables that move together. ``size``: in bytes."""

    keys: tuple[VariableKey, ...]
    size: int


@dataclass(frozen=True)
class TaskVariables:
    """The variables of a task.

    Attributes:
      sizes: variable -> its bytes.
      groups: what must stay together.
      others: what else is there and cannot move.
      forwarding: what has moved away.
    """

    sizes: Mapping[VariableKey, int]
    groups: Sequence[VariableGroup]
    others: Sequence[str]
    forwarding: Forwarding

    @property
    def fixed(self) -> set[VariableKey]:
        """Those that cannot move."""
        return {key for group in self.groups if group.fixed for key in group.keys}

    def units(self) -> list[VariableUnit]:
        """What the task can give away, the largest first."""
        left, found = dict(self.sizes), list[VariableUnit]()
        for key in sorted(self.sizes):
            if key not in left:
                continue
            keys = closed_under([key], self.groups)
            here = tuple(sorted(keys & left.keys()))
            size = sum(left.pop(each) for each in here)
            if keys.isdisjoint(self.fixed):
                found.append(VariableUnit(here, size))
        return sorted(found, key=lambda unit: (-unit.size, unit.keys))


@dataclass(frozen=True)
class MoveResult:
    """What `VariableMover.move` has done.

    Attributes:
      places: name of a variable -> the task that has it now.
      held_s: how long steps that use the variables could not begin, of each task that gave some away.
    """

    places: Mapping[str, str]
    held_s: Mapping[str, float]


class VariableMover:
    """Moves variables of a running cluster.

    Args:
      tasks: full task name -> address.
      endpoint: default: that of this process's clients.
    """

    def __init__(self, tasks: Mapping[str, str], endpoint: Endpoint | None = None) -> None:
        self._tasks = dict(tasks)
        self._endpoint = endpoint or client_endpoint()

    @staticmethod
    def at(target: str) -> VariableMover:
        """That of the cluster of a target.

        Raises:
          UnavailableError, DeadlineExceededError: it does not answer.
        """
        endpoint = client_endpoint()
        found = _answers(endpoint, {"": (endpoint.peer(address_of_target(target)), m.GetTaskStatus(False))}, _ANSWER_S)
        return VariableMover({str(task): str(address) for task, address in dict(found[""].tasks).items()}, endpoint)

    def tasks(self) -> list[str]:
        """The full names of the tasks that it knows."""
        return list(self._tasks)

    def learn(self, tasks: Mapping[str, str]) -> None:
        """Notes the addresses of further tasks."""
        self._tasks |= tasks

    def variables(self, tasks: Iterable[str], timeout_s: float = _ANSWER_S) -> dict[str, TaskVariables]:
        """The variables of tasks, in their order.

        Raises:
          OpError: a task does not answer.
        """
        asked = {task: (self._peer(task), m.ListVariables()) for task in tasks}
        answers = _answers(self._endpoint, asked, timeout_s)
        return {task: _variables(answers[task]) for task in asked}

    def move(
        self, places: Mapping[str, Mapping[VariableKey, str]], rest: str = "", timeout_s: float = 60.0
    ) -> MoveResult:
        """Moves variables, with all that is colocated with them.

        Args:
          places: task that has variables -> variable -> the task that is to have it.
          rest: the tasks that have the variables are drained, and this one gets whatever else names them.
          timeout_s: how often it is tried, while steps do not end.

        Raises:
          OpError: it is refused, or steps do not end. What one task gives away moves as a whole or not at all.
        """
        found: dict[str, str] = {}
        held_s: dict[str, float] = {}
        for task, wanted in places.items():
            if wanted or rest:
                reply = self._move_from(task, wanted, rest, timeout_s)
                found |= {name: new for _, name, new in reply.moved}
                held_s[task] = reply.held_ms / 1000
        return MoveResult(found, held_s)

    def _move_from(self, task: str, wanted: Mapping[VariableKey, str], rest: str, timeout_s: float) -> Any:
        process = current_process()
        until = process.now() + timeout_s
        targets = {*wanted.values(), *([rest] if rest else ())}
        tasks = [[each, self._address(each)] for each in sorted(targets)]
        failure: errors.OpError | None = None
        while failure is None or process.now() < until:
            try:
                left = wanted if failure is None else self._left(task, wanted, rest)
                if left is None:
                    return m.MoveVariablesReply(_done(wanted, {}), 0)
                rows = [[*key, new] for key, new in sorted(left.items())]
                search_s = min(max(0.0, until - process.now()), _MOST_SEARCH_S)
                request = m.MoveVariables(rows, tasks, rest, round(1000 * search_s))
                reply = _answers(self._endpoint, {task: (self._peer(task), request)}, search_s + _MOVE_S)[task]
                return m.MoveVariablesReply([*_done(wanted, left), *reply.moved], reply.held_ms)
            except (errors.DeadlineExceededError, errors.AbortedError, errors.UnavailableError) as error:
                failure = error
            process.sleep(_PAUSE_S)
        with suppress(errors.OpError):  # it would say less than the failure
            if self._left(task, wanted, rest) is None:
                return m.MoveVariablesReply(_done(wanted, {}), 0)
        raise failure

    def _left(self, task: str, wanted: Mapping[VariableKey, str], rest: str) -> Mapping[VariableKey, str] | None:
        """Those that have not moved; None: all is done, by an attempt whose answer was lost."""
        forwarding = self.variables([task], _LOOK_S)[task].forwarding
        left = _not_at(wanted, forwarding)
        is_drained = forwarding.rest is not None and forwarding.rest.task == rest
        return left if left or rest and not is_drained else None

    def _address(self, task: str) -> str:
        if task not in self._tasks:
            known = ", ".join(sorted(self._tasks))
            raise errors.InvalidArgumentError.of(f"{task} is not in the cluster, whose tasks are {known}.")
        return self._tasks[task]

    def _peer(self, task: str) -> Any:
        return self._endpoint.peer(self._address(task), task)


def _not_at(wanted: Mapping[VariableKey, str], forwarding: Forwarding) -> dict[VariableKey, str]:
    """Those that have not moved to the task that is to have them."""
    at = {key: place.task for key, place in forwarding.moved.items()}
    return {key: task for key, task in wanted.items() if at.get(key) != task}


def _done(wanted: Mapping[VariableKey, str], left: Mapping[VariableKey, str]) -> list[list[str]]:
    """The rows of those that have moved in an earlier attempt."""
    return [[*key, task] for key, task in sorted(wanted.items()) if key not in left]


def _answers(endpoint: Endpoint, asked: Mapping[str, tuple[Any, m.Message]], timeout_s: float) -> dict[str, Any]:
    """The answers of several peers; raises the first error."""
    waiter = Waiter()
    calls: list[CallHandle] = []
    found: dict[str, Any] = {}

    def done(outcomes: dict[str, Any]) -> None:
        found.update(outcomes)
        waiter.set()

    def ask(peer: Any, request: m.Message, answered: Any) -> None:
        calls.append(peer.call(request, answered, timeout_s, wait_for_ready=True))

    try:
        fan_out({key: _begin(ask, *pair) for key, pair in asked.items()}, done)
        if not waiter.done:
            endpoint.reactor.drive(waiter)
    except BaseException:  # Ctrl-C: what nobody waits for must not go on
        for call in calls:
            call.cancel()
        raise
    error = first_error(found)
    if error is not None:
        raise error
    return found


def _begin(ask: Any, peer: Any, request: m.Message) -> Any:
    return lambda answered: ask(peer, request, answered)


def _variables(answer: m.ListVariablesReply) -> TaskVariables:
    return TaskVariables(
        {key_from_wire(row): int(row[2]) for row in answer.variables},
        [VariableGroup.from_wire(group) for group in answer.groups],
        answer.others,
        Forwarding.from_wire(answer.forwarding),
    )


@export("tf.move_variables")
def move_variables(target: str, places: Mapping[str, str], timeout_s: float = 60.0) -> dict[str, str]:
    """Moves variables of a running cluster from task to task, while its sessions go on.

    No step begins that uses one of them while they move; those that run end first. What is colocated with a variable,
    such as the slots of an optimizer, moves with it. Each session goes on without an error, with the variables where
    they are then; one that is opened later finds them, too.

    Args:
      target: of any server of the cluster.
      places: the name of each variable -> the task that is to have it, such as ``/job:ps/task:1``. It has to be of the
        same job as the task that has the variable now.
      timeout_s: for so long it is tried again while steps do not end.

    Returns:
      The full name of the new task of each variable that has moved. What is at its place already is not among them.

    Raises:
      NotFoundError: no task of the job has a variable of that name.
      FailedPreconditionError: something that is colocated with a variable cannot move, such as a queue.
      DeadlineExceededError: steps that use the variables do not end; the message says which.
      UnavailableError: a task cannot be reached.
    """
    mover = VariableMover.at(target)
    wanted = {name: _full(task) for name, task in places.items()}
    jobs = {parse(task).job for task in wanted.values()}
    found = mover.variables(task for task in mover.tasks() if parse(task).job in jobs)
    moves: dict[str, dict[VariableKey, str]] = {}
    missing = set(wanted)
    for task, variables in found.items():
        for key in variables.sizes:
            if key[1] in wanted:
                missing.discard(key[1])
                if wanted[key[1]] != task:
                    moves.setdefault(task, {})[key] = wanted[key[1]]
    if missing:
        names = ", ".join(sorted(missing))
        raise errors.NotFoundError.of(f"No task of {', '.join(sorted(map(str, jobs)))} has a variable {names}.")
    return dict(mover.move(moves, timeout_s=timeout_s).places)


def _full(task: str) -> str:
    try:
        found = parse(task)
    except ValueError as error:
        raise errors.InvalidArgumentError.of(str(error)) from None
    if found.job is None or found.task is None:
        raise errors.InvalidArgumentError.of(f"{task!r} names no task; write it as /job:ps/task:1.")
    return found._replace(replica=found.replica or 0).task_name
