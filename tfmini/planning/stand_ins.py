"""Builds a script's graph with every variable on a ps task of its own, a stand-in.

So each op of the graph says which variable it follows, also those that a script places by ``var.device``. A placement
of the variables then is a mapping from stand-ins to real tasks, without building the graph again. Only other cuts of
variables need another graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tfmini import dtypes
from tfmini.devices import device_name, parse
from tfmini.graph.node import Node
from tfmini.graph.node_types import input_dtypes
from tfmini.graph.op_types import OPS
from tfmini.graph.operation import Operation
from tfmini.graph.scopes import ScopeState
from tfmini.graph.traits import ops_with
from tfmini.inspection.clusters import Jobs, client_device, devices_of
from tfmini.inspection.findings import Inspection
from tfmini.inspection.script import of_script
from tfmini.inspection.sources import assume_batch
from tfmini.inspection.study import Subject, study
from tfmini.placement.colocation import GROUP_PREFIX
from tfmini.placement.device_setter import _ReplicaDeviceFunction
from tfmini.placement.placer import DeviceAttributes
from tfmini.placement.plans import PlacementPlan, VariableCut
from tfmini.shapes import RawShape

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
    """

    path: str | None
    jobs: Jobs
    entry: str | None = None
    arguments: Sequence[str] = ()
    fetches: Sequence[str] = ()
    batch: int | None = None
    job: str = "ps"


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
    devices = devices_of(script.jobs)
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
