"""The results of an inspection, as typed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from json import dumps
from os import PathLike
from typing import TYPE_CHECKING, Any

from tfmini.collectives.costs import flows
from tfmini.devices import parse, task_of_device
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.graph.liveness import has_flow, uncertain_values
from tfmini.graph.node import MADE_BY_PASSES, Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import ops_with, trait_of
from tfmini.placement.decision import Placement
from tfmini.placement.partition import Partitions, to_networkx
from tfmini.placement.task_graph import Route
from tfmini.placement.wire_table import Transfer, period_of, sum_note
from tfmini.shapes import RawShape
from tfmini.show.inspection.clusters import group_label, short, task_order
from tfmini.text import similar

if TYPE_CHECKING:
    import networkx

    from tfmini.show.inspection.trace import Measured


@dataclass(frozen=True)
class DeviceSummary:
    """The work and state of one device.

    Attributes:
      device: full name.
      ops: names of the graph's own ops that the step runs on it, without sends and receives.
      variables: names of all variables of the whole graph that are placed on it.
      state_bytes: bytes of these variables; None if a shape is unknown.
      flops: floating-point operations of one step; None if the shapes of a costly op are unknown.
      leaves_out_flops: whether there are also cheap ops whose shapes are unknown, which count as 0.
      flops_at_most: whether branches that a step may not take are counted, too.
    """

    device: str
    ops: tuple[str, ...]
    variables: tuple[str, ...]
    state_bytes: int | None
    flops: int | None
    leaves_out_flops: bool = False
    flops_at_most: bool = False


# Kinds of findings that say what the shown step is worth: the summary prints them in full.
GUESSED_CLUSTER, GUESSED_STEP, REFUSED, NOT_EXECUTABLE = "guessed cluster", "step", "placement", "not executable"


@dataclass(frozen=True)
class Finding:
    """A warning: the kind of problem, its description, the remedy, and the ops."""

    kind: str
    text: str
    remedy: str
    ops: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} {self.remedy}".rstrip()


@dataclass(frozen=True)
class StepMessage:
    """One message of a step, or those of a collective from one task to another.

    ``transfers`` is empty for a request or reply without tensors; ``bytes`` None: unknown; ``count``: of messages.
    """

    src: str
    dst: str
    text: str
    bytes: int | None = 0
    transfers: tuple[Transfer, ...] = ()
    count: int = 1


@export("tf.Inspection")
@dataclass(repr=False)
class Inspection:
    """One step of a graph on a cluster, as ``tf.inspect`` returns it: its placement, partitions and transfers.

    As the last value of a notebook's cell it shows itself as a page.

    Attributes:
      nodes: the whole graph.
      shapes: the known static shapes, by endpoint.
      placement: op -> device and reasons, of the whole graph.
      master: full name of the device of the client's task.
      feeds, fetches, targets: the step.
      partitions: the partitions, and the graphs that tasks register.
      devices: the work and state of each device, in the order of names.
      transfers: the transfers between devices in a step.
      warnings: the warnings of `lint`, and the problems of reading the source.
      foreign: ops that tfmini cannot run, with the reason.
      local_variables: variables of which every worker has its own; None: unknown.
      measured: measurements of a traced run of this step.
    """

    nodes: Nodes
    shapes: dict[Endpoint, RawShape]
    placement: Placement
    master: str
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]
    partitions: Partitions
    devices: list[DeviceSummary] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    foreign: dict[str, str] = field(default_factory=dict)
    local_variables: list[str] | None = None
    measured: Measured | None = None

    def __repr__(self) -> str:
        """Short: a prompt and a notebook show it."""
        return f"<Inspection: {headline(self)}>"

    def text(self, view: str = "summary", *, full: bool = False, ops: Sequence[str] = (), width: int = 120) -> str:
        """A table of `tfmini inspect --view`: ``summary``, ``tasks``, ``wire``, ``why``, ``step`` or ``lint``.

        Args:
          full: all rows, not only those that fit on a screen.
          ops: for ``why``: only these.
          width: characters of a line.
        """
        from tfmini.show.inspection.text import show

        return show(self, view, full=full, ops=ops, width=width)

    def overview(self) -> Overview:
        """What each task sends, receives, holds and computes, which tasks are alike, and what stands out."""
        return overview(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page (``.html``), the picture (``.svg``), the graph (``.dot``) or all findings (``.json``).

        Raises:
          ValueError: the name of the file has another ending.
        """
        from tfmini.show.inspection import pages, pictures

        forms = {
            ".html": pages.page, ".svg": pictures.svg, ".dot": pictures.dot,
            ".json": lambda found: dumps(found.to_json(), indent=1),
        }  # fmt: skip
        pages.save_as(path, self, forms)

    def why(self, op: str) -> list[str]:
        """The device of an op, and the chain of reasons, the most direct one first.

        Raises:
          KeyError: the op is not in the graph; the error names similar ones.
        """
        if op not in self.placement:
            near = similar(op.partition(":")[0], self.placement)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise KeyError(f"The graph has no op {op!r}.{hint}")
        decision = self.placement[op]
        return [decision.device, *(reason.text for reason in decision.reasons)]

    def problems(self) -> list[Finding]:
        """The warnings without those that only say what the inspector has guessed."""
        return [w for w in self.warnings if w.kind not in (GUESSED_CLUSTER, GUESSED_STEP)]

    def refusals(self) -> list[Finding]:
        """The warnings for which a session refuses the step: its placement, and ops of it that tfmini cannot run."""
        running = {name for d in self.devices for name in d.ops}
        return [
            w for w in self.warnings if w.kind == REFUSED or w.kind == NOT_EXECUTABLE and not running.isdisjoint(w.ops)
        ]

    def graph(self) -> networkx.MultiDiGraph:
        """The whole graph; nodes carry ``op`` and ``device``, edges ``output`` and ``input`` (-1: control)."""
        graph = to_networkx(self.nodes)
        for name, decision in self.placement.items():
            graph.nodes[name]["device"] = decision.device
        return graph

    def task_graph(self, task: str) -> networkx.MultiDiGraph:
        """The graph that one task registers, with sends and receives. Raises KeyError for a task without one."""
        return to_networkx(self.partitions.tasks[task].nodes)

    def links(self) -> dict[tuple[str, str], list[Transfer]]:
        """The transfers by (source, destination) device."""
        found: dict[tuple[str, str], list[Transfer]] = {}
        for transfer in self.transfers:
            found.setdefault((transfer.src, transfer.dst), []).append(transfer)
        return found

    def messages(self) -> list[StepMessage]:
        """The messages of one step in a possible order, from the client's request to its reply."""
        master = task_of_device(self.master)
        others = [task for task in self.partitions.tasks if task != master]
        run = f"run {_first([*self.fetches, *self.targets])} with {_first(self.feeds) or 'no feeds'}"
        found = [StepMessage("client", master, run, None)]
        for task in others:
            values = self._of(Route.FED, task, incoming=True)
            found.append(StepMessage(master, task, _with("RunGraph", values), _size(values), values))
        found += self._between()
        for task in others:
            values = self._of(Route.FETCHED, task, incoming=False)
            found.append(StepMessage(task, master, _with("done", values), _size(values), values))
        answer = f"the answer, with {_first(self.fetches)}" if self.fetches else "the answer, without values"
        return [*found, StepMessage(master, "client", answer, None)]

    def _of(self, route: Route, task: str, incoming: bool) -> tuple[Transfer, ...]:
        return tuple(
            t for t in self.transfers if t.route is route and task_of_device(t.dst if incoming else t.src) == task
        )

    def _between(self) -> list[StepMessage]:
        """What tasks push to each other, and what ranks of collectives send, each after the messages it waits for."""
        groups: dict[tuple[str, str, int], list[Transfer]] = {}
        for transfer in self.transfers:
            if transfer.route in (Route.SENT, Route.EXCHANGED):
                key = (transfer.src, transfer.dst, transfer.group)
                # A message is sent when its last tensor is ready, so it moves to the end of the order.
                groups[key] = [*groups.pop(key, []), transfer]
        before = self._messages_before()
        depth = {key: max(before.get(t.producer, 0) for t in group) for key, group in groups.items()}
        collectives: dict[int, list[tuple[str, str, int]]] = {}
        for key in groups:
            if key[2] < 0:
                collectives.setdefault(key[2], []).append(key)
        for together in collectives.values():  # whose value comes after the messages; other ranks' ops are elsewhere
            depth |= dict.fromkeys(together, max(depth[key] for key in together) - 1)
        return _message_of_each(groups[key] for key in sorted(groups, key=lambda key: depth[key]))

    def _messages_before(self) -> dict[str, int]:
        """Op -> how many messages, each of which waits for the one before it, come before it has its value."""
        device_of = {name: device for device, part in self.partitions.parts.items() for name in part}
        sent = {(t.producer, t.dst) for t in self.transfers if t.route is Route.SENT}
        exchanged = {t.producer for t in self.transfers if t.route is Route.EXCHANGED}
        found: dict[str, int] = {}
        for name, node in self.partitions.step.nodes.items():  # a loop's way back comes before what it leads to
            needs = [source for source in (*(s for s, _ in node.inputs), *node.controls) if source in found]
            came = max((found[s] + ((s, device_of[name]) in sent) for s in needs), default=0)
            found[name] = came + (name in exchanged)
        return found

    def _repr_html_(self) -> str:
        """The page of `tfmini inspect --html`, for notebooks."""
        from tfmini.show.inspection.pages import framed, page

        return framed(page(self), "tfmini: what each task does in a step")

    def to_json(self) -> dict[str, Any]:
        """The object that ``tfmini inspect --json`` prints."""
        return {
            "tasks": [
                {"device": d.device, "ops": len(d.ops), "variables": len(d.variables),
                 "state_bytes": d.state_bytes, "flops": d.flops,
                 "leaves_out_flops": d.leaves_out_flops, "flops_at_most": d.flops_at_most}
                for d in self.devices
            ],
            "transfers": [self._transfer_json(t) for t in self.transfers],
            "placement": {
                name: {"device": d.device, "reasons": [r.text for r in d.reasons]}
                for name, d in self.placement.items()
            },
            "warnings": [str(w) for w in self.warnings],
        } | ({} if self.measured is None else {"measured": self.measured.to_json()})  # fmt: skip

    def _transfer_json(self, t: Transfer) -> dict[str, Any]:
        opaque = self.foreign.get(t.producer, "").startswith("custom")
        dtype = None if opaque and t.dtype.name == "variant" else t.dtype.name
        shape = None if t.shape is None else list(t.shape)
        row: dict[str, Any] = {"tensor": t.tensor, "src": t.src, "dst": t.dst, "dtype": dtype, "shape": shape,
               "bytes": t.bytes, "role": t.role, "control": t.control, "loop": t.loop,
               "conditional": t.is_conditional}  # fmt: skip
        if self.measured is not None and self.measured.knows(t):
            row |= {"measured_bytes": self.measured.bytes_of([t]), "measured_us": self.measured.time_of(t)}
        return row


def _message_of_each(groups: Iterable[Sequence[Transfer]]) -> list[StepMessage]:
    """Returns one message per group of transfers from one task to another."""
    return [
        StepMessage(
            task_of_device(t[0].src), task_of_device(t[0].dst), _roles(t), _size(t), tuple(t),
            max(transfer.messages for transfer in t),
        )
        for t in groups
    ]  # fmt: skip


def _with(text: str, values: Sequence[Transfer]) -> str:
    return f"{text} with {', '.join(t.tensor for t in values)}" if values else text


def _first(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _roles(members: Sequence[Transfer]) -> str:
    counts: dict[str, int] = {}
    for transfer in members:
        counts[transfer.purpose] = counts.get(transfer.purpose, 0) + 1
    shown = [role if n == 1 else f"{n} x {role}" for role, n in counts.items()]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _size(members: Sequence[Transfer]) -> int | None:
    sizes = [t.bytes for t in members]
    return None if None in sizes else sum(size or 0 for size in sizes)


# ---- overview ----------------------------------------
# The tasks of a step at a glance: what each of them sends and holds, which are alike, and which has too much to do.

OVERLOADED = 1.5
"""A task with so many times the mean traffic, or state, of its job has too much to do."""

SMALL_BYTES = 1 << 20
"""A job that has less traffic in a step, or state, is not looked at: there the difference costs nothing."""

_ALIKE = (0.1, 0.25, 0.5, 1.0)  # relative differences within a fold, until there are few enough folds
_MOST_FOLDS = 16


@dataclass(frozen=True)
class Load:
    """The work of one device in a step; bytes of unknown size count as 0, and of a loop one iteration.

    Attributes:
      device: full name.
      sends, receives: bytes.
      sends_more, receives_more: what these leave out, for people.
    """

    device: str
    ops: int
    sends: int
    receives: int
    state_bytes: int
    flops: int
    sends_more: str = ""
    receives_more: str = ""

    @property
    def traffic(self) -> int:
        """Bytes sent and received."""
        return self.sends + self.receives

    @property
    def is_idle(self) -> bool:
        """Whether the device has no part in the step and holds no variable."""
        return not (self.ops or self.traffic or self.state_bytes)


def headline(found: Inspection) -> str:
    """One line: the size of the graph, the ops that run, and the client's task."""
    run = _first([*found.fetches, *found.targets])
    return f"{len(found.nodes):,} ops; the step runs {run}; the client is at {short(found.master)}"


@dataclass(frozen=True)
class Overview:
    """See the module.

    Attributes:
      loads: one per device, in the order of the inspection.
      links: (from, to) -> bytes; only pairs of devices that exchange something.
      beyond: what these bytes leave out, for people; of the links that carry tensors, not only an order.
    """

    loads: tuple[Load, ...]
    links: dict[tuple[str, str], int]
    beyond: dict[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def busy(self) -> list[Load]:
        """The devices with a part in the step, or with variables."""
        return [load for load in self.loads if not load.is_idle]

    @cached_property
    def busiest_link(self) -> tuple[str, str] | None:
        """The link with the most bytes."""
        return max(self.links, key=lambda link: self.links[link], default=None)

    @cached_property
    def overloaded(self) -> list[tuple[Load, float]]:
        """Tasks with `OVERLOADED` times the mean traffic of their job, with the factor, the busiest first."""
        found = [
            (load, load.traffic / mean)
            for members, mean in self._jobs()
            for load in members
            if mean * len(members) >= SMALL_BYTES and load.traffic >= OVERLOADED * mean
        ]
        return sorted(found, key=lambda item: -item[0].traffic)

    def _jobs(self) -> Iterator[tuple[list[Load], float]]:
        """The tasks of each job and their mean traffic. A ps without work counts; a worker has a client of its own."""
        jobs: dict[str, list[Load]] = {}
        for load in self.loads:
            job = parse(load.device).job or ""
            if job == "ps" or not load.is_idle:
                jobs.setdefault(job, []).append(load)
        yield from ((members, sum(load.traffic for load in members) / len(members)) for members in jobs.values())

    def folds(self) -> list[list[Load]]:
        """The devices in groups of those that are alike: of one job, and about the same bytes, state and FLOPs."""
        found: list[list[Load]] = []
        for tolerance in _ALIKE:
            found = _folds(self.loads, tolerance)
            if len(found) <= _MOST_FOLDS:
                break
        return found

    def sentences(self) -> list[str]:
        """What is worth knowing at first sight."""
        found = [f"{overload_text(load, factor)}." for load, factor in self.overloaded[:3]]
        if len(self.overloaded) > 3:
            rest = [short(load.device) for load, _ in self.overloaded[3:]]
            found.append(f"{_first(rest)} {'are' if len(rest) > 1 else 'is'} overloaded, too.")
        if self.busiest_link is not None:
            src, dst = self.busiest_link
            nbytes, more = self.links[src, dst], self.beyond.get((src, dst), "")
            others = sum(other == nbytes for other in self.links.values()) - 1
            as_many = f" ({others} other{'s have' if others > 1 else ' has'} as many)" if others else ""
            known = " by the sizes that are known" if any("?" in note for note in self.beyond.values()) else ""
            if nbytes:
                found.append(f"The busiest link{known} is {short(src)} → {short(dst)}: {nbytes:,} B{more}{as_many}.")
        idle = len(self.loads) - len(self.busy)
        if idle:
            found.append(f"{idle} task{'s have' if idle > 1 else ' has'} no part in this client's step.")
        return found


def overload_text(load: Load, factor: float) -> str:
    """One of `Overview.overloaded`, for people."""
    return (
        f"{short(load.device)} is overloaded: it sends and receives {load.traffic:,} B, {factor:.1f} times the mean of"
        f" the job {parse(load.device).job}"
    )


def fold_label(loads: Sequence[Load]) -> str:
    """``worker/0…7 ×8`` for tasks that are alike, ``worker/0`` for a single one."""
    if len(loads) == 1:
        return short(loads[0].device)
    places = [parse(load.device) for load in loads]
    return group_label(places[0].job or "", (place.task or 0 for place in places))


def overview(found: Inspection) -> Overview:
    """Sums up an inspection by device."""
    out: dict[str, list[Transfer]] = {}
    into: dict[str, list[Transfer]] = {}
    for transfer in found.transfers:
        out.setdefault(transfer.src, []).append(transfer)
        into.setdefault(transfer.dst, []).append(transfer)
    loads = tuple(_load(d, out.get(d.device, ()), into.get(d.device, ())) for d in found.devices)
    links = found.links()
    beyond = {link: sum_note(rows) for link, rows in links.items() if not all(t.control for t in rows)}
    return Overview(loads, {link: _known(rows) for link, rows in links.items()}, beyond)


def _known(rows: Sequence[Transfer]) -> int:
    return sum(t.bytes or 0 for t in rows)


def _load(d: DeviceSummary, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> Load:
    return Load(
        d.device, len(d.ops), _known(sends), _known(receives), d.state_bytes or 0, d.flops or 0,
        sum_note(sends), sum_note(receives),
    )  # fmt: skip


def _folds(loads: Sequence[Load], tolerance: float) -> list[list[Load]]:
    found: list[list[Load]] = []
    for load in loads:
        fold = next((fold for fold in found if _alike(fold[0], load, tolerance)), None)
        if fold is None:
            found.append([load])
        else:
            fold.append(load)
    return found


def _alike(a: Load, b: Load, tolerance: float) -> bool:
    if parse(a.device).job != parse(b.device).job or bool(a.ops) != bool(b.ops):
        return False
    pairs = ((a.sends, b.sends), (a.receives, b.receives), (a.state_bytes, b.state_bytes), (a.flops, b.flops))
    return all(abs(x - y) <= tolerance * min(x, y) or max(x, y) <= 64 for x, y in pairs)


# ---- Estimates an op's cost from its static shapes: floating-point operations and bytes of state -------------------

# Ops with one of these traits only forward, move or select values.
_FREE = tuple(map(ops_with, ("variable", "placeholder", "flow", "control_only", "forwards", "looks_up", "shape_only")))
_ASSIGNS = ops_with("writes", "assign")
_ACCUMULATES = ops_with("accumulator", "apply")
_CHANGES = frozenset({"grad", "delta", "updates", "gradient", "gradient_values"})

Shapes = Mapping[Endpoint, RawShape]
Rule = Callable[[Node, Shapes], "int | None"]


def state_bytes(node: Node) -> int | None:
    """The bytes of a variable; None if its shape is not fully known or its elements have no fixed size."""
    count, dtype = size(node.attrs.get("shape")), node.attrs.get("dtype")
    if count is None or not isinstance(dtype, DType) or dtype.name in ("string", "variant", "resource"):
        return None
    return count * dtype.size


def size(shape: RawShape) -> int | None:
    """The number of elements; None if the shape is not fully known."""
    if shape is None or any(d is None for d in shape):
        return None
    return math.prod(d for d in shape if d is not None)


def flops(node: Node, shapes: Shapes) -> int | None:
    """The floating-point operations of an op (a multiply-add counts as two); None if a costly op has unknown shapes.

    Cheap ops of unknown shape count as 0.
    """
    costly = _COSTLY.get(trait_of(node.op, "work"))
    return (_cheap(node, shapes) or 0) if costly is None else costly(node, shapes)


def is_left_out(node: Node, shapes: Shapes) -> bool:
    """Whether `flops` counts an op as 0 because its shapes are unknown: an update, or one that computes floats."""
    if trait_of(node.op, "work") in _COSTLY or _cheap(node, shapes) is not None:
        return False
    if _change_of(node):
        return True
    handle = node.handle
    if handle is None or handle.op_def.is_stateful:
        return False
    return any(dtype.base_dtype.is_floating for dtype in output_dtypes(node)[:1])


def _cheap(node: Node, shapes: Shapes) -> int | None:
    work = trait_of(node.op, "work")
    if work == "none" or node.op in MADE_BY_PASSES or node.op in _ASSIGNS or any(node.op in ops for ops in _FREE):
        return 0
    if work == "input":
        return size(shapes.get(node.inputs[0]))
    # An update costs one operation per value of the gradient, which may cover only some rows of the variable.
    change = _change_of(node)
    return size(shapes.get(_inputs(node)[change] if change else (node.name, 0)))


def _change_of(node: Node) -> str:
    """The input by whose values an op changes a variable, or that it adds to the gradients of an accumulator; or ""."""
    if not trait_of(node.op, "writes") and node.op not in _ACCUMULATES:
        return ""
    return next((name for name in _inputs(node) if name in _CHANGES), "")


def _inputs(node: Node) -> dict[str, Endpoint]:
    """The sources of a node's inputs by declared name; wrong if an input is a list."""
    names = node.handle.op_def.inputs if node.handle is not None else ()
    return {arg.name: source for arg, source in zip(names, node.inputs)}


def _matmul(node: Node, shapes: Shapes) -> int | None:
    out, left = size(shapes.get((node.name, 0))), shapes.get(node.inputs[0])
    if out is None or left is None:
        return None
    transposed = node.attrs.get("transpose_a") or node.attrs.get("adj_x")
    inner = left[-2] if transposed else left[-1]
    return None if inner is None else 2 * out * inner


def _convolution(node: Node, shapes: Shapes) -> int | None:
    # The gradients need the same multiplications as the convolution.
    own, inputs = (node.name, 0), _inputs(node)
    filters = shapes.get(inputs.get("filter", own))
    image = shapes.get(inputs.get("out_backprop", own))
    kernel, positions = size(filters), size(image)
    if kernel is None or positions is None or filters is None or not filters[-1]:
        return None
    return 2 * positions * kernel // filters[-1]


_COSTLY: dict[str | None, Rule] = {"matmul": _matmul, "convolution": _convolution}


# ---- exchanges ----------------------------------------
# Lists the transfers of collective ops from their cost model, since the partitioner adds no Send or Recv for them.

COLLECTIVES = ops_with("collective")


@dataclass(frozen=True)
class _Collective:
    """One collective of a step: the ops of one instance, and all devices of the group in the order of the ring."""

    ops: dict[str, Node]  # by device; members that run another graph have none
    devices: list[str]
    shape: RawShape
    nbytes: int | None

    @property
    def node(self) -> Node:
        return next(iter(self.ops.values()))

    @property
    def kind(self) -> str:
        kind: str = trait_of(self.node.op, "collective")
        return kind

    @property
    def role(self) -> str:
        name = self.node.attrs.get("_collective_name", b"").decode()
        parts = name.split("+")
        shown = "+".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        return f"{self.kind} of {shown}" if name else self.kind


def group_devices(found: Inspection, node: Node) -> list[str]:
    """The devices of a collective's group: those with ops of its key, and other workers up to the group's size."""
    key, wanted = node.attrs["group_key"], node.attrs["group_size"]
    here = {found.placement[name].device for name, other in found.nodes.items()
            if other.op in COLLECTIVES and other.attrs["group_key"] == key}  # fmt: skip
    jobs = {parse(device).job for device in here}
    others = [d.device for d in found.devices if parse(d.device).job in jobs and d.device not in here]
    return sorted([*here, *others[: max(0, wanted - len(here))]], key=task_order)


def exchanges(found: Inspection) -> list[Transfer]:
    """The transfers of one step between all members of the groups, including members that run other graphs."""
    groups: dict[tuple[int, int], dict[str, Node]] = {}
    for summary in found.devices:
        for name in summary.ops:
            node = found.nodes[name]
            if node.op in COLLECTIVES:
                instance = node.attrs["group_key"], node.attrs["instance_key"]
                groups.setdefault(instance, {})[summary.device] = node
    rows: list[Transfer] = []
    step = found.partitions.step.nodes
    is_uncertain = uncertain_values(step) if groups and has_flow(step) else lambda endpoint: False
    for number, ops in enumerate(groups.values()):
        collective = _collective(found, ops)
        may_not_run = is_uncertain((collective.node.name, -1))
        for src, dst, nbytes, messages in _traffic(collective):
            rows.append(_transfer(collective, number, src, dst, nbytes, messages, may_not_run))
    return rows


def _collective(found: Inspection, ops: dict[str, Node]) -> _Collective:
    node = next(iter(ops.values()))
    endpoint: Endpoint = node.inputs[0] if node.inputs else (node.name, 0)
    shape = found.shapes.get(endpoint)
    count = size(shape)
    return _Collective(ops, group_devices(found, node), shape, None if count is None else count * node.attrs["T"].size)


def _traffic(c: _Collective) -> Iterator[tuple[str, str, int | None, int]]:
    """Yields (from, to, bytes, messages)."""
    root = next((i for i, d in enumerate(c.devices) if d in c.ops and is_source(c.ops[d])), 0)
    for flow in flows(c.kind, c.nbytes, len(c.devices), root):
        yield c.devices[flow.source], c.devices[flow.target], flow.nbytes, flow.messages


def is_source(node: Node) -> bool:
    """Whether the op is the one that broadcasts."""
    return node.op == "CollectiveBcastSend" or bool(node.attrs.get("is_source"))


def _transfer(
    c: _Collective, number: int, src: str, dst: str, nbytes: int | None, messages: int, is_conditional: bool
) -> Transfer:  # fmt: skip
    node, sender, receiver = c.node, c.ops.get(src), c.ops.get(dst)
    source, index = node.inputs[0] if node.inputs else (node.name, 0)
    return Transfer(
        tensor=f"{source}:{index}", src=src, dst=dst, dtype=node.attrs["T"], bytes=nbytes,
        shape=(0,) if nbytes == 0 else c.shape,
        control=False, role=f"acknowledgement of a {c.role}" if nbytes == 0 else c.role, group=-1 - number,
        route=Route.EXCHANGED, messages=messages,
        producer=sender.name if sender is not None else "",
        consumers=(receiver.name,) if receiver is not None else (),
        key=f"collective {node.attrs['group_key']}:{node.attrs['instance_key']}",
        is_conditional=is_conditional, period=period_of(node) if is_conditional else 0,
    )  # fmt: skip
