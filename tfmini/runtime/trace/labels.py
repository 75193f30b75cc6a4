"""The ``timeline_label`` of a step's entries: how it is written, and read again.

Ops look as in TensorFlow, ``name = Op(input, input)``, and so do received tensors,
``[16B] [0.1Mb/s] edge_4_w/read from <device> to <device>`` under the name ``RecvTensor``. What
TensorFlow does not report has the form of an op whose type begins with an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

WIRE = "RecvTensor"
WAIT, DISPATCH = "_Wait", "_Dispatch"
EXCHANGE = "_Exchange"
REQUEST, ANSWER, PART, STEP, CLOCK = "_Request", "_Answer", "_RunGraph", "_Step", "_Clock"

_LABEL = re.compile(r"(?:\[.*?\] )*(?P<name>.*?) = (?P<op>\w+)\((?P<inputs>.*)\)?$", re.DOTALL)
_WIRE = re.compile(r"\[(?P<bytes>\d+)B\] (?:\[.*?\] )?(?P<edge>\S+) from (?P<source>\S+) to (?P<target>\S+)$")
_EDGE = re.compile(r"edge_(\d+)_(.*)", re.DOTALL)


class Wire(NamedTuple):
    """A tensor's way from one device to another."""

    bytes: int
    edge: str
    source: str
    target: str


class Exchanged(NamedTuple):
    """What a rank of a collective has sent to another rank.

    Attributes:
      name: of the op.
      kind: of the collective: ``all-reduce``, ``broadcast`` or ``all-gather``.
      way: ``messages`` or ``shared memory``.
      target: the other rank's device.
    """

    name: str
    kind: str
    way: str
    messages: int
    target: str


def op_label(name: str, op: str, inputs: Iterable[str]) -> str:
    """The label of an op."""
    return f"{name} = {op}({', '.join(inputs)})"


def op_and_inputs(label: str) -> tuple[str, list[str]]:
    """The op type and the inputs of a label; empty for a label of another form."""
    found = _LABEL.match(label)
    if found is None:
        return "", []
    inputs = found["inputs"].removesuffix(")")
    return found["op"], [each for each in inputs.split(", ") if each]


def transfer_label(name: str, op: str, edge: str, other: str) -> str:
    """The label of a Send or Recv; ``other`` is the device at the other end."""
    return f"{name} = {op}({edge} @{other})"


def edge_and_device(label: str) -> tuple[str, str]:
    """The edge and the device at the other end, of a Send's or Recv's label."""
    edge, _, device = (op_and_inputs(label)[1] or [""])[0].rpartition(" @")
    return edge, device


def wire_label(size: int, seconds: float, edge: str, source: str, target: str) -> str:
    """The label of a tensor under way."""
    speed = f"[{size * 8e-6 / seconds:g}Mb/s] " if seconds > 0 else ""
    return f"[{size}B] {speed}{edge} from {source} to {target}"


def wire_of(label: str) -> Wire | None:
    """The content of the label of a tensor under way; None for another label."""
    found = _WIRE.match(label)
    return None if found is None else Wire(int(found["bytes"]), found["edge"], found["source"], found["target"])


def exchange_label(name: str, kind: str, is_shared: bool, messages: int, target: str) -> str:
    """The label of what a rank of a collective has sent to another one."""
    way = "shared memory" if is_shared else "messages"
    return op_label(EXCHANGE, EXCHANGE, [name, kind, way, f"{messages} messages", f"@{target}"])


def exchange_of(label: str) -> Exchanged | None:
    """The content of a label of `exchange_label`; None for another label."""
    op, inputs = op_and_inputs(label)
    if op != EXCHANGE or len(inputs) != 5:
        return None
    name, kind, way, messages, target = inputs
    return Exchanged(name, kind, way, int(messages.split()[0]), target.removeprefix("@"))


def edge_number_and_producer(edge: str) -> tuple[int, str]:
    """``(4, "w/read")`` for ``edge_4_w/read``."""
    found = _EDGE.match(edge)
    return (int(found[1]), found[2]) if found else (0, edge)


def clock_label(task: str, offset_ns: int, error_ns: int) -> str:
    """How a task's clock was aligned."""
    return op_label(CLOCK, CLOCK, [task, f"corrected by {offset_ns} ns", f"within {error_ns} ns"])


def clock_of(label: str) -> tuple[str, int, int] | None:
    """(task, correction, error), of `clock_label`, in nanoseconds."""
    op, inputs = op_and_inputs(label)
    if op != CLOCK or len(inputs) != 3:
        return None
    return inputs[0], int(inputs[1].split()[-2]), int(inputs[2].split()[-2])
