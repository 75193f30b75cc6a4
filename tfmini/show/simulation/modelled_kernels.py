"""The kernel model of the simulator: ops take the time of a profile's curves, and most of them compute nothing.

The compiler's segments are as in the runtime. In their text, an op whose value decides nothing (see `Deciding`) is
replaced by its time, and its outputs by phantoms. The times of neighbours are added up until something happens: a send,
the begin of an op that answers later, or the end of the segment.
"""

from __future__ import annotations

import copy
import math
import mmap
import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes
from tfmini.collectives.costs import flows, serial_steps, shared_all_reduce_cost
from tfmini.collectives.schedules import RingReduce, Schedule, all_reduce
from tfmini.core_types import TensorLike
from tfmini.graph.node import Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import ops_with, trait_of
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.collectives.calls import CollectiveCall
from tfmini.runtime.compiler.codegen import BlockContext, BlockWriter
from tfmini.runtime.compiler.levels import Level, Program, Segment
from tfmini.runtime.compiler.units import Form, Unit
from tfmini.runtime.master.registration import Part, Plan
from tfmini.runtime.resources import Resources
from tfmini.shapes import RawShape
from tfmini.show.inspection.clusters import task_order
from tfmini.show.simulation.cores import Deciding, Shapes
from tfmini.show.simulation.profile import KernelCosts, Machine

if TYPE_CHECKING:
    from tfmini.show.simulation.timed_host import TimedHost, TimedNetwork

_COLLECTIVES = ops_with("collective")
_WRITES = ops_with("writes")
_LOCKED_S = 1e-3  # an update as long as that keeps others from the variable; shorter ones hardly meet
_HAPPENS = frozenset({Form.SEND, Form.BEGIN, Form.BEGIN_LOOP, Form.HAND_ON, Form.LOOP})


class KernelTimes:
    """The model for the tasks of one type of machine; see `runtime.compiler.codegen.KernelModel`.

    Args:
      nodes, shapes: the whole graph.
      collectives: the kernels of collectives.
      programs: those that replicas share.
    """

    def __init__(
        self, network: TimedNetwork, machine: Machine, nodes: Nodes, shapes: Shapes, costs: KernelCosts,
        deciding: Deciding, collectives: CollectiveKernels, programs: SharedPrograms,
    ) -> None:  # fmt: skip
        self.network, self.machine, self.deciding = network, machine, deciding
        self._nodes, self._shapes, self._costs = nodes, shapes, costs
        self.collectives, self._programs = collectives, programs

    def writer(self, context: BlockContext, units: list[Unit]) -> BlockWriter:
        return _TimesWriter(self, context, units)

    def segment(self, segment: Segment, units: Sequence[Unit]) -> Segment:
        seconds = sum(map(self.seconds, units)) + (self.machine.segment_s if units else 0.0)
        return _TimedSegment(self, segment, seconds)

    def known(self, graph: TaskGraph) -> Program | None:
        return self._programs.program(graph)

    def program(self, program: Program, graph: TaskGraph) -> Program:
        for send in graph.sends.values():
            self.network.labels.setdefault(send.group, send.tensor.split("_", 2)[-1])
        return _TimedProgram(self, program)

    def seconds(self, unit: Unit) -> float:
        """What a unit costs beside the messages that it sends."""
        return 0.0 if unit.form not in (Form.COMPUTE, Form.BEGIN) else self._costs.seconds(unit.node)

    def charge(self, seconds: float, label: str) -> None:
        """Called by the text of segments: their ops have taken so long."""
        host = self.host
        if host is not None and host.recording is not None:
            host.recording.charge(seconds * host.recording.factor, label)

    def charge_locked(self, seconds: float, label: str, variable: str) -> None:
        """The same, of an op that holds the lock of a variable meanwhile."""
        host = self.host
        if host is not None and host.recording is not None:
            host.recording.charge_locked(seconds * host.recording.factor, label, variable)

    @property
    def host(self) -> TimedHost | None:
        """The task whose code runs."""
        return self.network.running

    def outputs(self, node: Node) -> list[Any]:
        """Phantoms of an op's outputs."""
        return [phantom(dtype, self._shapes.get((node.name, i))) for i, dtype in enumerate(output_dtypes(node))]

    def output(self, node: Node, index: int, inputs: Sequence[Endpoint]) -> Any:
        """A phantom of one output. An op that the partitioner made gives its input on."""
        if node.name in self._nodes:
            own = self._nodes[node.name]
            return phantom(output_dtypes(own)[index], self._shapes.get((node.name, index)))
        name, index = inputs[0]
        found = self._nodes.get(name)
        return None if found is None else phantom(output_dtypes(found)[index], self._shapes.get((name, index)))

    def variable_of(self, node: Node) -> str:
        """The variable that an op writes."""
        return self._nodes[node.name].inputs[0][0]

    def variable(self, name: str) -> Any:
        """A phantom of a variable's value."""
        attrs = self._nodes[name].attrs
        return phantom(attrs["dtype"], attrs["shape"])


class _TimesWriter(BlockWriter):
    """Writes the times of units in place of those whose values decide nothing."""

    def __init__(self, model: KernelTimes, context: BlockContext, units: list[Unit]) -> None:
        super().__init__(context, units)
        self._model = model
        self._seconds, self._label, self._longest = 0.0, "", 0.0

    def write_unit(self, unit: Unit) -> None:
        model = self._model
        if unit.guard != self.open:
            self._spend()
        if unit.form is Form.COMPUTE and not model.deciding.runs(unit.node):
            if unit.guard != self.open:
                self.under(unit.guard, unit.node)
            self._take(unit)
            for index in range(unit.outputs):
                self.context.constants[unit.node.name, index] = model.output(unit.node, index, unit.inputs)
            for endpoint in unit.reads():
                self.release(endpoint)
            return
        self._take(unit)
        if unit.form in _HAPPENS:
            self._spend()
        super().write_unit(unit)

    def _take(self, unit: Unit) -> None:
        seconds, node = self._model.seconds(unit), unit.node
        if seconds >= _LOCKED_S and node.op in _WRITES:
            self._spend()
            self._charge(self._model.charge_locked, seconds, node.name, self._model.variable_of(node))
            return
        self._seconds += seconds
        if seconds > self._longest:
            self._longest, self._label = seconds, node.name

    def _spend(self) -> None:
        if self._seconds:
            self._charge(self._model.charge, self._seconds, self._label)
        self._seconds, self._label, self._longest = 0.0, "", 0.0

    def _charge(self, charge: Callable[..., None], seconds: float, *names: str) -> None:
        self.context.namespace[charge.__name__] = charge
        self.emit(f"{charge.__name__}({seconds!r}, {', '.join(self.named(name, 't') for name in names)})")

    def close_guard(self) -> None:
        self._spend()
        super().close_guard()

    def value(self, endpoint: Endpoint, deref: bool) -> str:
        name = endpoint[0]
        if deref and endpoint in self.context.states and not self._model.deciding.is_known(name):
            reads = (f"{name} (value)", 0)  # of a variable that has no value here
            self.context.constants.setdefault(reads, self._model.variable(name))
            return self.constant(reads)
        return super().value(endpoint, deref)

    def kernel_of(self, node: Node) -> Callable[..., Any]:
        kernel = super().kernel_of(node)
        return _adding_nothing(kernel) if trait_of(node.op, "accumulator") == "apply" else kernel

    def starter_of(self, node: Node) -> Callable[..., Any]:
        if node.op in _COLLECTIVES:
            return self._model.collectives.kernel(node)
        return super().starter_of(node) if self._model.deciding.runs(node) else _answering(self._model.outputs(node))


def _adding_nothing(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """An accumulator's kernel that counts gradients without adding them up; of slices it keeps one row."""

    def apply(state: Any, local_step: Any, *gradient: Any) -> Any:
        if len(gradient) > 1:
            indices, values, shape = gradient
            return kernel(state, local_step, indices[:1], values[:1], shape)
        return kernel(state, local_step, *map(as_phantom, gradient))

    return apply


def _answering(values: list[Any]) -> Callable[..., None]:
    """A kernel that answers at once."""

    def answer(wait: Any, *_: object) -> None:
        wait.done(tuple(values))

    return answer


class _TimedSegment(Segment):
    """A segment that knows how long it takes. The times of its runs in Python mean nothing."""

    def __init__(self, model: KernelTimes, segment: Segment, seconds: float) -> None:
        super().__init__(**{**vars(segment), "seconds": seconds})
        self._model, self._function = model, segment.run
        self._overhead_s = model.machine.segment_s if seconds else 0.0
        self.run = self._run

    def with_text(self, moved: Callable[[Any], Any]) -> Segment:
        """The segment with another function."""
        found = copy.copy(self)
        found._function, found.run = moved(self._function), found._run
        return found

    def _run(self, step: Any, slots: list[Any]) -> None:
        host = self._model.host
        if host is not None:
            host.begin_segment(self.seconds, self.is_long)
            self._model.charge(self._overhead_s, "")
        self._function(step, slots)

    def note(self, seconds: float) -> None:
        host = self._model.host
        if host is not None:
            host.segment_over()


class _TimedProgram(Program):
    """A program whose runs begin with the time that a task takes to start its part."""

    def __init__(self, model: KernelTimes, program: Program) -> None:
        super().__init__(**vars(program))
        self._model, self._bound = model, -1

    def bind(self, resources: Resources) -> None:
        self.generation = self._bound
        super().bind(resources)
        # So that `Worker.execute`, too, binds it before each run.
        self._bound, self.generation = self.generation, -1
        if self._model.host is not None:
            self._model.host.charge(self._model.machine.start_s, "starts")
            recording = self._model.host.recording
            if recording is not None:
                recording.then(None)


# ---- phantoms ----------------------------------------
# Arrays of a type and a shape whose elements do not matter: they are all zero, and share one piece of memory.
# The memory is never written, so it takes none of the machine's; an array of a gigabyte costs as little as a scalar.
# Arithmetic with a phantom gives a phantom of the result's type and shape.

_FEW = 4096  # bytes; the first piece of memory


class Phantom(np.ndarray[Any, Any]):
    """See the module. Made by `phantom`."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: object) -> Any:
        """Makes phantoms of the right type and shape; an output that is given stays as it is."""
        if out is not None:
            return out[0] if len(out) == 1 else out
        values = [_element(value) for value in inputs]
        if method != "__call__":
            return getattr(ufunc, method)(*[np.asarray(value) for value in inputs], **options)
        result = ufunc(*values, **options)
        shape = np.broadcast_shapes(*(np.shape(value) for value in inputs))
        if isinstance(result, tuple):
            return tuple(_of(np.asarray(each).dtype, shape) for each in result)
        return _of(np.asarray(result).dtype, shape)

    def copy(self, order: Any = "C") -> Any:
        """Returns the phantom itself, since nobody can write into it."""
        return self


def _element(value: TensorLike) -> Any:
    return np.zeros((), value.dtype) if isinstance(value, np.ndarray) else value


_memory: Any = np.zeros(_FEW, np.uint8)


def _of(dtype: Any, shape: tuple[int, ...]) -> Any:
    global _memory
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        return np.full(shape, b"", object)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > _memory.nbytes:
        _memory = _unwritten(nbytes)
    found = _memory[:nbytes].view(dtype).reshape(shape).view(Phantom)
    found.flags.writeable = False
    return found


def _unwritten(nbytes: int) -> Any:
    """Zeros that take no memory, even where there is less than that: pages that are only read are one and the same."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags, mmap.PROT_READ), np.uint8)


def phantom(dtype: dtypes.DType, shape: RawShape) -> Any:
    """A phantom of a static shape. Unknown sizes count as nothing, as in the costs of ops and in the inspector's bytes.

    Strings are empty ones. A resource or variant is None.
    """
    base = dtype.base_dtype
    if base in (dtypes.resource, dtypes.variant):
        return None
    sizes = (0,) if shape is None else tuple(size or 0 for size in shape)
    if base is dtypes.string and sizes == ():
        return b""
    return _of(base.as_numpy_dtype, sizes)


def as_phantom(value: TensorLike) -> Any:
    """A phantom of an array's type and shape."""
    return _of(value.dtype, value.shape) if isinstance(value, np.ndarray) and value.ndim else value


# ---- Collectives of a simulation: the runtime's schedules decide what is sent; nothing is added up -----------------
# Between machines, the executor joins the group and sends the messages. On one machine the members of an all-reduce
# share memory in the runtime: there they meet, and each spends the CPU time that the profile has for reading the
# others' data.
#
# The messages of a ring are the square of its members, a million for 512 of them. So in a ring of more than
# `MOST_RANKS` the members meet as well, and what each sends to the next one passes the NICs as one piece
# (`collectives.costs.flows`).

MOST_RANKS = 16  # of a ring whose messages are sent one by one


_Member = tuple["TimedHost", Any, Any]
"""The process of a rank, its wait, and its value."""


class CollectiveKernels:
    """The kernels of collective ops.

    Args:
      network: the tasks.
    """

    def __init__(self, network: TimedNetwork) -> None:
        self._network = network
        self._shares_memory = len(set(network.cluster.hosts.values())) == 1
        self._meetings: dict[tuple[int, int], list[_Member]] = {}

    def kernel(self, node: Node) -> Callable[..., None]:
        """The kernel of an op."""
        meets = trait_of(node.op, "collective") == "all-reduce" and (
            self._shares_memory or node.attrs["group_size"] > MOST_RANKS
        )

        def begin(wait: Any, value: Any = None, splits: Any = None) -> None:
            if meets:
                self._meet(node, wait, value)
                return
            executor = wait.step.owner.collectives
            call = executor.calls.make(wait, node, as_phantom(value), splits)
            executor.call(_PhantomCall(wait, call.about, node, call.value, splits))

        return begin

    def _meet(self, node: Node, wait: Any, value: TensorLike) -> None:
        host = self._network.running
        assert host is not None
        if not wait.on_cancel(f"collective of {node.attrs['group_size']} ranks", lambda: None):
            return
        members = self._meetings.setdefault((node.attrs["group_key"], node.attrs["instance_key"]), [])
        members.append((host, wait, value))
        if len(members) == node.attrs["group_size"]:
            present, members[:] = list(members), []
            assert host.recording is not None
            answer = self._answer if self._shares_memory else self._exchange
            host.recording.then(lambda cause: answer(present))

    def _answer(self, members: list[_Member]) -> None:
        link = self._network.cluster.local
        nbytes = members[0][2].nbytes
        cpu_s = link.receive_s + shared_all_reduce_cost(nbytes, len(members)).nbytes * link.reduce_s_per_byte
        for host, wait, value in members:
            host.call_later(link.latency_s, _finish, host, wait, value, cpu_s)

    def _exchange(self, members: list[_Member]) -> None:
        """Sends the bytes of a ring while the CPUs copy them, piece by piece; then the latencies of all steps pass."""
        network = self._network
        nbytes = members[0][2].nbytes
        tasks = sorted((host.name for host, _, _ in members), key=task_order)
        ways = list(flows("all-reduce", nbytes, len(tasks)))
        left = len(ways) + len(members)
        cpu_s, latency_s = dict.fromkeys(tasks, 0.0), 0.0
        network.under_way += 1  # so that nobody takes the steps for stuck

        def arrived() -> None:
            nonlocal left
            left -= 1
            if left:
                return
            network.under_way -= 1
            network.work += 1
            delay_s = (serial_steps("all-reduce", nbytes, len(tasks)) - 1) * latency_s
            for host, wait, value in members:
                host.call_later(delay_s, wait.done, value)

        def copies(host: TimedHost) -> None:
            assert host.recording is not None
            host.recording.charge(cpu_s[host.name], "collective")
            host.recording.then(lambda cause: arrived())

        for flow in ways:
            source, target, size = tasks[flow.source], tasks[flow.target], flow.nbytes or 0
            link = network.cluster.between(source, target)
            cpu_s[source] += flow.messages * link.send_s + size * link.copy_s_per_byte
            cpu_s[target] += flow.messages * link.receive_s + size * link.copy_s_per_byte
            latency_s = max(latency_s, link.latency_s)
            network.nics.send(source, target, size, arrived, flow.messages)
        for host, _, _ in members:
            host.call_soon(copies, host)


def _finish(host: TimedHost, wait: Any, value: TensorLike, cpu_s: float) -> None:
    host.charge(cpu_s, "collective")
    wait.done(value)


class _PhantomCall(CollectiveCall):
    """A call whose schedule adds nothing up."""

    __slots__ = ()

    def schedule(self, rank: int, members: list[str]) -> Any:
        kind = trait_of(self.node.op, "collective")
        if kind == "all-reduce" and isinstance(self.value, Phantom):
            return _phantom_reduce(self, rank, len(members))
        return super().schedule(rank, members)


def _phantom_reduce(call: CollectiveCall, rank: int, size: int) -> Schedule:
    about, value = call.about, call.value
    assert about.reduction is not None
    merge, final = about.reduction
    view = np.asarray(value).reshape(-1)
    found = all_reduce(rank, size, value, merge, final, about.pieces, lambda: (_Nowhere(), view))
    if isinstance(found, RingReduce):
        found._merge, found._final = _nothing, "Id"
    return found


def _nothing(*values: Any, out: Any) -> None:
    """Adds nothing up."""


class _Nowhere:
    """Memory for a result that nobody reads."""

    def __getitem__(self, span: Any) -> _Nowhere:
        return self

    def __setitem__(self, span: Any, values: TensorLike) -> None:
        """Stores nothing."""


# ---- Programs that replicas of a worker share: their partitions differ in nothing but the worker's name ------------
# A thousand workers with a graph of thousands of ops each would take minutes and gigabytes to place, cut and compile.
# So only the first worker's plan is built. The others register it: in place of its nodes, a part has one node that
# names it.

_NAME, _PART, _CLIENT = "a part of the first worker's plan", "_part", "_client"
Namespace = dict[str, Any]


@dataclass
class _Replica(Part):
    """A part whose graph only names the program that it shares."""

    to: Set[str] = frozenset()

    @property
    def receivers(self) -> Set[str]:
        return self.to


class SharedPrograms:
    """The plan of the first worker, and the programs of its parts.

    Args:
      first: the first worker's task.

    Attributes:
      plan: None until it is registered.
    """

    def __init__(self, first: str) -> None:
        self._first = first
        self.plan: Plan | None = None
        self._programs: dict[str, Program] = {}

    def keep(self, plan: Plan, programs: dict[str, Program]) -> None:
        """Keeps the plan and the programs of its parts, by task."""
        self.plan, self._programs = plan, programs

    def replica(self, client: str) -> Plan:
        """The plan of another worker, to be registered."""
        plan = self.plan
        assert plan is not None
        parts: list[Part] = []
        for part in plan.parts:
            named = Node(_NAME, "NoOp", attrs={_PART: part.task.encode(), _CLIENT: client.encode()})
            task = client if part.task == self._first else part.task
            receivers = {client if each == self._first else each for each in part.receivers}
            parts.append(_Replica(task, TaskGraph({_NAME: named}), part.feed_indices, part.fetch_indices, to=receivers))
        return Plan(plan.feeds, plan.fetches, plan.partitions, parts, targets=plan.targets)

    def program(self, graph: TaskGraph) -> Program | None:
        """The program of a replica's part; None if the graph is one to compile."""
        named = graph.nodes.get(_NAME)
        if named is None:
            return None
        part, client = named.attrs[_PART].decode(), named.attrs[_CLIENT].decode()
        found = copy.copy(self._programs[part])
        found.sends = {group: client if task == self._first else task for group, task in found.sends.items()}
        return _moved(found) if part == self._first else found  # the others are where their first one is


def _moved(program: Program) -> Program:
    """The program for another task: its text, with resources of its own."""
    old, new = program.namespace, dict(program.namespace)
    for name, value in old.items():
        if isinstance(value, FunctionType):
            new[name] = _function(value, old, new)
    program.namespace = new
    program.segments = _segments(program, old, new)
    program.loops = {
        key: replace(loop, level=replace(loop.level, segments=_segments(loop.level, old, new)))
        for key, loop in program.loops.items()
    }
    program._lock = threading.Lock()
    return program


def _segments(level: Level, old: Namespace, new: Namespace) -> list[Segment]:
    return [segment.with_text(lambda f: _function(f, old, new)) for segment in level.segments]  # type: ignore[attr-defined]


def _function(function: Callable[..., Any], old: Namespace, new: Namespace) -> Any:
    """Generated functions with the names of another namespace; others as they are."""
    if getattr(function, "__globals__", None) is old:
        return FunctionType(function.__code__, new, function.__name__)
    blocks = _blocks(function)
    if blocks and all(getattr(each, "__globals__", None) is old for each in blocks):
        return _in_turn([_function(each, old, new) for each in blocks])
    return function


def _blocks(function: Callable[..., Any]) -> list[Any]:
    """The blocks of the function of a long segment; nothing for other functions."""
    cells: Sequence[Any] = getattr(function, "__closure__", None) or ()
    contents = cells[0].cell_contents if len(cells) == 1 else None
    return contents if isinstance(contents, list) else []


def _in_turn(functions: list[Callable[..., None]]) -> Callable[..., None]:
    def run(step: Any, slots: list[Any]) -> None:
        for function in functions:
            function(step, slots)

    return run
