"""The fast prediction of a step for a placement: for searches that try many placements.

::

    found = tfmini.inspect("train.py", ps=2, workers=4)
    model = StepModel(found, Cluster.on_own_machines(tasks_of(found), profile, "10Gbit"), profile, workers=4)
    model.predict().step_s            # as the script places its ops
    model.predict(placement).step_s   # elsewhere: op -> full device name

`virtual_cluster` is exact where this one simplifies: see `event_graph`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

from tfmini.devices import parse, task_of_device
from tfmini.graph.node import Endpoint, Nodes
from tfmini.graph.prune import step_graph
from tfmini.inspection.cost import size
from tfmini.inspection.findings import Inspection
from tfmini.placement.layout import Layout, Route, lay_out
from tfmini.placement.partition import Pair, partition
from tfmini.runtime.master.plan import endpoint_of
from tfmini.simulation.cores import Events
from tfmini.simulation.event_graph import StepPlan, World, run_replicas
from tfmini.simulation.kernel_costs import KernelCosts
from tfmini.simulation.links import Cluster
from tfmini.simulation.prediction import Event, Prediction, path_to
from tfmini.simulation.profile import Profile
from tfmini.simulation.task_program import CollectiveWaits, task_program


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
      steps: how many steps each worker runs; all but the first count, for steps that follow each other.

    Raises:
      ValueError: the cluster has no task for a replica.
    """

    def __init__(self, found: Inspection, cluster: Cluster, profile: Profile, workers: int = 1, steps: int = 3) -> None:
        self.found, self.cluster, self.profile, self.steps = found, cluster, profile, steps
        self._incarnations = {summary.device: i + 1 for i, summary in enumerate(found.devices)}
        self._nodes = step_graph(
            found.nodes, [endpoint_of(f) for f in found.fetches], list(found.targets),
            [endpoint_of(f) for f in found.feeds], found.master, self._incarnations[found.master],
        )  # fmt: skip
        self._costs = {
            machine.name: KernelCosts(machine, found.nodes, found.shapes, profile.ops)
            for machine in cluster.machines.values()
        }
        self._renamed = [_replica(found.master, i, cluster) if workers > 1 else {} for i in range(workers)]

    def predict(self, placement: Mapping[str, str] | None = None) -> Prediction:
        """Predicts the run for a placement.

        Args:
          placement: op -> full device name, ``/job:ps/replica:0/task:0/device:CPU:0``; ops that are not in it stay
            where the inspection has them. Colocation is the caller's business.

        Raises:
          InvalidArgumentError, UnimplementedError: the graph cannot be cut like that, or an op cannot run.
        """
        plan = self.plan(placement)
        events = Events()
        world = World(events, self.cluster)
        ends = run_replicas(world, [(plan, renamed) for renamed in self._renamed], self.steps)
        events.run()
        return _prediction(world, ends, len(self._renamed))

    def plan(self, placement: Mapping[str, str] | None = None) -> StepPlan:
        """Cuts and lays out the step for a placement; see `predict`."""
        found = self.found
        devices = found.placement.devices()
        if placement:
            devices = {**devices, **placement}
        partitions = partition(self._nodes, devices, incarnations=self._incarnations, name_counter=itertools.count())
        layout = lay_out(partitions)
        waits = CollectiveWaits(self.cluster.link, found.shapes)
        programs = {}
        for task, nodes in layout.tasks.items():
            machine = self.cluster.machines[self.cluster.hosts[task]]
            costs = self._costs[machine.name]
            programs[task] = task_program(list(nodes.values()), costs, machine.segment_s, waits)
        return _with_traffic(task_of_device(found.master), programs, layout, self._payloads())

    def _payloads(self) -> _Payloads:
        return _Payloads(self.found, self._nodes)


def _replica(master: str, index: int, cluster: Cluster) -> dict[str, str]:
    own = parse(task_of_device(master))
    first = own.task or 0
    task = f"/job:{own.job}/replica:0/task:{first + index}"
    if task not in cluster.hosts:
        raise ValueError(f"The cluster has no {task} for replica {index}.")
    return {task_of_device(master): task}


class _Payloads:
    """The bytes of the values that pairs carry."""

    def __init__(self, found: Inspection, nodes: Nodes) -> None:
        self._shapes, self._nodes = found.shapes, nodes

    def of(self, pair: Pair) -> int:
        """Bytes of the value; 0 where its shape is unknown."""
        if pair.is_control:
            return 0
        count = size(self._shapes.get(self._endpoint(pair)))
        fixed = pair.dtype.name not in ("string", "resource", "variant")
        return count * pair.dtype.size if count is not None and fixed else 0

    def _endpoint(self, pair: Pair) -> Endpoint:
        node = self._nodes[pair.source[0]]
        if node.op == "_Recv":
            return endpoint_of(node.attrs["tensor_name"].decode())
        return pair.source


def _with_traffic(master: str, programs: Mapping[str, object], layout: Layout, payloads: _Payloads) -> StepPlan:
    groups: dict[int, tuple[str, int, str]] = {}
    fed: dict[str, int] = {}
    fetched: dict[str, int] = {}
    for pair, route in layout.routes:
        nbytes = payloads.of(pair)
        src, dst = task_of_device(pair.src), task_of_device(pair.dst)
        if route is Route.SENT:
            group = layout.tasks[src][pair.send].attrs["_group"]
            _, before, label = groups.get(group, (dst, 0, pair.source[0]))
            groups[group] = (dst, before + nbytes, label)
        elif route is Route.FED:
            fed[dst] = fed.get(dst, 0) + nbytes
        elif route is Route.FETCHED:
            fetched[src] = fetched.get(src, 0) + nbytes
    return StepPlan(master, programs, groups, fed, fetched)  # type: ignore[arg-type]


def _prediction(world: World, ends: Sequence[Event], clients: int) -> Prediction:
    end_s = world.clock.now()
    counted = ends[clients:] or ends  # without the first step of each client
    seconds = [event.end - event.start for event in counted]
    began = min(event.start for event in counted)
    last = ends[-1]
    return Prediction(
        step_s=statistics.median(seconds), steps_s=seconds, throughput=len(counted) / (end_s - began),
        busy={task: each.busy_s / end_s for task, each in world.tasks.items()},
        links={
            host: (world.nics.sent[host].busy_s / end_s, world.nics.received[host].busy_s / end_s)
            for host in world.cluster.machines
        },
        nbytes=dict(world.nics.carried), steps=len(ends), critical=path_to(last.cause, last.start),
    )  # fmt: skip
