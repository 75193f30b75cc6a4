"""What the threads that run the reactor compute for steps, for peers whose messages wait meanwhile.

It is found in the stacks of the threads, when somebody asks: so a step does nothing to be found. To note the run in a
variable of its thread, and to take the note back, would be 9 bytecodes of the 484 that `Session.run` of one op executes
(counted with `sys.settrace`), 1.9 %; to note the op as well, as many for each op.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import Any

from tfmini.collector import current_frames
from tfmini.runtime.compiler.kernel_errors import NODE_LINES
from tfmini.runtime.executor.dataflow_run import Activation
from tfmini.runtime.executor.partition_run import PartitionRun

_STEP_CODE = frozenset({Activation.run_segment.__code__, PartitionRun.execute.__code__})


def describe_computing(threads: Sequence[int]) -> str:
    """A text like "computes MatMul (node layer/mul)" if one of the threads runs a step; else ""."""
    frames = current_frames()
    found = (step_of_stack(frames.get(thread)) for thread in threads)
    return next(("computes " + (shown(step[1]) or "a step") for step in found if step is not None), "")


def step_of_stack(frame: FrameType | None) -> tuple[FrameType, Any] | None:
    """The innermost frame of a stack that runs a step, and the node that it computes or None; None: it runs no step."""
    node = None
    while frame is not None:
        if frame.f_code in _STEP_CODE:
            return frame, node
        node = node or _node_of_frame(frame)
        frame = frame.f_back
    return None


def shown(node: Any) -> str:
    """``MatMul (node layer/mul)``; "" for None."""
    return "" if node is None else f"{node.op} (node {node.name})"


def _node_of_frame(frame: FrameType) -> Any:
    """The node that a frame of generated code computes, or None."""
    lines = frame.f_globals.get(NODE_LINES, {}).get(frame.f_code.co_filename)
    return lines[frame.f_lineno] if lines is not None and frame.f_lineno < len(lines) else None
