"""The results of an inspection, as typed values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfmini.devices import task_of_device
from tfmini.graph.node import Endpoint, Nodes
from tfmini.placement.decision import Placement
from tfmini.placement.partition import Partitions, to_networkx
from tfmini.placement.task_graph import Route
from tfmini.placement.wire_table import Transfer
from tfmini.shapes import RawShape

if TYPE_CHECKING:
    import networkx

    from tfmini.inspection.measured import Measured


_NODE_TAG = re.compile(r"\{\{(?:colocation_)?node ([^}]+)\}\}")
_LAST_TAG = re.compile(r"\n\t \[\[\{\{node [^}]+\}\}\]\]$")


@dataclass(frozen=True)
class DeviceSummary:
    """The work and state of one device.

    Attributes:
      device: full name.
      ops: names of the graph's own ops that the step runs on it, without sends and receives.
      variables: names of all variables of the whole graph that are placed on it.
      state_bytes: bytes of these variables; None if a shape is unknown.
      flops: floating-point operations of one step; None if the shapes of a costly op are unknown.
    """

    device: str
    ops: tuple[str, ...]
    variables: tuple[str, ...]
    state_bytes: int | None
    flops: int | None


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


def without_tags(message: str) -> str:
    """A step's error with the plain names of nodes, for which a session writes their source lines."""
    return _NODE_TAG.sub(r"node \1", _LAST_TAG.sub("", message))


@dataclass(frozen=True)
class StepMessage:
    """One message of a step. ``transfers`` is empty for a request or reply without tensors; ``bytes`` None: unknown."""

    src: str
    dst: str
    text: str
    bytes: int | None = 0
    transfers: tuple[Transfer, ...] = ()


@dataclass(repr=False)
class Inspection:
    """One step of a graph on a cluster: its placement, partitions and transfers.

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
        from tfmini.inspection.text import headline

        return f"<Inspection: {headline(self)}>"

    def why(self, op: str) -> list[str]:
        """The device of an op, and the chain of reasons, the most direct one first.

        Raises:
          KeyError: the op is not in the graph.
        """
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
        fed = ", ".join(self.feeds) or "no feeds"
        found = [StepMessage("client", master, f"run {', '.join([*self.fetches, *self.targets])} with {fed}", None)]
        for task in others:
            values = self._of(Route.FED, task, incoming=True)
            found.append(StepMessage(master, task, _with("RunGraph", values), _size(values), values))
        found += self._pushed() + self._exchanged()
        for task in others:
            values = self._of(Route.FETCHED, task, incoming=False)
            found.append(StepMessage(task, master, _with("done", values), _size(values), values))
        return [*found, StepMessage(master, "client", f"values of {', '.join(self.fetches) or 'nothing'}", None)]

    def _of(self, route: Route, task: str, incoming: bool) -> tuple[Transfer, ...]:
        return tuple(
            t for t in self.transfers if t.route is route and task_of_device(t.dst if incoming else t.src) == task
        )

    def _pushed(self) -> list[StepMessage]:
        groups: dict[tuple[str, str, int], list[Transfer]] = {}
        for transfer in self.transfers:
            if transfer.route is Route.SENT:
                key = (transfer.src, transfer.dst, transfer.group)
                # A message is sent when its last tensor is ready, so it moves to the end of the order.
                groups[key] = [*groups.pop(key, []), transfer]
        return _message_of_each(groups.values())

    def _exchanged(self) -> list[StepMessage]:
        links: dict[tuple[str, str], list[Transfer]] = {}
        for transfer in self.transfers:
            if transfer.route is Route.EXCHANGED:
                links.setdefault((transfer.src, transfer.dst), []).append(transfer)
        return _message_of_each(links.values())

    def _repr_html_(self) -> str:
        """The page of `tfmini inspect --html`, for notebooks."""
        from tfmini.inspection.page_html import framed, page

        return framed(page(self), "tfmini: what each task does in a step")

    def to_json(self) -> dict[str, Any]:
        """The object that ``tfmini inspect --json`` prints."""
        return {
            "tasks": [
                {"device": d.device, "ops": len(d.ops), "variables": len(d.variables),
                 "state_bytes": d.state_bytes, "flops": d.flops}
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
               "bytes": t.bytes, "role": t.role, "control": t.control}  # fmt: skip
        if self.measured is not None and t in self.measured.transfers:
            row |= {"measured_bytes": self.measured.bytes_of([t]), "measured_us": self.measured.time_of(t)}
        return row


def _message_of_each(groups: Iterable[Sequence[Transfer]]) -> list[StepMessage]:
    """Returns one message per group of transfers from one task to another."""
    return [
        StepMessage(task_of_device(t[0].src), task_of_device(t[0].dst), _roles(t), _size(t), tuple(t)) for t in groups
    ]


def _with(text: str, values: Sequence[Transfer]) -> str:
    return f"{text} with {', '.join(t.tensor for t in values)}" if values else text


def _roles(members: Sequence[Transfer]) -> str:
    counts: dict[str, int] = {}
    for transfer in members:
        counts[transfer.role] = counts.get(transfer.role, 0) + 1
    shown = [role if n == 1 else f"{n} x {role}" for role, n in counts.items()]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _size(members: Sequence[Transfer]) -> int | None:
    sizes = [t.bytes for t in members]
    return None if None in sizes else sum(size or 0 for size in sizes)
