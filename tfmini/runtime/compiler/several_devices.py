"""Several devices of one task: what each of them computes goes into segments of its own, which may run at one time.

The wave of a node says what must have arrived before it. Here it also says which devices have worked for it: each
product or convolution adds its device to its wave, and so to the waves of all that follow. So the towers of two devices
are in segments that do not wait for each other, and their sum is in a third. Cheap nodes before the first product add
nothing: both towers may read a variable or an input that one of the devices has prepared.
"""

from __future__ import annotations

import functools
import operator

from tfmini.graph.frames import Loop
from tfmini.graph.node import Node, Nodes
from tfmini.graph.traits import ops_with
from tfmini.placement.waves import Wave
from tfmini.runtime.compiler.lowering import Compilation, Lowering
from tfmini.runtime.compiler.units import Condition

_HEAVY = ops_with("work", "matmul", "convolution")
_FIRST_DEVICE = 1 << 40  # groups and events are below


class DevicesLowering(Lowering):
    """The lowering of nodes on several devices."""

    def __init__(self, compilation: Compilation, nodes: Nodes, loops: dict[str, Loop], devices: list[str]) -> None:
        super().__init__(compilation, nodes, loops)
        self._marks = {device: self.bit(_FIRST_DEVICE + i) for i, device in enumerate(devices)}
        self.device_bits = functools.reduce(operator.or_, self._marks.values())

    def _admit_computation(self, node: Node, wave: Wave, guard: Condition) -> None:
        if node.op in _HEAVY:
            wave = self.waves[node.name] = self.ranked(wave | self._marks[node.device])
        super()._admit_computation(node, wave, guard)


def lowering_of(compilation: Compilation, nodes: Nodes, loops: dict[str, Loop]) -> Lowering:
    """The lowering of the nodes of one task."""
    devices = {node.device for node in nodes.values() if node.op in _HEAVY}
    if len(devices) < 2:
        return Lowering(compilation, nodes, loops)
    return DevicesLowering(compilation, nodes, loops, sorted(devices))
