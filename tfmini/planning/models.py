"""`Models`: a script's graphs, one for each way to cut its variables, and what the simulator predicts for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfmini.devices import device_name
from tfmini.errors import OpError
from tfmini.graph.traits import VARIABLE_OPS
from tfmini.inspection.cost import size, state_bytes
from tfmini.inspection.findings import Inspection
from tfmini.placement.plans import PlacementPlan
from tfmini.placement.wire_table import Transfer
from tfmini.planning.problem import Arrangement, Item, Problem
from tfmini.planning.stand_ins import Built, Script, build
from tfmini.simulation.kernel_costs import KernelCosts
from tfmini.simulation.links import Topology
from tfmini.simulation.predictor import StepModel
from tfmini.simulation.profile import LinkProfile, Profile

_STEPS = 5  # of each worker, in a prediction
_CONSIDERED = 0.1  # the least share of all load, or of a ps's memory, of a variable that may be worth cutting
_LEAST_MOVED = 1024  # bytes that the move of an op must save
_MOST_MOVES = 8

MakeCluster = Callable[[list[str]], Topology]


@dataclass(frozen=True)
class OpMove:
    """An op that may move to the ps of an item, and the bytes per step that this saves."""

    op: str
    item: str
    saved: int


class Models:
    """The graphs of one script, and their predictions.

    Args:
      script: what to build.
      profile: costs of machines and links.
      make_cluster: full task names -> where they are.
      workers: how many workers run the step at once.
      limits: bytes of state that each ps may hold; infinite for no limit.
    """

    def __init__(
        self, script: Script, profile: Profile, make_cluster: MakeCluster, workers: int, limits: Sequence[float]
    ) -> None:
        self.script, self.limits = script, tuple(limits)
        self._profile, self._make_cluster, self._workers = profile, make_cluster, workers
        self._built: dict[tuple[tuple[str, int], ...], tuple[Built, StepModel] | None] = {}
        self.whole = build(script, {})
        self._built[()] = self.whole, self._step_model(self.whole)
        self.moves = _moves(self.whole)
        self.sizes = [self._variable_bytes(names[0]) for names in self.whole.followers.values()]
        self.problem = self._problem()

    def _cluster(self) -> Topology:
        jobs = self.script.jobs
        return self._make_cluster([_task(job, index) for job, indices in jobs.items() for index in indices])

    def _variable_bytes(self, name: str) -> int:
        node = self.whole.found.nodes[name]
        return (state_bytes(node) or 0) if node.op in VARIABLE_OPS else 0

    # ---- the problem

    def _problem(self) -> Problem:
        """The items of the graph, with what the search needs to know of them."""
        loads = _Loads(self.whole.found, self._cluster(), self._profile, self._workers)
        items = []
        for stand_in, names in self.whole.followers.items():
            held = sum(
                state_bytes(node) or 0
                for name, node in self.whole.found.nodes.items()
                if node.op in VARIABLE_OPS and self.whole.found.placement[name].device == stand_in
            )
            items.append(Item(names[0], held, loads.of(stand_in)))
        total, room = sum(item.load_s for item in items), min(self.limits, default=math.inf)
        items = [
            self._with_cuts(item, item.load_s > _CONSIDERED * total or item.nbytes > _CONSIDERED * room)
            for item in items
        ]
        return Problem(tuple(items), self.limits, tuple(move.op for move in self.moves))

    def _with_cuts(self, item: Item, considered: bool) -> Item:
        """The item with the number of its pieces, or with the reason why it stays whole."""
        node = self.whole.found.nodes[item.name]
        shape = node.attrs.get("shape")
        if item.name not in self.whole.seen.asked:
            return replace(item, whole_because="only variables of tf.get_variable without a partitioner can be cut")
        if not shape or shape[0] is None or shape[0] < 2:
            return replace(item, whole_because="it has no two rows")
        most = min(len(self.limits), shape[0])
        if most < 2 or not considered:
            return item
        try:
            self._model(((item.name, 2),))
        except (ValueError, OpError) as error:
            return replace(item, whole_because=f"the script fails with it in parts: {str(error).splitlines()[0]}")
        return replace(item, most=most)

    # ---- the prediction

    def _cuts(self, arrangement: Arrangement) -> tuple[tuple[str, int], ...]:
        return tuple(
            (item.name, len(tasks)) for item, tasks in zip(self.problem.items, arrangement.tasks) if len(tasks) > 1
        )

    def _counts(self, name: str, pieces: int) -> list[int]:
        """The number of parts per axis: always along the first one, of which parts are contiguous in memory."""
        return [pieces, *[1] * (len(self.whole.found.nodes[name].attrs["shape"]) - 1)]

    def _model(self, cuts: tuple[tuple[str, int], ...]) -> tuple[Built, StepModel]:
        known = self._built.get(cuts)
        if known is None:
            built = build(self.script, {name: self._counts(name, pieces) for name, pieces in cuts})
            known = self._built[cuts] = built, self._step_model(built)
        return known

    def _step_model(self, built: Built) -> StepModel:
        return StepModel(built.found, self._cluster(), self._profile, self._workers, _STEPS)

    def cost(self, arrangement: Arrangement) -> float:
        """The predicted seconds of a step; infinite where the script or its graph cannot be cut like that."""
        try:
            built, model = self._model(self._cuts(arrangement))
            return model.predict(self._devices(built, arrangement)).step_s
        except (ValueError, OpError):
            return math.inf

    def exact(self, arrangement: Arrangement) -> float:
        """The same for the very graph of the arrangement; slower, since the script builds it."""
        try:
            cuts = self._cuts(arrangement)
            stand_ins, _ = self._model(cuts)
            counts = {name: self._counts(name, pieces) for name, pieces in cuts}
            built = build(self.script, counts, self._tasks(stand_ins, arrangement))
            model = self._step_model(built)
            moved = self._moved(stand_ins, arrangement)
            return model.predict({op: device_name(self.script.job, task) for op, task in moved.items()}).step_s
        except (ValueError, OpError):
            return math.inf

    def own(self) -> Arrangement | None:
        """The script's own placement; None if it does not place all variables."""
        own = [self.whole.seen.own[names[0]] for names in self.whole.followers.values()]
        if any(task is None or task not in self.problem.tasks for task in own):
            return None
        return Arrangement(tuple((task,) for task in own if task is not None))

    def _devices(self, built: Built, arrangement: Arrangement) -> dict[str, str]:
        """Op -> full device, for ops on stand-ins and moved ops."""
        tasks = self._tasks(built, arrangement)
        real = {stand_in: device_name(self.script.job, tasks[names[0]]) for stand_in, names in built.followers.items()}
        placed = {name: real[d.device] for name, d in built.found.placement.items() if d.device in real}
        for op, task in self._moved(built, arrangement).items():
            placed[op] = device_name(self.script.job, task)
        return placed

    def _tasks(self, built: Built, arrangement: Arrangement) -> dict[str, int]:
        """Variable op, or part of one, -> task."""
        found: dict[str, int] = {}
        for item, tasks in zip(self.problem.items, arrangement.tasks):
            parts = [item.name] if len(tasks) == 1 else [f"{item.name}/part_{i}" for i in range(len(tasks))]
            found.update(zip(parts, tasks))
        for names in built.followers.values():
            leader = next((name for name in names if name in found), names[0])
            for name in names:
                found[name] = found.get(leader, 0)
        return found

    def _moved(self, built: Built, arrangement: Arrangement) -> dict[str, int]:
        where = {item.name: tasks[0] for item, tasks in zip(self.problem.items, arrangement.tasks) if len(tasks) == 1}
        return {
            move.op: where[move.item]
            for move in self.moves
            if move.op in arrangement.moved and move.item in where and move.op in built.found.nodes
        }

    def plan(self, arrangement: Arrangement, predicted: Mapping[str, object]) -> PlacementPlan:
        """The plan of an arrangement."""
        built, _ = self._model(self._cuts(arrangement))
        tasks = self._tasks(built, arrangement)
        return PlacementPlan(
            tasks=len(self.limits),
            variables={name: tasks[name] for names in built.followers.values() for name in names},
            partitions={name: self._counts(name, pieces) for name, pieces in self._cuts(arrangement)},
            ops=self._moved(built, arrangement),
            job=self.script.job,
            predicted=predicted,
        )


def _task(job: str, index: int) -> str:
    return f"/job:{job}/replica:0/task:{index}"


class _Loads:
    """How long the ops and messages of a stand-in keep a ps busy in a step of all workers, roughly."""

    def __init__(self, found: Inspection, cluster: Topology, profile: Profile, workers: int) -> None:
        self._found, self._workers, self._link = found, workers, cluster.link
        self._costs = KernelCosts(profile.machine, found.nodes, found.shapes, profile.ops)

    def of(self, stand_in: str) -> float:
        """Seconds: of the busier direction of its link, or of its CPU."""
        link, found = self._link, self._found
        out = [t for t in found.transfers if t.src == stand_in]
        into = [t for t in found.transfers if t.dst == stand_in]
        wire = max(_wire_s(out, link), _wire_s(into, link))
        summary = next((s for s in found.devices if s.device == stand_in), None)
        ops = summary.ops if summary is not None else ()
        cpu = sum(self._costs.seconds(found.nodes[op]) for op in ops)
        cpu += len({t.group for t in out}) * link.send_s + len({t.group for t in into}) * link.receive_s
        cpu += sum(t.bytes or 0 for t in (*out, *into)) * link.copy_s_per_byte
        return self._workers * max(wire, cpu)


def _wire_s(transfers: Sequence[Transfer], link: LinkProfile) -> float:
    return sum(t.bytes or 0 for t in transfers) / link.bytes_per_s


def _moves(built: Built) -> list[OpMove]:
    """Ops beside a variable's ps that would save bytes there: a look-up of few rows of a table that is sent, say."""
    found = built.found
    followers: dict[str, list[str]] = {}
    for name, node in found.nodes.items():
        for source, _ in node.inputs:
            followers.setdefault(source, []).append(name)
    candidates = []
    for transfer in found.transfers:
        if transfer.src in built.followers and len(transfer.consumers) == 1:
            op, stand_in = transfer.consumers[0], transfer.src
        elif transfer.dst in built.followers and not _used_elsewhere(found, transfer, followers):
            op, stand_in = transfer.producer, transfer.dst
        else:
            continue
        if transfer.bytes and _is_free(found, op, built):
            instead = _bytes_of_others(found, op, transfer)
            candidates.append(OpMove(op, built.followers[stand_in][0], transfer.bytes - instead))
    good = {move.op: move for move in candidates if move.saved >= _LEAST_MOVED}
    return sorted(good.values(), key=lambda move: (-move.saved, move.op))[:_MOST_MOVES]


def _used_elsewhere(found: Inspection, transfer: Transfer, followers: Mapping[str, list[str]]) -> bool:
    users = followers.get(transfer.producer, ())
    return any(found.placement[user].device != transfer.dst for user in users)


def _is_free(found: Inspection, op: str, built: Built) -> bool:
    """Whether a plan's device function can move an op: it is colocated with nothing and made inside a device scope."""
    node = found.nodes.get(op)
    if node is None or "_class" in node.attrs or node.op in VARIABLE_OPS:
        return False
    if found.placement[op].device in built.followers:
        return False
    return bool(node.device) == built.seen.has_setter


def _bytes_of_others(found: Inspection, op: str, transfer: Transfer) -> int:
    """What would be sent in place of a transfer: the op's inputs from elsewhere, and its outputs if they are needed
    elsewhere."""
    inputs = sum(_bytes(found, endpoint) for endpoint in found.nodes[op].inputs if endpoint[0] != transfer.producer)
    if op == transfer.producer:
        return inputs
    return inputs + sum(_bytes(found, endpoint) for endpoint in found.shapes if endpoint[0] == op)


def _bytes(found: Inspection, endpoint: tuple[str, int]) -> int:
    """The bytes of a tensor, with 4 per element; a large number if its shape is unknown."""
    count = size(found.shapes.get(endpoint))
    return 1 << 40 if count is None else 4 * count
