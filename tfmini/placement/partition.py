"""The partitioner: cuts a placed graph into one graph per device, joined by pairs, and makes each task's graph of them.

A tensor crosses to a device once, for all its consumers there. A control edge crosses as an empty float tensor. A
reference crosses when its consumer's other inputs have come, since only then it is read. One
pass in topological order makes the pairs; then `tfmini.placement.waves` decides for each device which of them share a
message, and `tfmini.placement.task_graph` which value travels how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes
from tfmini.devices import Place
from tfmini.errors import InvalidArgumentError, UnimplementedError
from tfmini.graph.liveness import FramePath, frame_paths, has_flow, uncertain_values
from tfmini.graph.node import FETCH, RECEIVE, SEND, Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS
from tfmini.graph.prune import StepGraph, endpoint_name, in_topological_order
from tfmini.placement.task_graph import Pair, TaskGraph, task_graphs
from tfmini.placement.waves import number_messages, waiting_ops

if TYPE_CHECKING:
    import networkx

CONTROL_SLOT = -1
"""The output index of control edges, as in TensorFlow."""

_EMPTY = np.zeros((0,), np.float32)
_EMPTY.flags.writeable = False


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
        A Merge takes the input that comes: its others are of branches that the step does not take.
        """
        if len(reader.inputs) + len(reader.controls) < 2 or not self._is_reference(source) or reader.op in MERGE_OPS:
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
        attrs = {"dtype": dtypes.float32, "value": _EMPTY}
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


# ---- Loop drivers: control loops for devices that run part of a while loop but hold none of its variables ----------
# Each device runs its part of a loop iteration by iteration, and receives the values of other devices once per
# iteration. On a device with a loop variable, the variable's Switch receives the loop's condition and starts the next
# iteration. Any other device gets a *driver*: a loop variable without a use (Enter, Merge, Switch and NextIteration),
# whose Switch receives the condition in every iteration. TensorFlow's partitioner makes the same nodes, its control
# loop.

_DRIVER_VALUE = np.zeros((), np.float32)
_DRIVER_VALUE.flags.writeable = False
_T = {"T": dtypes.float32}


class LoopDrivers:
    """Finds or makes for each frame and device the Merge that begins an iteration.

    Args:
      nodes: the whole graph, in topological order.
      device_of: op name -> device.
      parts: device -> its nodes; receives those of the drivers.
      fresh: base name -> a name that no node has.
      is_uncertain: whether a value may be dead.
    """

    def __init__(
        self, nodes: Nodes, device_of: Mapping[str, str], parts: dict[str, Nodes], fresh: Callable[[str], str],
        is_uncertain: Callable[[Endpoint], bool],
    ) -> None:  # fmt: skip
        self._nodes = nodes
        self._parts = parts
        self._fresh = fresh
        self._paths = frame_paths(nodes)
        self._conditions: dict[FramePath, str] = {}
        self._merges: dict[tuple[FramePath, str], str] = {}
        self._consts: dict[tuple[FramePath, str], str] = {}
        self._enters: dict[FramePath, str] = {}
        self._is_uncertain = is_uncertain
        self._made: list[tuple[FramePath, str, str, str]] = []
        self._places: dict[tuple[FramePath, str], None] = {}
        for name, path in self._paths.items():
            node = nodes[name]
            self._places.setdefault((path, device_of[name]))
            if node.op in ENTER_OPS:
                self._enters.setdefault(path, name)
            if node.op == "LoopCond":
                self._conditions[path] = name
            elif node.op in MERGE_OPS and any(nodes[source].op in NEXT_OPS for source, _ in node.inputs):
                self._merges.setdefault((path, device_of[name]), name)

    def controls(self, source: Endpoint, device: str) -> tuple[str, ...]:
        """Returns the control inputs of a ``_Recv`` on ``device``: inside a loop the Merge that begins an iteration."""
        path = self._paths.get(source[0], ())
        if self._nodes[source[0]].op in EXIT_OPS:
            path = path[:-1]
        return (self._merge(path, device),) if path else ()

    def finish(self, cross: Callable[[Endpoint, str], str]) -> None:
        """Sends each loop's condition to its drivers; ``cross`` returns the node for an endpoint on another device."""
        spread = Counter(path for path, _ in self._places)
        for path, device in self._places:
            if spread[path] > 1:
                self._merge(path, device)
        done = 0
        while done < len(self._made):  # to send a condition may need a driver on another device
            path, device, merge, next_name = self._made[done]
            done += 1
            condition = self._conditions[path]
            is_here = condition in self._parts[device]
            predicate = condition if is_here else cross((condition, 0), device)
            base = f"{path[-1]}/driver"
            switch = self._add(f"{base}/Switch", "Switch", device, [(merge, 0), (predicate, 0)])
            self._put(Node(next_name, "NextIteration", device, [(switch, 1)], (), dict(_T)))
            self._live_with_the_loop(path, device, cross)
        if self._paths:
            # The Merge that begins an iteration may come after the first `_Recv` that waits for it, whether it is a
            # driver's or the graph's own: the counter of a loop's gradient is made last.
            self._parts.update({device: in_topological_order(part) for device, part in self._parts.items()})

    def _live_with_the_loop(self, path: FramePath, device: str, cross: Callable[[Endpoint, str], str]) -> None:
        """Keeps the driver from running if the loop is in a branch that is not taken.

        The driver's first value waits for the first value that enters the loop, if that one may be dead.
        """
        source = self._nodes[self._enters[path]].inputs[0]
        if not self._is_uncertain(source):
            return
        is_here = source[0] in self._parts[device]
        witness = self._fresh(f"{path[-1]}/driver/Identity")
        value = source if is_here else (cross(source, device), 0)
        dtype = output_dtypes(self._nodes[source[0]])[source[1]].base_dtype
        self._put(Node(witness, "Identity", device, [value], (), {"T": dtype}))
        const = self._parts[device][self._consts[path, device]]
        self._put(const.replace(controls=(*const.controls, witness)))

    def _merge(self, path: FramePath, device: str) -> str:
        found = self._merges.get((path, device))
        if found is None:
            found = self._merges[path, device] = self._make(path, device)
        return found

    def _make(self, path: FramePath, device: str) -> str:
        if path not in self._conditions:
            text = (
                f"The loop of frame '{path[-1]}' spans devices (it has nodes on {device}) but has no LoopCond, so its"
                " parts cannot be kept in step. Put the whole loop on one device with tf.device, or use tf.while_loop."
            )
            raise UnimplementedError.of(text)
        base = f"{path[-1]}/driver"
        outer = (self._merge(path[:-1], device),) if len(path) > 1 else ()
        attrs = {"dtype": dtypes.float32, "value": _DRIVER_VALUE}
        const = self._consts[path, device] = self._add(f"{base}/Const", "Const", device, [], attrs, outer)
        attrs = {**_T, "frame_name": path[-1].encode(), "is_constant": False, "parallel_iterations": 10}
        enter = self._add(f"{base}/Enter", "Enter", device, [(const, 0)], attrs)
        next_name = self._fresh(f"{base}/NextIteration")
        merge = self._add(f"{base}/Merge", "Merge", device, [(enter, 0), (next_name, 0)], {**_T, "N": 2})
        self._made.append((path, device, merge, next_name))
        return merge

    def _add(
        self, base: str, op: str, device: str, inputs: list[Endpoint], attrs: Mapping[str, Any] = _T,
        controls: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        name = self._fresh(base)
        self._put(Node(name, op, device, inputs, controls, dict(attrs)))
        return name

    def _put(self, node: Node) -> None:
        self._parts.setdefault(node.device, {})[node.name] = node
