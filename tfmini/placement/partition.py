"""The partitioner: cuts a placed graph into one graph per device, joined by pairs, and makes each task's graph of them.

A tensor crosses to a device once, for all its consumers there. A control edge crosses as an empty float tensor. A
reference crosses when its consumer's other inputs have come, since only then it is read. One
pass in topological order makes the pairs; then `tfmini.placement.waves` decides for each device which of them share a
message, and `tfmini.placement.task_graph` which value travels how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes
from tfmini.devices import Place
from tfmini.errors import InvalidArgumentError
from tfmini.graph.frames import has_flow
from tfmini.graph.liveness import uncertain_values
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import FETCH, RECEIVE, SEND, output_dtypes
from tfmini.graph.omission import is_update
from tfmini.graph.prune import StepGraph, endpoint_name
from tfmini.graph.traits import NEXT_OPS
from tfmini.placement.loop_drivers import LoopDrivers
from tfmini.placement.task_graph import Pair, TaskGraph, task_graphs
from tfmini.placement.waves import number_messages, waiting_ops

if TYPE_CHECKING:
    import networkx

CONTROL_SLOT = -1
"""The output index of control edges, as in TensorFlow."""

_NOTHING = np.zeros((0,), np.float32)
_NOTHING.flags.writeable = False


@dataclass(frozen=True)
class Partitions:
    """The result of the partitioner.

    Attributes:
      step: the graph that was cut.
      parts: device -> its nodes in topological order, as TensorFlow's partitioner cuts the graph.
      pairs: in the order of their first use.
      places: device -> its place.
      tasks: task -> what it runs, without the values that need not cross.
    """

    step: StepGraph
    parts: dict[str, Nodes]
    pairs: list[Pair]
    places: Mapping[str, Place]
    tasks: dict[str, TaskGraph]


def partition(
    step: StepGraph, placement: Mapping[str, str], *, incarnations: Mapping[str, int], name_counter: Iterator[int]
) -> Partitions:
    """Cuts a pruned graph along its placement.

    Args:
      placement: op name -> full device name; the default is the node's ``device``.
      incarnations: device -> incarnation.
      name_counter: numbers for new names, unique within a session.

    Raises:
      InvalidArgumentError: an input is missing, or a node has no device.
      UnimplementedError: a loop without a LoopCond spans devices.
    """
    cutter = _Cutter(step.nodes, placement, incarnations, name_counter)
    cutter.cut()
    parts, numbers = cutter.parts, number_messages(cutter.parts, cutter.pairs)
    pairs = [replace(pair, group=numbers[pair.send]) if numbers[pair.send] else pair for pair in cutter.pairs]
    places = {device: cutter.place(device) for device in parts}
    tasks, pairs = task_graphs(step, parts, pairs, places)
    return Partitions(step, parts, pairs, places, tasks)


class _Cutter:
    def __init__(
        self,
        nodes: Nodes,
        placement: Mapping[str, str],
        incarnations: Mapping[str, int],
        counter: Iterator[int],
    ) -> None:
        self.nodes = nodes
        self.incarnations = incarnations
        self.counter = counter
        self.device_of = {name: placement.get(name) or node.device for name, node in nodes.items()}
        self.crossed: dict[tuple[str, int, str, tuple[str, ...]], str] = {}
        self.parts: dict[str, Nodes] = {}
        self.places: dict[str, Place] = {}
        self.pairs: list[Pair] = []
        flows = has_flow(nodes)
        self._is_uncertain = uncertain_values(nodes) if flows else None
        self._loops: LoopDrivers | None = None
        self.late = _late_nodes(nodes) if flows else frozenset()
        if self._is_uncertain is not None:
            self._loops = LoopDrivers(nodes, self.device_of, self.parts, self._fresh, self._is_uncertain)

    def cut(self) -> None:
        """Fills the parts and the pairs."""
        device_of, parts = self.device_of, self.parts
        for name, node in self.nodes.items():
            device = device_of[name]
            part = parts.get(device)
            if part is None:
                part = parts[device] = self._new_part(name, device)
            inputs, controls = node.inputs, node.controls
            for source, _ in inputs:
                if device_of.get(source) != device:
                    inputs = self._cross_inputs(node, device)
                    break
            for source in controls:
                if device_of.get(source) != device:
                    controls = self._cross_controls(node, device)
                    break
            part[name] = Node(name, node.op, device, inputs, controls, node.attrs)
        if self._loops is not None:
            self._loops.finish(self._cross)

    def _new_part(self, name: str, device: str) -> Nodes:
        if not device:
            raise InvalidArgumentError.of(f"Node '{name}' has no assigned device; place the graph first.")
        return {}

    def _cross_inputs(self, node: Node, device: str) -> tuple[Endpoint, ...]:
        missing = sum(source not in self.nodes for source, _ in node.inputs)
        if missing:
            raise InvalidArgumentError.of(f"Incomplete graph, missing {missing} inputs for {node.name}")
        return tuple(
            endpoint if self.device_of[endpoint[0]] == device
            else (self._cross(endpoint, device, self._before(endpoint, node)), 0)
            for endpoint in node.inputs
        )  # fmt: skip

    def _before(self, source: Endpoint, reader: Node) -> tuple[str, ...]:
        """The nodes that must come before a reference is read for a node on another device.

        These are the reader's other inputs and controls, as in TensorFlow's partitioner (its ``ref_control_inputs``),
        where the reader asks for the value. Only those count after which a variable may have another value.
        """
        if len(reader.inputs) + len(reader.controls) < 2 or not self._is_reference(source):
            return ()
        others = [e[0] for e in reader.inputs if not self._is_reference(e)]
        return tuple(name for name in dict.fromkeys([*others, *reader.controls]) if name in self._changing)

    def _is_reference(self, endpoint: Endpoint) -> bool:
        return output_dtypes(self.nodes[endpoint[0]])[endpoint[1]]._is_ref_dtype

    @cached_property
    def _changing(self) -> frozenset[str]:
        """The nodes that update a variable or wait for somebody who may, and all that come after them."""
        updates = {name for name, node in self.nodes.items() if is_update(node)}
        loops = {name for name, node in self.nodes.items() if node.op in NEXT_OPS}
        rounds = {name for name, node in self.nodes.items() if any(s in loops for s, _ in node.inputs)}
        return _late_nodes(self.nodes) | _followers(self.nodes, updates | rounds)

    def _cross_controls(self, node: Node, device: str) -> tuple[str, ...]:
        for source in node.controls:
            if source not in self.nodes:
                message = f"Incomplete graph: control input ^{source} of {node.name} is not in it"
                raise InvalidArgumentError.of(message)
        return tuple(
            source if self.device_of[source] == device else self._cross((source, CONTROL_SLOT), device)
            for source in node.controls
        )

    def _cross(self, source: Endpoint, dst: str, after: tuple[str, ...] = ()) -> str:
        """Returns the node in ``dst`` that has the value of ``source`` there; makes the pair if there is none.

        Args:
          after: other nodes that must come before it is sent.
        """
        key = (*source, dst, after)
        stand_in = self.crossed.get(key)
        if stand_in is None:
            src = self.device_of[source[0]]
            is_control = source[1] == CONTROL_SLOT
            stand_in = self.crossed[key] = (
                self._carry_control(source, src, dst) if is_control else self._carry_tensor(source, src, dst, after)
            )
        return stand_in

    def _carry_tensor(self, source: Endpoint, src: str, dst: str, after: tuple[str, ...]) -> str:
        node = self.nodes[source[0]]
        dtype = output_dtypes(node)[source[1]].base_dtype
        is_known = node.handle is not None  # else the type may stand in for one that nobody knows
        if is_known and dtype in (dtypes.variant, dtypes.resource) and self.place(src).task != self.place(dst).task:
            raise self._cannot_be_sent(source, src, dst)
        return self._join(source, source, dtype, src, dst, after).recv

    def _cannot_be_sent(self, source: Endpoint, src: str, dst: str) -> InvalidArgumentError:
        users = (n for n in self.nodes.values() if source in n.inputs and self.device_of[n.name] == dst)
        user = next((f"'{n.name}'" for n in users if n.op != FETCH), "a fetch")
        error = InvalidArgumentError.of(
            f"{user} on {dst} takes a value of '{source[0]}' on {src} that is no array (a handle, a dataset, an"
            " optional) and cannot be sent to another task. Put both on one device, or send the arrays that it gives"
            f" there.\n\t [[{{{{node {source[0]}}}}}]]"
        )
        error.node_name = source[0]
        return error

    def _carry_control(self, source: Endpoint, src: str, dst: str) -> str:
        name = source[0]
        attrs = {"dtype": dtypes.float32, "value": _NOTHING}
        const = Node(self._fresh(name), "Const", src, (), (name,), attrs)
        self.parts[src][const.name] = const
        pair = self._join(source, (const.name, 0), dtypes.float32, src, dst)
        identity = Node(self._fresh(name), "Identity", dst, ((pair.recv, 0),), (), {"T": dtypes.float32})
        self.parts[dst][identity.name] = identity
        self.pairs[-1] = replace(pair, carriers=(const.name, identity.name))
        return identity.name

    def _join(
        self, source: Endpoint, value: Endpoint, dtype: dtypes.DType, src: str, dst: str, after: tuple[str, ...] = ()
    ) -> Pair:
        """Adds a pair and its nodes. ``value`` is sent under the name of ``source``."""
        order = tuple(n if self.device_of[n] == src else self._cross((n, CONTROL_SLOT), src) for n in after)
        tensor = f"edge_{len(self.pairs)}_{source[0]}"
        send = Node(self._fresh(source[0]), SEND, src, (value,), order)
        needs = [source, *((name, CONTROL_SLOT) for name in after)]
        controls = self._loops.controls(source, dst) if self._loops is not None else ()
        recv = Node(self._fresh(source[0]), RECEIVE, dst, (), controls, {"tensor_type": dtype})
        self.parts[src][send.name] = send
        self.parts[dst][recv.name] = recv
        pair = Pair(
            source, self.place(src), self.place(dst), send.name, recv.name, dtype, tensor,
            self._is_uncertain is not None and any(map(self._is_uncertain, needs)),
            any(name in self.late for name, _ in needs),
        )  # fmt: skip
        self.pairs.append(pair)
        return pair

    def place(self, device: str) -> Place:
        """The place of a device, which all its pairs share."""
        found = self.places.get(device)
        if found is None:
            found = self.places[device] = Place.of(device, self.incarnations.get(device, 0))
        return found

    def _fresh(self, base: str) -> str:
        name = f"{base}_S{next(self.counter)}"
        while name in self.nodes:
            name = f"{base}_S{next(self.counter)}"
        return name


def _late_nodes(nodes: Nodes) -> frozenset[str]:
    """The nodes that wait, or depend on one that waits: a loop that their values enter may have to make them come."""
    waiting = waiting_ops(nodes)
    return _followers(nodes, {name for name, node in nodes.items() if node.op in waiting}) if waiting else frozenset()


def _followers(nodes: Nodes, first: Set[str]) -> frozenset[str]:
    """These nodes, and those that come after one of them."""
    found: set[str] = set()
    for name, node in nodes.items():
        if name in first or any(s in found for s, _ in node.inputs) or not found.isdisjoint(node.controls):
            found.add(name)
    return frozenset(found)


def as_in_tensorflow(partitions: Partitions, device: str) -> list[Node]:
    """The part of a device as TensorFlow writes it, with all attrs of its ``_Send`` and ``_Recv`` nodes."""
    part, own, step = partitions.parts[device], partitions.places[device], partitions.step
    ends: dict[str, tuple[str, dict[str, Any]]] = {}
    for pair in partitions.pairs:
        attrs = _rendezvous(pair.tensor, pair.src, pair.dst, False)
        ends[pair.send] = SEND, {"T": pair.dtype, **attrs}
        ends[pair.recv] = RECEIVE, {"tensor_type": pair.dtype, **attrs}
    for name, tensor in step.feeds:
        if name in part:
            attrs = _rendezvous(endpoint_name(tensor), own, own, True)
            ends[name] = RECEIVE, {"tensor_type": part[name].attrs["T"], **attrs}
    for name, tensor in step.fetches:
        dtype = output_dtypes(step.nodes[tensor[0]])[tensor[1]].base_dtype
        ends[name] = SEND, {"T": dtype, **_rendezvous(endpoint_name(tensor), own, own, True)}
    shown = []
    for name, node in part.items():
        op, attrs = ends.get(name, (node.op, node.attrs))
        shown.append(node.replace(op=op, attrs=attrs))
    return shown


def _rendezvous(tensor: str, src: Place, dst: Place, is_client: bool) -> dict[str, Any]:
    return {
        "tensor_name": tensor.encode(), "send_device": src.device.encode(), "recv_device": dst.device.encode(),
        "send_device_incarnation": src.incarnation, "client_terminated": is_client,
    }  # fmt: skip


def to_networkx(nodes: Nodes) -> networkx.MultiDiGraph:
    """Converts a graph to networkx: nodes have ``op`` and ``device``, edges the indices ``output`` and ``input``.

    Control edges have both indices -1.
    """
    import networkx  # slow to import, and no step needs it

    graph = networkx.MultiDiGraph()
    for name, node in nodes.items():
        graph.add_node(name, op=node.op, device=node.device)
    for name, node in nodes.items():
        for slot, (source, output) in enumerate(node.inputs):
            graph.add_edge(source, name, output=output, input=slot)
        for source in node.controls:
            graph.add_edge(source, name, output=CONTROL_SLOT, input=CONTROL_SLOT)
    return graph
