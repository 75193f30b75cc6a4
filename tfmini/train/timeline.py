"""``tensorflow.python.client.timeline``: converts the step stats of a run to a trace for ``chrome://tracing``.

The trace equals TensorFlow's. `tfmini trace` also draws messages, transfers and waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.runtime.trace import WIRE, op_and_inputs

_FAKE_DEVICES = ("/stream:", "/memcpy")  # pseudo-devices in the traces of accelerators


class AllocationMaximum(NamedTuple):
    """The peak of an allocator: time in microseconds, allocated bytes, and the tensors that held them."""

    timestamp: int
    num_bytes: int
    tensors: set[str]


class StepStatsAnalysis(NamedTuple):
    """The result of an analysis: a trace, and allocator name -> `AllocationMaximum`."""

    chrome_trace: ChromeTrace
    allocator_maximums: dict[str, AllocationMaximum]


class ChromeTrace:
    """A list of events in Chrome's trace format."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def add(self, phase: str, category: str, name: str, pid: int, tid: int, timestamp: float, **more: object) -> None:
        """Appends an event; ``timestamp`` is in microseconds."""
        event = {"ph": phase, "cat": category, "name": name, "pid": pid, "tid": tid, "ts": timestamp}
        self.events.append(event | more)

    def add_process(self, pid: int, name: str) -> None:
        """Names a process."""
        self.metadata.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})

    def describe(self, kind: str, pid: int, tid: int | None, name: str) -> None:
        """Names a ``process`` or a ``thread``, and shows it in the order of its number."""
        where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
        for what, value in (("name", name), ("sort_index", pid if tid is None else tid)):
            self.metadata.append({"name": f"{kind}_{what}", "ph": "M", **where, "args": {what: value}})

    def format_to_string(self, pretty: bool = False) -> str:
        """The trace as JSON text."""
        trace = {"traceEvents": self.metadata + self.events}
        return json.dumps(trace, indent=4) if pretty else json.dumps(trace, separators=(",", ":"))


@export("tf.python.client.timeline.Timeline")
class Timeline:
    """Converts a step's stats for ``chrome://tracing``.

    Args:
      step_stats: a StepStats message.
      graph: ignored; op types and inputs come from the stats.
    """

    def __init__(self, step_stats: Any, graph: Graph | None = None) -> None:
        self._step_stats = step_stats

    def analyze_step_stats(self, show_dataflow: bool = True, show_memory: bool = True) -> StepStatsAnalysis:
        """The trace and the peak of each allocator.

        Args:
          show_dataflow: draw an arrow from each op to the consumers of its outputs.
          show_memory: draw the lifetimes of tensors, and each allocator's memory as a curve.
        """
        drawing = _Drawing(self._step_stats)
        drawing.draw(show_dataflow, show_memory)
        return StepStatsAnalysis(drawing.trace, drawing.maximums)

    def generate_chrome_trace_format(self, show_dataflow: bool = True, show_memory: bool = False) -> str:
        """The trace as JSON text; the arguments are those of `analyze_step_stats`."""
        return self.analyze_step_stats(show_dataflow, show_memory).chrome_trace.format_to_string(pretty=True)


class _Tensor:
    """The lifetime of a tensor, in microseconds."""

    def __init__(self, number: int, pid: int, made: int, allocator: str, size: int) -> None:
        self.number = number
        self.pid = pid
        self.made = made
        self.released = made
        self.allocator = allocator
        self.size = size


class _Drawing:
    def __init__(self, step_stats: Any) -> None:
        self.trace = ChromeTrace()
        self.maximums: dict[str, AllocationMaximum] = {}
        self._devices = list(step_stats.dev_stats)
        # Device -> pid of its ops; the next pid is that of its tensors.
        self._pids = {device.device: 1 + 2 * i for i, device in enumerate(self._devices)}
        self._lanes = [_lanes(device.node_stats) for device in self._devices]
        self._tensors: dict[str, _Tensor] = {}
        self._sources: dict[str, tuple[int, int, int]] = {}
        self._arrows = 0

    def draw(self, show_dataflow: bool, show_memory: bool) -> None:
        self.trace.add_process(0, "Allocators")
        for name, pid in self._pids.items():
            self.trace.add_process(pid, f"{name} Compute")
            self.trace.add_process(pid + 1, f"{name} Tensors")
        for _, pid, lane, entry in self._entries():
            self._add_tensors(pid, lane, entry, show_memory)
        for device, pid, lane, entry in self._entries():
            self._add_op(device, pid, lane, entry, show_dataflow)
        if show_memory:
            self._add_memory()

    def _entries(self) -> Iterator[tuple[str, int, int, Any]]:
        for device, lanes in zip(self._devices, self._lanes):
            for lane, entry in zip(lanes, device.node_stats):
                yield device.device, self._pids[device.device], lane, entry

    def _add_tensors(self, pid: int, lane: int, entry: Any, show_memory: bool) -> None:
        start, end = entry.all_start_micros, entry.all_start_micros + entry.all_end_rel_micros
        for index, output in enumerate(entry.output):
            name = f"{entry.node_name}:{index}" if index else entry.node_name
            allocation = output.tensor_description.allocation_description
            number = len(self._tensors)
            tensor = _Tensor(number, pid + 1, start, allocation.allocator_name, allocation.requested_bytes)
            tensor.released = end
            self._tensors[name] = tensor
            self._sources[name] = (end, pid, lane)
            if show_memory:
                about = {"tensor_description": str(output.tensor_description).replace('"', "")}
                self.trace.add("N", "Tensor", name, pid + 1, lane, start, id=number)
                self.trace.add("O", "Tensor", name, pid + 1, lane, end - 1, id=number, args={"snapshot": about})

    def _add_op(self, device: str, pid: int, lane: int, entry: Any, show_dataflow: bool) -> None:
        name: str = entry.node_name
        inputs: list[str] = []
        fake = any(part in device for part in _FAKE_DEVICES)
        if fake:
            name, op = (*name.split(":"), "unknown")[:2]
        elif name == WIRE:
            op = WIRE
        else:
            op, inputs = op_and_inputs(entry.timeline_label)
        about = {"name": name, "op": op or "unknown"} | {f"input{i}": source for i, source in enumerate(inputs)}
        start, duration = entry.all_start_micros, entry.all_end_rel_micros
        self.trace.add("X", "Op", about["op"], pid, lane, start, dur=duration, args=about)
        for source in inputs:
            self._use(source, pid, lane, start, start + duration, show_dataflow)

    def _use(self, source: str, pid: int, lane: int, start: int, end: int, show_dataflow: bool) -> None:
        if source not in self._tensors and source.rfind("/_") > 0:
            source = source[: source.rfind("/_")]  # TensorFlow's partitioner appends this to a received value's name
        tensor = self._tensors.get(source)
        if tensor is None:
            return
        tensor.released = max(tensor.released, end - 1)
        made, made_pid, made_lane = self._sources[source]
        if show_dataflow and (made_pid, made_lane) != (pid, lane):  # no arrows within one row
            self.trace.add("s", "DataFlow", source, made_pid, made_lane, made, id=self._arrows)
            self.trace.add("t", "DataFlow", source, pid, lane, start, id=self._arrows)
            self._arrows += 1

    def _add_memory(self) -> None:
        changes: dict[str, list[tuple[int, int, str]]] = {}
        for name, tensor in self._tensors.items():
            self.trace.add("D", "Tensor", name, tensor.pid, 0, tensor.released, id=tensor.number)
            changes.setdefault(tensor.allocator, []).append((tensor.made, tensor.size, name))
            changes[tensor.allocator].append((tensor.released, -tensor.size, name))
        for allocator, events in changes.items():
            self.maximums[allocator] = self._add_curve(allocator, sorted(events))

    def _add_curve(self, allocator: str, changes: list[tuple[int, int, str]]) -> AllocationMaximum:
        total = 0
        held: set[str] = set()
        maximum = AllocationMaximum(0, 0, set())
        for time, size, name in changes:
            total += size
            (held.discard if size < 0 else held.add)(name)
            if total > maximum.num_bytes:
                maximum = AllocationMaximum(time, total, set(held))
            self.trace.add("C", "Memory", allocator, 0, 0, time, args={allocator: total})
        return maximum


def _lanes(entries: Any) -> list[int]:
    """The row of each entry: the first one that is free when the entry starts."""
    free_from = [0]
    lanes = []
    for entry in entries:
        start = entry.all_start_micros
        lane = next((i for i, time in enumerate(free_from) if start > time), len(free_from))
        free_from[lane : lane + 1] = [start + entry.all_end_rel_micros]
        lanes.append(lane)
    return lanes
