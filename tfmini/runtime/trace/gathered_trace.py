"""The records of all tasks of a step as one StepStats message, in the time of the master's task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tfmini.devices import task_of_device
from tfmini.graph.node_types import RECEIVE, SEND
from tfmini.runtime.trace import labels as labels
from tfmini.runtime.trace.clocks import Alignment
from tfmini.runtime.trace.record import StepLog, wall_offset_ns
from tfmini.runtime.trace.stats import set_times


@dataclass
class TaskRecord:
    """The report of one task.

    Attributes:
      stats: gives a serialized StepStats in the task's own time; called when it is needed.
      part: the index of its part in the plan.
      alignment: None when the task's clock could not be read.
      request_bytes, answer_bytes: of the values in RunGraph and in its answer.
    """

    task: str
    stats: Callable[[], bytes]
    alignment: Alignment | None
    part: int = 0
    request_bytes: int = 0
    answer_bytes: int = 0


@dataclass
class GatheredTrace:
    """See the module; `step_stats` makes the message, which takes long for many ops.

    Attributes:
      master: full name of the device of the client's task.
      log: the master's own stamps.
    """

    master: str
    log: StepLog
    records: list[TaskRecord] = field(default_factory=list)

    def step_stats(self) -> Any:
        """The StepStats of the step: each task's entries, what travelled between them, and how clocks were aligned."""
        return _Merge(self).message()


class _Merge:
    def __init__(self, trace: GatheredTrace) -> None:
        from tfmini import protos

        self._trace = trace
        self._stats = protos.StepStats()
        self._parse = protos.StepStats.FromString
        self._devices: dict[str, Any] = {}
        self._offset_ns = wall_offset_ns()

    def message(self) -> Any:
        trace = self._trace
        for record in trace.records:
            self._add_task(record)
        self._add_wires()
        self._add_frame()
        for device in self._stats.dev_stats:
            # Other readers take entries for ordered, as those of one executor are.
            ordered = sorted(device.node_stats, key=lambda entry: entry.all_start_nanos)
            del device.node_stats[:]
            device.node_stats.extend(ordered)
        return self._stats

    def _add_frame(self) -> None:
        """The step as the client sees it, and what the master does before the first part and after the last."""
        trace, log = self._trace, self._trace.log
        home = task_of_device(trace.master)
        if all(record.task != home for record in trace.records):  # the master's task ran no part; its clock offset is 0
            self._add(trace.master, labels.CLOCK, labels.clock_label(home, 0, 0), *[self._own(log.started)] * 2)
        called = self._own(min(log.called.values(), default=log.started))
        there = labels.op_label(labels.REQUEST, labels.REQUEST, ["values from the client"])
        self._add(trace.master, labels.REQUEST, there, self._own(log.started), called)
        answered = self._own(max(log.answered.values(), default=log.finished))
        back = labels.op_label(labels.ANSWER, labels.ANSWER, ["values to the client"])
        self._add(trace.master, labels.ANSWER, back, answered, self._own(log.finished))
        step = labels.op_label(labels.STEP, labels.STEP, [f"step {log.step_id}"])
        self._add(trace.master, labels.STEP, step, self._own(log.started), self._own(log.finished))

    def _own(self, stamp: int) -> int:
        return stamp + self._offset_ns

    def _device(self, name: str) -> Any:
        found = self._devices.get(name)
        if found is None:
            found = self._devices[name] = self._stats.dev_stats.add(device=name)
        return found

    def _add(self, device: str, name: str, label: str, start: int, end: int, size: int = 0) -> None:
        entry = self._device(device).node_stats.add(node_name=name, timeline_label=label)
        set_times(entry, start, start, max(start, end), max(start, end))
        if size:
            entry.output.add().tensor_description.allocation_description.requested_bytes = size

    def _add_task(self, record: TaskRecord) -> None:
        offset = record.alignment.offset_ns if record.alignment is not None else 0
        for theirs in self._parse(record.stats()).dev_stats:
            ours = self._device(theirs.device)
            ours.thread_names.update(theirs.thread_names)
            for entry in theirs.node_stats:
                if offset:
                    start, scheduled = entry.all_start_nanos - offset, entry.scheduled_nanos - offset
                    set_times(entry, scheduled, start, start + entry.op_end_rel_nanos, start + entry.all_end_rel_nanos)
                ours.node_stats.append(entry)
                if entry.node_name == labels.PART:
                    self._add_calls(record, theirs.device, entry)

    def _add_calls(self, record: TaskRecord, device: str, part: Any) -> None:
        """The request, the answer, and how the clock between them was read."""
        log, index, master = self._trace.log, record.part, self._trace.master
        start = part.all_start_nanos
        if record.alignment is not None:
            label = labels.clock_label(record.task, -record.alignment.offset_ns, record.alignment.error_ns)
            self._add(device, labels.CLOCK, label, start, start)
        if index not in log.called or index not in log.answered:
            return
        end = start + part.all_end_rel_nanos
        called, answered = self._own(log.called[index]), self._own(log.answered[index])
        there = labels.op_label(labels.REQUEST, labels.REQUEST, [f"RunGraph from {master} to {device}"])
        back = labels.op_label(labels.ANSWER, labels.ANSWER, [f"done from {device} to {master}"])
        self._add(device, labels.REQUEST, there, min(called, start), start, record.request_bytes)
        if index in log.told:
            telling = labels.op_label(labels.REQUEST, labels.REQUEST, [f"telling {device} to run"])
            told = log.told[index]  # until the next part was begun, if one was
            next_called = min((when for when in log.called.values() if when >= told), default=told)
            self._add(master, labels.REQUEST, telling, called, self._own(next_called))
        self._add(master, labels.ANSWER, back, end, max(answered, end), record.answer_bytes)

    def _add_wires(self) -> None:
        """A RecvTensor entry per tensor: from the start of its Send on one task to the start of its Recv on another.

        A tensor may arrive while the call that sends it has not returned: the two entries overlap.
        """
        sent: dict[tuple[str, str, str], list[Any]] = {}
        for device, entry, edge, other in self._transfers(SEND):
            sent.setdefault((edge, device, other), []).append(entry)
        for departures in sent.values():
            departures.sort(key=lambda entry: entry.all_start_nanos)
            departures.reverse()
        arrivals = sorted(self._transfers(RECEIVE), key=lambda found: found[1].all_start_nanos)
        for device, entry, edge, other in arrivals:
            departures = sent.get((edge, other, device), [])
            if not departures:
                continue
            # The n-th sent is the n-th that comes: iterations of a loop follow each other.
            departure = departures.pop()
            start = departure.all_start_nanos
            end = max(start, entry.all_start_nanos)
            size = sum(out.tensor_description.allocation_description.requested_bytes for out in departure.output)
            label = labels.wire_label(size, (end - start) / 1e9, edge, other, device)
            self._add(device, labels.WIRE, label, start, end, size)

    def _transfers(self, op: str) -> Iterator[tuple[str, Any, str, str]]:
        """(device, entry, edge, device at the other end) of all Sends or Recvs between tasks."""
        for name, device in self._devices.items():
            for entry in device.node_stats:
                if labels.op_and_inputs(entry.timeline_label)[0] == op:
                    edge, other = labels.edge_and_device(entry.timeline_label)
                    if task_of_device(other) != task_of_device(name):
                        yield name, entry, edge, other
