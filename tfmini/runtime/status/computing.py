"""Which step each thread of this process computes, found in the stacks of the threads when somebody asks."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import FrameType

from tfmini.collector import current_frames
from tfmini.runtime.executor.partition_run import PartitionRun
from tfmini.runtime.worker.computing import shown, step_of_stack
from tfmini.status.snapshot import ThreadSnapshot

_FRAMES = 60  # of a stack; the outer ones beyond are left out


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
