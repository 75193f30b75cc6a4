"""The text of a segment: straight-line Python, one node per line.

Source is generated, and run with ``exec``, because going through any table would cost more per
node than most nodes do. The text contains only names made up here; everything that comes from a
graph reaches it as an object in the namespace, never as text. Inside a segment values are
locals, and a local is reused as soon as its value is dead, which also frees the array.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmini.graph.node import Endpoint, Node
from tfmini.runtime.kernel_calls import grouped, list_lengths, make_callable, op_facts

_counter = itertools.count(1)
# The key in a program's namespace of: file name of generated code -> the node that each line computes.
NODE_LINES = "node_lines"


@dataclass
class Unit:
    """A node to generate code for, or (``group`` is set) a group of values to send.

    Attributes:
      inputs: where each flat input comes from.
      derefs: whether an input is a variable whose value is wanted.
      outputs: the number of flat outputs.
      wave: the set of received groups it needs, by number.
      block: the number of its block, the scope of local names.
    """

    node: Node
    inputs: list[Endpoint]
    derefs: list[bool]
    outputs: int
    wave: int
    block: int = 0
    group: int | None = None


@dataclass
class BlockContext:
    """What the text of a block may refer to.

    Attributes:
      constants: values known at compile time.
      states: namespace names of variables and other resources.
      slots: values that live in the step's slot list.
      namespace: receives the objects that the text names.
    """

    constants: dict[Endpoint, Any]
    states: dict[Endpoint, str]
    slots: dict[Endpoint, int]
    namespace: dict[str, Any]
    device_type: str


def generate_block(context: BlockContext, units: list[Unit]) -> Callable[[Any, list[Any]], None]:
    """The function ``block(step, s)`` that computes and sends ``units`` in order."""
    return _BlockWriter(context, units).write()


class _BlockWriter:
    def __init__(self, context: BlockContext, units: list[Unit]) -> None:
        self.context = context
        self.units = units
        self.lines: list[str] = []
        self.line_nodes: list[Node | None] = [None, None]
        self.local: dict[Endpoint, str] = {}
        self.free: list[str] = []
        self.locals_made = 0
        self.uses: dict[Endpoint, int] = {}
        for unit in units:
            for endpoint in unit.inputs:
                self.uses[endpoint] = self.uses.get(endpoint, 0) + 1

    def write(self) -> Callable[[Any, list[Any]], None]:
        for unit in self.units:
            self._write_unit(unit)
        if not self.lines:
            return _nothing
        file_name = f"<tfmini segment {next(_counter)}>"
        source = "def block(step, s):\n    " + "\n    ".join(self.lines)
        scope: dict[str, Any] = {}
        exec(compile(source, file_name, "exec"), self.context.namespace, scope)  # noqa: S102 - see the module
        self.context.namespace.setdefault(NODE_LINES, {})[file_name] = self.line_nodes
        return scope["block"]  # type: ignore[no-any-return]

    def _emit(self, line: str, node: Node | None) -> None:
        self.lines.append(line)
        self.line_nodes.append(node)

    def _write_unit(self, unit: Unit) -> None:
        arguments = [self._value(e, deref) for e, deref in zip(unit.inputs, unit.derefs)]
        if unit.group is not None:
            expression = f"step.send({unit.group}, ({', '.join(arguments)},))"
        else:
            expression = self._expression(unit.node, arguments)
        for endpoint in unit.inputs:
            self._release(endpoint)
        targets = self._targets(unit) if unit.outputs else None
        self._emit(expression if targets is None else f"{targets} = {expression}", unit.node)
        for i in range(unit.outputs):
            endpoint = (unit.node.name, i)
            if endpoint in self.context.slots and endpoint in self.local:
                self._emit(f"s[{self.context.slots[endpoint]}] = {self.local[endpoint]}", unit.node)
                if not self.uses.get(endpoint):
                    self._drop(endpoint)

    def _expression(self, node: Node, arguments: list[str]) -> str:
        facts = op_facts(node.op, self.context.device_type)
        assert facts is not None
        if facts.handle.inline_expression is not None:
            text = facts.handle.inline_expression(node)
            if text is not None:
                return text.format(*arguments)
        kernel = facts.kernel
        namespace = self.context.namespace
        name = f"k{len(namespace)}"
        namespace[name] = make_callable(kernel, node, namespace.get("resources"))
        call = arguments
        if not facts.flat:
            parts = grouped(list_lengths(facts.op_def, node), arguments)
            call = ["[" + ", ".join(part) + "]" if isinstance(part, list) else part for part in parts]
        if kernel.wants_step:
            call = ["step", *call]
        return f"{name}({', '.join(call)})"

    def _targets(self, unit: Unit) -> str | None:
        """The left-hand side: a local per output that somebody wants."""
        names = []
        for i in range(unit.outputs):
            endpoint = (unit.node.name, i)
            wanted = self.uses.get(endpoint) or endpoint in self.context.slots
            if wanted:
                self.local[endpoint] = self._new_local()
            names.append(self.local[endpoint] if wanted else "_")
        facts = op_facts(unit.node.op, self.context.device_type)
        if facts is not None and facts.single:
            return None if names == ["_"] else names[0]
        return None if all(n == "_" for n in names) else ", ".join(names) + ","

    def _value(self, endpoint: Endpoint, deref: bool) -> str:
        """The text for a value; what lies in a slot is loaded once."""
        context = self.context
        state = context.states.get(endpoint)
        if state is not None:
            return f"{state}.read()" if deref else state
        if endpoint in context.constants:
            return self._constant(endpoint)
        if endpoint not in self.local:
            self.local[endpoint] = name = self._new_local()
            self._emit(f"{name} = s[{context.slots[endpoint]}]", None)
        return f"{self.local[endpoint]}.read()" if deref else self.local[endpoint]

    def _constant(self, endpoint: Endpoint) -> str:
        names = self.context.namespace.setdefault("constant_names", {})
        if endpoint not in names:
            names[endpoint] = name = f"c{len(self.context.namespace)}"
            self.context.namespace[name] = self.context.constants[endpoint]
        return str(names[endpoint])

    def _new_local(self) -> str:
        if self.free:
            return self.free.pop()
        self.locals_made += 1
        return f"r{self.locals_made}"

    def _release(self, endpoint: Endpoint) -> None:
        """Counts a use; after the last one the local may hold something else."""
        self.uses[endpoint] -= 1
        if not self.uses[endpoint]:
            self._drop(endpoint)

    def _drop(self, endpoint: Endpoint) -> None:
        name = self.local.pop(endpoint, None)
        if name is not None:
            self.free.append(name)


def _nothing(step: Any, s: list[Any]) -> None:
    """A block without code."""
