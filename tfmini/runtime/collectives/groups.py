"""The members of groups of devices that compute collectives: the leader's table, and the order of the ring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.devices import parse
from tfmini.locks import lock
from tfmini.rpc.messages import CollectiveGroup

Respond = Callable[[Any], Any]
PARTIAL = -2  # in place of the number of finished steps: a device has some results of a step and not the others
UNTOLD_MS = 6000  # when a rank has waited so long in a group, the leader has told all its members, or never will


RANK_JOBS = ("chief", "master", "worker")
"""The jobs whose tasks are ranks, that of the leader first."""
SETTLE_S = 5.0
"""Seconds that a group which may be smaller waits for the members that are missing."""


class _Joined(NamedTuple):
    """What a member has said that waits for its group; see `GroupLeader.join`."""

    size: int
    place: str
    respond: Respond
    steps: int
    least: int


class GroupLeader:
    """The table of one task, the leader: it answers all members at once when a group is complete.

    A group that has answered is forgotten; a member that joins again (after a failure) begins the next *epoch*, with
    a new number, so that messages of the old epoch cannot be mistaken for those of the new one.

    An *elastic* group may also be complete with fewer members than its size: with at least so many as its members say,
    among them the leader itself, once the leader has waited `SETTLE_S` for the others. So members that come while
    the group is at work wait until the leader joins again, and form no group of their own.

    Args:
      addresses: task -> ``host:port``, for the order of the ring.
      randbits: makes random numbers of so many bits.
      task: the leader's.
      call_later: (seconds, function, arguments…): the clock, for elastic groups.
    """

    def __init__(
        self, addresses: Mapping[str, str], randbits: Callable[[int], int], task: str = "",
        call_later: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self._addresses = addresses
        self._randbits = randbits
        self._task, self._call_later = task, call_later
        self._joining: dict[int, dict[str, _Joined]] = {}
        self._settling: dict[int, Any] = {}  # by elastic group: the timer; None when its time is over
        self._lock = lock("groups")

    def join(
        self, group_key: int, group_size: int, device: str, place: str, respond: Respond, steps: int = -1,
        least: int = 0,
    ) -> None:  # fmt: skip
        """A device joins; ``respond`` gets a `CollectiveGroup` or an `OpError`, now or later.

        Args:
          steps: see `CollectiveJoin`. Members that have finished different numbers of steps get an error.
          least: with how many members an elastic group may begin; 0: it is not elastic.
        """
        with self._lock:
            joining = self._joining.setdefault(group_key, {})
            replaced = joining.get(device)
            joining[device] = _Joined(group_size, place, respond, steps, least)
            if least and self._is_own(device) and group_key not in self._settling and self._call_later is not None:
                self._settling[group_key] = self._call_later(SETTLE_S, self._settled, group_key)
            complete = self._take_complete(group_key)
        if replaced is not None:
            text = f"{device} has joined collective group {group_key} again."
            replaced.respond(errors.CancelledError.of(text, derived=True))
        self._tell(group_key, complete)

    def _is_own(self, device: str) -> bool:
        return bool(self._task) and device.startswith(f"{self._task}/")

    def _settled(self, group_key: int) -> None:
        """An elastic group need not wait any longer for the members that are missing."""
        with self._lock:
            if group_key in self._settling:
                self._settling[group_key] = None
            complete = self._take_complete(group_key)
        self._tell(group_key, complete)

    def _take_complete(self, group_key: int) -> Mapping[str, _Joined]:
        """Takes out a group if all its members are there, or enough of them. The caller holds the lock."""
        joining = self._joining.get(group_key, {})
        differ = len({joined.size for joined in joining.values()}) > 1
        if not joining or not (differ or self._has_enough(group_key, joining)):
            return {}
        self._stop_settling(group_key)
        return self._joining.pop(group_key)

    def _tell(self, group_key: int, joining: Mapping[str, _Joined]) -> None:
        """Answers the members of a group."""
        if not joining:
            return
        sizes = {name: joined.size for name, joined in joining.items()}
        places = {name: joined.place for name, joined in joining.items()}
        finished = {name: joined.steps for name, joined in joining.items() if joined.steps != -1}
        answer = self._answer(group_key, sizes, places, finished)
        for joined in joining.values():
            joined.respond(answer)

    def _has_enough(self, group_key: int, joining: Mapping[str, _Joined]) -> bool:
        if len(joining) >= max(joined.size for joined in joining.values()):
            return True
        least = max(joined.least for joined in joining.values())
        is_settled = group_key in self._settling and self._settling[group_key] is None
        return 0 < least <= len(joining) and is_settled and any(map(self._is_own, joining))

    def _stop_settling(self, group_key: int) -> None:
        timer = self._settling.pop(group_key, None)
        if timer is not None:
            timer.cancel()

    def withdraw(self, group_key: int, device: str, respond: Respond) -> None:
        """A device that has joined by this ``respond`` no longer waits; no-op when it has been answered."""
        with self._lock:
            joining = self._joining.get(group_key, {})
            is_waiting = device in joining and joining[device].respond is respond
            if is_waiting:
                del joining[device]
                if self._is_own(device):
                    self._stop_settling(group_key)
                if not joining:
                    del self._joining[group_key]
        if is_waiting:
            text = f"{device} no longer waits for collective group {group_key}: its step has ended."
            respond(errors.CancelledError.of(text, derived=True))

    def _answer(
        self, group_key: int, sizes: Mapping[str, int], places: Mapping[str, str], finished: Mapping[str, int]
    ) -> Any:
        if len(set(sizes.values())) > 1:
            said = ", ".join(f"{device} says {size}" for device, size in sorted(sizes.items()))
            text = f"The members of collective group {group_key} do not agree on its group_size: {said}."
            return errors.InvalidArgumentError.of(text)
        if len(set(finished.values())) > 1 or PARTIAL in finished.values():
            return steps_differ(group_key, finished, sorted(sizes.keys() - finished.keys()))
        members = tuple(ring_order(sizes, self._addresses))
        ordered = tuple(places[device] for device in members)
        return CollectiveGroup(self._randbits(60) | 1, members, ordered, max(finished.values(), default=0))

    def present(self, group_key: int) -> list[str]:
        """The devices that have joined a group which is not complete yet."""
        return sorted(self._joining.get(group_key, ()))

    def all_present(self) -> list[str]:
        """The devices that wait for any group."""
        return [device for joining in list(self._joining.values()) for device in list(joining)]


def steps_differ(group_key: int, finished: Mapping[str, int], others: Sequence[str] = ()) -> errors.OpError:
    """The error of devices that have finished different numbers of steps when they form a group again.

    Args:
      others: devices whose number is not known, as after a restart.
    """
    said = ", ".join(
        [f"{device} {_reached(count)}" for device, count in sorted(finished.items())]
        + [f"{device} begins anew" for device in others]
    )
    return errors.FailedPreconditionError.of(
        f"The members of collective group {group_key} are not at the same step: {said}. A failure reached some of them"
        " before they had a result of a step and others after it, so their variables may differ. Broadcast the"
        " variables again (the hook of AllReduceOptimizer.make_session_run_hook does so in each new session; in a"
        " Horovod script hvd.BroadcastGlobalVariablesHook), or restart all members from one checkpoint."
    )


def _reached(count: int) -> str:
    return "has the results of a part of a step" if count == PARTIAL else f"has finished {count}"


def untold(task: str, leader: str) -> errors.OpError:
    """The error of a member that does not know its group although others wait for it there."""
    return errors.UnavailableError.of(
        f"{task} was not told that its collective group is complete: the answer of the leader, {leader}, got lost when"
        " a connection broke or a task ended. The members join again at their next call.", task=leader,
    )  # fmt: skip


def canonical(device: str) -> tuple[Any, ...]:
    """Sorts devices by job, task and number."""
    spec = parse(device)
    return spec.job, spec.replica, spec.task, spec.device_type, spec.device_index


def ring_order(devices: Any, addresses: Mapping[str, str]) -> list[str]:
    """Devices of one host stand side by side, so that the ring crosses each pair of hosts as rarely as it can."""
    ordered = sorted(devices, key=canonical)
    hosts: dict[str, None] = {}
    host_of = {}
    for device in ordered:
        task = device[: device.index("/device:")]
        host_of[device] = addresses.get(task, "").rpartition(":")[0]
        hosts.setdefault(host_of[device])
    position = {host: i for i, host in enumerate(hosts)}
    return sorted(ordered, key=lambda device: position[host_of[device]])


def default_leader(tasks: Mapping[str, str]) -> str:
    """The task that leads when no ``collective_group_leader`` is given: the chief, else the first worker."""
    ordered = sorted(tasks, key=lambda task: canonical(f"{task}/device:CPU:0"))
    for job in RANK_JOBS:
        for task in ordered:
            if parse(task).job == job:
                return task
    return ordered[0]
