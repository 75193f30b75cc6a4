"""The trace of a stretch: its nodes run once on traced arrays, which gives XLA's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tfmini import dtypes, errors
from tfmini.graph.lowering import LoweringRule, lowering_of
from tfmini.graph.node import Endpoint, Node, output_dtypes
from tfmini.graph.op_types import FLOW_OPS, Kernel, ops_with
from tfmini.runtime.compiler.kernels import OpFacts, bound_arguments, grouped, list_lengths, make_callable, op_facts
from tfmini.runtime.compiler.stretches import Stretch, takes_itself
from tfmini.runtime.compiler.whole import WHOLE, NotWhole, WholeLoop, host_positions
from tfmini.xla.traced import TracedArray, bare, wrapped
from tfmini.xla.whole import HeldObjects, run_cond, run_loop

_CONTROL_ONLY = ops_with("control_only")
_KNOWN_ELEMENTS = 1024
"""A node of known values is computed during the trace if it has and makes at most so many elements."""

Request = tuple[str, tuple[Any, ...]]
"""A wish for random numbers: its kind, and sizes."""


class Cell(TracedArray):
    """A variable during a trace: its present value, None before it has one.

    Attributes:
      dtype, shape: as declared; the shape may be unknown.
    """

    __slots__ = ("state",)

    def __init__(self, state: Any, value: Any) -> None:
        super().__init__(value)
        self.state = state

    @staticmethod
    def wrap(value: Any) -> TracedArray:
        """JAX's array as an array for numpy's functions."""
        return TracedArray(value)

    def read(self) -> Any:
        """The value.

        Raises:
          FailedPreconditionError: the variable has none.
        """
        if self.value is None:
            raise errors.FailedPreconditionError.of(self.state.uninitialized_message)
        return self.value


class StretchTrace:
    """One trace of a stretch.

    Args:
      statics: the values of the stretch's static inputs.
      draws: per node of random numbers, the arrays for its wishes in order; None: only note the wishes.

    Attributes:
      wishes: per such node, its wishes.
    """

    def __init__(self, stretch: Stretch, statics: Sequence[Any], draws: Mapping[str, Sequence[Any]] | None) -> None:
        self.stretch = stretch
        self.values: dict[Endpoint, Any] = dict(stretch.constants)
        self.values.update(zip(stretch.statics, statics))
        self.wishes: dict[str, list[Request]] = {name: [] for name in stretch.streams}
        self.held = HeldObjects()
        self._draws = draws

    def run(self, cells: Sequence[Cell], args: Sequence[Any]) -> list[Any]:
        """The results, as JAX's arrays (or numpy's, if they are known)."""
        self.values.update(zip(self.stretch.states, cells))
        self.values.update(zip(self.stretch.args, args))
        self.run_nodes(self.stretch.nodes)
        return [self.value(endpoint) for endpoint in self.stretch.results]

    def value(self, endpoint: Endpoint) -> Any:
        """The value of an endpoint; of a variable, its present one."""
        value = self.values[endpoint]
        return value.read() if isinstance(value, Cell) else value

    def run_nodes(self, nodes: Sequence[Node]) -> None:
        """Runs nodes in order."""
        for node in nodes:
            try:
                self._run(node)
            except NotWhole:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a lowering raises belongs to its node
                raise named(error, node) from (None if isinstance(error, errors.OpError) else error)

    def _run(self, node: Node) -> None:
        if node.op in FLOW_OPS or node.op == "LoopCond":
            for i in range(2 if node.op == "Switch" else 1):
                self.values[node.name, i] = self.values[node.inputs[0]]
        elif node.op == "Const":
            self.values[node.name, 0] = node.attrs["value"]
        elif node.op not in _CONTROL_ONLY:
            self._compute(node)

    def _compute(self, node: Node) -> None:
        whole = node.attrs.get(WHOLE)
        if whole is None:
            results, single = self._of_kernel_or_lowering(node)
        else:
            run = run_loop if isinstance(whole, WholeLoop) else run_cond
            results, single = run(self, node, [self.values[endpoint] for endpoint in node.inputs]), False
        outputs = (results,) if single else results
        for i, (value, dtype) in enumerate(zip(outputs or (), output_dtypes(node))):
            self.values[node.name, i] = _typed(value, dtype)

    def _of_kernel_or_lowering(self, node: Node) -> tuple[Any, bool]:
        lowering, facts = lowering_of(node.op), op_facts(node.op, "CPU")
        assert lowering is not None and facts is not None
        inputs = self._inputs(node)
        results = self._known(node, facts, inputs)
        if results is None:
            results = self._lowered(node, lowering, facts, inputs)
        return results, facts.single

    def known(self, node: Node, inputs: list[Any]) -> Any:
        """The results of a pure node for known values, as a tuple; None if they are too large."""
        facts = op_facts(node.op, "CPU")
        assert facts is not None
        results = self._known(node, facts, inputs)
        return None if results is None else (results,) if facts.single else results

    def _inputs(self, node: Node) -> list[Any]:
        return [
            self.values[endpoint] if is_itself else self.value(endpoint)
            for endpoint, is_itself in zip(node.inputs, takes_itself(node))
        ]

    def _known(self, node: Node, facts: OpFacts, inputs: list[Any]) -> Any:
        """The results of a pure node whose inputs are all known and small, as its numpy kernel computes them."""
        if not facts.foldable or not all(isinstance(v, (np.ndarray, np.generic)) for v in inputs) or not inputs:
            return None
        if sum(v.size for v in inputs) > _KNOWN_ELEMENTS:
            return None
        with np.errstate(all="ignore"):
            results = make_callable(facts.kernel, node)(*grouped(list_lengths(facts.op_def, node), inputs))
        outputs = (results,) if facts.single else results
        return results if sum(np.size(v) for v in outputs) <= _KNOWN_ELEMENTS else None

    def _lowered(self, node: Node, lowering: LoweringRule, facts: OpFacts, inputs: list[Any]) -> Any:
        hosts = host_positions(node, lowering)
        for position in hosts:
            if not isinstance(inputs[position], (np.ndarray, np.generic)):
                raise errors.InternalError.of(f"input {position} of {node.op} is not known when it is compiled")
        lengths = list_lengths(facts.op_def, node)
        if lowering.function is None:
            on_traced = make_callable(facts.kernel, node)
            taken = [value if i in hosts else _for_kernel(value) for i, value in enumerate(inputs)]
            return bare(on_traced(*grouped(lengths, taken)))
        bound = bound_arguments(Kernel(lowering.function, lowering.bound, False), node)
        first: list[Any] = [self._draw(node)] if lowering.draw is not None else [self.held] if lowering.array else []
        return lowering.function(*first, *grouped(lengths, inputs), **bound)

    def _draw(self, node: Node) -> Callable[..., Any]:
        def draw(kind: str, *sizes: Any) -> Any:
            wishes = self.wishes[node.name]
            wishes.append((kind, sizes))
            if self._draws is None:
                shape, dtype = DRAWN[kind](*sizes)
                return jnp.zeros(shape, dtype)
            return self._draws[node.name][len(wishes) - 1]

        return draw


DRAWN: dict[str, Callable[..., tuple[tuple[int, ...], Any]]] = {
    "counter": lambda size: ((6,), np.uint32),
    "permutation": lambda size: ((size,), np.int32),
    "row_doubles": lambda rows, count: ((rows, count), np.float64),
}
"""Kind of a wish for random numbers -> shape and type of the array: see `tfmini.ops.lowering`."""


def _for_kernel(value: Any) -> Any:
    """A value as a kernel on traced arrays takes it."""
    if isinstance(value, (np.ndarray, np.generic)) and value.size > 1:
        return TracedArray(jnp.asarray(value))
    return wrapped(value)


def _typed(value: Any, dtype: Any) -> Any:
    """A value in the type that its op declares, where JAX or a kernel on traced arrays has found another one."""
    if value is None or dtype is dtypes.resource:
        return value
    if isinstance(value, Cell) or dtype._is_ref_dtype or not hasattr(value, "dtype"):
        return value if isinstance(value, Cell) or dtype._is_ref_dtype else np.asarray(value, dtype.numpy)
    return value if value.dtype == dtype.numpy else value.astype(dtype.numpy)


def named(error: Exception, node: Node) -> errors.OpError:
    """An error as that of a node."""
    found = errors.of_exception(error)
    text = found.message
    if isinstance(error, (TypeError, ValueError)) and not isinstance(error, errors.OpError):
        text = f"{node.op} cannot be computed: {str(error).splitlines()[0]}"
        found = errors.InvalidArgumentError.of(text)
    if "[[" not in text:
        text += f"\n\t [[{{{{node {node.name}}}}}]]"
    return errors.from_code(found.error_code, text, node_name=node.name, device=node.device)
