"""SendTensors: a group of values as a message, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini.rpc.messages import SendTensors
from tfmini.runtime.compiler.dead import DEAD
from tfmini.runtime.executor.partition_run import Path

if TYPE_CHECKING:
    from tfmini.runtime.compiler.program import Program

_NOTHING = np.zeros((0,), np.float32)


def packed(program: Program, step_id: int, group: int, values: tuple[Any, ...], path: Path) -> SendTensors:
    """The message that sends a group. Dead values travel as bits."""
    dead = b""
    if group in program.uncertain_sends:
        bits = sum(1 << i for i, value in enumerate(values) if value is DEAD)
        dead = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        values = tuple(_NOTHING if value is DEAD else value for value in values)
    if bytes in map(type, values):  # a scalar string; messages hold arrays
        values = tuple(np.array(value, object) if type(value) is bytes else value for value in values)
    iteration = ".".join(map(str, path)) if path else ""
    return SendTensors(step_id, iteration, group, dead, values)


def unpacked(values: Sequence[Any], dead: bytes, iteration: str) -> tuple[Sequence[Any], Path]:
    """The values of a message, with the dead ones among them, and the path of its iteration."""
    path = tuple(map(int, iteration.split("."))) if iteration else ()
    if dead:
        bits = int.from_bytes(dead, "little")
        values = [DEAD if bits >> i & 1 else value for i, value in enumerate(values)]
    return values, path
