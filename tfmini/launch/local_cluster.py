"""`tf.LocalCluster`: a cluster on this machine for notebooks and tests; `ProcessCluster`: one whose tasks tests kill.

::

    with tf.LocalCluster(ps=2, workers=3) as cluster:
        losses = cluster.run(train)  # train(task) runs once per worker

The tasks inherit listening sockets that reserve their ports, so there is no race for ports and no need to wait for a
task: early connections wait in the socket's backlog.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from types import TracebackType
from typing import Any, Self

from tfmini import errors, protos
from tfmini.cluster import ClusterSpec
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.launch.local import ReservedCluster, reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.placement.device_setter import replica_device_setter
from tfmini.runtime.server import Server

READY_S = 120.0  # for a process to import tfmini and start its server
_STOP_S = 60.0  # long, since stopping may be slow on a loaded machine
_LAST_S = 2.0  # for calls to notice that their cluster is closed
_INTERVAL_S = 1.0  # between two looks of the page at the cluster


# ---- the tasks in processes of their own ----------------------------------------------------------------

# The output after "ready" goes where errors go: nobody reads the pipe, and a task that fills it would stand still.
# Standard input is a pipe that the starter holds. It ends with the starter, however that ends, and the task with it.
TASK_PROGRAM = """
import json, os, signal, sys, threading
import tfmini as tf
cluster = json.loads(sys.argv[1])
server = tf.train.Server(cluster, job_name=sys.argv[2], task_index=int(sys.argv[3]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until join handles it
print("ready", flush=True)
os.dup2(2, 1)

def end_with_the_starter():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_starter, daemon=True).start()
server.join()
"""


class ProcessCluster:
    """A cluster of real processes on this machine, for tests.

    ::

        with ProcessCluster(ps=2, workers=1) as cluster:
            with tf.Session(cluster.target("worker", 0)) as session:
                ...
                cluster.kill("ps", 1)

    Each task is a Python process that creates a `Server` and joins it. The port of a killed task stays reserved.

    Args:
      ps, workers: the number of tasks of each job.
      local: the task whose server runs in the test's process, as ("worker", 0).
      program: the Python source that every task runs. Its arguments are the cluster as JSON, its job and its
        index; it prints "ready" when its server is up. Default: a server that is joined.
      arguments: more arguments of the program.
    """

    def __init__(
        self,
        ps: int = 1,
        workers: int = 1,
        local: tuple[str, int] | None = None,
        program: str = TASK_PROGRAM,
        arguments: Sequence[str] = (),
    ) -> None:
        self._program, self.arguments = program, tuple(arguments)
        self._ids = [TaskId("ps", i) for i in range(ps)] + [TaskId("worker", i) for i in range(workers)]
        self._local = TaskId(*local) if local else None
        self._reserved = reserve_cluster(self._ids, until_close=True)
        self.spec: ClusterSpec = self._reserved.spec
        self.processes: dict[TaskId, subprocess.Popen[str]] = {}
        self.server: Any = None

    def start(self) -> ProcessCluster:
        """Starts all tasks, the local one in this process. If one cannot be started, the others end."""
        try:
            for task in self._ids:
                if task != self._local:
                    self.start_task(task.job, task.task)
            if self._local is not None:
                self.start_local()
        except BaseException:
            self.stop()
            raise
        return self

    def start_local(self) -> None:
        """Starts the server of the local task in this process; `start` does so, too."""
        assert self._local is not None
        # This process can bind the port after the listener is closed.
        self._reserved.listeners[self._local].close()
        self.server = Server(self.spec, job_name=self._local.job, task_index=self._local.task)

    def start_task(self, job: str, task: int) -> None:
        """Starts one task, or restarts it after `kill`."""
        listener = self._reserved.listeners[TaskId(job, task)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        inherited = []
        if TaskId(job, task) not in self.processes:
            environment[LISTEN_FD_ENV] = str(listener.fileno())
            inherited = [listener.fileno()]
        arguments = [json.dumps(self.spec.as_dict()), job, str(task), *self.arguments]
        command = [sys.executable, "-c", self._program, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, pass_fds=inherited, env=environment, stdin=pipe, stdout=pipe, text=True)
        if inherited:
            listener.close()
        ended = self.processes.get(TaskId(job, task))
        for end in (ended.stdin, ended.stdout) if ended is not None else ():
            assert end is not None
            end.close()
        self.processes[TaskId(job, task)] = process

    def refuse(self, job: str, task: int) -> None:
        """Frees the port of a task that has not been started, so that connections to it are refused."""
        self._reserved.listeners[TaskId(job, task)].close()

    def wait_ready(self, job: str, task: int) -> None:
        """Blocks until the task's server is up; raises RuntimeError if it ended instead, or is not up after minutes."""
        stdout = self.processes[TaskId(job, task)].stdout
        assert stdout is not None
        if not select.select([stdout], [], [], READY_S)[0]:
            raise RuntimeError(f"/job:{job}/task:{task} has not started its server within {READY_S:g} s")
        if stdout.readline().strip() != "ready":
            raise RuntimeError(f"/job:{job}/task:{task} ended before its server was up")

    def target(self, job: str, task: int) -> str:
        """The session target of a task."""
        return f"zmq://{self.spec.task_address(job, task)}"

    def kill(self, job: str, task: int, signum: int = signal.SIGKILL) -> None:
        """Sends a signal to a task; waits for its end after SIGKILL, and until it stands still after SIGSTOP."""
        process = self.processes[TaskId(job, task)]
        process.send_signal(signum)
        if signum == signal.SIGSTOP:  # until the system gets hold of it, it goes on, and may answer
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if signum == signal.SIGKILL:
            process.wait(_STOP_S)

    def stop(self) -> dict[TaskId, int]:
        """Ends all tasks (SIGTERM, then SIGKILL) and returns their exit codes."""
        if self.server is not None:
            self.server.stop()
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        codes = {}
        for task, process in self.processes.items():
            try:
                codes[task] = process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[task] = process.wait()
            for end in (process.stdin, process.stdout):
                if end is not None:
                    end.close()
        self._reserved.close()
        return codes

    def __enter__(self) -> ProcessCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


# ---- the cluster of notebooks ----------------------------------------------------------------------------


def _server(reserved: ReservedCluster, task: TaskId, protocol: str, config: protos.ConfigProto | None) -> Server:
    """A server in this process at a reserved port, which this process may bind a second time."""
    reserved.listeners[task].close()
    return Server(reserved.spec, task.job, task.task, protocol, config)


@dataclass(frozen=True)
class LocalWorker:
    """A worker of a `LocalCluster`, as the function of `LocalCluster.run` gets it.

    Attributes:
      index: the number of the worker; 0 is the chief.
      target: the session target of its server.
      cluster_spec: all tasks of the cluster.
      device: its device, ``/job:worker/task:INDEX``.
    """

    index: int
    target: str
    cluster_spec: ClusterSpec

    @property
    def device(self) -> str:
        return f"/job:worker/task:{self.index}"

    @property
    def is_chief(self) -> bool:
        return self.index == 0


@export("tf.LocalCluster")
class LocalCluster:
    """A cluster on this machine, for notebooks and tests.

    ::

        def train(task):
            x, train_op = build_model()  # variables go to the ps, ops to the worker
            with tf.train.MonitoredTrainingSession(task.target, is_chief=task.is_chief) as session:
                ...
                return loss

        with tf.LocalCluster(ps=2, workers=3) as cluster:
            losses = cluster.run(train)

    Args:
      ps, workers: the number of tasks of each job; at least one task.
      processes: whether each server is a process of its own; if not, all are in this process. Processes compute at
        the same time, and `kill` ends one of them; servers in one process start at once.
      config: a ConfigProto for the servers of this process.

    Attributes:
      cluster_spec: the addresses of all tasks.
      servers: the servers of this process, by job and index; empty with ``processes``.

    Raises:
      ValueError: there is no task, or a config for other processes.
      UnavailableError: a process ended before its server was up, or has none after minutes.
    """

    def __init__(
        self, ps: int = 1, workers: int = 1, processes: bool = False, config: protos.ConfigProto | None = None
    ) -> None:
        if ps < 0 or workers < 0 or ps + workers == 0:
            raise ValueError(f"A cluster needs at least one task: ps={ps}, workers={workers}.")
        if processes and config is not None:
            raise ValueError("A config applies to servers of this process; leave it out with processes=True.")
        self._workers, self._config = workers, config
        self._open = ExitStack()
        self._page, self._is_closed = "", False
        self._processes: ProcessCluster | None = None
        self.servers: dict[tuple[str, int], Server] = {}
        with self._open:  # if a task cannot be started
            self.cluster_spec = self._started_processes(ps) if processes else self._started_servers(ps)
            self._open = self._open.pop_all()

    def _started_processes(self, ps: int) -> ClusterSpec:
        cluster = self._processes = self._open.enter_context(ProcessCluster(ps, self._workers))
        for task in cluster.processes:
            try:
                cluster.wait_ready(task.job, task.task)
            except RuntimeError as error:
                raise errors.UnavailableError.of(str(error)) from None
        return cluster.spec

    def _started_servers(self, ps: int) -> ClusterSpec:
        tasks = [*(TaskId("ps", i) for i in range(ps)), *(TaskId("worker", i) for i in range(self._workers))]
        reserved = reserve_cluster(tasks, until_close=True)
        self._open.callback(reserved.close)
        for task in tasks:
            self.servers[task] = _server(reserved, task, "grpc", self._config)
            self._open.callback(self.servers[task].stop)
        return reserved.spec

    @property
    def target(self) -> str:
        """The session target of the first worker, or of the first ps where there is no worker."""
        return self._target("worker", 0) if self._workers else self._target("ps", 0)

    @property
    def tasks(self) -> list[LocalWorker]:
        """The workers."""
        return [LocalWorker(i, self._target("worker", i), self.cluster_spec) for i in range(self._workers)]

    def kill(self, job: str, index: int) -> None:
        """Kills the process of a task, as if its machine failed; its variables are gone. `restart` starts it again.

        Raises:
          FailedPreconditionError: the cluster is closed, or its tasks are no processes.
          NotFoundError: it has no such task.
        """
        self._process_of(job, index).kill(job, index)

    def restart(self, job: str, index: int) -> None:
        """Starts the process of a task again, after `kill`, and waits until its server is up; fails as `kill` does."""
        cluster = self._process_of(job, index)
        if cluster.processes[TaskId(job, index)].poll() is None:
            raise errors.FailedPreconditionError.of(f"/job:{job}/task:{index} is running; kill it first.")
        cluster.start_task(job, index)
        cluster.wait_ready(job, index)

    def _process_of(self, job: str, index: int) -> ProcessCluster:
        self._check_open()
        if self._processes is None:
            raise errors.FailedPreconditionError.of(
                "The tasks of this cluster are in this process; those of tf.LocalCluster(processes=True) can be killed."
            )
        if TaskId(job, index) not in self._processes.processes:
            tasks = ", ".join(f"/job:{task.job}/task:{task.task}" for task in self._processes.processes)
            raise errors.NotFoundError.of(f"There is no /job:{job}/task:{index}; the tasks are {tasks}.")
        return self._processes

    def _target(self, job: str, index: int) -> str:
        return f"zmq://{self.cluster_spec.task_address(job, index)}"

    def run(self, fn: Callable[..., Any], *args: Any, timeout_s: float | None = None, **kwargs: Any) -> list[Any]:
        """Calls ``fn(task, *args, **kwargs)`` once for each worker, at the same time, and returns the results in order.

        Each call has a thread, a default graph of its own, and the devices of `tf.train.replica_device_setter`:
        variables go to the ps and ops to the worker.

        Raises:
          DeadlineExceededError: a call has not returned within ``timeout_s`` seconds. The cluster is closed.
          Exception: the error of the first call that fails. The cluster is closed, since the others could wait for
            that worker for ever. What does not notice, because it computes or sleeps, goes on in its thread, but
            does not keep the process.
          FailedPreconditionError: the cluster is closed, or has no workers.
        """
        self._check_open()
        if not self._workers:
            raise errors.FailedPreconditionError.of("This cluster has no workers that could run a function.")
        calls = [self._begin(task, fn, args, kwargs) for task in self.tasks]
        try:
            self._wait(calls, timeout_s)
        except BaseException:  # Ctrl-C too
            self.close()
            wait(calls, _LAST_S)
            raise
        return [call.result() for call in calls]

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.FailedPreconditionError.of("This cluster is closed; make another tf.LocalCluster.")

    def _begin(self, task: LocalWorker, fn: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Future[Any]:
        call: Future[Any] = Future()

        def answer() -> None:
            try:
                call.set_result(self._call(task, fn, args, kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                call.set_exception(error)

        threading.Thread(target=answer, name=f"tfmini-worker-{task.index}", daemon=True).start()
        return call

    def _call(self, task: LocalWorker, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        has_ps = "ps" in self.cluster_spec.jobs
        setter = replica_device_setter(cluster=self.cluster_spec, worker_device=task.device) if has_ps else task.device
        with Graph().as_default() as graph, graph.device(setter):
            return fn(task, *args, **kwargs)

    def _wait(self, calls: Sequence[Future[Any]], timeout_s: float | None) -> None:
        done, unfinished = wait(calls, timeout_s, FIRST_EXCEPTION)
        failed = [call for call in calls if call in done and call.exception() is not None]
        if failed:
            failed[0].result()
        if unfinished:
            late = [f"worker {i}" for i, call in enumerate(calls) if call in unfinished]
            raise errors.DeadlineExceededError.of(f"{', '.join(late)} did not return within {timeout_s:g} s.")

    @property
    def dashboard(self) -> str:
        """The address of the live page of this cluster, which is served from the first time on that it is asked for.

        Raises:
          ImportError: the extra ``dashboard`` is not installed.
          FailedPreconditionError: the cluster is closed.
        """
        self._check_open()
        if not self._page:
            self._page = self._serve_page()
        return self._page

    def _serve_page(self) -> str:
        from tfmini.show.dashboard.server import ClusterReader, Dashboard, PageServer
        from tfmini.show.status.explanation import to_prometheus
        from tfmini.show.status.gather import Gatherer

        token = secrets.token_urlsafe(24)
        listener = self._open.enter_context(socket.create_server(("127.0.0.1", 0)))
        gatherer = self._open.enter_context(Gatherer(self.target))
        server = PageServer(
            Dashboard(ClusterReader(gatherer.gather, to_prometheus, gatherer.trace), token, _INTERVAL_S)
        )
        page = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="tfmini-page", daemon=True)
        page.start()
        self._open.callback(page.join, _STOP_S)
        self._open.callback(server.stop)
        return f"http://127.0.0.1:{listener.getsockname()[1]}/?token={token}"

    def close(self) -> None:
        """Ends the page and all servers; sessions that wait get an error. Later calls have no effect."""
        self._is_closed = True
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        counts = ", ".join(f"{job}={self.cluster_spec.num_tasks(job)}" for job in sorted(self.cluster_spec.jobs))
        return f"<LocalCluster {counts} {'closed' if self._is_closed else f'at {self.target}'}>"

    def _repr_html_(self) -> str:
        spec = self.cluster_spec
        rows = "".join(
            f"<tr><td>/job:{escape(job)}/task:{index}</td><td>{escape(spec.task_address(job, index))}</td></tr>"
            for job in sorted(spec.jobs)
            for index in spec.task_indices(job)
        )
        if self._is_closed:
            return "<b>LocalCluster</b>, closed"
        link = f'<p><a href="{escape(self._page)}">live page</a></p>' if self._page else ""
        return f"<b>LocalCluster</b><table><tr><th>task</th><th>address</th></tr>{rows}</table>{link}"


@export("tf.test.create_local_cluster")
def create_local_cluster(
    num_workers: int,
    num_ps: int,
    protocol: str = "grpc",
    worker_config: protos.ConfigProto | None = None,
    ps_config: protos.ConfigProto | None = None,
) -> tuple[list[Server], list[Server]]:
    """Starts servers in this process (``tf.test.create_local_cluster``); `LocalCluster` also ends them.

    Args:
      num_workers, num_ps: the number of tasks of the jobs ``worker`` and ``ps``.
      protocol: as for `tf.train.Server`.
      worker_config, ps_config: ConfigProtos.

    Returns:
      (servers of the workers, servers of the ps), started.
    """
    workers, ps = [[TaskId(job, i) for i in range(n)] for job, n in (("worker", num_workers), ("ps", num_ps))]
    reserved = reserve_cluster([*workers, *ps], until_close=True)
    try:
        return (
            [_server(reserved, task, protocol, worker_config) for task in workers],
            [_server(reserved, task, protocol, ps_config) for task in ps],
        )
    finally:
        reserved.close()
