"""Makes an inspection: applies the placer and the partitioner to a graph, without running it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfmini.errors import InvalidArgumentError, OpError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import output_dtypes
from tfmini.graph.prune import reachable, step_graph
from tfmini.graph.traits import PLACEHOLDER_OPS, VARIABLE_OPS
from tfmini.inspection import cost
from tfmini.inspection.clusters import task_order
from tfmini.inspection.exchanges import exchanges
from tfmini.inspection.findings import (
    GUESSED_STEP,
    NOT_EXECUTABLE,
    REFUSED,
    DeviceSummary,
    Finding,
    Inspection,
    without_tags,
)
from tfmini.inspection.foreign import known_types
from tfmini.inspection.lint import lint
from tfmini.inspection.train_op import find_train_op, results
from tfmini.placement.decision import Decision, Placement
from tfmini.placement.partition import partition
from tfmini.placement.placer import DeviceAttributes, place
from tfmini.placement.wire_table import transfers
from tfmini.progress import work
from tfmini.shapes import RawShape
from tfmini.suggestions import similar


@dataclass
class Subject:
    """A graph to inspect.

    Attributes:
      nodes: the whole graph.
      shapes: the known static shapes.
      train_ops: names in the collection ``train_op``.
      local_variables: names in the collection of local variables; None: unknown.
      notes: warnings about parts that could not be read.
      decided: the placement of a session, with reasons.
      devices, master: of a live session; other sources need a cluster.
    """

    nodes: Nodes
    shapes: dict[Endpoint, RawShape] = field(default_factory=dict)
    train_ops: list[str] = field(default_factory=list)
    local_variables: list[str] | None = None
    notes: list[Finding] = field(default_factory=list)
    decided: Mapping[str, Decision] = field(default_factory=dict)
    devices: list[DeviceAttributes] = field(default_factory=list)
    master: str = ""
    soft_placement: bool = False


def study(
    subject: Subject,
    devices: Sequence[DeviceAttributes],
    master: str,
    *,
    fetches: Sequence[str] = (),
    feeds: Sequence[str] | None = None,
) -> Inspection:
    """Inspects one step.

    Args:
      devices: of the whole cluster.
      master: full name of the device of the client's task.
      fetches: names of tensors (``loss:0``, fetched) and ops (``train_op``, run). Default: the training op.
      feeds: names of tensors. Default: the placeholders that the step needs.

    Raises:
      ValueError: a fetch or feed is not in the graph.
      OpError: the graph cannot be placed, pruned or partitioned; the same error as from a session.
    """
    nodes, foreign = known_types(subject.nodes)
    notes = list(subject.notes)
    _check_names(nodes, fetches, "fetch")
    _check_names(nodes, feeds or (), "feed")
    with work(f"placing {len(nodes):,} ops on {len(devices)} devices"):
        placement = _placed(nodes, subject, devices, master, notes)
    wanted, targets = _step(nodes, fetches, subject.train_ops, notes)
    roots = [*(_endpoint(f)[0] for f in wanted), *targets]
    fed = [f if ":" in f else f"{f}:0" for f in feeds] if feeds is not None else _needed_placeholders(nodes, roots)
    incarnations = {device.name: device.incarnation for device in devices}
    step = step_graph(nodes, [_endpoint(f) for f in wanted], targets, [_endpoint(f) for f in fed], master)
    with work(f"cutting the step's {len(step.nodes):,} ops by device"):
        partitions = partition(step, placement.devices(), incarnations=incarnations, name_counter=itertools.count())
    shapes = subject.shapes
    found = Inspection(nodes, shapes, placement, master, tuple(fed), tuple(wanted), tuple(targets), partitions)
    found.foreign = foreign
    found.local_variables = subject.local_variables
    with work("listing transfers and looking for mistakes"):
        found.transfers = transfers(partitions, shapes)
        found.devices = _summaries(found, [device.name for device in devices])
        found.transfers += exchanges(found)
        found.warnings = [*notes, *_foreign_notes(foreign, nodes), *lint(found)]
    return found


def _check_names(nodes: Nodes, names: Sequence[str], verb: str) -> None:
    for name in names:
        op, index = _endpoint(name)
        if op not in nodes:
            near = similar(op, nodes)
            hint = f"; there is {', '.join(near)}" if near else ""
            raise ValueError(f"Cannot {verb} {name}: the graph has no op {op}{hint}.")
        count = _output_count(nodes[op])
        if ":" in name and count is not None and index >= count:
            raise ValueError(f"Cannot {verb} {name}: {op} ({nodes[op].op}) has {count} output(s).")


def _output_count(node: Node) -> int | None:
    try:
        return len(output_dtypes(node))
    except (KeyError, OpError):  # the op's types are unknown
        return None


def _endpoint(name: str) -> Endpoint:
    op, _, index = name.rpartition(":")
    return (op, int(index)) if op and index.isdigit() else (name, 0)


def _placed(
    nodes: Nodes, subject: Subject, devices: Sequence[DeviceAttributes], master: str, notes: list[Finding]
) -> Placement:
    assigned = {name: decision.device for name, decision in subject.decided.items()}
    try:
        placement = place(
            nodes, devices, default_device=master, soft_placement=subject.soft_placement, assigned=assigned
        )
    except InvalidArgumentError as error:
        if subject.soft_placement or subject.decided:
            raise
        placement = place(nodes, devices, default_device=master, soft_placement=True)
        text = f"a session refuses this graph: {without_tags(error.message).splitlines()[0]}"
        notes.append(Finding(REFUSED, text, "The placement shown is that with allow_soft_placement=True."))
    placement.update(subject.decided)
    return placement


def _step(
    nodes: Nodes, fetches: Sequence[str], train_ops: Sequence[str], notes: list[Finding]
) -> tuple[list[str], list[str]]:
    """Returns the tensors to fetch and the ops to run."""
    if fetches:
        return [f for f in fetches if ":" in f], [f for f in fetches if ":" not in f]
    found = find_train_op(nodes, train_ops)
    if found is not None:
        return [], [found]
    notes.append(Finding(GUESSED_STEP, "no training op was found, so the step runs all ops without consumers.",
                         "Give the tensors or ops to run with --fetch."))  # fmt: skip
    return [], results(nodes)


def _needed_placeholders(nodes: Nodes, roots: Sequence[str]) -> list[str]:
    return [f"{name}:0" for name, node in reachable(nodes, roots).items() if node.op in PLACEHOLDER_OPS]


def _own(found: Inspection) -> dict[str, list[Node]]:
    """Returns device -> the graph's own ops that its task registers."""
    own: dict[str, list[Node]] = {}
    for graph in found.partitions.tasks.values():
        for name, node in graph.nodes.items():
            if name in found.nodes:
                own.setdefault(node.device, []).append(node)
    return own


def _summaries(found: Inspection, names: Sequence[str]) -> list[DeviceSummary]:
    variables: dict[str, list[Node]] = {name: [] for name in names}
    for name, node in found.nodes.items():
        if node.op in VARIABLE_OPS:
            variables[found.placement[name].device].append(node)
    summaries, running = [], _own(found)
    for device in sorted(names, key=task_order):
        own = running.get(device, [])
        state = [cost.state_bytes(node) for node in variables[device]]
        # From the whole graph, since in a partition an input may be a Recv, whose shape is not known.
        work = [cost.flops(found.nodes[node.name], found.shapes) for node in own]
        held = tuple(node.name for node in variables[device])
        summaries.append(DeviceSummary(device, tuple(n.name for n in own), held, _total(state), _total(work)))
    return summaries


def _total(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)


def _foreign_notes(foreign: Mapping[str, str], nodes: Nodes) -> list[Finding]:
    groups: dict[tuple[str, str], list[str]] = {}
    for name, reason in foreign.items():
        groups.setdefault((nodes[name].op, reason), []).append(name)
    remedy = "A step that needs it fails; the inspector places it like an op with a CPU kernel."
    return [
        Finding(NOT_EXECUTABLE, f"{len(names)} op(s) of type {op} ({reason}).", remedy, tuple(names))
        for (op, reason), names in groups.items()
    ]
