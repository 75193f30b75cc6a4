"""What an engine is: it has the processes of a cluster started, somewhere, and says what becomes of them.

`tfmini launch --on NAME` looks NAME up in `ENGINES`. An engine decides nothing about the run: roles, addresses of
peers, keys, exit codes and the end of the ps tasks are decided above it, in `tfmini.launch.cluster_run` and
`tfmini.launch.supervision`, once for all engines. A further engine is one module of `tfmini.launch` and one row here.

The order of calls is `reserve`, `start`, then `signal` any number of times, and `close`. An engine that `adds_tasks`
may be asked by `add` for more places meanwhile, and to `start` tasks there. All calls come from one thread. An engine
does not block in `add`, `start` or `signal`. It reports later events through `Events`, from callbacks of the selector.
"""

from __future__ import annotations

import importlib
import selectors
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tfmini.cluster import ClusterSpec
from tfmini.launch.supervision import TaskId

ENGINES: dict[str, str] = {
    # name: "module:class"
    "kubernetes": "tfmini.launch.kubernetes:KubernetesEngine",
    "local": "tfmini.launch.local:LocalEngine",
    "mpi": "tfmini.launch.mpi:MpiEngine",
    "ray": "tfmini.launch.ray:RayEngine",
    "slurm": "tfmini.launch.mpi:SlurmEngine",
}

MEMBERS: dict[str, str] = {
    # name: "module:function" that returns the `SchedulerMember` or `NamedRole` of a `tfmini run --cluster NAME`
    "kubernetes": "tfmini.launch.kubernetes:member",
    "mpi": "tfmini.launch.mpi:member",
    "slurm": "tfmini.launch.mpi:slurm_member",
}
WARN_S = 10.0
"""Seconds of waiting for others after which a launcher or a rank says so; again whenever they have doubled."""
TOKEN_ENV = "TFMINI_DASHBOARD_TOKEN"
"""The environment variable with the token of the live page."""


class EngineError(Exception):
    """An engine cannot start or keep the tasks. The text names the engine, the cause and the remedy."""


@dataclass(frozen=True)
class Resources:
    """What one task needs. None or 0: whatever the engine gives.

    Attributes:
      cpus: cores.
      memory_mb: memory, in MiB.
      gpus: accelerators.
    """

    cpus: int | None = None
    memory_mb: int | None = None
    gpus: int = 0


@dataclass(frozen=True)
class NamedRole:
    """The role of a process whose cluster is known from the beginning, by stable names of its hosts."""

    job: str
    index: int
    cluster: ClusterSpec


@dataclass(frozen=True)
class TaskRequest:
    """A task that needs a place."""

    task: TaskId
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class TaskCommand:
    """What one task runs: ``python -m tfmini ARGUMENTS``, with the place's Python.

    Attributes:
      arguments: the command line after ``tfmini``.
      defaults: environment variables that the environment of the place overrides.
      role: environment variables that override it.
      key_file: the secret file of the run's key on the launcher's machine; "" if the user chose keys, or none.
      serves: whether the task is a service, which ends after the working tasks.
    """

    arguments: list[str]
    defaults: dict[str, str]
    role: dict[str, str]
    key_file: str = ""
    serves: bool = False


@dataclass(frozen=True)
class EngineOptions:
    """The options of `tfmini launch` that concern where and how tasks start.

    Attributes:
      grace_s: seconds between a request to end and SIGKILL.
      port_base: the first port for the tasks; None: free ports.
      pack: True: as few hosts as possible; False: as many as possible; None: as the engine likes.
      address: the address of the engine's own cluster, for engines that have one.
      arguments: for the engine's own command, such as srun.
      restarts: how often tasks that are lost start again; if they do, the engine must not end the others then.
      image: of the containers, for engines that have such.
      namespace: of the pods; "": the user's current one.
      script: as given, with its arguments, for engines whose tasks work out their roles themselves.
    """

    grace_s: float = 5.0
    port_base: int | None = None
    pack: bool | None = None
    address: str | None = None
    arguments: tuple[str, ...] = ()
    restarts: int = 0
    image: str = ""
    namespace: str = ""
    script: tuple[str, ...] = ()


class Events(Protocol):
    """What an engine reports. A task's output and `joined` come before its `ended`."""

    def placed(self, task: TaskId, address: str, cpus: int) -> None:
        """The task has a place, where it will listen at ``host:port`` and where it has so many cores to itself."""

    def output(self, task: TaskId, data: bytes) -> None:
        """The task wrote to its standard output or error."""

    def joined(self, task: TaskId, joined: bool) -> None:
        """The task has entered or left `Server.join`."""

    def progress(self, task: TaskId, words: str) -> None:
        """The task serves or tells about long work (`tfmini.launch.progress`). May come late, or not at all."""

    def ended(self, task: TaskId, returncode: int) -> None:
        """The task's process has ended: exit code, or minus the number of the signal that killed it."""

    def note(self, text: str, task: TaskId | None = None) -> None:
        """Something that the user should read; with a task, a warning about it."""

    def broken(self, reason: str) -> None:
        """The engine cannot go on, before all tasks had a place."""


class Engine(Protocol):
    """Starts tasks and reports what becomes of them. See the module's text for the order of calls.

    Attributes:
      adds_tasks: whether it can `add`.
      restarts_all: whether it starts all tasks again when one fails. Until the last time it reports no ends.
    """

    adds_tasks: bool
    restarts_all: bool

    def reserve(self, requests: Sequence[TaskRequest], events: Events, selector: selectors.BaseSelector) -> None:
        """Asks for a place for each task. Each is reported by `Events.placed`, now or later.

        Callbacks are registered with the selector as data: functions without arguments.

        Raises:
          EngineError: there can't be such places.
        """

    def add(self, requests: Sequence[TaskRequest]) -> None:
        """Asks for places during the run, as `reserve` does: for more tasks, or for tasks that have ended.

        The other tasks find a task that comes back at another address. A task whose place is lost before it is started
        is reported as ended.

        Raises:
          EngineError: there can't be such places.
        """

    def withdraw(self, task: TaskId) -> None:
        """Gives back the place of a task that has ended, or takes back the request for one."""

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        """Starts tasks, each at its place.

        Raises:
          OSError: a process could not be started.
        """

    def signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        """Sends a signal to all processes of each of these tasks."""

    def hold_output(self, is_held: bool) -> None:
        """Lets the tasks wait as soon as they write more, because nobody reads the launcher's output; or ends that.

        Some output may still come. Everything else goes on.
        """

    def reap(self) -> None:
        """A child process of this process has ended; the engine looks whether it was one of its own."""

    def close(self, exit_code: int) -> None:
        """Kills what still runs, gives the places back and releases everything.

        Args:
          exit_code: of the run, for engines that show one.
        """


def engine_class(name: str) -> type:
    """The class of an engine of `ENGINES`; its only argument is an `EngineOptions`."""
    found = _imported(ENGINES[name])
    assert isinstance(found, type)
    return found


def member_of(name: str) -> Any:
    """This process as one that the scheduler of `MEMBERS` has started: a `SchedulerMember`, or a `NamedRole`.

    Raises:
      EngineError: it has not.
    """
    return _imported(MEMBERS[name])()


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
