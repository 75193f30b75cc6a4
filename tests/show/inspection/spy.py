"""Runs a script, and records the plans of masters and the graphs that workers register.

    python spy.py FOLDER SCRIPT [ARGUMENTS...]

Each process writes lines of JSON to a file of its own in FOLDER.
"""

from __future__ import annotations

import base64
import json
import os
import runpy
import sys
import threading
from typing import Any

from tfmini.graph.graph_def import nodes_to_graph_def
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.master import master_session
from tfmini.runtime.worker.worker import Worker

FOLDER = ""  # where the files go
LOCK = threading.Lock()  # a long line is written in pieces


def note(kind: str, record: dict[str, Any]) -> None:
    with LOCK, open(os.path.join(FOLDER, f"{os.getpid()}.jsonl"), "a") as file:
        file.write(json.dumps({"kind": kind, **record}) + "\n")


def rows(graph: TaskGraph) -> list[list[Any]]:
    """Of each node, the parts in which two copies must agree; the order of control inputs is irrelevant."""
    ends: dict[str, list[Any]] = {name: list(tensor) for name, tensor in (*graph.feeds, *graph.fetches)}
    for name, end in (*graph.sends.items(), *graph.receives.items()):
        ends[name] = [end.tensor, end.peer.device, str(end.group)]
    return [
        [node.name, node.op, node.device, [list(e) for e in node.inputs], sorted(node.controls), ends.get(name, [])]
        for name, node in graph.nodes.items()
    ]


def spied_build(
    nodes: Any, placement: Any, feeds: Any, fetches: Any, targets: Any, *, client_device: str, name_counter: Any,
    **options: Any,
) -> Any:  # fmt: skip
    first_number = int(repr(name_counter)[len("count(") : -1])
    plan = BUILD(
        nodes, placement, feeds, fetches, targets, client_device=client_device, name_counter=name_counter, **options
    )
    graph_def = nodes_to_graph_def(list(nodes.values())).SerializeToString()
    note("plan", {
        "graph_def": base64.b64encode(graph_def).decode(), "master": client_device,
        "feeds": list(feeds), "fetches": list(fetches), "targets": list(targets), "first_number": first_number,
    })  # fmt: skip
    return plan


def spied_register(self: Worker, session_handle: str, graph: TaskGraph, *options: Any) -> Any:
    note("registered", {"task": self.task, "nodes": rows(graph)})
    return REGISTER(self, session_handle, graph, *options)


if __name__ == "__main__":
    BUILD, REGISTER = master_session.build_plan, Worker.register_graph
    master_session.build_plan, Worker.register_graph = spied_build, spied_register  # type: ignore[method-assign]
    FOLDER, script = sys.argv[1:3]
    sys.argv[:] = sys.argv[2:]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")
