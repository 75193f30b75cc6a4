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

import collections
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import msgpack

from tfmini.cluster import ClusterSpec
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.rpc.records import REGISTRY
from tfmini.rpc.waiter import Timer
from tfmini.show.simulation.simulated_process import VirtualNetwork

TASK_PROGRAM = """
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
        """Starts all tasks, the local one in this process."""
        for task in self._ids:
            if task != self._local:
                self.start_task(task.job, task.task)
        if self._local is not None:
            self.start_local()
        return self

    def start_local(self) -> None:
        """Starts the server of the local task in this process; `start` does so, too."""
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

    def refuse(self, job: str, task: int) -> None:
        """Frees the port of a task that has not been started, so that connections to it are refused."""
        self._reserved.listeners[TaskId(job, task)].close()

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


# ---- A network of processes in virtual time, with seeded delays and planned faults ---------------------------------
# ::
#
#     faults = [Kill("ps0", at=3.0), Drop(("w0", "ps0"), "RunGraph", nth=2)]
#     network = SimulatedNetwork(FaultPlan(faults, seed=7))
#     host = network.host("ps0")
#     endpoint = Endpoint(host, "/job:ps/replica:0/task:0", 1, transports={"sim": host.transport})
#     endpoint.listen("sim://ps0")
#     ...
#     host.drive(waiter, deadline=10.0)
#
# Each task is a `SimulatedHost`: a process (`runtime.process.Process`) and a reactor (`Clock`) with the network's
# clock. No real time passes: `drive` and `SimulatedNetwork.run` jump from event to event. Equal seeds and plans give
# equal histories (`SimulatedNetwork.history`). Silence costs no time, so minutes of failure detection in a cluster of
# a thousand tasks run in seconds.
#
# Whole clusters run here, too. ``host.spawn(program)`` starts a program in a thread that belongs to the simulated
# process: its servers, sessions and training loops use the process's clock, reactor and random numbers. One thread of
# the simulation runs at any time. A thread that waits makes the calls that are due, or hands over to the thread whose
# wait has ended.
#
# A link keeps the order of its messages, as every transport does. `Drop` loses single messages, which
# no real connection does; it simulates bugs and finds waits without a deadline.

LinkName = tuple[str, str]
_FOREVER = float("inf")
_EXIT_S = 0.05  # from the end of its servers to that of a process


@dataclasses.dataclass(frozen=True)
class Drop:
    """Loses the ``nth`` (from 1) message of a kind from link[0] to link[1]; kind "": any."""

    link: LinkName
    kind: str
    nth: int


@dataclasses.dataclass(frozen=True)
class Delay:
    """Delays the ``nth`` message of a kind, and all later ones, by ``seconds``."""

    link: LinkName
    kind: str
    nth: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Sever:
    """Cuts both directions between two tasks from ``at`` until ``until`` (seconds).

    ``silent``: connections stay open, as after a cable is pulled. What is sent meanwhile arrives after the end.
    """

    link: LinkName
    at: float
    until: float = float("inf")
    silent: bool = False


@dataclasses.dataclass(frozen=True)
class Kill:
    """Ends the task's process: its connections close, and its queued calls do not run.

    ``gently``: its servers stop before, as a ps does on SIGTERM.
    """

    task: str
    at: float
    gently: bool = False


@dataclasses.dataclass(frozen=True)
class Stop:
    """Stops the task's process (SIGSTOP) from ``at`` until ``until``; then it continues."""

    task: str
    at: float
    until: float = float("inf")


@dataclasses.dataclass(frozen=True)
class Wedge:
    """Keeps the task from handling messages from ``at`` until ``until``, as a stuck handler does; its timers run on."""

    task: str
    at: float
    until: float = float("inf")


Fault = Drop | Delay | Sever | Kill | Stop | Wedge


@dataclasses.dataclass(frozen=True)
class FaultPlan:
    """The planned faults, and the seed of the delays."""

    faults: Sequence[Fault] = ()
    seed: int = 0


class SimulatedNetwork(VirtualNetwork):
    """The network, its clock and its hosts, with faults.

    Args:
      plan: the faults and the seed.
      latency_s: smallest and largest delay of a message, in virtual seconds.
    """

    def __init__(self, plan: FaultPlan | None = None, latency_s: tuple[float, float] = (50e-6, 200e-6)) -> None:
        self.plan = plan or FaultPlan()
        super().__init__(self.plan.seed, latency_s)
        self.random = random.Random(self.plan.seed)
        self.history: list[tuple[float, str, str, str]] = []
        self._seen: collections.Counter[tuple[LinkName, str]] = collections.Counter()
        self._stops = [f for f in self.plan.faults if isinstance(f, Stop)]
        self._wedges = [f for f in self.plan.faults if isinstance(f, Wedge)]
        self._severs = [f for f in self.plan.faults if isinstance(f, Sever)]
        self._on_messages = [f for f in self.plan.faults if isinstance(f, (Drop, Delay))]
        self._planned: list[Timer] = []
        self._plan_faults()

    def kill(self, name: str) -> None:
        """Kills a host now; see `Kill`."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            return
        host.alive = False
        self.note("killed", name, "")
        for address, listener in list(self.listeners.items()):
            if listener.host is host:
                del self.listeners[address]
        for connection in list(self.connections):
            if connection.host is host:
                connection.die()
        for thread in host.threads:
            self.call_later(0.0, self.hand_over, thread.turn)

    def end(self, name: str) -> None:
        """Stops the servers of a host now, and kills it soon; see `Kill`."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            return
        self.note("ended", name, "")
        for _, server in list(host.servers.values()):
            # In a thread of the process: it waits, and may be killed before it has waited long enough.
            host.thread(server.stop, name="stop").start()
        self.call_later(_EXIT_S, self.kill, name)

    def sever(self, one: str, other: str, silent: bool = False) -> None:
        """Cuts the connections between two hosts now; see `Sever`."""
        self.note("severed", one, other)
        for connection in list(self.connections):
            if not silent and {connection.host.name, connection.peer_name} == {one, other}:
                connection.cut(f"the link between {one} and {other} was cut")

    def end_faults(self) -> None:
        """From now on nothing fails."""
        for timer in self._planned:
            timer.cancel()
        self._stops, self._severs, self._on_messages = [], [], []

    # -- inside --------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        for fault in self.plan.faults:
            if isinstance(fault, Kill):
                self._planned.append(self.heap.add(fault.at, self.end if fault.gently else self.kill, (fault.task,)))
            elif isinstance(fault, Sever):
                self._planned.append(self.heap.add(fault.at, self.sever, (*fault.link, fault.silent)))

    def note(self, event: str, source: str, target: str = "") -> None:
        """Adds an event to the history."""
        self.history.append((self._time, event, source, target))

    def stopped_until(self, name: str) -> float:
        """The time when the host continues, if it is stopped now; else the current time."""
        until = self._time
        # It may be stopped again before: what comes at once must keep its order with what came meanwhile.
        for fault in sorted((f for f in self._stops if f.task == name), key=lambda f: f.at):
            if fault.at <= until < fault.until:
                until = fault.until
        return until

    def wedged_until(self, name: str) -> float:
        """The time when the host handles messages again, if it does not now; else the current time."""
        now = self._time
        return max((f.until for f in self._wedges if f.task == name and f.at <= now < f.until), default=now)

    def severed(self, one: str, other: str) -> Sever | None:
        """The fault that cuts the link between two hosts now, or None; of several the worst."""
        now = self._time
        found = [f for f in self._severs if f.at <= now < f.until and {*f.link} == {one, other}]
        return max(found, key=lambda f: (not f.silent, f.until), default=None)

    def delay_of(self, source: str, target: str, parts: Sequence[Any]) -> float | None:
        """The delay of a message; None if it is lost."""
        kind = _kind_of(parts)
        link = (source, target)
        delay = self.random.uniform(*self.latency_s)
        for counted in {kind, ""}:
            self._seen[link, counted] += 1
        for fault in self._on_messages:
            if fault.link != link or fault.kind not in (kind, ""):
                continue
            if self._seen[link, fault.kind] != fault.nth:
                continue
            if isinstance(fault, Drop):
                self.note(f"dropped {kind}", source, target)
                return None
            delay += fault.seconds
        cut = self.severed(source, target)
        if cut is not None:
            if not cut.silent or cut.until == _FOREVER:
                return None
            delay += cut.until - self._time  # the transport sends it again
        self.note(kind, source, target)
        return delay


def _kind_of(parts: Sequence[Any]) -> str:
    try:
        header = msgpack.unpackb(parts[0], strict_map_key=False, ext_hook=lambda code, data: None)
        return REGISTRY[header[1]].__name__
    except (ValueError, TypeError, KeyError, IndexError):
        return "?"  # a test's own bytes
