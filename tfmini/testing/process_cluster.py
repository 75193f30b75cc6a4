"""A cluster of real processes on this machine, for tests.

::

    with ProcessCluster(ps=2, workers=1) as cluster:
        with tf.Session(cluster.target("worker", 0)) as session:
            ...
            cluster.kill("ps", 1)

Each task is a Python process that creates a `Server` and joins it. The tasks inherit listening sockets
that reserve their ports, so there is no race for ports and no need to wait for a task: early
connections wait in the socket's backlog. The port of a killed task stays reserved.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tfmini.cluster import ClusterSpec
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.tools.ports import reserve_cluster
from tfmini.tools.supervision import TaskId

_TASK = """
import json, signal, sys
import tfmini as tf
cluster = json.loads(sys.argv[1])
server = tf.train.Server(cluster, job_name=sys.argv[2], task_index=int(sys.argv[3]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until join handles it
print("ready", flush=True)
server.join()
"""
_STOP_S = 60.0  # long, since stopping may be slow on a loaded machine


class ProcessCluster:
    """A cluster of processes; see the module.

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
        program: str = _TASK,
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
        """Starts all tasks, the local one in this process."""
        for task in self._ids:
            if task != self._local:
                self.start_task(task.job, task.task)
        if self._local is not None:
            self._start_local()
        return self

    def _start_local(self) -> None:
        from tfmini.runtime.server import Server

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
        process = subprocess.Popen(command, pass_fds=inherited, env=environment, stdout=subprocess.PIPE, text=True)
        if inherited:
            listener.close()
        self.processes[TaskId(job, task)] = process

    def wait_ready(self, job: str, task: int) -> None:
        """Blocks until the task's server is up; raises RuntimeError if it ended instead."""
        stdout = self.processes[TaskId(job, task)].stdout
        assert stdout is not None
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
            if process.stdout is not None:
                process.stdout.close()
        self._reserved.close()
        return codes

    def __enter__(self) -> ProcessCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
