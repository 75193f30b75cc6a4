"""The fast prediction of a step for a placement: for searches that try many placements.

::

    found = tfmini.inspect("train.py", ps=2, workers=4)
    model = StepModel(found, Cluster.on_own_machines(tasks_of(found), profile, "10Gbit"), profile, workers=4)
    model.predict().step_s            # as the script places its ops
    model.predict(placement).step_s   # elsewhere: op -> full device name

Where it simplifies: see `event_graph`.
"""

from __future__ import annotations

import functools
import itertools
import random
import statistics
from collections.abc import Mapping, Sequence

from tfmini.devices import parse, task_of_device
from tfmini.graph.node import Endpoint, Nodes
from tfmini.graph.prune import StepGraph, step_graph
from tfmini.graph.traits import trait_of
from tfmini.inspection.cost import Shapes, size
from tfmini.inspection.findings import Inspection
from tfmini.placement.partition import Partitions, partition
from tfmini.placement.task_graph import Pair, Route
from tfmini.runtime.master.plan import endpoint_of
from tfmini.simulation.cores import Events
from tfmini.simulation.event_graph import Client, StepPlan, World, run_clients
from tfmini.simulation.kernel_costs import KernelCosts
from tfmini.simulation.links import Cluster, Nics
from tfmini.simulation.prediction import Event, Prediction, path_to
from tfmini.simulation.profile import Profile
from tfmini.simulation.task_program import TaskProgram, task_program
from tfmini.simulation.waits import wait_of

APART_S = 1e-3  # the most that workers begin apart
_NEAR = 2000  # the steps for which staleness is counted


def tasks_of(found: Inspection) -> list[str]:
    """The full names of all tasks of an inspection's cluster."""
    return list(dict.fromkeys(task_of_device(summary.device) for summary in found.devices))


def predict_step(
    found: Inspection, cluster: Cluster, profile: Profile, placement: Mapping[str, str] | None = None,
    workers: int = 1, steps: int = 3,
) -> Prediction:  # fmt: skip
    """Predicts the steps of a graph once; `StepModel` is faster for several placements.

    Args: see `StepModel` and `StepModel.predict`.
    """
    return StepModel(found, cluster, profile, workers, steps).predict(placement)


class StepModel:
    """Predicts the step of one graph for many placements.

    Args:
      found: the graph, its step and its shapes. Unknown shapes count as nothing: inspect with ``batch``.
      cluster: where the tasks are; it needs all tasks that placements name.
      profile: the costs.
      workers: how many workers run the same step at once, each with a graph of its own (between-graph replication).
        Replica i has worker i in place of the client's task; all share the other tasks.
      steps: how many steps each worker runs. All but each worker's first and last count, for there all workers run.
      seed: of the moments at which workers begin, up to a millisecond apart.

    With synchronous replicas, the chief's updates run beside the workers' steps.

    Raises:
      ValueError: the cluster has no task for a replica.
    """

    def __init__(
        self, found: Inspection, cluster: Cluster, profile: Profile, workers: int = 1, steps: int = 3, seed: int = 0
    ) -> None:
        self.found, self.cluster, self.profile, self.steps = found, cluster, profile, steps
        self._costs = {
            name: KernelCosts(machine, found.nodes, found.shapes, profile.ops)
            for name, machine in {machine.name: machine for machine in cluster.machines.values()}.items()
        }
        self._incarnations = incarnations_of(found)
        self._step, self._update = steps_of(found)
        self._renamed = replicas(found.master, workers, cluster)
        chance = random.Random(seed)
        self._starts = [chance.uniform(0.0, APART_S) if workers > 1 else 0.0 for _ in range(workers)]

    def predict(self, placement: Mapping[str, str] | None = None) -> Prediction:
        """Predicts the run for a placement.

        Args:
          placement: op -> full device name, ``/job:ps/replica:0/task:0/device:CPU:0``; ops that are not in it stay
            where the inspection has them. Colocation is the caller's business.

        Raises:
          InvalidArgumentError, UnimplementedError: the graph cannot be cut like that, or an op cannot run.
          RuntimeError: the steps wait for each other for ever.
        """
        devices = self.found.placement.devices()
        if placement:
            devices = {**devices, **placement}
        plan = self._plan(self._step, devices)
        clients = [Client(plan, *each) for each in zip(self._renamed, itertools.repeat(self.steps), self._starts)]
        if self._update is not None:
            clients.append(Client(self._plan(self._update, devices)))
        events = Events()
        world = World(events, self.cluster, [client.plan for client in clients])
        ends = run_clients(world, clients)
        events.run()
        if len(ends) < self.steps * len(self._renamed):
            raise RuntimeError(stuck(len(ends), self.steps, len(self._renamed)))
        end_s = world.clock.now()
        busy = {task: each.busy_s / end_s for task, each in world.tasks.items()}
        return prediction_of(ends, len(self._renamed), busy, world.nics, end_s)

    def plan(self, placement: Mapping[str, str] | None = None) -> StepPlan:
        """Cuts and lays out a worker's step for a placement; see `predict`."""
        return self._plan(self._step, {**self.found.placement.devices(), **(placement or {})})

    def _plan(self, step: StepGraph, devices: Mapping[str, str]) -> StepPlan:
        found = self.found
        partitions = partition(step, devices, incarnations=self._incarnations, name_counter=itertools.count())
        wait = functools.partial(wait_of, nodes=found.nodes, shapes=found.shapes)
        programs = {}
        for task, graph in partitions.tasks.items():
            machine = self.cluster.machines[self.cluster.hosts[task]]
            programs[task] = task_program(graph, self._costs[machine.name], machine.segment_s, wait)
        return _with_traffic(task_of_device(found.master), programs, partitions, found.shapes)


def incarnations_of(found: Inspection) -> dict[str, int]:
    """Numbers for the devices, in place of incarnations."""
    return {summary.device: i + 1 for i, summary in enumerate(found.devices)}


def steps_of(found: Inspection) -> tuple[StepGraph, StepGraph | None]:
    """The ops of a worker's step, and those of the chief's update if it runs one beside the steps."""
    update = chief_update(found.nodes)
    step = _pruned(found, found.fetches, found.targets, found.feeds)
    return step, None if update is None else _pruned(found, (), (update,), ())


def _pruned(found: Inspection, fetches: Sequence[str], targets: Sequence[str], feeds: Sequence[str]) -> StepGraph:
    fetched, fed = [endpoint_of(f) for f in fetches], [endpoint_of(f) for f in feeds]
    return step_graph(found.nodes, fetched, list(targets), fed, found.master)


def stuck(ended: int, steps: int, workers: int) -> str:
    """The message of a run whose steps wait for each other for ever."""
    return (
        f"{ended} of {steps * workers} steps have ended, and the others wait for each other for ever. The usual cause"
        f" is a script that expects another number of replicas than the {workers} simulated workers."
    )


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


def replicas(master: str, workers: int, cluster: Cluster) -> list[dict[str, str]]:
    """For each replica of a worker's graph, the task that takes the place of the client's.

    Raises:
      ValueError: the cluster has no task for a replica.
    """
    return [_replica(master, i, cluster) if workers > 1 else {} for i in range(workers)]


def _replica(master: str, index: int, cluster: Cluster) -> dict[str, str]:
    own = parse(task_of_device(master))
    first = own.task or 0
    task = f"/job:{own.job}/replica:0/task:{first + index}"
    if task not in cluster.hosts:
        raise ValueError(f"The cluster has no {task} for replica {index}.")
    return {task_of_device(master): task}


def _payload(pair: Pair, tensor: Endpoint, shapes: Shapes) -> int:
    """The bytes of the value that a pair carries; 0 where its shape is unknown."""
    if pair.is_control:
        return 0
    count = size(shapes.get(tensor))
    fixed = pair.dtype.name not in ("string", "resource", "variant")
    return count * pair.dtype.size if count is not None and fixed else 0


def _with_traffic(
    master: str, programs: Mapping[str, TaskProgram], partitions: Partitions, shapes: Shapes
) -> StepPlan:
    groups: dict[int, tuple[str, int, str]] = {}
    fed: dict[str, int] = {}
    fetched: dict[str, int] = {}
    tensors = dict(partitions.step.feeds)
    for pair in partitions.pairs:
        nbytes = _payload(pair, tensors.get(pair.source[0], pair.source), shapes)
        src, dst = pair.src.task, pair.dst.task
        if pair.route is Route.SENT:
            group = partitions.tasks[src].sends[pair.send].group
            _, before, label = groups.get(group, (dst, 0, pair.source[0]))
            groups[group] = (dst, before + nbytes, label)
        elif pair.route is Route.FED:
            fed[dst] = fed.get(dst, 0) + nbytes
        elif pair.route is Route.FETCHED:
            fetched[src] = fetched.get(src, 0) + nbytes
    return StepPlan(master, programs, groups, fed, fetched)


def prediction_of(
    ends: Sequence[tuple[int, float, float, Event]], clients: int, busy: Mapping[str, float], nics: Nics, seconds: float
) -> Prediction:
    """The prediction of a run.

    Args:
      ends: of each step, in the order of their ends: the number of its client, begin, end, and the last event.
      busy: task -> share of the time.
      seconds: of the whole run.
    """
    counted = ends[clients:-clients] or ends[clients:] or ends  # while all clients run
    steps_s = [end - began for _, began, end, _ in counted]
    last = ends[-1]
    others = [sum(began < each[2] <= end and each[0] != client for each in ends[-_NEAR:]) for client, began, end, _
              in counted[-_NEAR // 2 :]]  # fmt: skip
    return Prediction(
        step_s=statistics.median(steps_s), steps_s=steps_s, throughput=clients / statistics.mean(steps_s), busy=busy,
        links={
            host: (nics.sent[host].busy_s / seconds, nics.received[host].busy_s / seconds)
            for host in nics.cluster.machines
        },
        nbytes=dict(nics.carried), steps=len(ends), critical=path_to(last[3], last[1]),
        staleness=statistics.mean(others),
    )  # fmt: skip
