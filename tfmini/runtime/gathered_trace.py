"""The records of all tasks of a step as one StepStats message, in the time of the master's task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tfmini import dtypes
from tfmini.devices import task_of_device
from tfmini.graph.node import RECEIVE, SEND, Node
from tfmini.graph.op_types import VARIABLE_OPS, trait_of
from tfmini.placement.task_graph import End
from tfmini.runtime import trace as labels
from tfmini.runtime.trace import Alignment, Size, StepLog, Trace, TraceTable, wall_offset_ns

# ---- A task's record of a step as a StepStats message: an entry per node run, Send, Recv, wait and delay -----------

_ALLOCATOR = "cpu"
_SHORTEST_GAP_NS = 1_000


def task_stats(task: str, step_id: int, trace: Trace, graph: Any) -> Any:
    """The StepStats of one task, in the time of its wall clock.

    Args:
      trace: of a step that is over.
      graph: the RegisteredGraph (its program is a traced one).
    """
    return _TaskStats(task, step_id, trace, graph).message()


class _TaskStats:
    def __init__(self, task: str, step_id: int, trace: Trace, graph: Any) -> None:
        from tfmini import protos

        self._stats = protos.StepStats()
        self._devices: dict[str, Any] = {}
        self._task = task
        self._step_id = step_id
        self._trace = trace
        self._graph = graph
        self._table: TraceTable = graph.program.trace
        self._offset_ns = wall_offset_ns()
        self._threads: dict[int, int] = {}

    def message(self) -> Any:
        trace = self._trace
        for node in self._table.silent:
            self._add_op(node, trace.started, trace.started, trace.started, trace.started)
        for number, thread, scheduled, start, end, done, sizes in trace.units:
            node, outputs = self._table.units[number]
            if number in self._table.sent:
                self._add_sends(self._table.sends[self._table.sent[number]], start, end, done, thread, sizes)
            else:
                entry = self._add_op(node, scheduled, start, end, done, thread)
                _add_outputs(entry, zip(outputs, sizes))
        for key, thread, start, end, sizes in trace.answers:
            entry = self._add_op(self._table.events[key], start, start, end, end, thread)
            _add_outputs(entry, enumerate(sizes))
        self._add_arrivals()
        self._add_exchanges()
        self._add_gaps()
        self._add_frame()
        return self._stats

    def _add_op(self, node: Node, scheduled: int, start: int, end: int, done: int, thread: int = 0) -> Any:
        variable = (node.attrs.get("shared_name") or b"").decode() if node.op in VARIABLE_OPS else ""
        label = labels.op_label(node.name, node.op, self._inputs(node), variable if variable != node.name else "")
        return self._add(node.device, node.name, label, scheduled, start, end, done, thread)

    def _inputs(self, node: Node) -> Iterator[str]:
        """The inputs; for a received tensor, the node on the other device that made it."""
        for name, index in node.inputs:
            source = self._table.producers.get(name, name)
            yield f"{source}:{index}" if index else source
        yield from (f"^{name}" for name in node.controls)

    def _add(
        self, device: str, name: str, label: str, scheduled: int, start: int, end: int, done: int, thread: int = 0
    ) -> Any:
        offset = self._offset_ns
        entry = self._device(device).node_stats.add(node_name=name, timeline_label=label)
        set_times(entry, scheduled + offset, start + offset, end + offset, done + offset)
        entry.thread_id = self._threads.setdefault(thread, len(self._threads))
        return entry

    def _device(self, name: str) -> Any:
        found = self._devices.get(name)
        if found is None:
            found = self._devices[name] = self._stats.dev_stats.add(device=name)
        return found

    @property
    def _home(self) -> str:
        """The device for entries of the task as a whole: its first CPU, else the first device that ran an op."""
        first = f"{self._task}/device:CPU:0"
        return first if first in self._devices or not self._devices else next(iter(self._devices))

    def _add_sends(
        self, sends: Sequence[tuple[Node, End]], start: int, end: int, done: int, thread: int,
        sizes: Sequence[Size | None],
    ) -> None:  # fmt: skip
        for (node, send), size in zip(sends, sizes):
            label = labels.transfer_label(node.name, SEND, send.tensor, send.peer.device)
            entry = self._add(node.device, node.name, label, start, start, end, done, thread)
            _add_outputs(entry, [(0, size)], allocator="")  # it sends what another node has made

    def _add_arrivals(self) -> None:
        for group, thread, arrived, taken, sizes in self._trace.arrivals:
            for (node, receive), size in zip(self._table.receives[group], sizes):
                label = labels.transfer_label(node.name, RECEIVE, receive.tensor, receive.peer.device)
                entry = self._add(node.device, node.name, label, arrived, arrived, taken, taken, thread)
                _add_outputs(entry, [(0, size)])

    def _add_exchanges(self) -> None:
        for node, start, end, is_shared, sent in self._trace.exchanges:
            for other, nbytes, messages in sent:
                label = labels.exchange_label(node.name, trait_of(node.op, "collective"), is_shared, messages, other)
                entry = self._add(node.device, labels.EXCHANGE, label, start, start, end, end)
                entry.output.add().tensor_description.allocation_description.requested_bytes = nbytes

    def _add_gaps(self) -> None:
        for start, end, kind, which in gaps(self._trace):
            if kind is Gap.WAIT:
                name, what = labels.WAIT, self._graph.describe_group(which)
            else:
                name = labels.DISPATCH
                what = "the answer" if kind is Gap.FINISH else self._node(kind, which).name
            self._add(self._home, name, labels.op_label(name, name, [what]), start, start, end, end)

    def _node(self, kind: Gap, which: int) -> Node:
        return self._table.events[which] if kind is Gap.ANSWER else self._table.units[which][0]

    def _add_frame(self) -> None:
        trace = self._trace
        inputs = [f"step {self._step_id}"] + ([f"{trace.lost} ops not recorded"] if trace.lost else [])
        label = labels.op_label(labels.PART, labels.PART, inputs)
        self._add(self._home, labels.PART, label, trace.started, trace.started, trace.finished, trace.finished)
        for ident, number in self._threads.items():
            if ident:
                for device in self._devices.values():
                    device.thread_names[number] = f"thread {number}"


class Gap(Enum):
    """The event that ended a time in which a task ran nothing."""

    WAIT = "an arrival"
    UNIT = "a unit, which had been ready"
    ANSWER = "a node that answers later, likewise"
    FINISH = "the end of the step"


def gaps(trace: Trace) -> Iterator[tuple[int, int, Gap, int]]:
    """(start, end, what ended it, its number): the times between a task's start and its end in which it ran nothing."""
    events = [(unit.start, unit.done, Gap.UNIT, unit.number) for unit in trace.units]
    events += [(answer.start, answer.end, Gap.ANSWER, answer.key) for answer in trace.answers]
    events += [(arrival.arrived, arrival.taken, Gap.WAIT, arrival.group) for arrival in trace.arrivals]
    events.sort(key=lambda event: event[0])
    reached = trace.started
    for start, end, kind, which in [*events, (trace.finished, trace.finished, Gap.FINISH, 0)]:
        if start - reached >= _SHORTEST_GAP_NS:
            yield reached, start, kind, which
        reached = max(reached, end)


def set_times(entry: Any, scheduled: int, start: int, end: int, done: int) -> None:
    """Fills in a NodeExecStats' times, from nanoseconds."""
    entry.scheduled_nanos, entry.scheduled_micros = scheduled, scheduled // 1000
    entry.all_start_nanos, entry.all_start_micros = start, start // 1000
    entry.op_end_rel_nanos, entry.op_end_rel_micros = end - start, end // 1000 - start // 1000
    entry.all_end_rel_nanos, entry.all_end_rel_micros = done - start, done // 1000 - start // 1000


def _add_outputs(entry: Any, outputs: Iterable[tuple[int, Size | None]], allocator: str = _ALLOCATOR) -> None:
    total = 0
    for slot, size in outputs:
        if size is not None:
            dtype, shape, nbytes = size
            tensor = entry.output.add(slot=slot).tensor_description
            tensor.dtype = dtypes.as_dtype(dtype).as_datatype_enum
            for length in shape:
                tensor.shape.dim.add(size=length)
            tensor.allocation_description.requested_bytes = nbytes
            tensor.allocation_description.allocator_name = allocator
            total += nbytes
    if total and allocator:
        entry.memory.add(allocator_name=allocator, total_bytes=total, live_bytes=total)


# ---- The records of all tasks as one message, in the time of the master's task -------------------------------------


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
        there = labels.call_label(labels.REQUEST, "RunGraph", master, device)
        back = labels.call_label(labels.ANSWER, "done", device, master)
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
