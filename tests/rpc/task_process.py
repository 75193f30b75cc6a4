"""A task in a process of its own, for tests that kill it: ``task_process.py ADDRESS INCARNATION``."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.link import register_work
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter

MAKE = 0  # the id of steps in which the task makes the values itself


def run_graph(peer: Any, request: m.RunGraph, respond: Any) -> None:
    """Answers with the received values, or, in the step `MAKE`, with as many MiB as the graph's handle says."""
    made = request.step_id == MAKE
    values = (np.ones(request.graph_handle << 20, np.uint8),) if made else request.feed_values
    respond(m.RunGraphReply(values))


_WORK: list[str] = []


def hold(peer: Any, request: m.CleanupAll, respond: Any) -> None:
    """Never returns, and (by the name of the container) computes, holds the interpreter meanwhile, or does nothing."""
    if request.containers == ("interpreter",):
        sum(itertools.repeat(0, 1 << 60))
    _WORK.extend(request.containers)
    threading.Event().wait()


def describe_work(threads: Sequence[int]) -> str:
    return "computes Long (node a)" if "computes" in _WORK and threads else ""


def main() -> None:
    address, incarnation = sys.argv[1], int(sys.argv[2])
    endpoint = Endpoint(get_reactor(), "/job:ps/replica:0/task:0", incarnation)
    endpoint.serve(
        {
            m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply(endpoint.task, incarnation, [])),
            m.RunGraph: run_graph,
            m.CleanupAll: hold,
            m.DescribeStep: lambda peer, request, respond: None,  # never answers
        }
    )
    register_work(describe_work)
    print(endpoint.listen(address), flush=True)
    get_reactor().drive(Waiter(), get_reactor().now() + 600)  # the limit matters only if no test kills it


if __name__ == "__main__":
    main()
