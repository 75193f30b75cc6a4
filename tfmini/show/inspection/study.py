"""Makes an inspection: applies the placer and the partitioner to a graph, without running it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from tfmini import dtypes
from tfmini.errors import InvalidArgumentError, NotFoundError, OpError, without_tags
from tfmini.graph.graph import Graph
from tfmini.graph.liveness import has_flow, uncertain_values
from tfmini.graph.names import GraphKeys
from tfmini.graph.node import INPUT_TYPES, OUTPUT_TYPES, Endpoint, Node, Nodes, input_dtypes, output_dtypes
from tfmini.graph.op_types import PLACEHOLDER_OPS, VARIABLE_OPS, kernel_for, ops_with
from tfmini.graph.prune import in_topological_order, reachable, step_graph, training_ops, traverse
from tfmini.graph.wire_checks import OUTPUT_LIMIT
from tfmini.placement.decision import Decision, Placement
from tfmini.placement.partition import partition
from tfmini.placement.placer import DeviceAttributes, place
from tfmini.placement.wire_table import transfers
from tfmini.progress import work
from tfmini.shapes import RawShape
from tfmini.show.inspection import findings
from tfmini.show.inspection.clusters import task_order
from tfmini.show.inspection.findings import (
    GUESSED_STEP,
    NOT_EXECUTABLE,
    REFUSED,
    DeviceSummary,
    Finding,
    Inspection,
    exchanges,
)
from tfmini.show.inspection.lint import lint
from tfmini.text import similar


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
    step = found.partitions.step.nodes
    may_not_run = uncertain_values(step, in_iteration=True) if has_flow(step) else lambda endpoint: False
    for device in sorted(names, key=task_order):
        own = running.get(device, [])
        state = [findings.state_bytes(node) for node in variables[device]]
        # From the whole graph, since in a partition an input may be a Recv, whose shape is not known.
        whole = [found.nodes[node.name] for node in own]
        work = [findings.flops(node, found.shapes) for node in whole]
        unknown = any(findings.is_left_out(node, found.shapes) for node in whole)
        in_branches = any(cost and may_not_run((node.name, -1)) for node, cost in zip(own, work))
        held = tuple(node.name for node in variables[device])
        names_of_own = tuple(node.name for node in own)
        summaries.append(DeviceSummary(device, names_of_own, held, _total(state), _total(work), unknown, in_branches))
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


# ---- Finds the types of ops that tfmini cannot run, so that a graph with them can be placed and partitioned --------
# Their signatures come from a table of the ops of TensorFlow 1.15 that tfmini lacks (`op_signatures.txt`: names and
# signatures only). An op that is not in the table is opaque: the number and types of its outputs follow from the ops
# that use them.

_MOST_OUTPUTS = 1 << 16


@cache
def signatures() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Op type -> the declared types of its inputs and of its outputs (``T``, ``N * T``, ``Ref(float)``)."""
    table = {}
    text = resources.files(__package__).joinpath("op_signatures.txt").read_text()
    for line in text.splitlines():
        name, _, rest = line.partition("(")
        inputs, _, outputs = rest.partition(" -> ")
        table[name] = _types(inputs.rstrip()[:-1]), _types(outputs)
    return table


def _types(text: str) -> tuple[str, ...]:
    return tuple(part.partition(":")[2].strip() for part in text.split(",") if part.strip())


def known_types(nodes: Nodes) -> tuple[Nodes, dict[str, str]]:
    """Returns the graph with types on every node that tfmini cannot run, and the reasons of these nodes.

    The reasons are ``known to TensorFlow, not to tfmini`` and ``custom op: opaque``.
    """
    foreign = {name: node for name, node in nodes.items() if _is_foreign(node)}
    if not foreign:
        return nodes, {}
    uses = _uses(nodes, foreign)
    counts = _counts(uses)
    reasons: dict[str, str] = {}
    typed = dict(nodes)
    for name, node in foreign.items():
        types = _declared(node)
        reasons[name] = "known to TensorFlow, not to tfmini" if types else "custom op: opaque"
        inputs, outputs = types or _opaque(node, uses, counts.get(name, 1))
        typed[name] = node.replace(attrs={**node.attrs, INPUT_TYPES: inputs, OUTPUT_TYPES: outputs})
    return typed, reasons


def _is_foreign(node: Node) -> bool:
    return kernel_for(node.op, "CPU") is None


def _declared(node: Node) -> tuple[list[dtypes.DType], list[dtypes.DType]] | None:
    signature = signatures().get(node.op)
    if signature is None:
        return None
    try:
        inputs, outputs = ([d for text in side for d in _resolved(text, node)] for side in signature)
    except (KeyError, TypeError):  # this producer writes other attrs
        return None
    return inputs, outputs


def _resolved(text: str, node: Node) -> list[dtypes.DType]:
    if text.startswith("Ref("):
        return [dtype._as_ref for dtype in _resolved(text[4:-1], node)]
    number, star, kind = text.rpartition(" * ")
    value = node.attrs[kind] if kind in node.attrs else dtypes.as_dtype(kind)
    count = node.attrs[number] if star else 1
    types = value if isinstance(value, list) else [value]
    if not all(isinstance(found, dtypes.DType) for found in types) or not 0 <= count <= OUTPUT_LIMIT:
        raise TypeError(f"{text} of {node}")
    return list(types) if isinstance(value, list) else types * count


def _uses(nodes: Nodes, foreign: Nodes) -> dict[Endpoint, dtypes.DType | None]:
    """The outputs of foreign nodes that other nodes use, with the type that one of these declares."""
    found: dict[Endpoint, dtypes.DType | None] = {}
    for node in nodes.values():
        mine = [(slot, source) for slot, source in enumerate(node.inputs) if source[0] in foreign]
        if not mine:
            continue
        declared = _input_types(node)
        for slot, source in mine:
            dtype = declared[slot] if slot < len(declared) else None
            found[source] = found.get(source) or dtype
    return found


def _input_types(node: Node) -> list[dtypes.DType]:
    if node.handle is None:
        types = _declared(node)
        return types[0] if types else []
    try:
        return input_dtypes(node)
    except (KeyError, NotFoundError):  # its attrs are incomplete, so its input types are unknown
        return []


def _counts(uses: Iterable[Endpoint]) -> dict[str, int]:
    """How many outputs each foreign node has at least.

    Raises:
      ValueError: together they are more than a graph has; a short text can name any number.
    """
    counts: dict[str, int] = {}
    for name, index in uses:
        counts[name] = max(counts.get(name, 0), index + 1)
    if sum(counts.values()) > _MOST_OUTPUTS:
        name = max(counts, key=counts.__getitem__)
        raise ValueError(f"An input of the graph is output {counts[name] - 1} of '{name}': ops that tfmini does not"
                         f" know may have {_MOST_OUTPUTS} outputs together.")  # fmt: skip
    return counts


def _opaque(
    node: Node, uses: dict[Endpoint, dtypes.DType | None], count: int
) -> tuple[list[dtypes.DType], list[dtypes.DType]]:
    fallback = next((v for k, v in node.attrs.items() if k in ("T", "dtype") and isinstance(v, dtypes.DType)), None)
    outputs = [uses.get((node.name, index)) or fallback or dtypes.variant for index in range(count)]
    return [], [dtype.base_dtype for dtype in outputs]


# ---- Finds the training step of a graph, to inspect or to trace ----------------------------------------------------

_OPTIMIZES, _ACCUMULATES = ops_with("writes", "optimize"), ops_with("accumulator", "apply")


def find_train_op(nodes: Nodes, collected: Sequence[str] = ()) -> str | None:
    """Returns the name of the training op.

    With gradient accumulators (synchronous training), it is the op that gives them the worker's gradients; else the
    latest op of the collection ``train_op``; else the op without consumers that needs most updates of variables.

    Args:
      collected: names in the graph's collection ``train_op``.
    """
    contributing = [name for name, node in nodes.items() if node.op in _ACCUMULATES]
    if contributing:
        return _best_sink(nodes, contributing)
    known = [name.removesuffix(":0") for name in collected if name.removesuffix(":0") in nodes]
    if known:
        return known[-1]
    updates = [name for name, node in nodes.items() if node.op in _OPTIMIZES]
    return _best_sink(nodes, updates) if updates else None


def trains(graph: Graph, names: Iterable[str]) -> bool | None:
    """Whether a step is a training step; None if the graph has no ops that train.

    A training step runs one of the `training_ops` of the graph; if it has none, an op of the collection ``train_op``.

    Args:
      graph: a `tf.Graph`.
      names: of the tensors to fetch and the ops to run.
    """
    ops = graph.get_operations()
    types = training_ops({op.type for op in ops})
    wanted = {op for op in ops if op.type in types}
    if not wanted:
        wanted = {getattr(item, "op", item) for item in graph.get_collection(GraphKeys.TRAIN_OP)}
    if not wanted:
        return None
    fetched = [getattr(found, "op", found) for found in map(graph.as_graph_element, names)]
    return any(op in wanted for op in traverse(fetched, lambda op: [*(t.op for t in op.inputs), *op.control_inputs]))


def sinks(nodes: Nodes) -> list[str]:
    """The ops without consumers."""
    used = {source for node in nodes.values() for source, _ in node.inputs}
    used |= {source for node in nodes.values() for source in node.controls}
    return [name for name in nodes if name not in used]


def results(nodes: Nodes) -> list[str]:
    """`sinks` without ops that only assign variables, such as initializers and restores; all if no others exist."""
    found = sinks(nodes)
    return [name for name in found if not _only_sets(nodes, name)] or found


def _only_sets(nodes: Nodes, name: str) -> bool:
    node = nodes.get(name)
    if node is None:
        return False
    if node.op == "NoOp":
        return bool(node.controls) and all(_only_sets(nodes, source) for source in node.controls)
    return node.op in ops_with("writes", "assign")


def _best_sink(nodes: Nodes, updates: Sequence[str]) -> str | None:
    needs = {name: 1 << i for i, name in enumerate(updates)}
    try:
        ordered = in_topological_order(nodes)
    except InvalidArgumentError:  # a cycle, which the placer reports
        return None
    for name, node in ordered.items():
        mask = needs.get(name, 0)
        for source in (*(s for s, _ in node.inputs), *node.controls):
            mask |= needs.get(source, 0)
        if mask:
            needs[name] = mask
    best = max(sinks(nodes), key=lambda name: needs.get(name, 0).bit_count(), default=None)
    return best if best is not None and needs.get(best) else None
