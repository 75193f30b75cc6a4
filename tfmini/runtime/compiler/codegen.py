"""The text of a segment: straight-line Python, one node per line.

Source is generated, and run with ``exec``, because going through any table would cost more per
node than most nodes do. The text contains only names made up here; everything that comes from a
graph reaches it as an object in the namespace, never as text. Inside a segment values are
locals, and a local is reused as soon as its value is dead, which also frees the array. A guard is
an ``if``; neighbours under the same guard share one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from tfmini import errors
from tfmini.graph.liveness import Atom
from tfmini.graph.node import Endpoint, Node
from tfmini.graph.op_types import MERGE_OPS, OPS
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler.kernels import (
    NODE_LINES,
    ResultCheck,
    are_checked,
    checked,
    grouped,
    in_own_thread,
    list_lengths,
    make_callable,
    named_errors,
    op_facts,
)
from tfmini.runtime.compiler.levels import Program, Segment
from tfmini.runtime.compiler.units import Condition, Form, Unit
from tfmini.runtime.trace import TraceTable, clock

_counter = itertools.count(1)
# Python has at most 100 levels of indentation: of a longer guard the other conditions share the last level.
_MOST_LEVELS = 16
_FEW_OUTPUTS = 64  # beyond, the text of a node names only the outputs that somebody takes


@dataclass
class BlockContext:
    """The values that the text of a block may refer to.

    Attributes:
      constants: values known at compile time.
      states: namespace names of variables and other resources.
      slots: values that live in the step's slot list.
      namespace: receives the objects that the text names.
      trace: for a traced program, the meaning of the numbers in its text.
      kernels: node -> its function, of those that have a state of their own (a random op's stream): the programs
        of a session share it.
      make_writer: makes the writers, where a simulation writes other text; None: `BlockWriter`.
      sent: results that only a group's message takes; see `layout.sent_results`.
    """

    constants: dict[Endpoint, Any]
    states: dict[Endpoint, str]
    slots: dict[Endpoint, int]
    namespace: dict[str, Any]
    device_type: str
    trace: TraceTable | None = None
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)
    make_writer: Callable[[BlockContext, list[Unit]], BlockWriter] | None = None
    sent: Mapping[Endpoint, int] = field(default_factory=dict)


def generate_block(context: BlockContext, units: list[Unit]) -> Callable[[Any, list[Any]], None]:
    """The function ``block(step, s)`` that computes and sends ``units`` in order."""
    writer = writer_of(context, units)
    if units:
        writer.start_clock()
    writer.write_all()
    if not writer.lines:
        return nothing
    return writer.function("step, s")


def writer_of(context: BlockContext, units: list[Unit]) -> BlockWriter:
    """The writer of these units: one that the context makes, if it can."""
    return (context.make_writer or BlockWriter)(context, units)


class BlockWriter:
    """The text of one function, line by line.

    The writer of a `KernelModel` may override `write_unit`, `close_guard`, `value`, `kernel_of` and `starter_of`.

    Args:
      units: those that will be written, so that uses can be counted.
    """

    def __init__(self, context: BlockContext, units: list[Unit]) -> None:
        self.context = context
        self.units = units
        self.lines: list[str] = []
        self.line_nodes: list[Node | None] = [None, None]
        self.local: dict[Endpoint, str] = {}
        self.free: list[str] = []
        self.locals_made = 0
        self.indent = 0
        self.open: Condition = ()
        self.levels: list[int] = []  # per open `if`, how many conditions of `open` hold inside it
        self.uses: dict[Endpoint, int] = {}
        self._indices: dict[str, set[int]] | None = None
        for unit in units:
            for endpoint in unit.reads():
                self.uses[endpoint] = self.uses.get(endpoint, 0) + 1

    def function(self, parameters: str) -> Callable[..., Any]:
        """Compiles the written text."""
        file_name = f"<tfmini segment {next(_counter)}>"
        source = f"def block({parameters}):\n    " + "\n    ".join(self.lines)
        scope: dict[str, Any] = {}
        exec(compile(source, file_name, "exec"), self.context.namespace, scope)  # noqa: S102 - see the module
        self.context.namespace.setdefault(NODE_LINES, {})[file_name] = self.line_nodes
        return scope["block"]  # type: ignore[no-any-return]

    def start_clock(self) -> None:
        """In a traced program: begins to take times, when a segment or an iteration begins."""
        if self.context.trace is not None:
            self.context.namespace["clock"] = clock
            self.emit("note = step.run.trace.note")
            self.emit("b = t = clock()")

    def write_all(self) -> None:
        """Writes the units in order."""
        for unit in self.units:
            self.write_unit(unit)
        self.close_guard()

    def emit(self, line: str, node: Node | None = None) -> None:
        """Appends a line that, if it raises, belongs to ``node``."""
        self.lines.append("    " * (self.indent + len(self.levels)) + line)
        self.line_nodes.append(node)

    def pin(self, endpoint: Endpoint, name: str) -> None:
        """Says that a value has a name of its own throughout the function."""
        self.keep(endpoint)
        self.local[endpoint] = name

    def keep(self, endpoint: Endpoint) -> None:
        """Keeps the local of a value after its last use."""
        self.uses[endpoint] = self.uses.get(endpoint, 0) + 1

    def write_unit(self, unit: Unit) -> None:
        """Writes one unit under its guard."""
        starts = unit.form in (Form.BEGIN, Form.BEGIN_LOOP)
        guard = () if starts else unit.guard  # a node that is not begun must be reported
        if guard != self.open:
            self.under(guard, unit.node)
        line = getattr(self, _WRITERS[unit.form])(unit)
        if starts and unit.guard:
            skipped = "None" if unit.entry else f"step.skip({self._key(unit)})"
            line += f" if {self.condition(unit.guard)} else {skipped}"
        sent = self._arguments(unit) if unit.form is Form.SEND and self.context.trace is not None else []
        for endpoint in unit.reads():
            self.release(endpoint)
        wanted = self._wanted(unit) if unit.outputs else ()
        self._write_targets(unit, wanted, line)
        if self.context.trace is not None:
            self.emit(self._stamp(self.context.trace, unit, sent, wanted), unit.node)
        for i in wanted:
            endpoint = (unit.node.name, i)
            if endpoint in self.context.slots:
                self.emit(f"s[{self.context.slots[endpoint]}] = {self.local[endpoint]}", unit.node)
                if not self.uses.get(endpoint):
                    self._drop(endpoint)

    def _stamp(self, trace: TraceTable, unit: Unit, sent: list[str], wanted: tuple[int, ...]) -> str:
        """The line that notes when a unit ran and how large its values are."""
        if unit.form in (Form.BEGIN, Form.BEGIN_LOOP, Form.HAND_ON):
            return "t = clock()"  # it is noted when it answers
        group = unit.key if unit.form is Form.SEND else None
        names = sent if group is not None else [self.local[unit.node.name, i] for i in wanted]
        values = ", ".join([*names, ""])
        return f"t = note({trace.number(unit.node, wanted, group)}, b, t, clock(), ({values}))"

    def named(self, value: Any, prefix: str = "k") -> str:
        """The namespace's name for a new value. So nothing that comes from a graph becomes source."""
        name = f"{prefix}{len(self.context.namespace)}"
        self.context.namespace[name] = value
        return name

    # ---- guards -----------------------------------------------------------------------------

    def close_guard(self) -> None:
        """Ends the ``if`` blocks that are open."""
        self.open = ()
        self.levels.clear()

    def under(self, guard: Condition, node: Node) -> None:
        """Ends the ``if`` blocks that are open, as far as they are of another guard, and opens those of this one."""
        shared = 0
        for mine, other in zip(self.open, guard):
            if mine != other:
                break
            shared += 1
        while self.levels and (self.levels[-1] > shared or len(self.levels) > _MOST_LEVELS and len(guard) > shared):
            self.levels.pop()
        self.open = self.open[: self.levels[-1] if self.levels else 0]
        while len(self.open) < len(guard):
            held = len(self.open)
            until = held + 1 if len(self.levels) < _MOST_LEVELS else len(guard)
            self.emit(f"if {self.condition(guard[held:until])}:", node)
            self.open = guard[:until]
            self.levels.append(until)

    def atom(self, atom: Atom) -> str:
        """The text of one condition."""
        endpoint, way = atom
        value = self.value(endpoint, False)
        return f"{value} is not DEAD" if way is None else value if way else f"not {value}"

    def condition(self, atoms: Condition) -> str:
        """The text of a condition; "" if it always holds."""
        return " and ".join(self.atom(atom) for atom in atoms)

    # ---- one unit's expression --------------------------------------------------------------

    def _arguments(self, unit: Unit) -> list[str]:
        return [self.value(e, deref) for e, deref in zip(unit.inputs, unit.derefs)]

    @staticmethod
    def _key(unit: Unit) -> str:
        """The text of a unit's key. It comes from a graph, so nothing but an integer may become source."""
        if type(unit.key) is not int:
            raise errors.InvalidArgumentError.of(f"node {unit.node.name!r} has the key {unit.key!r:.80}")
        return str(unit.key)

    def _send(self, unit: Unit) -> str:
        return f"step.send({self._key(unit)}, ({', '.join(self._arguments(unit))},))"

    def _select(self, unit: Unit) -> str:
        """The chosen value and its index, in one expression, so that both use the same test of the conditions."""
        texts = []
        # Other nodes that select have one output, wherever it lies.
        wanted = self._wanted(unit) if unit.node.op in MERGE_OPS else (0,)
        for index, (argument, way) in enumerate(zip(self._arguments(unit), unit.ways)):
            both = argument if wanted != (0, 1) else f"({argument}, {self._index(index)})"
            if wanted == (1,):
                both = self._index(index)
            condition = self.condition(way)
            last = index == len(unit.ways) - 1
            if not condition or last and unit.certain:
                texts.append(both)
                break
            texts.append(f"{both} if {condition} else ")
        else:
            texts.append("(DEAD, DEAD)" if wanted == (0, 1) else "DEAD")
        return "".join(texts)

    def _index(self, index: int) -> str:
        name = f"i{index}"
        self.context.namespace.setdefault(name, np.int32(index))
        return name

    def _wanted(self, unit: Unit) -> tuple[int, ...]:
        """The outputs that somebody takes."""
        name, uses, slots = unit.node.name, self.uses, self.context.slots
        if unit.outputs == 1:
            return (0,) if uses.get((name, 0)) or (name, 0) in slots else ()
        named = range(unit.outputs) if unit.outputs <= _FEW_OUTPUTS else sorted(self._named(name))
        return tuple(i for i in named if i < unit.outputs and (uses.get((name, i)) or (name, i) in slots))

    def _named(self, name: str) -> set[int]:
        """The outputs of a node that other units or the slots name: their number, unlike the node's, is bounded."""
        if self._indices is None:
            self._indices = {}
            for node, index in (*self.uses, *self.context.slots):
                self._indices.setdefault(node, set()).add(index)
        return self._indices.get(name, set())

    def _begin(self, unit: Unit) -> str:
        starter = self.named(self.starter_of(unit.node))
        return f"step.begin({self._key(unit)}, {starter}, ({', '.join([*self._grouped(unit), ''])}))"

    def _begin_loop(self, unit: Unit) -> str:
        return f"step.begin_loop({self._key(unit)}, {unit.entry}, ({', '.join([*self._arguments(unit), ''])}))"

    def _hand_on(self, unit: Unit) -> str:
        return f"step.hand_on({self._key(unit)}, ({', '.join([*self._arguments(unit), ''])}))"

    def _loop(self, unit: Unit) -> str:
        return f"{unit.function}({', '.join(['step', *self._arguments(unit)])})"

    def _compute(self, unit: Unit) -> str:
        node = unit.node
        facts = op_facts(node.op, self.context.device_type)
        assert facts is not None
        if (node.name, 0) in self.context.sent:
            return self._compute_into(unit)
        if facts.handle.inline_expression is not None:
            text = facts.handle.inline_expression(node)
            if text is not None:
                text = text.format(*self._arguments(unit))
                return self._checked(text, node) if are_checked() else text
        call = self._grouped(unit)
        if facts.kernel.wants_step:
            call = ["step", *call]
        return f"{self.named(self.kernel_of(node))}({', '.join(call)})"

    def _compute_into(self, unit: Unit) -> str:
        """The call of a kernel whose result goes into the memory of the connection that sends it."""
        name = self.named(computing_into(unit, self.context.sent[unit.node.name, 0]))
        return f"{name}({', '.join(['step', *self._grouped(unit)])})"

    def _checked(self, text: str, node: Node) -> str:
        """An inline expression whose value is checked."""
        return f"{self.named(ResultCheck(node))}({text})"

    def starter_of(self, node: Node) -> Callable[..., Any]:
        """The function that starts a node's kernel, which answers later."""
        facts = op_facts(node.op, self.context.device_type)
        assert facts is not None
        kernel = self.kernel_of(node)
        return kernel if facts.kernel.is_async else in_own_thread(kernel)

    def kernel_of(self, node: Node) -> Callable[..., Any]:
        """The function that computes a node."""
        facts = op_facts(node.op, self.context.device_type)
        assert facts is not None
        kernels = self.context.kernels
        call = kernels.get(node.name)
        if call is None:
            with named_errors(node):
                call = make_callable(facts.kernel, node, self.context.namespace.get("resources"))
            if are_checked():
                call = checked(call, facts.kernel, node)
            if facts.kernel.is_factory and facts.op_def.is_stateful:
                return kernels.setdefault(node.name, call)  # another thread may have made it meanwhile
        return call

    def _grouped(self, unit: Unit) -> list[str]:
        """The arguments, with those of a list input as one list."""
        arguments = self._arguments(unit)
        facts = op_facts(unit.node.op, self.context.device_type)
        if facts is None or facts.flat:
            return arguments
        parts = grouped(list_lengths(facts.op_def, unit.node), arguments)
        return ["[" + ", ".join(part) + "]" if isinstance(part, list) else part for part in parts]

    def _write_targets(self, unit: Unit, wanted: tuple[int, ...], line: str) -> None:
        """Emits the unit's expression, with a local per output that somebody wants."""
        made = [self._new_local() for _ in wanted]
        self.local.update(((unit.node.name, i), name) for i, name in zip(wanted, made))
        facts = op_facts(unit.node.op, self.context.device_type)
        if not wanted:
            self.emit(line, unit.node)
        elif unit.form is Form.SELECT:
            self.emit(f"{', '.join(made)} = {line}", unit.node)
        elif facts is not None and facts.single:
            self.emit(f"{made[0]} = {line}", unit.node)
        elif len(wanted) == unit.outputs or unit.outputs <= _FEW_OUTPUTS:
            names = dict(zip(wanted, made))
            self.emit(f"{', '.join(names.get(i, '_') for i in range(unit.outputs))}, = {line}", unit.node)
        else:
            self.emit(f"_ = {line}", unit.node)
            self.emit(f"{', '.join(made)}, = {', '.join(f'_[{i}]' for i in wanted)},", unit.node)
            self.emit("_ = None", unit.node)

    # ---- values -----------------------------------------------------------------------------

    def value(self, endpoint: Endpoint, deref: bool) -> str:
        """The text for a value; a value in a slot is loaded once, unless a guard may skip the load.

        The only use of a value reads the slot itself: with many variables, loads were half of the lines to compile.
        """
        context = self.context
        state = context.states.get(endpoint)
        if state is not None:
            return f"{state}.read()" if deref else state
        if endpoint in context.constants:
            return self.constant(endpoint)
        name = self.local.get(endpoint)
        if name is None:
            name = f"s[{context.slots[endpoint]}]"
            if not self.open and self.uses.get(endpoint) != 1:
                self.local[endpoint] = self._new_local()
                self.emit(f"{self.local[endpoint]} = {name}")
                name = self.local[endpoint]
        return f"{name}.read()" if deref else name

    def constant(self, endpoint: Endpoint) -> str:
        """The text for one of the context's constants."""
        names = self.context.namespace.setdefault("constant_names", {})
        if endpoint not in names:
            names[endpoint] = self.named(self.context.constants[endpoint], "c")
        return str(names[endpoint])

    def _new_local(self) -> str:
        if self.free:
            return self.free.pop()
        self.locals_made += 1
        return f"r{self.locals_made}"

    def release(self, endpoint: Endpoint) -> None:
        """Counts a use; after the last one the local may hold something else."""
        self.uses[endpoint] -= 1
        if not self.uses[endpoint]:
            self._drop(endpoint)

    def _drop(self, endpoint: Endpoint) -> None:
        name = self.local.pop(endpoint, None)
        if name is not None:
            self.free.append(name)


_WRITERS = {
    Form.COMPUTE: "_compute",
    Form.SEND: "_send",
    Form.SELECT: "_select",
    Form.BEGIN: "_begin",
    Form.BEGIN_LOOP: "_begin_loop",
    Form.HAND_ON: "_hand_on",
    Form.LOOP: "_loop",
}


def nothing(step: Any, s: list[Any]) -> None:
    """A block without code."""


def into_rule(unit: Unit) -> Callable[..., Any] | None:
    """The function that computes a unit's result in memory that it asks for; None if its op has none."""
    rule = OPS[unit.node.op].into_rule
    return rule(unit.node) if rule is not None else None


def computing_into(unit: Unit, group: int) -> Callable[..., Any]:
    """``call(step, *inputs)`` for one of these units, which computes its result in memory of the group's connection."""
    function = into_rule(unit)
    assert function is not None
    check = ResultCheck(unit.node) if are_checked() else None

    def call(step: Any, *inputs: Any) -> Any:
        result = function(partial(step.sent_array, group), *inputs)
        return result if check is None else check(result)

    return call


class KernelModel(Protocol):
    """What takes the place of kernels where the runtime runs in virtual time: the interface for a simulation.

    The lowering, the segments and their order are the compiler's own. The model writes the text of the units, says how
    long a segment takes before it has run, and may add to what a run of the program begins with.
    """

    def writer(self, context: BlockContext, units: list[Unit]) -> BlockWriter:
        """Returns the writer of the text of one block. `BlockWriter` says what it may override."""
        ...

    def segment(self, segment: Segment, units: Sequence[Unit]) -> Segment:
        """Returns a laid-out segment with its `seconds` set, since segments of 3 ms and more go to the pool."""
        ...

    def known(self, graph: TaskGraph) -> Program | None:
        """Called before a graph is compiled; a program that it returns is used as it is. None: compile it."""
        ...

    def program(self, program: Program, graph: TaskGraph) -> Program:
        """Called after a graph has been compiled; returns the program to register, which may be a wrapped one."""
        ...
