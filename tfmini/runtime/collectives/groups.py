"""The members of groups of devices that compute collectives: the leader's table, and the order of the ring."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tfmini import errors
from tfmini.devices import parse
from tfmini.rpc.messages import CollectiveGroup

Respond = Callable[[Any], Any]


class GroupLeader:
    """The table of one task, the leader: it answers all members at once when a group is complete.

    A group that has answered is forgotten; a member that joins again (after a failure) begins the next *epoch*, with
    a new number, so that messages of the old epoch cannot be mistaken for those of the new one.

    Args:
      addresses: task -> ``host:port``, for the order of the ring.
      randbits: makes random numbers of so many bits.
    """

    def __init__(self, addresses: Mapping[str, str], randbits: Callable[[int], int]) -> None:
        self._addresses = addresses
        self._randbits = randbits
        self._joining: dict[int, dict[str, tuple[int, str, Respond, int]]] = {}
        self._lock = threading.Lock()

    def join(
        self, group_key: int, group_size: int, device: str, place: str, respond: Respond, steps: int = -1
    ) -> None:  # fmt: skip
        """A device joins; ``respond`` gets a `CollectiveGroup` or an `OpError`, now or later.

        Args:
          steps: see `CollectiveJoin`. Members that have finished different numbers of steps get an error.
        """
        with self._lock:
            joining = self._joining.setdefault(group_key, {})
            replaced = joining.get(device)
            joining[device] = group_size, place, respond, steps
            sizes = {name: size for name, (size, *_) in joining.items()}
            places = {name: where for name, (_, where, *_) in joining.items()}
            finished = {name: count for name, (*_, count) in joining.items() if count >= 0}
            complete = len(joining) >= group_size or len(set(sizes.values())) > 1
            if complete:
                del self._joining[group_key]
        if replaced is not None:
            text = f"{device} has joined collective group {group_key} again."
            replaced[2](errors.CancelledError.of(text, derived=True))
        if complete:
            answer = self._answer(group_key, sizes, places, finished)
            for _, _, waiting, _ in joining.values():
                waiting(answer)

    def withdraw(self, group_key: int, device: str, respond: Respond) -> None:
        """A device that has joined by this ``respond`` no longer waits; no-op when it has been answered."""
        with self._lock:
            joining = self._joining.get(group_key, {})
            is_waiting = device in joining and joining[device][2] is respond
            if is_waiting:
                del joining[device]
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
        if len(set(finished.values())) > 1:
            return steps_differ(group_key, finished)
        members = tuple(ring_order(sizes, self._addresses))
        ordered = tuple(places[device] for device in members)
        return CollectiveGroup(self._randbits(60) | 1, members, ordered, max(finished.values(), default=0))

    def present(self, group_key: int) -> list[str]:
        """The devices that have joined a group which is not complete yet."""
        with self._lock:
            return sorted(self._joining.get(group_key, ()))

    def lost(self, task: str) -> None:
        """Forgets the devices of a task that has gone."""
        with self._lock:
            for group_key, joining in list(self._joining.items()):
                for device in [d for d in joining if d.startswith(f"{task}/")]:
                    del joining[device]
                if not joining:
                    del self._joining[group_key]


def steps_differ(group_key: int, finished: Mapping[str, int]) -> errors.OpError:
    """The error of devices that have finished different numbers of steps when they form a group again."""
    said = ", ".join(f"{device} has finished {count}" for device, count in sorted(finished.items()))
    return errors.FailedPreconditionError.of(
        f"The members of collective group {group_key} are not at the same step: {said}. A failure reached some of them"
        " before they had the result of a step and others after it, so their variables differ. Broadcast the variables"
        " again (the hook of AllReduceOptimizer.make_session_run_hook does so in each new session; in a Horovod script"
        " hvd.BroadcastGlobalVariablesHook), or restart all members from one checkpoint."
    )


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
    for job in ("chief", "master", "worker"):
        for task in ordered:
            if parse(task).job == job:
                return task
    return ordered[0]
