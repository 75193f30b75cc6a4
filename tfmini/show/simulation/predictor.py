"""The prediction of a run by the runtime itself, in virtual time.

::

    found = tfmini.inspect("train.py", ps=2, workers=4)
    model = StepModel(found, Topology.of(tasks_of(found), profile, "10Gbit"), profile, workers=4)
    model.predict().step_s            # as the script places its ops
    model.predict(placement).step_s   # elsewhere: op -> full device name

Each task has a server with its master and its worker; each worker's client opens a session, extends its graph, and
runs steps. Kernels are replaced by their cost (`modelled_kernels`), messages take CPU time and pass NICs
(`timed_host`).
"""

from __future__ import annotations

import gc
import logging
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfmini.devices import parse, task_of_device
from tfmini.graph.node import Node, Nodes, output_dtypes
from tfmini.graph.op_types import ops_with, trait_of
from tfmini.graph.prune import reachable, step_graph
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.client.answer import Answer
from tfmini.runtime.client.master_clients import DirectMaster
from tfmini.runtime.compiler.levels import Program
from tfmini.runtime.executor.registered_graph import RegisteredGraph
from tfmini.runtime.master.registration import Part, Plan, Registration, endpoint_of
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.process import current_process
from tfmini.runtime.server import Server
from tfmini.show.inspection.findings import COLLECTIVES, Inspection
from tfmini.show.simulation.cores import Deciding
from tfmini.show.simulation.gpu_costs import gpu_seconds, on_host
from tfmini.show.simulation.modelled_kernels import CollectiveKernels, KernelTimes, SharedPrograms, phantom
from tfmini.show.simulation.prediction import Event, Prediction, Topology, Used, counted_of, prediction_of
from tfmini.show.simulation.profile import KernelCosts, Machine, Profile
from tfmini.show.simulation.timed_host import TimedHost, TimedNetwork

_PORT = 2222
_APART_S = 1e-3  # the most that workers begin apart
_IDLE_S = 20.13  # virtual seconds without work after which steps wait for ever; no multiple of a heartbeat's
_INITIALIZERS = ops_with("writes", "assign")


def tasks_of(found: Inspection) -> list[str]:
    """The full names of all tasks of an inspection's cluster."""
    return list(dict.fromkeys(task_of_device(summary.device) for summary in found.devices))


class StepModel:
    """Predicts the steps of one graph, for one placement or many.

    Args:
      found: the graph, its step and its shapes. Unknown shapes count as nothing: inspect with ``batch``.
      cluster: where the tasks are; it needs all tasks that placements name.
      profile: the costs.
      workers: how many workers run the same step at once, each with a graph of its own (between-graph replication).
        Replica i has worker i in place of the client's task, after a chief worker i - 1; all share the other tasks.
      steps: how many steps each worker runs. All but each worker's first and last count, for there all workers run.
      seed: of the moments at which workers begin, up to a millisecond apart.

    With synchronous replicas, the chief's updates run beside the workers' steps.

    Raises:
      ValueError: the cluster has no task for a replica.
    """

    def __init__(
        self, found: Inspection, cluster: Topology, profile: Profile, workers: int = 1, steps: int = 3, seed: int = 0
    ) -> None:
        self.found, self.cluster, self.profile, self.steps, self.seed = found, cluster, profile, steps, seed
        self.update = chief_update(found.nodes)
        self.deciding = Deciding(found.nodes, found.shapes, steps_of(found))
        self._costs: dict[str, KernelCosts] = {}  # by the machine's name
        self._renamed = _replicas(found.master, workers, cluster)
        chance = random.Random(seed)
        self._starts = [chance.uniform(0.0, _APART_S) if workers > 1 else 0.0 for _ in range(workers)]

    def costs(self, machine: Machine) -> KernelCosts:
        """Returns what the ops cost on a machine."""
        if machine.name not in self._costs:
            measured = {**self.profile.ops, **gpu_seconds(self.found, machine)}
            self._costs[machine.name] = KernelCosts(machine, self.found.nodes, self.found.shapes, measured)
        return self._costs[machine.name]

    def predict(self, placement: Mapping[str, str] | None = None) -> Prediction:
        """Predicts the run for a placement.

        Args:
          placement: op -> full device name, ``/job:ps/replica:0/task:0/device:CPU:0``; ops that are not in it stay
            where the inspection has them. Colocation is the caller's business.

        Raises:
          InvalidArgumentError, UnimplementedError: the graph cannot be placed or cut like that, or an op cannot run.
          RuntimeError: the steps wait for each other for ever.
        """
        devices = {**self.found.placement.devices(), **(placement or {})}
        nodes = [node.replace(device=on_host(devices[name])) for name, node in self.found.nodes.items()]
        simulation = _Simulation(self, nodes)
        collects = gc.isenabled()
        gc.disable()  # nearly all objects live until the end: to look through them takes a fifth of the time
        try:
            return simulation.run(self._renamed, self._starts)
        finally:
            simulation.network.end()
            if collects:
                gc.enable()


class _Simulation:
    """One run."""

    def __init__(self, model: StepModel, nodes: list[Node]) -> None:
        self._model, self._found, self._nodes = model, model.found, nodes
        self.network = TimedNetwork(model.cluster, self._kernel_times, model.seed)
        self._collectives = CollectiveKernels(self.network)
        self.programs = SharedPrograms(task_of_device(self._found.master))
        self._replicas: list[Waiter] = []
        self._addresses = _addresses(model.cluster)
        self._ends: list[tuple[int, float, float, Event]] = []
        self._left = 0
        self._ready = 0
        self._begin: list[Waiter] = []
        self._failures: list[BaseException] = []
        self._used: dict[int, Used] = {}  # by the number of steps that had ended

    def _kernel_times(self, network: TimedNetwork, machine: Machine) -> KernelTimes:
        found, model = self._found, self._model
        return KernelTimes(
            network, machine, found.nodes, found.shapes, model.costs(machine), model.deciding, self._collectives,
            self.programs,
        )  # fmt: skip

    # ---- the run ----------------------------------------------------------------------------

    def run(self, renamed: Sequence[Mapping[str, str]], starts: Sequence[float]) -> Prediction:
        """Runs all clients."""
        network, model = self.network, self._model
        quiet = _Quiet(network)
        logger = logging.getLogger("tfmini.runtime")
        logger.addFilter(quiet)
        try:
            for task in model.cluster.hosts:
                self._serve(task)
            clients = [_Client(self, i, names, start) for i, (names, start) in enumerate(zip(renamed, starts))]
            self._left = len(clients)
            for client in clients:
                network.timed_host(client.task).spawn(self._guarded, client.run)
            expected = len(clients) + (self._model.update is not None)
            self._wait(lambda: self._ready == expected)
            self._start_clocks()
            self._wait(lambda: self._left == 0)
        finally:
            logger.removeFilter(quiet)
        return self._prediction(len(clients))

    def _serve(self, task: str) -> None:
        parsed = parse(task)
        host = self.network.timed_host(task)
        host.run(lambda: Server(self._addresses, parsed.job, parsed.task))

    def _guarded(self, program: Callable[[], None]) -> None:
        try:
            program()
        except Exception as error:  # noqa: BLE001 - `_wait` raises it in the thread that simulates
            self._failures.append(error)

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Makes calls until that is so."""
        network = self.network
        while not is_over():
            before = network.work
            network.run_while(lambda: not (is_over() or self._failures or network.crashes), _IDLE_S)
            if self._failures:
                raise self._failures[0]
            if network.crashes:
                raise network.crashes[0]
            if network.work == before and network.is_idle and not is_over():
                raise self._stuck()

    def _stuck(self) -> RuntimeError:
        workers = len(self._model._renamed)
        return RuntimeError(
            f"{len(self._ends)} of {self._model.steps * workers} steps have ended, and the others wait for each other"
            f" for ever. The usual cause is a script that expects another number of replicas than the {workers}"
            " simulated workers."
        )

    def ready(self) -> Waiter:
        """A client is about to begin its steps; returns what it waits for."""
        self._ready += 1
        waiter = Waiter()
        self._begin.append(waiter)
        return waiter

    def _start_clocks(self) -> None:
        network = self.network
        network.nics.reset()
        self._used[0] = self._used_now()
        for waiter in self._begin:
            waiter.set()

    @property
    def shares_programs(self) -> bool:
        """Whether replicas may share programs. Members of a collective may not: they differ by more than sends."""
        return not any(node.op in COLLECTIVES for node in self._found.nodes.values())

    def first_plan(self) -> Waiter:
        """Returns what a replica waits for before it begins."""
        waiter = Waiter()
        if self.programs.plan is not None:
            waiter.set()
        self._replicas.append(waiter)
        return waiter

    def planned(self, client: int, plan: Plan) -> None:
        """A client has registered its plan."""
        if client == 0:
            self.programs.keep(plan, {part.task: self._program_of(part) for part in plan.parts})
            for waiter in self._replicas:
                waiter.set()

    def _program_of(self, part: Part) -> Program:
        if part.graph is not None:
            return part.graph.program
        [(_, server)] = self.network.timed_host(part.task).servers.values()
        graph: RegisteredGraph = server.worker.graph(part.graph_handle)
        return graph.program

    def over(self, client: int, began: float, last: Event | None) -> None:
        """A client has run a step."""
        now = self.network.now()
        self._ends.append((client, began, now, last or Event("Session.run", "", now, None)))
        counted = self._counted()
        if len(self._ends) in (counted.start, counted.stop):
            self._used[len(self._ends)] = self._used_now()

    def _counted(self) -> slice:
        return counted_of(self._model.steps, len(self._model._starts))

    def _used_now(self) -> Used:
        network = self.network
        links = {host: network.nics.busy_s(host) for host in network.nics.cluster.machines}
        return Used(network.now(), {host.name: host.busy_s for host in network.hosts()}, links)

    def finished(self) -> None:
        """A client has run its steps."""
        self._left -= 1

    @property
    def is_over(self) -> bool:
        """Whether all clients have run their steps."""
        return self._left == 0

    def _prediction(self, clients: int) -> Prediction:
        counted = self._counted()
        since, until = self._used[counted.start], self._used[counted.stop]
        predicted = prediction_of(self._ends, clients, since, until, self.network.nics)
        # Steps of others end meanwhile in any run, but they are updates only where each worker makes its own.
        return predicted if mode_of(self._found) == "async" else replace(predicted, staleness=0.0)


class _Client:
    """The client of one worker: a program in that task's process."""

    def __init__(self, simulation: _Simulation, index: int, renamed: Mapping[str, str], start_s: float) -> None:
        self._simulation, self._index, self._renamed, self._start_s = simulation, index, renamed, start_s
        master = task_of_device(simulation._found.master)
        self.task = renamed.get(master, master)

    def run(self) -> None:
        """Opens a session, and runs the steps."""
        simulation, host = self._simulation, current_process()
        assert isinstance(host, TimedHost)
        found = simulation._found
        [(_, server)] = host.servers.values()
        master = DirectMaster(server.master, SessionOptions(connect_timeout_s=1e6))
        if self._index == 0 or not simulation.shares_programs:
            master.extend([self._own(node) for node in simulation._nodes])
            plan = master.prepare((found.feeds, found.fetches, found.targets))
            self._initialize(master, found)
            simulation.planned(self._index, plan)
        else:
            host.drive(simulation.first_plan())
            plan = self._registered(server, master)
            self._initialize(master, found, is_new=True)
        values = [_fed(found, name) for name in found.feeds]
        if self._index == 0 and simulation._model.update is not None:
            host.spawn(simulation._guarded, lambda: self._run_updates(host, master))
        host.drive(simulation.ready())
        host.sleep(self._start_s)
        for _ in range(simulation._model.steps):
            began = host.now()
            self._step(host, master, plan, values)
            simulation.over(self._index, began, host.latest)
        simulation.finished()

    def _registered(self, server: Server, master: DirectMaster) -> Plan:
        """The first worker's plan, registered for this one."""
        plan = self._simulation.programs.replica(self.task)
        answer: Answer[None] = Answer(server.master.reactor)
        Registration(master.session.tasks, plan, answer.done).start()
        answer.result()
        return plan

    def _step(self, host: TimedHost, master: DirectMaster, plan: Any, values: list[Any]) -> None:
        if len(plan.parts) > 1 or plan.parts[0].task != self.task:
            host.charge(host.machine.step_s, "Session.run")
            if host.recording is not None:
                host.recording.then(None)
        master.run(plan, values, None)
        host.settle()

    def _run_updates(self, host: TimedHost, master: DirectMaster) -> None:
        """The chief's thread: applies the mean of the workers' gradients, again and again."""
        plan = master.prepare(((), (), (self._simulation._model.update or "",)))
        host.drive(self._simulation.ready())
        while not self._simulation.is_over:
            self._step(host, master, plan, [])

    def _own(self, node: Node) -> Node:
        """A node of this client's graph."""
        if not self._renamed:
            return node
        [(template, own)] = self._renamed.items()
        if node.device.startswith(f"{template}/"):
            return node.replace(device=own + node.device[len(template) :])
        return node

    def _initialize(self, master: DirectMaster, found: Inspection, is_new: bool = False) -> None:
        """Gives the variables that decide their first values: the chief all of them, others those on their own task.

        Args:
          is_new: the session does not have the graph yet.
        """
        names = []
        for variable in self._simulation._model.deciding.variables():
            device = found.placement[variable].device
            if self._index == 0 or task_of_device(device) in self._renamed:
                names += _initializer(found.nodes, variable)
        if names and is_new:
            needed = reachable(found.nodes, names)
            master.extend([self._own(node) for node in self._simulation._nodes if node.name in needed])
        if names:
            master.run(master.prepare(((), (), tuple(names))), [], None)


def _initializer(nodes: Nodes, variable: str) -> list[str]:
    """The op that gives a variable its first value; none if the graph has none."""
    usual = nodes.get(f"{variable}/Assign")
    if usual is not None and usual.op in _INITIALIZERS:
        return [usual.name]
    found = (n.name for n in nodes.values() if n.op in _INITIALIZERS and n.inputs[0][0] == variable)
    return [name for name, _ in zip(found, range(1))]


def _fed(found: Inspection, tensor: str) -> Any:
    name, index = endpoint_of(tensor)
    return phantom(output_dtypes(found.nodes[name])[index], found.shapes.get((name, index)))


def _addresses(cluster: Topology) -> dict[str, dict[int, str]]:
    """The tasks of the simulation, as a cluster definition."""
    jobs: dict[str, dict[int, str]] = {}
    for number, task in enumerate(cluster.hosts):
        found = parse(task)
        jobs.setdefault(found.job or "", {})[found.task or 0] = f"task{number}:{_PORT}"
    return jobs


class _Quiet(logging.Filter):
    """Drops what simulated processes log: a step of many virtual seconds is no news."""

    def __init__(self, network: TimedNetwork) -> None:
        super().__init__()
        self._network = network

    def filter(self, record: logging.LogRecord) -> bool:
        return not isinstance(current_process(), TimedHost)


def steps_of(found: Inspection) -> list[Nodes]:
    """The ops of a worker's step, and those of the chief's update if it runs one beside the steps."""
    update = chief_update(found.nodes)
    step = _pruned(found, found.fetches, found.targets, found.feeds)
    return [step] if update is None else [step, _pruned(found, (), (update,), ())]


def _pruned(found: Inspection, fetches: Sequence[str], targets: Sequence[str], feeds: Sequence[str]) -> Nodes:
    wanted, fed = [endpoint_of(f) for f in fetches], [endpoint_of(f) for f in feeds]
    return step_graph(found.nodes, wanted, list(targets), fed, found.master).nodes


def chief_update(nodes: Nodes) -> str | None:
    """The op that the chief of synchronous replicas runs beside the steps: it takes from accumulators and fills the
    token queue. None without one.
    """
    taking: set[str] = set()
    for name, node in nodes.items():
        sources = {source for source, _ in node.inputs} | set(node.controls)
        if trait_of(node.op, "accumulator") == "take" or not sources.isdisjoint(taking):
            taking.add(name)
            if trait_of(node.op, "queue") == "enqueue":
                return name
    return None


def _replicas(master: str, workers: int, cluster: Topology) -> list[dict[str, str]]:
    """For each replica of a worker's graph, the task that takes the place of the client's."""
    return [_replica(master, i, cluster) if workers > 1 else {} for i in range(workers)]


def _replica(master: str, index: int, cluster: Topology) -> dict[str, str]:
    own = parse(task_of_device(master))
    job, first = own.job, own.task or 0
    if index and job == "chief":  # the workers come after it
        job, first = "worker", -1
    task = f"/job:{job}/replica:0/task:{first + index}"
    if task not in cluster.hosts:
        raise ValueError(f"The cluster has no {task} for replica {index} of the graph of {own.job}/{own.task or 0}.")
    return {task_of_device(master): task}


# ---- Predictions for several numbers of workers, and where more workers stop to help -------------------------------

MOST_STEPS = 5000  # of all workers together. With two ps they take about 20 s of CPU.
_LEAST_STEPS = 3  # of a worker: its first and its last do not count
_HALF = 0.5  # of the throughput per worker at the first point


@dataclass(frozen=True)
class Point:
    """The prediction for a number of workers."""

    workers: int
    prediction: Prediction

    def efficiency(self, first: Point) -> float:
        """The throughput per worker, beside that of the first point."""
        each = self.prediction.throughput / self.workers
        return each / (first.prediction.throughput / first.workers)


def worker_counts(text: str) -> list[int]:
    """``8`` is 8; ``1..100`` is 1, 2, 4, … and 100.

    Raises:
      ValueError: it is neither.
    """
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if found is None or int(found[1]) < 1 or found[2] is not None and int(found[2]) < int(found[1]):
        raise ValueError(f"{text!r} is no number of workers: give one, such as 8, or a rising range, such as 1..128.")
    last = int(found[2] or found[1])
    counts = [int(found[1])]
    while counts[-1] * 2 <= last:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == last else [*counts, last]


def mode_of(found: Inspection) -> str:
    """How a graph trains: ``sync``, ``allreduce`` or ``async``."""
    if chief_update(found.nodes) is not None:
        return "sync"
    return "allreduce" if any(node.op in COLLECTIVES for node in found.nodes.values()) else "async"


def steps_each(counts: Sequence[int], steps: int) -> int:
    """The steps of each worker: at most ``steps``, and fewer where all of a sweep would be more than `MOST_STEPS`."""
    return min(steps, max(_LEAST_STEPS, MOST_STEPS // sum(counts)))


def sweep(
    counts: Sequence[int], inspected: Callable[[int], Inspection], profile: Profile, link: str = "", steps: int = 10,
    seed: int = 0,
) -> list[Point]:  # fmt: skip
    """Predicts a run for each number of workers.

    Args:
      inspected: number of workers -> the graph of one of them in a cluster of so many.
      link: between machines, one for each task; "": all tasks are on one machine.
      steps, seed: see `StepModel`.
    """
    points = []
    for count in counts:
        found = inspected(count)
        cluster = Topology.of(tasks_of(found), profile, link)
        points.append(Point(count, StepModel(found, cluster, profile, count, steps, seed).predict()))
    return points


def knee(points: Sequence[Point]) -> Point | None:
    """The first point at which a worker gives less than half of what it gives at the first point; None without one."""
    return next((point for point in points if point.efficiency(points[0]) < _HALF), None)
