"""The kernel model of the simulator: ops take the time of a profile's curves, and most of them compute nothing.

The compiler's segments are as in the runtime. In their text, an op whose value decides nothing (see `deciding`) is
replaced by its time, and its outputs by phantoms. The times of neighbours are added up until something happens: a send,
the begin of an op that answers later, or the end of the segment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import output_dtypes
from tfmini.graph.traits import ops_with, trait_of
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler.codegen import BlockContext, BlockWriter
from tfmini.runtime.compiler.levels import Segment
from tfmini.runtime.compiler.program import Program
from tfmini.runtime.compiler.units import Form, Unit
from tfmini.runtime.resources import Resources
from tfmini.simulation.collective_kernels import CollectiveKernels
from tfmini.simulation.deciding import Deciding, Shapes
from tfmini.simulation.kernel_costs import KernelCosts
from tfmini.simulation.phantoms import as_phantom, phantom
from tfmini.simulation.profile import Machine
from tfmini.simulation.shared_programs import SharedPrograms

if TYPE_CHECKING:
    from tfmini.simulation.timed_host import TimedHost
    from tfmini.simulation.timed_network import TimedNetwork

_COLLECTIVES = ops_with("collective")
_WRITES = ops_with("writes")
_LOCKED_S = 1e-3  # an update as long as that keeps others from the variable; shorter ones hardly meet
_HAPPENS = frozenset({Form.SEND, Form.BEGIN, Form.BEGIN_LOOP, Form.HAND_ON, Form.LOOP})


class KernelTimes:
    """The model for the tasks of one type of machine; see `runtime.compiler.kernel_model`.

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

    def answer(wait: Any, *_: Any) -> None:
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
