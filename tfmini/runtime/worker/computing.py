"""What the threads that run the reactor compute for steps, for peers whose messages wait meanwhile.

It is found in the stacks of the threads, when somebody asks: so a step does nothing to be found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

from tfmini.runtime.compiler.kernel_errors import NODE_LINES
from tfmini.runtime.executor.dataflow_run import Activation
from tfmini.runtime.executor.partition_run import PartitionRun

_STEP_CODE = frozenset({Activation.run_segment.__code__, PartitionRun.execute.__code__})


def describe_computing(threads: Sequence[int]) -> str:
    """A text like "computes MatMul (node layer/mul)" if one of the threads runs a step; else ""."""
    frames = sys._current_frames()
    return next((text for thread in threads if (text := _describe(frames.get(thread)))), "")


def _describe(frame: FrameType | None) -> str:
    node = None
    while frame is not None:
        if frame.f_code in _STEP_CODE:
            return "computes a step" if node is None else f"computes {node.op} (node {node.name})"
        if node is None:
            lines = frame.f_globals.get(NODE_LINES, {}).get(frame.f_code.co_filename)
            node = lines[frame.f_lineno] if lines is not None and frame.f_lineno < len(lines) else None
        frame = frame.f_back
    return ""
