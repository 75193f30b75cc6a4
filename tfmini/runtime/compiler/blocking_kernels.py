"""Kernels that may block: Python functions of the user, which may wait for one another.

A segment runs its kernels one after the other, so two functions that wait for each other would wait
for ever, and one that takes its time would hold up the thread that answers a server's peers. So on a
server, and where a program has several, each begins like an op that answers later and runs in a
thread of its own. A local program with a single one calls it in the segment, which saves a hand-off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.graph.waiting import Wait
from tfmini.runtime.compiler.kernel_calls import op_facts

FUNCTION_RETURNS = "a Python function to return"
"""The cause of the wait for such a kernel."""


def several_may_block(nodes: Iterable[Node], device_type: str) -> bool:
    """Whether two nodes or more call code that may wait for another of them."""
    facts = (op_facts(node.op, device_type) for node in nodes)
    return sum(known is not None and known.kernel.may_block for known in facts) > 1


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
