"""The groups of devices that compute collectives, and the calls that their members make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfmini import errors
from tfmini.collectives import schedules
from tfmini.collectives.schedules import Fingerprint
from tfmini.collectives.shared_reduce import fingerprint_text
from tfmini.devices import parse
from tfmini.graph.node import Node
from tfmini.graph.op_types import Wait, trait_of
from tfmini.locks import lock
from tfmini.rpc import messages as m
from tfmini.rpc.messages import CollectiveGroup
from tfmini.rpc.send_queue import POOL_FROM, RECEIVE_BUFFERS

# ---- The groups of devices that compute collectives: the leader's table of their members, and the order of the ring

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
    incarnation: str


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
        least: int = 0, incarnation: int = 0,
    ) -> None:  # fmt: skip
        """A device joins; ``respond`` gets a `CollectiveGroup` or an `OpError`, now or later.

        Args:
          steps: see `CollectiveJoin`. Members that have finished different numbers of steps get an error.
          least: with how many members an elastic group may begin; 0: it is not elastic.
          incarnation: of the device's server.
        """
        with self._lock:
            joining = self._joining.setdefault(group_key, {})
            replaced = joining.get(device)
            joining[device] = _Joined(group_size, place, respond, steps, least, hexadecimal(incarnation))
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
        places = {name: (joined.place, joined.incarnation) for name, joined in joining.items()}
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
        self, group_key: int, sizes: Mapping[str, int], places: Mapping[str, tuple[str, str]],
        finished: Mapping[str, int],
    ) -> Any:  # fmt: skip
        if len(set(sizes.values())) > 1:
            said = ", ".join(f"{device} says {size}" for device, size in sorted(sizes.items()))
            text = f"The members of collective group {group_key} do not agree on its group_size: {said}."
            return errors.InvalidArgumentError.of(text)
        if len(set(finished.values())) > 1 or PARTIAL in finished.values():
            return steps_differ(group_key, finished, sorted(sizes.keys() - finished.keys()))
        members = tuple(ring_order(sizes, self._addresses))
        ordered, incarnations = zip(*(places[device] for device in members))
        steps = max(finished.values(), default=0)
        return CollectiveGroup(self._randbits(60) | 1, members, ordered, steps, incarnations)

    def present(self, group_key: int) -> list[str]:
        """The devices that have joined a group which is not complete yet."""
        return sorted(self._joining.get(group_key, ()))

    def all_present(self) -> list[str]:
        """The devices that wait for any group."""
        return [device for joining in list(self._joining.values()) for device in list(joining)]


def hexadecimal(incarnation: int) -> str:
    """As `CollectiveGroup` has an incarnation; "" for 0, which is none."""
    return f"{incarnation:016x}" if incarnation else ""


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


# ---- What all runs of a node share, and one call -------------------------------------------------------------------

_REMEMBERED_NODES = 10_000
BEGINS = "_collective_begins"
"""An attr of the collectives with which a group begins anew."""
LEAST = "_collective_least"
"""An attr of the collectives of an elastic group: with how many members it may begin."""


@dataclass(frozen=True)
class About:
    """The common part of all calls of a node for values of one shape.

    Attributes:
      device: of the op, which is a member of the group.
      fingerprint: without a step; ``text``: as stages show it.
      cause: the event that the call waits for, for people.
      reduction: (merge op, final op) of an all-reduce.
      pieces: the least number of pieces that each chunk travels in.
      begins: whether the members may have come from different steps: it gives them the same variables.
      least: with how many members the group may begin, if it is elastic; else 0.
    """

    device: str
    group_key: int
    group_size: int
    instance: int
    fingerprint: Fingerprint
    text: bytes
    cause: str
    reduction: tuple[str, str] | None
    pieces: int
    begins: bool
    least: int

    @property
    def is_named(self) -> bool:
        """Whether the ranks find each other by a name, in whichever order and steps they call their collectives."""
        return bool(self.fingerprint.name)


class CollectiveCall:
    """One run of a collective op; ``value`` is None where it only receives, ``splits`` are those of an all-to-all."""

    __slots__ = ("wait", "about", "value", "splits", "instance", "node")

    def __init__(self, wait: Wait, about: About, node: Node, value: Any, splits: Any = None) -> None:
        self.wait, self.about, self.value, self.splits, self.node = wait, about, value, splits, node
        self.instance = about.instance

    def describe(self) -> str:
        """For people."""
        about = self.about
        name = f' of "{about.fingerprint.name}"' if about.fingerprint.name else ""
        return f"collective {about.fingerprint.op}{name} ({_place(about)})"

    def schedule(self, rank: int, members: list[str]) -> Any:
        """The schedule by messages, for the members in the order of the ring.

        Raises:
          InvalidArgumentError: when the value does not have the shape that the node says, or not the splits.
        """
        return _SCHEDULES[trait_of(self.node.op, "collective")](self, self.node, rank, members)


class Calls:
    """Makes calls, and keeps the common parts of their nodes.

    Args:
      most_ranks: the number of devices of a session without a cluster; None where there is a cluster.
    """

    def __init__(self, most_ranks: int | None) -> None:
        self._most_ranks = most_ranks
        self._known: dict[int, tuple[Node, Any, About]] = {}

    def make(self, wait: Wait, node: Node, value: Any, splits: Any = None) -> CollectiveCall:
        """The call that a node stands for.

        Raises:
          InvalidArgumentError: when its group has more ranks than a session without a cluster has devices.
        """
        if value is not None and type(value) is not np.ndarray:
            value = np.asarray(value)
        shape = None if value is None else value.shape
        known = self._known.get(id(node))
        if known is None or known[0] is not node or known[1] != shape:
            if len(self._known) >= _REMEMBERED_NODES:
                self._known.clear()
            known = self._known[id(node)] = node, shape, _about(node, shape)
            if self._most_ranks is not None and known[2].group_size > self._most_ranks:
                raise errors.InvalidArgumentError.of(_alone(known[2], self._most_ranks))
        return CollectiveCall(wait, known[2], node, value, splits)


def _place(about: About) -> str:
    return f"group {about.group_key}" + ("" if about.is_named else f", instance {about.instance}")


def duplicate(call: CollectiveCall, who: str) -> errors.OpError:
    """The error of a call while another one of the same name is under way on this rank, as in Horovod."""
    return errors.InvalidArgumentError.of(
        f"Duplicate name: {who} has called the {call.describe()} while an earlier call of that name is under way. The"
        " ranks find each other by names, so each name may be in use once at a time: give this collective a name of its"
        " own, or run it when the other one has ended."
    )


def _alone(about: About, devices: int) -> str:
    return (
        f"The {about.cause} would wait for ever: this session has no cluster and {devices} device(s), so the other"
        " ranks cannot join. Give tf.Session the target of this process's tf.train.Server; under Horovod call"
        " hvd.init() before the session's first run."
    )


def _about(node: Node, shape: tuple[int, ...] | None) -> About:
    attrs = node.attrs
    sizes = list(map(str, attrs["shape"] if shape is None else shape))
    if attrs.get("_collective_any_rows"):
        sizes[:1] = ["?"]
    reduction = None
    if node.op == "CollectiveReduce":
        reduction = attrs["merge_op"].decode(), attrs["final_op"].decode()
    pieces = max(1, len(attrs.get("subdiv_offsets", ())))
    op = _described(node, reduction, pieces)
    name = attrs.get("_collective_name", b"").decode()
    dtype = attrs.get("_collective_dtype", attrs["T"].name.encode()).decode()
    fingerprint = Fingerprint(name, f"[{', '.join(sizes)}]", dtype, op, 0)
    group_key, group_size, instance = attrs["group_key"], attrs["group_size"], attrs["instance_key"]
    quoted = f' of "{name}"' if name else ""
    place = "" if name else f", instance {instance}"
    cause = f"collective {op}{quoted} (group {group_key}{place}) of {group_size} ranks"
    return About(
        node.device, group_key, group_size, instance, fingerprint, fingerprint_text(fingerprint.without_step()), cause,
        reduction, pieces, BEGINS in attrs, attrs.get(LEAST, 0),
    )  # fmt: skip


def _described(node: Node, reduction: tuple[str, str] | None, pieces: int) -> str:
    """The op of a fingerprint: with all that ranks must agree on."""
    if reduction is not None:
        return f"all-reduce({', '.join(reduction)}{f', {pieces} pieces' if pieces > 1 else ''})"
    kind = trait_of(node.op, "collective")
    if kind == "reduce-scatter":
        return f"reduce-scatter({node.attrs['merge_op'].decode()}, {node.attrs['final_op'].decode()})"
    if kind != "broadcast":
        return "gather" if kind == "all-gather" else str(kind)
    root = node.attrs.get("_collective_root")
    return "broadcast" if root is None else f"broadcast(from rank {root})"


def _reduce(call: CollectiveCall, node: Node, rank: int, members: list[str]) -> Any:
    assert call.about.reduction is not None
    merge, final = call.about.reduction
    value, pieces = call.value, call.about.pieces
    return schedules.all_reduce(rank, len(members), value, merge, final, pieces, lambda: result_memory(value))


def result_memory(value: Any) -> tuple[Any, Any]:
    """Memory for a result, and the array to return; a large result uses a pooled receive buffer."""
    if value.nbytes < POOL_FROM:
        out = np.empty(value.size, value.dtype)
        return out, out
    memory, loan = RECEIVE_BUFFERS.take(value.nbytes)
    return np.frombuffer(memory, value.dtype), loan.view(value.dtype)


def _broadcast(call: CollectiveCall, node: Node, rank: int, members: list[str]) -> Any:
    if node.op == "CollectiveBcastAlike":
        value = call.value if node.attrs["is_source"] else None
        return schedules.Broadcast(rank, len(members), value, call.value.shape, call.value.dtype)
    wanted = tuple(node.attrs["shape"])
    if call.value is not None and call.value.shape != wanted:
        text = f"Broadcast of shape {list(wanted)} got a tensor of shape {list(call.value.shape)}."
        raise errors.InvalidArgumentError.of(text)
    return schedules.Broadcast(rank, len(members), call.value, wanted, node.attrs["T"].as_numpy_dtype)


def _gather(call: CollectiveCall, node: Node, rank: int, members: list[str]) -> Any:
    if not call.value.shape:
        raise errors.InvalidArgumentError.of("A collective gather needs a tensor of at least one dimension.")
    return schedules.Gather(rank, len(members), call.value, _order(members))


def _order(members: list[str]) -> list[int]:
    """The ranks in the order of their devices."""
    return sorted(range(len(members)), key=lambda r: canonical(members[r]))


def _reduce_scatter(call: CollectiveCall, node: Node, rank: int, members: list[str]) -> Any:
    if not call.value.shape:
        raise errors.InvalidArgumentError.of("A reduce-scatter needs a tensor of at least one dimension.")
    merge, final = node.attrs["merge_op"].decode(), node.attrs["final_op"].decode()
    return schedules.ReduceScatter(rank, len(members), call.value, merge, final, _order(members))


def _all_to_all(call: CollectiveCall, node: Node, rank: int, members: list[str]) -> Any:
    splits = _checked_splits(call, len(members))
    return schedules.AllToAll(rank, len(members), call.value, splits, _order(members))


def _checked_splits(call: CollectiveCall, size: int) -> list[int]:
    if not call.value.shape:
        raise errors.InvalidArgumentError.of("An all-to-all needs a tensor of at least one dimension.")
    rows, splits = len(call.value), np.asarray(call.splits).tolist()
    wrong = ""
    if not splits and rows % size:
        wrong = f"cannot divide {rows} rows evenly among {size} ranks; give splits"
    elif splits and len(splits) != size:
        wrong = f"has {len(splits)} splits for {size} ranks; give the number of rows for each rank"
    elif splits and (min(splits) < 0 or sum(splits) > rows):
        wrong = f"has the splits {splits} of {rows} rows; give numbers from 0 on whose sum is at most {rows}"
    if wrong:
        raise errors.InvalidArgumentError.of(f"{call.about.device}: {call.describe()} {wrong}.")
    return splits or [rows // size] * size


_SCHEDULES: dict[str, Callable[[CollectiveCall, Node, int, list[str]], Any]] = {
    "all-reduce": _reduce,
    "broadcast": _broadcast,
    "all-gather": _gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
}


def failure_message(epoch: int, error: errors.OpError, task: str) -> m.CollectiveFailure:
    """The news of a failure for the other members of a group."""
    s = m.status_of(error, task)
    return m.CollectiveFailure(epoch, s.code, s.message, s.node, s.device, s.task, s.derived)


def refused(call: CollectiveCall, member: Any) -> errors.OpError | None:
    """Why a call cannot be one of a group's, whose member of that device is given; None if it can.

    Nobody joins an elastic group in the middle of its work: its members have rolled back, and may be others.
    """
    about = call.about
    if member is None or member.over:
        if not about.least or about.begins:
            return None
        text = f"{call.describe()} cannot run: the members of its elastic group have changed. Begin anew with its hook."
        return errors.AbortedError.of(text)
    if member.has_joined and about.group_size != member.group_size:
        text = f"{call.describe()} has group_size {about.group_size}; the group has {member.group_size}."
        return errors.InvalidArgumentError.of(text)
    return None


def begin_failure(error: Exception, call: CollectiveCall) -> errors.OpError:
    """Why a call could not begin."""
    if isinstance(error, errors.OpError):
        return error
    text = f"{call.describe()} cannot begin: {type(error).__name__}: {error}"
    return errors.from_code(errors.of_exception(error).error_code, text)
