"""Sessions that bring their own cluster: ``ConfigProto.cluster_def``.

Servers that know little or nothing of each other work together for one session under the names that
its cluster gives them. The master of such a session is the target's, seen as the task whose address in that
cluster is the target's; each worker is told its name, and the addresses of the others, when the session
is opened there. Unless ``share_session_state_in_clusterspec_propagation`` is set, the state is the session's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tfmini import errors
from tfmini.devices import parse
from tfmini.graph.node import Node
from tfmini.placement.placer import DeviceAttributes
from tfmini.runtime.master.master import Master, renamed
from tfmini.runtime.master.master_session import MasterSession
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.targets import same_address

OnSession = Callable[[errors.OpError | None, MasterSession | None], None]


class SessionCluster(Master):
    """A master under the name that a session's cluster gives it.

    Args:
      server: the master of the session's target.
      target: the address by which the client reached it.

    Raises:
      InvalidArgumentError: unless the target is one task of the cluster, and one that the server is not already.
    """

    def __init__(self, server: Master, tasks: Mapping[str, str], target: str) -> None:
        super().__init__(server.worker, tasks, server.peer_without_name, server.reactor, server.config)
        self.task = _own_task(server, tasks, target)
        self.own_devices = renamed(server.own_devices, self.task)
        self.sessions, self.ended, self.step_over = server.sessions, server.ended, server.step_over  # type: ignore[method-assign]

    def worker_name(self, task: str) -> str:
        return task


def open_session(
    server: Master, nodes: Sequence[Node], options: SessionOptions, target: str, on_done: OnSession,
    in_process: bool = False,
) -> None:  # fmt: skip
    """Opens a session with its first graph, in its own cluster if it brings one.

    Args:
      server: the master of the target.
      target: the address by which the client reached it.
      in_process: whether the client is in this process.

    Raises:
      InvalidArgumentError: see `SessionCluster`.
      UnavailableError: when the server has been stopped.
    """
    if server.closed:
        raise errors.UnavailableError.of(f"The server of {server.task} has been stopped: make another one.")
    if not options.cluster:
        session = server.create_session((), options, in_process)

        def extended(error: errors.OpError | None) -> None:
            if error is not None:
                session.close()
            on_done(error, session if error is None else None)

        session.extend_when_known(nodes, extended)
        return
    cluster = SessionCluster(server, dict(options.cluster), target)
    isolated = replace(options, isolate_session_state=options.isolate_session_state or not options.share_state)

    def listed(_: errors.OpError | None, devices: Sequence[DeviceAttributes]) -> None:
        try:
            session = cluster.create_session(nodes, isolated, in_process)
        except errors.OpError as error:
            on_done(error, None)
        else:
            on_done(None, session)

    cluster.list_devices(listed, options.device_filters)


def _own_task(server: Master, tasks: Mapping[str, str], target: str) -> str:
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
