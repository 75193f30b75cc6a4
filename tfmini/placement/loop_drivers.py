"""Loop drivers: control loops for devices that run part of a while loop but hold none of its loop variables.

Each device runs its part of a loop iteration by iteration, and receives the values of other devices once per iteration.
On a device with a loop variable, the variable's Switch receives the loop's condition and starts the next iteration. Any
other device gets a *driver*: a loop variable without a use (Enter, Merge, Switch and NextIteration), whose Switch
receives the condition in every iteration. TensorFlow's partitioner makes the same nodes, its control loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.errors import UnimplementedError
from tfmini.graph.frames import FramePath, frame_paths
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import output_dtypes
from tfmini.graph.prune import in_topological_order
from tfmini.graph.traits import ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS

_NOTHING = np.zeros((), np.float32)
_NOTHING.flags.writeable = False
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
        attrs = {"dtype": dtypes.float32, "value": _NOTHING}
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
