"""Kernels that may block: Python functions of the user, which may wait for one another.

A segment runs its kernels one after the other, so two functions that wait for each other would wait
for ever, and one that takes its time would hold up the thread that answers a server's peers. So on a
server, and where a program has several, each begins like an op that answers later and runs in a
thread of its own. One in a loop whose iterations overlap is several: a call may wait for that of a later
iteration. A local program with a single call calls it in the segment, which saves a hand-off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.graph.frames import frame_paths
from tfmini.graph.node import Node
from tfmini.graph.traits import ENTER_OPS
from tfmini.graph.waiting import Wait
from tfmini.runtime.compiler.kernel_calls import op_facts

FUNCTION_RETURNS = "a Python function to return"
"""The cause of the wait for such a kernel."""


def several_may_block(nodes: Sequence[Node], device_type: str) -> bool:
    """Whether code is called that may wait for other such code: by two nodes or more, or in iterations that overlap."""
    facts = ((node, op_facts(node.op, device_type)) for node in nodes)
    blocking = [node for node, known in facts if known is not None and known.kernel.may_block]
    if len(blocking) != 1:
        return bool(blocking)
    path = frame_paths({node.name: node for node in nodes}).get(blocking[0].name, ())
    enters = [node for node in nodes if node.op in ENTER_OPS]
    windows = {enter.attrs["frame_name"].decode(): enter.attrs.get("parallel_iterations", 10) for enter in enters}
    return any(windows[frame] > 1 for frame in path)


def in_own_thread(kernel: Callable[..., Any]) -> Callable[..., None]:
    """The async form of a kernel: it begins a thread, which answers.

    A step that ends early does not wait for the function, which nothing can interrupt.
    """

    def begin(wait: Wait, *values: Any) -> None:
        if wait.on_cancel(FUNCTION_RETURNS, _let_it_run):
            threading.Thread(target=_answer, args=(wait, kernel, values), name="tfmini-py-func", daemon=True).start()

    return begin


def _let_it_run() -> None:
    """The function goes on; its result is ignored."""


def _answer(wait: Wait, kernel: Callable[..., Any], values: tuple[Any, ...]) -> None:
    try:
        with np.errstate(all="ignore"):
            result = kernel(*values)
    except errors.OpError as error:
        wait.fail(error)
    except BaseException as error:  # noqa: BLE001 - even SystemExit: in this thread it would only lose the answer
        wait.fail(errors.UnknownError.of(f"{type(error).__name__}: {error}"))
    else:
        wait.done(result)
