"""Tasks in a cluster of Ray: a placement group reserves all places at once, and an actor per task runs its agent.

`run` is the same for a function in place of a script.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tfmini.launch.agent import ALIVE_ENV
from tfmini.launch.cluster_run import key_of_run
from tfmini.launch.engine import TOKEN_ENV, EngineError, EngineOptions, Resources, TaskRequest
from tfmini.launch.hub import AgentEngine
from tfmini.launch.invitation import AGENT_ENV, Invitation
from tfmini.launch.launch_options import cluster_tasks
from tfmini.launch.supervision import SERVICE_JOBS, TaskId
from tfmini.library_log import REPORT_ENV
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.rpc.addresses import listening_socket
from tfmini.rpc.keys import KEYS_ENV, held_key

# What concerns this process alone: secrets, and descriptors that no other process has.
_OWN = {TOKEN_ENV, AGENT_ENV, ALIVE_ENV, LISTEN_FD_ENV, REPORT_ENV}


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise EngineError("--on ray needs the package ray: pip install 'tfmini-cluster[ray]'.") from None


class RayEngine(AgentEngine):
    """Starts the agents of the tasks by actors of a placement group. Tasks that join later find places beside it.

    When a node is lost, Ray looks for another place for its part of the group.
    """

    adds_tasks = True

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._group: Any = None
        self._actors: dict[TaskId, Any] = {}
        self._bundles: dict[TaskId, int] = {}
        self._connected = False

    def start_agents(self, requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        """Asks for a placement group; the actors start when Ray has it. See `AgentEngine.start_agents`."""
        ray = _ray()
        self._connected = not ray.is_initialized()
        _connect(ray, self._options.address)
        self._group = placement_group(ray, [request.resources for request in requests], self._options.pack)
        self._bundles = {request.task: number for number, request in enumerate(requests)}
        for number, request in enumerate(requests):
            self._start_agent(number, request, invitation)

    def start_agent(self, number: int, request: TaskRequest) -> None:
        """See `AgentEngine.start_agent`."""
        self._start_agent(number, request, self._invitation)

    def _start_agent(self, number: int, request: TaskRequest, invitation: Invitation) -> None:
        bundle = self._bundles.get(request.task)
        if bundle is None:
            where = beside(request.resources, self._options.pack)
        else:
            where = scheduling(self._group, bundle, request.resources)
        actor = self._actors[request.task] = _ray().remote(_Agent).options(**where).remote()
        future = actor.run.remote(invitation.to_word(), number, os.getcwd(), environment()).future()
        # Ray calls back in a thread of its own.
        future.add_done_callback(functools.partial(self._calls.put, self._take_end_of_agent, request.task, actor))

    def withdraw(self, task: TaskId) -> None:
        """Lets the agent go, and frees its place."""
        super().withdraw(task)
        actor = self._actors.pop(task, None)
        if actor is not None:
            _ray().kill(actor)

    def reap(self) -> None:
        """Does nothing: no child process of this one belongs to the engine, since Ray starts the agents."""

    def end_agents(self) -> None:
        """Gives the places back."""
        ray = _ray()
        for actor in self._actors.values():
            ray.kill(actor)
        if self._group is not None:
            importlib.import_module("ray.util").remove_placement_group(self._group)
        if self._connected:
            ray.shutdown()

    def _take_end_of_agent(self, task: TaskId, actor: Any, future: concurrent.futures.Future[str]) -> None:
        if self.is_complete or actor is not self._actors.get(task):
            return
        error = future.exception()
        said = str(error).strip().splitlines()[-1] if error is not None else future.result()
        self.no_agent(f"Ray could not run the agent of {task}: {said or 'it ended'}", [task])


class _Agent:
    """The actor of a task: it runs the agent as a child process, so that the script has a process of its own.

    The agent ends when its standard input does: Ray kills an actor, or a whole node, without a word.
    """

    def run(self, word: str, number: int, folder: str, variables: dict[str, str]) -> str:
        """Returns what the agent wrote when it has ended."""
        argv = [sys.executable, "-m", "tfmini.launch.agent", str(number)]
        with subprocess.Popen(
            argv, env={**os.environ, **variables, AGENT_ENV: word, ALIVE_ENV: "0"},
            cwd=folder if os.path.isdir(folder) else None,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as agent:  # fmt: skip
            assert agent.stdout is not None
            return agent.stdout.read().strip()


def _connect(ray: Any, address: str | None) -> None:
    """Connects to a running cluster.

    Raises:
      EngineError: there is none.
    """
    if ray.is_initialized():
        return
    try:
        with _own_signals():
            ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"There is no Ray cluster at {address or 'auto'}: {error}. Start one by `ray start --head`, or name one by "
            f"--address."
        ) from None


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes over SIGTERM when it connects; the launcher keeps it."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    yield
    for signum, handler in before.items():
        if handler is not None and signal.getsignal(signum) is not handler:
            signal.signal(signum, handler)


def environment() -> dict[str, str]:
    """The variables of this process that the tasks get on other hosts, too: settings, but nothing secret.

    Ray keeps the arguments of a task where its users can read them.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if (name == "PYTHONPATH" or name.startswith("TFMINI_")) and name not in _OWN
    }


def bundle(resources: Resources) -> dict[str, float]:
    """What a task needs, in Ray's terms. A task that asks for nothing takes one core."""
    found: dict[str, float] = {"CPU": resources.cpus or 1}
    if resources.memory_mb is not None:
        found["memory"] = resources.memory_mb * (1 << 20)
    if resources.gpus:
        found["GPU"] = resources.gpus
    return found


def placement_group(ray: Any, resources: Sequence[Resources], pack: bool | None) -> Any:
    """Asks Ray to reserve places for all tasks at once."""
    strategy = "SPREAD" if pack is False else "PACK"
    return importlib.import_module("ray.util").placement_group([bundle(each) for each in resources], strategy=strategy)


def scheduling(group: Any, number: int, resources: Resources) -> dict[str, Any]:
    """The options of the actor that takes a place of a group."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    strategy = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
    return {**_needs(resources), "scheduling_strategy": strategy}


def beside(resources: Resources, pack: bool | None) -> dict[str, Any]:
    """The options of an actor whose task joins the run: its place is not one of the group."""
    return {**_needs(resources), "scheduling_strategy": "SPREAD" if pack is False else "DEFAULT"}


def _needs(resources: Resources) -> dict[str, Any]:
    needed = bundle(resources)
    options: dict[str, Any] = {"num_cpus": needed["CPU"], "num_gpus": needed.get("GPU", 0)}
    if "memory" in needed:
        options["memory"] = needed["memory"]
    return options


# ---------------------------------------------------------------- a function in place of a script


class _Task:
    """The actor of a task of `run`: it calls the function in its own process."""

    def place(self) -> str:
        """Reserves a port; returns the address of this task."""
        host = importlib.import_module("ray.util").get_node_ip_address()
        self._listener = listening_socket(host)
        port = self._listener.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def work(self, train_fn: Callable[[], Any], cluster: dict[str, list[str]], job: str, index: int, key: bytes) -> Any:
        """Does the part of this task: a ps serves until it is killed, any other task calls the function."""
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        os.environ[LISTEN_FD_ENV] = str(self._listener.detach())
        if key:
            os.environ[KEYS_ENV] = held_key(key)
        if job not in SERVICE_JOBS:
            return train_fn()
        server = importlib.import_module("tfmini.runtime.server").Server(cluster, job_name=job, task_index=index)
        server.join()
        return None


def run(
    train_fn: Callable[[], Any],
    ps: int = 1,
    workers: int = 1,
    *,
    address: str | None = None,
    pack: bool | None = None,
    ps_resources: Resources | None = None,
    worker_resources: Resources | None = None,
    start_s: float = 300.0,
) -> list[Any]:
    """Calls a function in every worker of a cluster on Ray; the ps tasks serve until all workers have returned.

    The function finds its role in TF_CONFIG, as a script does, and makes the `tf.train.Server` of its task itself. It
    and its results travel as Ray's do. The cluster has a key of its own, unless the user has chosen keys.

    Args:
      ps, workers: the numbers of tasks.
      address: of the Ray cluster; default: the one that runs here, or the one to which this process is connected.
      pack: as few hosts as possible, or (False) as many.
      ps_resources, worker_resources: of each task; default: one core.
      start_s: how long to wait for places, in seconds.

    Returns:
      The results of the workers, in their order.

    Raises:
      EngineError: Ray is not installed, there is no such cluster, or it has no places in time.
      The exception of the first worker or ps that failed, as Ray wraps it.
    """
    ray = _ray()
    _connect(ray, address)
    tasks = cluster_tasks(ps, workers, chief=False)
    of_ps, of_worker = ps_resources or Resources(), worker_resources or Resources()
    resources = [of_ps if task.job in SERVICE_JOBS else of_worker for task in tasks]
    group = placement_group(ray, resources, pack)
    actor_class = ray.remote(_Task)
    actors = [actor_class.options(**scheduling(group, n, each)).remote() for n, each in enumerate(resources)]
    try:
        cluster: dict[str, list[str]] = {}
        for task, place in zip(tasks, _places(ray, actors, start_s)):
            cluster.setdefault(task.job, []).append(place)
        with key_of_run() as key_file:
            key = Path(key_file).read_bytes() if key_file else b""
        works = [actor.work.remote(train_fn, cluster, *task, key) for actor, task in zip(actors, tasks)]
        return _results(ray, works[:ps], works[ps:])
    finally:
        for actor in actors:
            ray.kill(actor)
        importlib.import_module("ray.util").remove_placement_group(group)


def _places(ray: Any, actors: list[Any], start_s: float) -> list[str]:
    try:
        return list(ray.get([actor.place.remote() for actor in actors], timeout=start_s))
    except ray.exceptions.GetTimeoutError:
        raise EngineError(
            f"After {start_s:g} s, Ray has no places for all {len(actors)} tasks. `ray status` shows what is free. Ask "
            f"for fewer or smaller tasks, or wait longer (start_s)."
        ) from None


def _results(ray: Any, services: list[Any], works: list[Any]) -> list[Any]:
    """Waits for all workers; the first failure of any task is raised."""
    waiting = [*services, *works]
    while set(waiting) & set(works):
        done, waiting = ray.wait(waiting)
        ray.get(done)
    return list(ray.get(works))
