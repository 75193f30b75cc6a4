"""The cluster as one of its tasks sees it: who is in it, which devices they have, and how to reach them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tfmini import errors
from tfmini.devices import ParsedDevice, intersects, matches, parse, task_of_device
from tfmini.graph.node import Node
from tfmini.placement.placer import DeviceAttributes
from tfmini.rpc.calls import Outcome
from tfmini.rpc.fan_out import fan_out
from tfmini.rpc.messages import GetStatus
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.process import same_address
from tfmini.runtime.worker.worker import Worker

ANSWER_TIMEOUT_S = 10.0
OnDevices = Callable[[errors.OpError | None, list[DeviceAttributes]], None]


class ClusterView:
    """See the module.

    Attributes:
      task, own_devices: the worker's, under the name that sessions know it by.

    Args:
      worker: of this task.
      tasks: full task name -> address, of the whole cluster.
      peer_for: (task, address) -> peer; None without a network.
      reactor: drives timers; None without a network.
      task: the name of this task in the cluster; default: the worker's.
    """

    def __init__(
        self,
        worker: Worker,
        tasks: Mapping[str, str] | None = None,
        peer_for: Callable[[str, str], Any] | None = None,
        reactor: Any = None,
        task: str = "",
    ) -> None:
        self.worker = worker
        self.reactor = reactor
        self.task = task or worker.task
        self.own_devices = renamed(worker.devices, task) if task else worker.devices
        self._tasks = dict(tasks or {})
        self._peer_for = peer_for
        self._known: dict[str, list[DeviceAttributes]] = {}

    @property
    def default_device(self) -> str:
        """The client device: the first of this task."""
        return self.own_devices[0].name

    def addresses(self) -> dict[str, str]:
        """Full task name -> address."""
        return self._tasks

    def set_address(self, task: str, address: str) -> None:
        """Notes the real address of a task whose port was chosen when it was bound."""
        self._tasks[task] = address

    def devices(self, filters: Sequence[str]) -> list[DeviceAttributes]:
        """All devices that pass the filters, this task's first.

        A task that has not been asked yet counts as one CPU, which is what tasks have by default:
        so a session can be made while tasks that it does not need are down.
        """
        patterns = [parse(f) for f in filters]
        found = list(self.own_devices)
        for task in list(self._tasks):  # a copy: a task that moves may be added meanwhile
            if task == self.task:
                continue
            for device in self._known.get(task) or [DeviceAttributes(f"{task}/device:CPU:0", "CPU", 0, 0)]:
                if not patterns or any(intersects(p, parse(device.name)) for p in patterns):
                    found.append(device)
        return found

    def peer(self, task: str) -> Any:
        """The peer of a task.

        Raises:
          InvalidArgumentError: when the cluster has no such task.
        """
        if self._peer_for is None or task not in self._tasks:
            raise errors.InvalidArgumentError.of(f"{task} is not in the cluster of {self.task}.")
        return self._peer_for(task, self._tasks[task])

    def worker_name(self, task: str) -> str:
        """The name of a task's worker in a session; "" for the worker's own name."""
        return ""

    def peer_without_name(self, task: str, address: str) -> Any:
        """The peer at an address, whatever it calls itself."""
        if self._peer_for is None:
            raise errors.InvalidArgumentError.of(f"{self.task} has no network to reach {task} at {address}.")
        return self._peer_for("", address)

    def list_devices(self, on_done: OnDevices, filters: Sequence[str] = (), patience_s: float = 0.0) -> None:
        """Asks every task that passes the filters for its devices.

        Args:
          on_done: gets an UnavailableError if a task has not answered after ``patience_s``, else the devices.
          patience_s: 0: tasks that cannot be reached now are left out.
        """
        tasks = {task_of_device(d.name) for d in self.devices(filters)} - {self.task}

        def listed(found: Mapping[str, list[DeviceAttributes]]) -> None:
            missing = sorted(tasks - set(found)) if patience_s else []
            error = self._unlisted(missing, patience_s) if missing else None
            on_done(error, self.own_devices + [d for task in sorted(found) for d in found[task]])

        self._ask(dict.fromkeys(tasks, patience_s), listed)

    def _unlisted(self, tasks: Sequence[str], patience_s: float) -> errors.UnavailableError:
        peers = [(task, self.peer(task)) for task in tasks]
        shown = ", ".join(f"{task} at {peer.address} ({peer.why or peer.state.value})" for task, peer in peers)
        return errors.UnavailableError.of(
            f"The devices of {shown} cannot be listed: no answer within {patience_s:g} s. Start what is missing, or"
            " leave it out by ConfigProto(device_filters=...).",
            task=tasks[0],
        )

    def learn_devices(self, nodes: Sequence[Node], options: SessionOptions, on_done: Callable[[], None]) -> None:
        """Asks tasks for the devices in the nodes' requests that this master does not know yet.

        It waits for tasks that a request names; of the others it takes immediate answers only.
        """
        patience_s = options.operation_timeout_s or options.connect_timeout_s
        tasks: dict[str, float] = {}
        for request in unusual_requests(nodes):
            if any(matches(request, parse(d.name)) for d in self.devices(options.device_filters)):
                continue
            where = request._replace(device_type=None, device_index=None)
            others = [t for t in list(self._tasks) if t not in self._known and t != self.task]
            unasked = [t for t in others if intersects(where, parse(t))]
            tasks |= dict.fromkeys(unasked, patience_s if len(unasked) == 1 else 0.0)
        if tasks:
            self._ask(tasks, lambda found: on_done())
        else:
            on_done()

    def _ask(self, tasks: Mapping[str, float], on_done: Callable[[Mapping[str, list[DeviceAttributes]]], None]) -> None:
        """Asks tasks for their devices; each is waited for so many seconds, or (0) not if it cannot be reached."""

        def ask(task: str, patience_s: float, answered: Callable[[Any], None]) -> None:
            timeout_s, is_patient = patience_s or ANSWER_TIMEOUT_S, bool(patience_s)
            self.peer(task).call(GetStatus(), answered, timeout_s=timeout_s, wait_for_ready=is_patient)

        def asked(outcomes: Mapping[str, Outcome[Any]]) -> None:
            found = {}
            for task, answer in outcomes.items():
                if not isinstance(answer, errors.OpError):
                    devices = renamed([DeviceAttributes(*fields) for fields in answer.devices], task)
                    found[task] = self._known[task] = devices
            on_done(found)

        fan_out({task: partial(ask, task, patience_s) for task, patience_s in tasks.items()}, asked)


def renamed(devices: Sequence[DeviceAttributes], task: str) -> list[DeviceAttributes]:
    """Devices as those of a task."""
    return [replace(device, name=task + device.name[device.name.index("/device:") :]) for device in devices]


def unusual_requests(nodes: Sequence[Node]) -> list[ParsedDevice]:
    """The devices that nodes name and that a task need not have: all but its first CPU."""
    found = []
    for device in {node.device for node in nodes}:
        try:
            request = parse(device)
        except ValueError:  # the placer says which node it is
            continue
        if request.device_type not in (None, "CPU") or request.device_index not in (None, 0):
            found.append(request)
    return found


# ---- Sessions that bring their own cluster: ``ConfigProto.cluster_def`` --------------------------------------------
# Servers that know little or nothing of each other work together for one session under the names that
# its cluster gives them. The master of such a session is the target's, seen as the task whose address in that
# cluster is the target's; each worker is told its name, and the addresses of the others, when the session
# is opened there. Unless ``share_session_state_in_clusterspec_propagation`` is set, the state is the session's own.


class SessionCluster(ClusterView):
    """A session's own cluster, seen from the server of its target, under the name that the cluster gives it.

    Args:
      server: the cluster of that server.
      target: the address by which the client reached it.

    Raises:
      InvalidArgumentError: unless the target is one task of the cluster, and one that the server is not already.
    """

    def __init__(self, server: ClusterView, tasks: Mapping[str, str], target: str) -> None:
        own = _own_task(server, tasks, target)
        super().__init__(server.worker, tasks, server.peer_without_name, server.reactor, own)

    def worker_name(self, task: str) -> str:
        return task


def _own_task(server: ClusterView, tasks: Mapping[str, str], target: str) -> str:
    """The task of a cluster that the target's server is."""
    found = [task for task, address in tasks.items() if same_address(address, target)]
    shown = ", ".join(f"{task} at {address}" for task, address in tasks.items())
    if not found:
        text = (
            "The master (current machine) is not included in the provided cluster_def. The session's target is"
            f" {target}, and the tasks are {shown}: give one of them the target's address."
        )
        raise errors.InvalidArgumentError.of(text)
    if len(found) > 1:
        text = (
            "Found multiple matching tasks that correspond to to the master. Master target: "
            f"'{target}'. ClusterDef: {shown}"
        )
        raise errors.InvalidArgumentError.of(text)
    if found[0] == server.task:
        name = parse(server.task)
        text = (
            "The ClusterSpec names the job and task index to be the same names that were provided when the server"
            f" booted. This is currently not allowed. Job: {name.job}, task index: {name.task}"
        )
        raise errors.InvalidArgumentError.of(text)
    return found[0]
