"""What the threads that run the reactor compute for steps, for peers whose messages wait meanwhile.

It is found in the stacks of the threads, when somebody asks: so a step does nothing to be found. To note the run in a
variable of its thread, and to take the note back, would be 9 bytecodes of the 484 that `Session.run` of one op executes
(counted with `sys.settrace`), 1.9 %; to note the op as well, as many for each op.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from tfmini.collector import current_frames
from tfmini.runtime.compiler.kernel_errors import NODE_LINES
from tfmini.runtime.executor.dataflow_run import Activation
from tfmini.runtime.executor.partition_run import PartitionRun
from tfmini.status.snapshot import ThreadSnapshot

_STEP_CODE = frozenset({Activation.run_segment.__code__, PartitionRun.execute.__code__})
_FRAMES = 60  # of a stack; the outer ones beyond are left out


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


def computing_steps() -> dict[int, str]:
    """Step id -> what a thread computes for it, such as ``MatMul (node layer/mul)``."""
    found: dict[int, str] = {}
    for stack in list(current_frames().values()):
        step = step_of_stack(stack)
        if step is not None:
            frame, node = step
            owner = frame.f_locals.get("self")  # the run, or the part of it that a loop is
            run = getattr(owner, "run", owner)
            if isinstance(run, PartitionRun):
                found.setdefault(run.step_id, shown(node))
    return found


def thread_stacks() -> tuple[ThreadSnapshot, ...]:
    """The Python stacks of all threads of this process but the caller's."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = current_frames()
    me = threading.get_ident()
    return tuple(
        ThreadSnapshot(names.get(ident, f"thread {ident}"), _lines(frame))
        for ident, frame in sorted(frames.items())
        if ident != me
    )


def innermost(threads: Sequence[int]) -> str:
    """Where the first of these threads (by ident) is, such as ``in wait (threading.py:324)``; "": none is anywhere."""
    frames = current_frames()
    for thread in threads:
        frame = frames.get(thread)
        if frame is not None and thread != threading.get_ident():
            code = frame.f_code
            return f"in {code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"
    return ""


def _lines(frame: FrameType | None) -> tuple[str, ...]:
    lines: list[str] = []
    while frame is not None and len(lines) < _FRAMES:
        code = frame.f_code
        lines.append(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return tuple(reversed(lines))
