"""The partitioner: cuts a placed graph into one graph per device, joined by ``_Send``/``_Recv`` pairs.

A tensor crosses to a device once, for all its consumers there. A control edge crosses as an empty float tensor. A
reference crosses when its consumer's other inputs have come, since only then it is read. One
pass in topological order makes the pairs; then `tfmini.placement.waves` decides for each device which of them share a
message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes
from tfmini.devices import parse
from tfmini.errors import InvalidArgumentError
from tfmini.graph.frames import has_flow
from tfmini.graph.liveness import uncertain_values
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import MADE_BY_PASSES, output_dtypes
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import may_wait
from tfmini.graph.traits import NEXT_OPS
from tfmini.placement.loop_drivers import LoopDrivers
from tfmini.placement.waves import number_groups

if TYPE_CHECKING:
    import networkx

CONTROL_SLOT = -1
"""The output index of control edges, as in TensorFlow."""

_NOTHING = np.zeros((0,), np.float32)
_NOTHING.flags.writeable = False


@dataclass(frozen=True)
class Pair:
    """A tensor or control edge that crosses from one device to another.

    Attributes:
      source: the endpoint; its index is `CONTROL_SLOT` for a control edge.
      src, dst: full device names.
      send, recv: names of the two nodes.
      dtype: the dtype of the tensor (float32 for a control edge).
      carriers: for a control edge, the Const that is sent and the Identity that replaces the edge.
    """

    source: Endpoint
    src: str
    dst: str
    send: str
    recv: str
    dtype: dtypes.DType
    carriers: tuple[str, str] | None = None

    @property
    def is_control(self) -> bool:
        return self.carriers is not None


@dataclass
class Partitions:
    """The result of the partitioner: a graph per device in topological order, and the pairs in order of first use.

    ``drivers`` has the names of the nodes of loop drivers (see `loop_drivers`).
    """

    parts: dict[str, Nodes] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    drivers: set[str] = field(default_factory=set)

    def __getitem__(self, device: str) -> Nodes:
        return self.parts[device]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def group_of(self, pair: Pair) -> int:
        """Returns the number of the pair's message on its (source, destination) link."""
        return int(self.parts[pair.src][pair.send].attrs["_group"])


def partition(
    nodes: Nodes,
    placement: Mapping[str, str],
    *,
    incarnations: Mapping[str, int],
    name_counter: Iterator[int],
    feeds_may_wait: bool = False,
) -> Partitions:
    """Cuts a pruned graph along its placement.

    Args:
      nodes: in topological order.
      placement: op name -> full device name; the default is the node's ``device``.
      incarnations: source device -> incarnation.
      name_counter: numbers for new names, unique within a session.
      feeds_may_wait: the client feeds values one by one (in a partial run), so that no message may wait for two.

    Raises:
      InvalidArgumentError: an input is missing, or a node has no device.
      UnimplementedError: a loop without a LoopCond spans devices.
    """
    cutter = _Cutter(nodes, placement, incarnations, name_counter)
    result = cutter.cut()
    number_groups(result.parts, feeds_may_wait)
    return result


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
        self.result = Partitions()
        flows = has_flow(nodes)
        self._is_uncertain = uncertain_values(nodes) if flows else None
        self.drivers: LoopDrivers | None = None
        self.late = _late_nodes(nodes) if flows else frozenset()
        if self._is_uncertain is not None:
            self.drivers = LoopDrivers(nodes, self.device_of, self.result, self._fresh, self._is_uncertain)

    def cut(self) -> Partitions:
        device_of, parts = self.device_of, self.result.parts
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
        if self.drivers is not None:
            self.drivers.finish(self._cross)
        return self.result

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
        if is_known and dtype in (dtypes.variant, dtypes.resource) and parse(src).task_name != parse(dst).task_name:
            raise self._cannot_be_sent(source, src, dst)
        send, recv = self._send_recv(source, source, dtype, src, dst, after)
        self.result.pairs.append(Pair(source, src, dst, send, recv, dtype))
        return recv

    def _cannot_be_sent(self, source: Endpoint, src: str, dst: str) -> InvalidArgumentError:
        users = (n for n in self.nodes.values() if source in n.inputs and self.device_of[n.name] == dst)
        user = next((f"'{n.name}'" for n in users if n.op != "_Send"), "a fetch")
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
        self.result.parts[src][const.name] = const
        send, recv = self._send_recv(source, (const.name, 0), dtypes.float32, src, dst)
        identity = Node(self._fresh(name), "Identity", dst, ((recv, 0),), (), {"T": dtypes.float32})
        self.result.parts[dst][identity.name] = identity
        carriers = (const.name, identity.name)
        self.result.pairs.append(Pair(source, src, dst, send, recv, dtypes.float32, carriers))
        return identity.name

    def _send_recv(
        self, source: Endpoint, value: Endpoint, dtype: dtypes.DType, src: str, dst: str, after: tuple[str, ...] = ()
    ) -> tuple[str, str]:
        """Adds the ``_Send`` and the ``_Recv``. ``value`` is sent under the name of ``source``."""
        order = tuple(n if self.device_of[n] == src else self._cross((n, CONTROL_SLOT), src) for n in after)
        shared: dict[str, Any] = {
            "tensor_name": f"edge_{len(self.result.pairs)}_{source[0]}".encode(),
            "send_device": src.encode(),
            "send_device_incarnation": self.incarnations[src],
            "recv_device": dst.encode(),
            "client_terminated": False,
        }
        send = Node(self._fresh(source[0]), "_Send", src, (value,), order, {"T": dtype, **shared})
        needs = [source, *((name, CONTROL_SLOT) for name in after)]
        if self._is_uncertain is not None and any(map(self._is_uncertain, needs)):
            shared["_may_be_dead"] = True
        if any(name in self.late for name, _ in needs):
            shared["_late"] = True
        controls = self.drivers.controls(source, dst) if self.drivers is not None else ()
        recv = Node(self._fresh(source[0]), "_Recv", dst, (), controls, {"tensor_type": dtype, **shared})
        self.result.parts[src][send.name] = send
        self.result.parts[dst][recv.name] = recv
        return send.name, recv.name

    def _fresh(self, base: str) -> str:
        name = f"{base}_S{next(self.counter)}"
        while name in self.nodes:
            name = f"{base}_S{next(self.counter)}"
        return name


def _late_nodes(nodes: Nodes) -> frozenset[str]:
    """The nodes that wait, or depend on one that waits: a loop that their values enter may have to make them come."""
    waiting = {op for op in {node.op for node in nodes.values()} if op not in MADE_BY_PASSES and may_wait(op)}
    return _followers(nodes, {name for name, node in nodes.items() if node.op in waiting}) if waiting else frozenset()


def _followers(nodes: Nodes, first: Set[str]) -> frozenset[str]:
    """These nodes, and those that come after one of them."""
    found: set[str] = set()
    for name, node in nodes.items():
        if name in first or any(s in found for s, _ in node.inputs) or not found.isdisjoint(node.controls):
            found.add(name)
    return frozenset(found)


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
