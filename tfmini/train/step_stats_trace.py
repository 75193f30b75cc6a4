"""Step stats as a trace in Chrome's JSON format: a row per device, a bar per op."""

from __future__ import annotations

import json
from typing import Any


def chrome_trace(step_stats: Any, show_dataflow: bool = True, show_memory: bool = False) -> str:
    """The trace of a step.

    Args:
      step_stats: a StepStats message; times in microseconds.
      show_dataflow: with an arrow from each op to those that take its outputs.
      show_memory: with each op's output bytes among its arguments.
    """
    events: list[dict[str, Any]] = []
    ends: dict[str, tuple[int, int]] = {}
    for pid, device in enumerate(step_stats.dev_stats):
        events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": device.device}})
        for node in device.node_stats:
            events.append(_bar(pid, node, show_memory))
            ends[node.node_name] = (pid, node.all_start_micros + node.all_end_rel_micros)
    if show_dataflow:
        for pid, device in enumerate(step_stats.dev_stats):
            for node in device.node_stats:
                events.extend(_arrows(pid, node, ends))
    return json.dumps({"traceEvents": events}, indent=4)


def _bar(pid: int, node: Any, show_memory: bool) -> dict[str, Any]:
    op, inputs = _op_and_inputs(node.timeline_label)
    arguments: dict[str, Any] = {"name": node.node_name, "op": op or node.node_name}
    arguments.update({f"input{i}": name for i, name in enumerate(inputs)})
    if show_memory:
        arguments["output_bytes"] = sum(
            each.tensor_description.allocation_description.requested_bytes for each in node.output
        )
    return {
        "ph": "X", "cat": "Op", "name": op or node.node_name, "pid": pid, "tid": node.thread_id,
        "ts": node.all_start_micros, "dur": max(1, node.all_end_rel_micros), "args": arguments,
    }  # fmt: skip


def _arrows(pid: int, node: Any, ends: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
    events = []
    for name in _op_and_inputs(node.timeline_label)[1]:
        source = ends.get(name.lstrip("^").partition(":")[0])
        if source is None:
            continue
        arrow = {"cat": "DataFlow", "name": name, "id": f"{name}->{node.node_name}"}
        events.append({**arrow, "ph": "s", "pid": source[0], "tid": 0, "ts": source[1]})
        events.append({**arrow, "ph": "t", "pid": pid, "tid": node.thread_id, "ts": node.all_start_micros})
    return events


def _op_and_inputs(label: str) -> tuple[str, list[str]]:
    """The parts of a timeline label, ``name = Op(input, input)``."""
    _, _, call = label.partition(" = ")
    op, _, inputs = call.partition("(")
    return op.strip(), [name.strip() for name in inputs.rstrip(")").split(",") if name.strip()]
