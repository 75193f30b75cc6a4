"""Small worlds in letters: ``A1`` is a node on device A; its inputs and controls follow.

world("A1=Const", "A2=Var", "B3=Add A1 A2", "B4=Add B3 A1:0 ^A2")
"""

from __future__ import annotations

import itertools

from tfmini import dtypes
from tfmini.graph.node import Node, Nodes
from tfmini.graph.prune import StepGraph
from tfmini.graph.registry import op
from tfmini.placement.partition import Partitions, partition
from tfmini.placement.placer import DeviceAttributes

_ATTRS = {"T": dtypes.float32}
OPS_BY_LETTER = {
    "Const": op("TestConst() -> out: float"),
    "Var": op("TestVariable() -> ref: Ref(float)", stateful=True),
    "Assign": op("TestAssign(ref: Ref(T), value: T) -> out: Ref(T); T: type"),
    "Read": op("TestRead(input: T) -> out: T; T: type"),
    "Add": op("TestAdd(a: T, b: T) -> out: T; T: type"),
    "Gather": op("TestGather(x: N * T) -> out: T; N: int; T: type"),
    "Two": op("TestTwo(x: T) -> a: T, b: T; T: type"),
    "Queue": op("TestQueue() -> handle: resource; shared_name: string = ''", stateful=True, meeting=True),
    "Handle": op("TestHandle() -> handle: resource", stateful=True),
    "Use": op("TestUse(handle: resource) -> out: float", stateful=True),
    "Source": op("TestSource(x: float) -> data: variant"),
    "Change": op("TestChange(data: variant, x: float) -> out: variant"),
    "Capture": op("TestCapture(data: variant, handle: resource) -> out: variant"),
    "Begin": op("TestBegin(data: variant, handle: resource) -> ; ", stateful=True),
    "Optional": op("TestOptional(handle: resource) -> out: variant", stateful=True),
    "Pass": op("TestPass(x: variant) -> out: variant"),
    "Read variant": op("TestReadVariant(data: variant) -> out: float"),
    "Zip": op("TestZip(x: N * variant) -> out: variant; N: int"),
    "Both": op("TestBoth(a: resource, b: resource) -> out: float", stateful=True),
    "Dequeue": op("TestQueueDequeue() -> out: float", stateful=True, waits=True),
    "Done": op("TestDone(x: T) -> ; T: type"),
}
for _handle in OPS_BY_LETTER.values():
    _handle.kernel("CPU")(lambda *args: None)
GPU_ADD = op("TestGpuOnly(a: T, b: T) -> out: T; T: type")
GPU_ADD.kernel("NPU")(lambda *args: None)
NO_KERNEL = op("TestNoKernel(a: T) -> out: T; T: type")

DEVICE = {letter: f"/job:worker/replica:0/task:{task}/device:CPU:0" for task, letter in enumerate("ABCDEFGH")}
INCARNATIONS = {device: 100 + i for i, device in enumerate(DEVICE.values())}


def node(name: str, kind: str, *inputs: str, device: str = "", group: str = "") -> Node:
    """One node; inputs are ``x``, ``x:1`` or ``^x``; ``group`` is the op it is colocated with."""
    data = [(i.partition(":")[0], int(i.partition(":")[2] or 0)) for i in inputs if i[0] != "^"]
    attrs = {**_ATTRS, "N": len(data), **({"_class": [f"loc:@{group}".encode()]} if group else {})}
    op_type = OPS_BY_LETTER[kind].name if kind in OPS_BY_LETTER else kind
    return Node(name, op_type, device, data, [i[1:] for i in inputs if i[0] == "^"], attrs)


def graph(*nodes: Node) -> Nodes:
    return {n.name: n for n in nodes}


def world(*lines: str) -> tuple[Nodes, dict[str, str]]:
    """(nodes, placement) of a world in letters."""
    nodes = []
    for line in lines:
        name, _, rest = line.partition("=")
        kind, *inputs = rest.split()
        nodes.append(node(name, kind, *inputs))
    return graph(*nodes), {n.name: DEVICE[n.name[0]] for n in nodes}


def cut(nodes: Nodes, placement: dict[str, str]) -> Partitions:
    """The partitions of a step that runs all nodes."""
    return partition(StepGraph(nodes), placement, incarnations=INCARNATIONS, name_counter=itertools.count())


def cluster(*names: str) -> list[DeviceAttributes]:
    """Devices from short names such as ``ps/0`` or ``worker/1:GPU``."""
    found = []
    for name in names:
        where, _, kind = name.partition(":")
        job, task = where.split("/")
        kind = kind or "CPU"
        found.append(DeviceAttributes(f"/job:{job}/replica:0/task:{task}/device:{kind}:0", kind))
    return found
