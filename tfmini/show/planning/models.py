"""`Models`: a script's graphs, one for each way to cut its variables, and what the simulator predicts for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tfmini import dtypes
from tfmini.devices import device_name, parse
from tfmini.errors import OpError
from tfmini.graph.node import Node, input_dtypes
from tfmini.graph.op_types import OPS, VARIABLE_OPS, ops_with
from tfmini.graph.operation import Operation
from tfmini.graph.scopes import ScopeState
from tfmini.placement.colocation import GROUP_PREFIX
from tfmini.placement.device_setter import PlacementPlan, VariableCut, _ReplicaDeviceFunction
from tfmini.placement.placer import DeviceAttributes
from tfmini.placement.wire_table import Transfer
from tfmini.shapes import RawShape
from tfmini.show.inspection.clusters import Jobs, client_device, devices_of
from tfmini.show.inspection.findings import Inspection, state_bytes
from tfmini.show.inspection.findings import size as element_count
from tfmini.show.inspection.sources import assume_batch, of_script
from tfmini.show.inspection.study import Subject, study
from tfmini.show.simulation.prediction import Topology
from tfmini.show.simulation.predictor import StepModel
from tfmini.show.simulation.profile import KernelCosts, LinkProfile, Profile
from tfmini.show.status.gather import size

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
            self.model_of(((item.name, 2),))
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

    def model_of(self, cuts: tuple[tuple[str, int], ...]) -> tuple[Built, StepModel]:
        """The graph whose variables are cut into so many parts, with stand-ins as tasks, and its model."""
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
            built, model = self.model_of(self._cuts(arrangement))
            return model.predict(self.devices_of(built, arrangement)).step_s
        except (ValueError, OpError):
            return math.inf

    def exact(self, arrangement: Arrangement) -> float:
        """The same for the very graph of the arrangement; slower, since the script builds it."""
        try:
            cuts = self._cuts(arrangement)
            stand_ins, _ = self.model_of(cuts)
            counts = {name: self._counts(name, pieces) for name, pieces in cuts}
            built = build(self.script, counts, self.tasks_of(stand_ins, arrangement))
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

    def devices_of(self, built: Built, arrangement: Arrangement) -> dict[str, str]:
        """Op -> full device, for ops on stand-ins and moved ops."""
        tasks = self.tasks_of(built, arrangement)
        real = {stand_in: device_name(self.script.job, tasks[names[0]]) for stand_in, names in built.followers.items()}
        placed = {name: real[d.device] for name, d in built.found.placement.items() if d.device in real}
        for op, task in self._moved(built, arrangement).items():
            placed[op] = device_name(self.script.job, task)
        return placed

    def tasks_of(self, built: Built, arrangement: Arrangement) -> dict[str, int]:
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
        built, _ = self.model_of(self._cuts(arrangement))
        tasks = self.tasks_of(built, arrangement)
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
    count = element_count(found.shapes.get(endpoint))
    return 1 << 40 if count is None else 4 * count


# ---- Builds a script's graph with every variable on a ps task of its own, a stand-in -------------------------------
# So each op of the graph says which variable it follows, also those that a script places by ``var.device``. A placement
# of the variables then is a mapping from stand-ins to real tasks, without building the graph again. Only other cuts of
# variables need another graph.

FIRST = 100_000  # the task of the first stand-in; no cluster has so many
_ON_PS = ops_with("on_ps")


@dataclass
class Script:
    """What `tfmini place` inspects.

    Attributes:
      path, entry, arguments: as for `tfmini.inspect`.
      jobs: the cluster, with all ps tasks.
      fetches, batch: as for `tfmini.inspect`.
      job: the ps job.
      gpus: of each task but ps.
    """

    path: str | None
    jobs: Jobs
    entry: str | None = None
    arguments: Sequence[str] = ()
    fetches: Sequence[str] = ()
    batch: int | None = None
    job: str = "ps"
    gpus: int = 0


@dataclass
class Seen:
    """What one build of the script has asked for.

    Attributes:
      tasks: variable op -> its ps, instead of stand-ins.
      own: variable op -> the task that the script gives it; in the order of creation.
      asked: names of variables that may be cut: they are made by ``tf.get_variable``, without a partitioner.
      has_setter: whether the script has a device setter or a plan; without one, all its unplaced variables are placed.
    """

    tasks: Mapping[str, int] | None = None
    own: dict[str, int | None] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    has_setter: bool = True

    def stand_in(self, name: str, own: int | None) -> int:
        """The stand-in of a variable op, or its task."""
        self.own[name] = own
        if self.tasks is not None:
            return self.tasks.get(name, 0)
        return FIRST + list(self.own).index(name)


@dataclass
class Built:
    """A graph with stand-ins.

    Attributes:
      found: the inspection; it has devices for stand-ins beside those of the cluster.
      followers: full device name of a stand-in -> the variable ops that follow it, in the order of creation.
    """

    found: Inspection
    seen: Seen
    followers: dict[str, list[str]]


def build(script: Script, cuts: Mapping[str, Sequence[int]], tasks: Mapping[str, int] | None = None) -> Built:
    """Builds the graph of a script with some variables cut.

    Args:
      cuts: name of a variable -> number of parts per axis.
      tasks: variable op -> ps, for the very graph of a placement instead of one with stand-ins. The two differ in how
        ``tf.group`` joins updates: by device.

    Raises:
      ScriptError, ValueError, OpError: as `tfmini.inspect`.
    """
    subject, seen = _subject(script, cuts, tasks)
    count = len(seen.own)
    merged = _merged(subject, seen)
    stand_ins = [device_name(script.job, FIRST + i) for i in range(count)]
    devices = devices_of(script.jobs, script.gpus)
    devices += [DeviceAttributes(name, "CPU", 0, len(devices) + 1 + i) for i, name in enumerate(stand_ins)]
    home = client_device(script.jobs, None, subject.nodes)
    found = study(subject, devices, home, fetches=script.fetches)
    followers: dict[str, list[str]] = {}
    for i, name in enumerate(seen.own):
        followers.setdefault(device_name(script.job, merged.get(FIRST + i, FIRST + i)), []).append(name)
    return Built(found, seen, followers)


def _subject(
    script: Script, cuts: Mapping[str, Sequence[int]], tasks: Mapping[str, int] | None
) -> tuple[Subject, Seen]:
    """The graph, by the script's own setters; if it has none, by one around the whole script."""
    seen = Seen(tasks)
    with _assumed_sizes():
        with _in_place_of_setters(seen, cuts):
            subject, _ = of_script(script.path, script.entry, script.arguments, script.jobs)
        if not seen.own and not any(parse_job(node.device) == script.job for node in subject.nodes.values()):
            seen = Seen(tasks, has_setter=False)
            with _around_everything(seen, cuts, script.job):
                subject, _ = of_script(script.path, script.entry, script.arguments, script.jobs)
        if script.batch is not None:
            assume_batch(subject, script.batch)
    return subject, seen


def parse_job(device: str) -> str | None:
    """The job of a device request; None if it names none or is malformed."""
    try:
        return parse(device).job
    except ValueError:
        return None


@contextmanager
def _in_place_of_setters(seen: Seen, cuts: Mapping[str, Sequence[int]]) -> Iterator[None]:
    """Within the block, setters and plans put each variable on its stand-in."""
    task_of_setter, task_of_plan = _ReplicaDeviceFunction._task_of, PlacementPlan.task_of

    def of_setter(self: Any, op: Any) -> int:
        own = task_of_plan(self._plan, op) if self._plan is not None else task_of_setter(self, op)
        return seen.stand_in(op.name, own)

    def of_plan(self: Any, op: Any) -> int:
        return seen.stand_in(op.name, task_of_plan(self, op))

    partitioner = _partitioner(seen, cuts)
    changes: list[tuple[Any, str, Any]] = [
        (_ReplicaDeviceFunction, "_task_of", of_setter),
        (PlacementPlan, "task_of", of_plan),
        (_ReplicaDeviceFunction, "partitioner_of", partitioner),
        (PlacementPlan, "partitioner_of", partitioner),
    ]
    with changed(changes):
        yield


def _partitioner(seen: Seen, cuts: Mapping[str, Sequence[int]]) -> Callable[[Any, str], Any]:
    def partitioner_of(self: Any, name: str) -> Any:
        seen.asked.add(name)
        return VariableCut(name, cuts[name]) if name in cuts else None

    return partitioner_of


@contextmanager
def _around_everything(seen: Seen, cuts: Mapping[str, Sequence[int]], job: str) -> Iterator[None]:
    """Within the block, each new graph begins inside a device scope that puts each variable on its stand-in."""

    class Outermost:
        partitioner_of = _partitioner(seen, cuts)

        def __call__(self, op: Any) -> str:
            if op.device or op.type not in _ON_PS:
                return str(op.device)
            return f"/job:{job}/task:{seen.stand_in(op.name, None)}"

    begin = ScopeState.__init__

    def begin_inside(self: ScopeState) -> None:
        begin(self)
        self.set_devices([Outermost()])

    with changed([(ScopeState, "__init__", begin_inside)]):
        yield


@contextmanager
def changed(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Sets attributes (owner, name, value) within the block."""
    old = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in old:
            setattr(owner, name, value)


# ---------------------------------------------------------------- sizes


def _even_shares(node: Operation) -> list[RawShape]:
    """Of DynamicPartition: all parts get equally many rows."""
    data, rank = node.inputs[0].raw_shape, len(node.inputs[1].raw_shape or ())
    count = node.attrs["num_partitions"]
    if data is None or node.inputs[1].raw_shape is None or None in data[:rank]:
        return [None if data is None else (None, *data[rank:])] * count
    rows = math.prod(size for size in data[:rank] if size is not None)
    return [(math.ceil(rows / count), *data[rank:])] * count


def _all_different(node: Operation) -> list[RawShape]:
    """Of Unique: no value comes twice."""
    values = node.inputs[0].raw_shape
    return [values, values]


@contextmanager
def _assumed_sizes() -> Iterator[None]:
    """Within the block, sizes that depend on values have those that a prediction should assume; else it would take
    what a cut table sends for nothing."""
    with changed([
        (OPS["DynamicPartition"], "shape_function", _even_shares),
        (OPS["Unique"], "shape_function", _all_different),
    ]):  # fmt: skip
        yield


# ---------------------------------------------------------------- what must stay together


def _merged(subject: Subject, seen: Seen) -> dict[int, int]:
    """Gives variables that must share a task one stand-in; returns stand-in -> the one that it follows now."""
    import networkx  # slow to import, and no step needs it

    together: Any = networkx.Graph()
    stand_in = {name: parse(node.device).task for name, node in subject.nodes.items() if node.device}
    for i, name in enumerate(seen.own):  # a colocated variable has asked, but gets the device of its anchor
        _join(together, FIRST + i, stand_in.get(name))
    for name, node in subject.nodes.items():
        groups = [group[len(GROUP_PREFIX) :].decode() for group in node.attrs.get("_class", ())]
        for other in (*groups, *_references(node)):
            _join(together, stand_in.get(name), stand_in.get(other))
    first = {task: min(group) for group in networkx.connected_components(together) for task in group}
    for name, node in subject.nodes.items():
        task = stand_in.get(name)
        if task in first:
            moved = parse(node.device)._replace(task=first[task]).to_string()
            subject.nodes[name] = node.replace(device=moved)
    return first


def _references(node: Node) -> Iterator[str]:
    """The ops whose state a node uses by a reference or handle."""
    for (source, _), dtype in zip(node.inputs, input_dtypes(node)):
        if dtype is dtypes.resource or dtype._is_ref_dtype:
            yield source


def _join(together: Any, a: int | None, b: int | None) -> None:
    if a is not None and b is not None and a != b and min(a, b) >= FIRST:
        together.add_edge(a, b)


# ---- What a search for a placement decides: items that go to tasks, in pieces or whole, and ops that move ----------
# Nothing here knows graphs or predictors; the cost of an arrangement is a function that the search is given.


@dataclass(frozen=True)
class Item:
    """What goes to a task together: a variable with its slots and all that is colocated with them.

    Attributes:
      name: of its first variable.
      nbytes: bytes of state.
      load_s: how many seconds of a step it keeps its task busy, roughly; it guides the search.
      most: into how many pieces it may be cut; 1: it stays whole.
      whole_because: why it must stay whole, for errors.
    """

    name: str
    nbytes: int
    load_s: float
    most: int = 1
    whole_because: str = ""


@dataclass(frozen=True)
class Arrangement:
    """A candidate.

    Attributes:
      tasks: for each item the tasks of its pieces, in ascending order; one task for an item that is whole.
      moved: the ops that move.
    """

    tasks: tuple[tuple[int, ...], ...]
    moved: frozenset[str] = frozenset()

    @property
    def cuts(self) -> int:
        """How many pieces there are beyond one per item."""
        return sum(len(tasks) - 1 for tasks in self.tasks)

    def with_item(self, index: int, tasks: Sequence[int]) -> Arrangement:
        """The same with other tasks for one item."""
        changed = (*self.tasks[:index], tuple(sorted(tasks)), *self.tasks[index + 1 :])
        return Arrangement(changed, self.moved)


Cost = Callable[[Arrangement], float]


@dataclass(frozen=True)
class Problem:
    """Items, and the tasks that they may go to.

    Attributes:
      limits: the bytes of state that each task may hold; infinite for no limit.
      moves: the ops that may move.
      alike: whether tasks of equal limits may be exchanged for one another without a change of the cost.
    """

    items: tuple[Item, ...]
    limits: tuple[float, ...]
    moves: tuple[str, ...] = ()
    alike: bool = True

    @property
    def tasks(self) -> range:
        """The numbers of the tasks."""
        return range(len(self.limits))

    def memory(self, arrangement: Arrangement) -> list[float]:
        """The bytes of state of each task; pieces are equal."""
        return self._shares(arrangement, [item.nbytes for item in self.items])

    def loads(self, arrangement: Arrangement) -> list[float]:
        """The seconds that the items keep each task busy, roughly."""
        return self._shares(arrangement, [item.load_s for item in self.items])

    def _shares(self, arrangement: Arrangement, sizes: Sequence[float]) -> list[float]:
        found = [0.0] * len(self.limits)
        for whole, tasks in zip(sizes, arrangement.tasks):
            for task in tasks:
                found[task] += whole / len(tasks)
        return found

    def fits(self, arrangement: Arrangement) -> bool:
        """Whether no task holds more than its limit."""
        return all(held <= limit for held, limit in zip(self.memory(arrangement), self.limits))

    def canonical(self, arrangement: Arrangement) -> Arrangement:
        """The same for all arrangements that differ only in the names of tasks that are alike."""
        if not self.alike or len(set(self.limits)) > 1:
            return arrangement
        names: dict[int, int] = {}
        for tasks in arrangement.tasks:
            for task in tasks:
                names.setdefault(task, len(names))
        return Arrangement(
            tuple(tuple(sorted(names[t] for t in tasks)) for tasks in arrangement.tasks), arrangement.moved
        )


class NoRoom(ValueError):
    """The items do not fit within the limits; the text names what does not fit."""


def check_limits(problem: Problem) -> None:
    """Raises NoRoom if the items cannot fit for a reason that is easy to see."""
    largest = max(problem.limits)
    for item in problem.items:
        if item.nbytes / item.most > largest:
            why = (
                f"cannot be cut: {item.whole_because}" if item.most == 1 else f"is cut into {item.most} pieces at most"
            )
            raise NoRoom(
                f"{item.name} has {size_text(item.nbytes)} of state, a ps may hold {size_text(largest)}, and it {why}."
            )
    total, room = sum(item.nbytes for item in problem.items), sum(problem.limits)
    if total > room:
        raise NoRoom(
            f"The variables have {size_text(total)} of state with their slots, but the {len(problem.limits)} ps may"
            f" hold {size_text(room)} together. The largest are {_named(problem.items)}. Give more ps, or more memory."
        )


def no_room(problem: Problem) -> NoRoom:
    """The error of items for which no way to make them fit was found."""
    limits = ", ".join(size_text(limit) for limit in sorted(set(problem.limits)))
    return NoRoom(
        f"No placement was found that leaves each of the {len(problem.limits)} ps within its memory ({limits})."
        f" The largest variables are {_named(problem.items)}. Give more ps, or more memory."
    )


def _named(items: Sequence[Item]) -> str:
    largest = sorted(items, key=lambda item: -item.nbytes)[:3]
    return ", ".join(f"{item.name} ({size_text(item.nbytes)})" for item in largest)


def size_text(nbytes: float) -> str:
    """``1.5 GB``, with powers of 1,000; ``any size`` for infinity."""
    return "any size" if math.isinf(nbytes) else size(nbytes)
