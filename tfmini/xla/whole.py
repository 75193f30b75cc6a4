"""The trace of whole loops and conditionals: `lax.while_loop` and `lax.cond`, with their TensorArrays and stacks.

A TensorArray or stack of a trace is an object (`HeldArray`, `HeldStack`) around a buffer of fixed size. The kernels
change such an object in place, and so does the trace; loops and conditionals take the buffers that they change as
arguments and return them. Which these are, a dry run of what is inside tells (`HeldObjects.touched`). It also finds the
shape of elements that nobody has written before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tfmini.graph.lowering import lowering_of
from tfmini.graph.node import Endpoint, Node
from tfmini.graph.op_types import SWITCH_OPS, trait_of
from tfmini.ops.array.lowering import DROP, rows
from tfmini.runtime.compiler.kernels import op_facts
from tfmini.runtime.compiler.whole import WHOLE, NotWhole, WholeCond, WholeLoop

MOST_ITERATIONS = 100_000
"""The most iterations that are counted in a trace."""


class NodeTrace(Protocol):
    """The part of a `tracing.StretchTrace` that is used here."""

    values: dict[Endpoint, Any]
    held: HeldObjects

    def run_nodes(self, nodes: list[Node]) -> None: ...
    def value(self, endpoint: Endpoint) -> Any: ...
    def known(self, node: Node, inputs: list[Any]) -> Any: ...


# ---- TensorArrays and stacks ---------------------------------------------------------------------------------------


class HeldArray:
    """A TensorArray during a trace.

    Attributes:
      size: the number of elements.
      element: their shape; None before it is known.
      value: the elements, of shape ``[size, *element]``; None before one is written.
      parent: of an array of gradients, the array of the values.
    """

    def __init__(self, held: HeldObjects, name: str, dtype: Any, size: int, parent: HeldArray | None = None) -> None:
        self.held, self.name, self.dtype, self.size, self.parent = held, name, dtype, size, parent
        self.element: tuple[int, ...] | None = None
        self.value: Any = None
        self.gradients: dict[bytes, HeldArray] = {}
        held.all.append(self)

    def gradient(self, source: bytes) -> HeldArray:
        """The array of gradients for one call of ``tf.gradients``."""
        found = self.gradients.get(source)
        if found is None:
            found = self.gradients[source] = HeldArray(self.held, f"{self.name}@grad", self.dtype, self.size, self)
        return found

    def make(self) -> None:
        """Makes the elements, as zeros, if there are none."""
        if self.value is None:
            shape = self.element
            if shape is None and self.parent is not None:
                shape = self.parent.element
            if shape is None:
                raise NotWhole(f"the shape of the elements of the TensorArray '{self.name}' is not known")
            self.element = shape
            self.value = jnp.zeros((self.size, *shape), self.dtype)

    def meet(self, shape: tuple[int, ...]) -> None:
        """Takes the shape of an element that is written."""
        if self.element is None:
            self.element = shape
        if self.element != shape:
            raise NotWhole(f"elements of the TensorArray '{self.name}' have the shapes {self.element} and {shape}")
        self.make()

    def write(self, index: Any, value: Any, flow: Any) -> Any:
        """Sets an element; adds to that of a gradient. A number out of range changes nothing. Returns the flow."""
        self.meet(np.shape(value))
        index, inside = self._place(index)
        before = lax.dynamic_index_in_dim(self.value, index, 0, keepdims=False)
        new = before + value if self.parent is not None else jnp.asarray(value, self.dtype)
        new = jnp.where(inside, new, before)
        self.value = lax.dynamic_update_index_in_dim(self.value, new, index, 0)
        return flow

    def read(self, index: Any) -> Any:
        """An element; zeros for a number out of range."""
        self.make()
        index, inside = self._place(index)
        found = lax.dynamic_index_in_dim(self.value, index, 0, keepdims=False)
        return jnp.where(inside, found, jnp.zeros((), self.dtype))

    def _place(self, index: Any) -> tuple[Any, Any]:
        index = jnp.asarray(index, jnp.int32)
        return index, (index >= 0) & (index < self.size)

    def scatter(self, indices: Any, values: Any, flow: Any) -> Any:
        """Sets, or adds to, several elements. Returns the flow."""
        values = jnp.asarray(values, self.dtype)
        self.meet(values.shape[1:])
        if self._are_all(indices):
            self.value = values if self.parent is None else self.value + values
        else:
            where = self.value.at[jnp.asarray(indices)]
            self.value = (where.set if self.parent is None else where.add)(values, **DROP)
        return flow

    def split(self, value: Any, lengths: Any, flow: Any) -> Any:
        """Sets, or adds to, all elements, which are parts of a value. Returns the flow."""
        if not isinstance(lengths, np.ndarray) or len(set(lengths.tolist())) != 1 or len(lengths) != self.size:
            raise NotWhole(f"the TensorArray '{self.name}' gets elements of different sizes")
        parts = jnp.reshape(value, (self.size, int(lengths[0]), *np.shape(value)[1:]))
        return self.scatter(np.arange(self.size), parts, flow)

    def gather(self, indices: Any) -> Any:
        """Several elements; zeros for a number out of range."""
        self.make()
        if self._are_all(indices):
            return self.value
        return rows(self.value, indices, 0)

    def concat(self) -> tuple[Any, Any]:
        """All elements, joined, and their lengths."""
        self.make()
        if not self.element or not self.size:
            raise NotWhole(f"the elements of the TensorArray '{self.name}' to be joined are scalars, or there are none")
        lengths = np.full(self.size, self.element[0], np.int64)
        return jnp.reshape(self.value, (-1, *self.element[1:])), lengths

    def _are_all(self, indices: Any) -> bool:
        return isinstance(indices, np.ndarray) and np.array_equal(indices, np.arange(self.size))


class HeldStack:
    """A stack during a trace.

    Attributes:
      value: the elements and their number; None before the first push.
      known: the only value that is pushed, if it is known in the trace, and so the same in each iteration: a shape.
    """

    def __init__(self, held: HeldObjects, name: str, dtype: Any) -> None:
        self.held, self.name, self.dtype = held, name, dtype
        self.room: tuple[int, ...] | None = None
        self.known: Any = None
        self.value: Any = None
        held.all.append(self)

    def make(self) -> None:
        """Makes the elements, as zeros, if there are none."""
        if self.value is None:
            if self.room is None:
                raise NotWhole(f"the stack '{self.name}' is read before it is filled")
            self.value = jnp.zeros(self.room, self.dtype), jnp.int32(0)

    def push(self, value: Any) -> Any:
        """Puts a value on the stack. Returns it."""
        if not hasattr(value, "shape"):
            raise NotWhole(f"'{self.name}' remembers a handle")
        if isinstance(value, (np.ndarray, np.generic)):
            self.known = value
            return value
        room = (max(self.held.iterations(), 1), *value.shape)
        if self.room is None:
            self.room = room
        if self.room != room:
            raise NotWhole(f"values that '{self.name}' remembers have different shapes")
        self.make()
        buffer, count = self.value
        self.value = lax.dynamic_update_index_in_dim(buffer, jnp.asarray(value, self.dtype), count, 0), count + 1
        return value

    def pop(self) -> Any:
        """Takes the last value from the stack."""
        if self.known is not None:
            return self.known
        self.make()
        buffer, count = self.value
        self.value = buffer, count - 1
        return lax.dynamic_index_in_dim(buffer, count - 1, 0, keepdims=False)


class HeldObjects:
    """All TensorArrays and stacks of a trace.

    Attributes:
      all: those that exist where the trace is.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._loops: list[Callable[[], int]] = []

    def new_array(self, node: Node, size: int) -> HeldArray:
        """The TensorArray that a node makes."""
        if node.attrs["dynamic_size"]:
            raise NotWhole(f"the TensorArray '{node.name}' may grow")
        made = HeldArray(self, node.name, node.attrs["dtype"].numpy, size)
        shape = node.attrs["element_shape"]
        if shape is not None and None not in shape:
            made.element = tuple(shape)
        return made

    def new_stack(self, node: Node) -> HeldStack:
        """The stack that a node makes."""
        return HeldStack(self, node.name, node.attrs["elem_type"].numpy)

    @contextmanager
    def inside(self, trips: Callable[[], int]) -> Iterator[None]:
        """While a loop is traced; ``trips()`` is the number of its iterations, or a bound."""
        self._loops.append(trips)
        try:
            yield
        finally:
            self._loops.pop()

    def iterations(self) -> int:
        """How often a node that is traced now runs at most."""
        found = 1
        for trips in self._loops:
            found *= trips()
        return found

    def touched(self, function: Callable[..., Any], *args: Any) -> tuple[Any, list[Any]]:
        """Runs a function without effect. Returns the shapes of its results, and what it changes."""
        before = [(each, each.value) for each in self.all]
        count = len(before)
        shapes = jax.eval_shape(function, *args)
        known = {id(each) for each, _ in before}
        for each in self.all[count:]:
            parent = getattr(each, "parent", None)
            if parent is not None and id(parent) in known:
                known.add(id(each))
                before.append((each, None))
        self.all[:] = [each for each, _ in before]
        changed = [each for each, value in before if each.value is not value]
        for each, value in before:
            each.value = value
        for each in changed:
            each.make()
        return shapes, changed


# ---- conditionals --------------------------------------------------------------------------------------------------


def run_cond(trace: NodeTrace, node: Node, inputs: list[Any]) -> list[Any]:
    """The results of a whole conditional. One that has no value in the branch which is taken is zeros."""
    whole: WholeCond = node.attrs[WHOLE]
    trace.values.update(zip(whole.takes, inputs[1:]))
    pred = trace.value(node.inputs[0])

    known: list[dict[int, Any]] = [{}, {}]

    def ends(way: int) -> list[Any]:
        sources = [result[way] for result in whole.results]
        return [None if source is None else trace.value(source) for source in sources]

    def branch(way: int) -> list[Any]:
        trace.run_nodes(whole.branches[way])
        found = ends(way)
        known[way] = {i: v for i, v in enumerate(found) if isinstance(v, (np.ndarray, np.generic))}
        return [None if v is None else _array(v, node) for v in found]

    if isinstance(pred, (np.ndarray, np.generic)):
        way = int(bool(pred))
        trace.run_nodes(whole.branches[way])
        return ends(way)
    dry = [trace.held.touched(lambda way=way: branch(way)) for way in (0, 1)]
    changed = list({id(each): each for _, touched in dry for each in touched}.values())
    shapes = [_common(node, a, b) for a, b in zip(dry[0][0], dry[1][0])]

    def whole_branch(way: int) -> Callable[[list[Any]], Any]:
        def run(values: list[Any]) -> Any:
            _set(changed, values)
            found = branch(way)
            results = [jnp.zeros(s.shape, s.dtype) if r is None else r for r, s in zip(found, shapes)]
            return results, [each.value for each in changed]

        return run

    values = [each.value for each in changed]
    results, values = lax.cond(jnp.reshape(pred, ()), whole_branch(1), whole_branch(0), values)
    _set(changed, values)
    sure = {i: v for i, v in known[0].items() if dry[1][0][i] is None}
    sure.update({i: v for i, v in known[1].items() if dry[0][0][i] is None})
    sure.update({i: v for i, v in known[0].items() if i in known[1] and np.array_equal(v, known[1][i])})
    return [sure.get(i, result) for i, result in enumerate(results)]


def _common(node: Node, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    if one.shape != other.shape:
        raise NotWhole(f"the branches of '{node.name}' give the shapes {one.shape} and {other.shape}")
    return one


def _array(value: Any, node: Node) -> Any:
    if isinstance(value, (HeldArray, HeldStack)):
        raise NotWhole(f"'{node.name}' chooses a handle")
    return jnp.asarray(value)


def _set(held: list[Any], values: list[Any]) -> None:
    for each, value in zip(held, values):
        each.value = value


# ---- loops ---------------------------------------------------------------------------------------------------------


def run_loop(trace: NodeTrace, node: Node, inputs: list[Any]) -> list[Any]:
    """The results of a whole loop."""
    whole: WholeLoop = node.attrs[WHOLE]
    for enter, value in zip(whole.enters, inputs):
        trace.values[enter.name, 0] = value
    first = {name: trace.value((enter, 0)) for name, (enter, _) in whole.variables.items()}
    start = [_array(trace.value((enter, 0)), node) for enter, _ in whole.variables.values()]

    def body(variables: list[Any]) -> list[Any]:
        _enter(trace, whole, variables)
        trace.run_nodes(whole.body)
        return [_array(trace.value(whole.nexts[later].inputs[0]), node) for _, later in whole.variables.values()]

    with trace.held.inside(_Trips(trace, whole, first).count):
        shapes, changed = trace.held.touched(body, start)
        for name, before, after in zip(whole.variables, start, shapes):
            if before.shape != after.shape:
                raise NotWhole(f"the shape of '{name}' changes from {before.shape} to {after.shape}")

        def whole_body(state: Any) -> Any:
            _set(changed, state[1])
            return body(state[0]), [each.value for each in changed]

        def goes_on(state: Any) -> Any:
            _set(changed, state[1])
            _enter(trace, whole, state[0])
            return jnp.reshape(jnp.asarray(trace.value(whole.condition)), ())

        state = lax.while_loop(goes_on, whole_body, (start, [each.value for each in changed]))
    _set(changed, state[1])
    last = dict(zip(whole.variables, state[0]))
    switches = {each.name: each.inputs[0][0] for each in whole.head if each.op in SWITCH_OPS}
    return [last[switches[exit_.inputs[0][0]]] for exit_ in whole.exits]


def _enter(trace: NodeTrace, whole: WholeLoop, variables: list[Any]) -> None:
    for name, value in zip(whole.variables, variables):
        trace.values[name, 0] = value
    trace.run_nodes(whole.head)


class _Trips:
    """How often a loop goes round: a bound that follows from values which are known in the trace.

    Args:
      first: loop variable -> its first value.
    """

    def __init__(self, trace: NodeTrace, whole: WholeLoop, first: Mapping[str, Any]) -> None:
        self.trace, self.whole = trace, whole
        self.nodes = {node.name: node for node in (*whole.head, *whole.body)}
        self.first = {name: value for name, value in first.items() if isinstance(value, (np.ndarray, np.generic))}
        self.needs: dict[Endpoint, frozenset[str] | None] = {}
        self.found: int | None = None

    def count(self) -> int:
        """The number, or a bound.

        Raises:
          NotWhole: it depends on what is computed.
        """
        if self.found is None:
            self.found = self._count()
        return self.found

    def _count(self) -> int:
        known = set(self.first)
        steps = {name: self.whole.nexts[self.whole.variables[name][1]].inputs[0] for name in known}
        while True:
            left = {name for name in known if (needs := self._needs(steps[name])) is not None and needs <= known}
            if left == known:
                break
            known = left
        conditions = [e for e in self._conditions(self.whole.condition) if self._is_known(e, known)]
        if not conditions:
            raise NotWhole("its gradient needs a number of iterations that is known before it runs")
        values = {name: self.first[name] for name in known}
        for number in range(MOST_ITERATIONS):
            memory: dict[Endpoint, Any] = {(name, 0): value for name, value in values.items()}
            if not all(bool(self._compute(e, memory)) for e in conditions):
                return number
            values = {name: self._compute(steps[name], memory) for name in known}
        raise NotWhole(f"it has more than {MOST_ITERATIONS} iterations")

    def _is_known(self, endpoint: Endpoint, known: set[str]) -> bool:
        needs = self._needs(endpoint)
        return needs is not None and needs <= known

    def _conditions(self, endpoint: Endpoint) -> Iterator[Endpoint]:
        """Conditions that all hold if a condition holds."""
        node = self.nodes.get(endpoint[0])
        if node is not None and (node.op == "LogicalAnd" or trait_of(node.op, "forwards") == "value"):
            for source in node.inputs:
                yield from self._conditions(source)
        else:
            yield endpoint

    def _needs(self, endpoint: Endpoint) -> frozenset[str] | None:
        """The loop variables from which a value is computed; None if it needs what is not known."""
        if endpoint not in self.needs:
            self.needs[endpoint] = None
            self.needs[endpoint] = self._find_needs(endpoint)
        return self.needs[endpoint]

    def _find_needs(self, endpoint: Endpoint) -> frozenset[str] | None:
        if endpoint[0] in self.whole.variables:
            return frozenset({endpoint[0]})
        node = self.nodes.get(endpoint[0])
        if node is None:
            known = isinstance(self.trace.values.get(endpoint), (np.ndarray, np.generic))
            return frozenset() if known else None
        if node.op == "Const":
            return frozenset()
        if node.op in SWITCH_OPS:
            return self._needs(node.inputs[0])
        rule, facts = lowering_of(node.op), op_facts(node.op, "CPU")
        if rule is None or facts is None or not facts.foldable or rule.keeps_shape_only:
            return None
        found: frozenset[str] = frozenset()
        for source in node.inputs:
            needs = self._needs(source)
            if needs is None:
                return None
            found |= needs
        return found

    def _compute(self, endpoint: Endpoint, memory: dict[Endpoint, Any]) -> Any:
        if endpoint in memory:
            return memory[endpoint]
        node = self.nodes.get(endpoint[0])
        if node is None:
            return self.trace.values[endpoint]
        if node.op == "Const":
            return node.attrs["value"]
        if node.op in SWITCH_OPS:
            return self._compute(node.inputs[0], memory)
        results = self.trace.known(node, [self._compute(source, memory) for source in node.inputs])
        if results is None:
            raise NotWhole("its gradient needs a number of iterations that is known before it runs")
        for i, value in enumerate(results):
            memory[endpoint[0], i] = value
        return memory[endpoint]
