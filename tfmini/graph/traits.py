"""Traits of op types: facts about an op that follow neither from its signature nor from its kernels.

A trait stands on the op's declaration, as an argument of `tfmini.graph.registry.op`::

    variable_v2 = op("VariableV2() -> ref: Ref(dtype); …", stateful=True, variable="reference", on_ps=True)

Code elsewhere asks for the ops that have it, and keeps no names of its own::

    VARIABLES = ops_with("variable")
    REFERENCE_VARIABLES = ops_with("variable", "reference")
    if node.op in VARIABLES: ...

An op that nothing declares has no trait. Only `op_types.may_wait` answers otherwise for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Literal, TypedDict

from tfmini.graph.op_types import OPS, load_ops


class Traits(TypedDict, total=False):
    """The traits that `op` takes. Absent means no.

    Running:
      waits: it may wait for other steps, other tasks or a function of the user. Every op with an async kernel or
        with one that may block has this trait by itself; a dataset op has it if its elements may come late.
      slow_io: it reads or writes files, for as long as their size takes.
      checks: it has no effect but the error that it may raise, for which a step runs it even if nobody takes its value.
      flow: the part that it plays in conditionals and loops. No kernel runs for it: the compiler turns it into
        Python's own control flow.
      control_only: it computes nothing; only control edges pass through it.
      collective: what the members of its group do together.

    State:
      variable: its output is a variable, by reference or as a resource handle.
      writes: it changes the variable that its first input names. ``assign`` gives it a value even if it has none;
        ``update`` changes its value, ``scatter`` some of its rows; ``optimize`` applies a gradient to it.
      taken_back_by: of an update: the op that gives the variable's value before it, from that after it and its second
        input.
      accumulator: it applies a gradient to a gradient accumulator, or takes the mean of several gradients from it.
      queue: it enqueues elements to the queue that its first input names, or dequeues some.
      keeps: it puts its inputs into state that outlives the step. The state copies what it does not own
        (`ops.kept_values`).
      checkpoint: it writes or reads a checkpoint.
      copyable: it is stateful, and yet a copy of it in another graph does the same.

    Placement:
      on_ps: `replica_device_setter` puts it on a parameter server.
      placeholder: it has a value only where it is fed; control edges from it are cut with its output.
      shape_only: it reads the shapes of its inputs and not their values.

    Inspection:
      forwards: its output is the ``value`` of its first input (the same tensor, reference or handle; for a variable's
        handle its value), or has the ``elements`` of its first input in another shape or type.
      looks_up: it takes rows of its first input, a variable or its value, by the numbers in its second.
      aggregates: it combines, scales, clips or selects values, as is done to gradients before they are applied.
      distinct: its first output has a row for each different value or number among its inputs, so it usually has at
        most the rows of its first input.
      work: its arithmetic: ``none``, one operation per element of its first ``input``, or the multiply-adds of a
        ``matmul`` or a ``convolution``. Absent: one operation per element of its first output.

    Files:
      hints: attrs that later versions of TensorFlow write and that change no value; an import drops them.

    Python:
      raw_names: what `tf.raw_ops` calls inputs and attrs whose declared name it does not use.
    """

    waits: bool
    slow_io: bool
    checks: bool
    flow: Literal["enter", "exit", "merge", "next_iteration", "switch"]
    control_only: bool
    collective: Literal["all-gather", "all-reduce", "all-to-all", "broadcast", "reduce-scatter"]
    variable: Literal["reference", "resource"]
    writes: Literal["assign", "update", "scatter", "optimize"]
    taken_back_by: str
    accumulator: Literal["apply", "take"]
    queue: Literal["enqueue", "dequeue"]
    keeps: bool
    checkpoint: bool
    copyable: bool
    on_ps: bool
    placeholder: bool
    shape_only: bool
    forwards: Literal["value", "elements"]
    looks_up: bool
    aggregates: bool
    distinct: bool
    work: Literal["none", "input", "matmul", "convolution"]
    hints: tuple[str, ...]
    raw_names: Mapping[str, str]


def trait_of(op_type: str, trait: str) -> Any:
    """Returns the value of an op's trait, None where it does not have it."""
    handle = OPS.get(op_type)
    return None if handle is None else handle.traits.get(trait)


class OpsWith(Set[str]):
    """The ops that have a trait with one of some values, or with any value. It asks the declarations each time."""

    def __init__(self, trait: str, values: tuple[str, ...]) -> None:
        self._trait, self._values = trait, values

    def __contains__(self, op_type: object) -> bool:
        value = trait_of(op_type, self._trait)  # type: ignore[arg-type]
        return value is not None and (not self._values or value in self._values)

    def __iter__(self) -> Iterator[str]:
        load_ops()
        return (op_type for op_type in tuple(OPS) if op_type in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<ops with {self._trait} {' or '.join(self._values)}>"

    @classmethod
    def _from_iterable(cls, found: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(found)


def ops_with(trait: str, *values: str) -> Set[str]:
    """Returns the ops that have a trait with one of these values; without values, with any.

    Raises:
      KeyError: there is no such trait.
    """
    if trait not in Traits.__annotations__:
        raise KeyError(trait)
    return OpsWith(trait, values)


FLOW_OPS = ops_with("flow")
ENTER_OPS = ops_with("flow", "enter")
EXIT_OPS = ops_with("flow", "exit")
MERGE_OPS = ops_with("flow", "merge")
NEXT_OPS = ops_with("flow", "next_iteration")
SWITCH_OPS = ops_with("flow", "switch")
PLACEHOLDER_OPS = ops_with("placeholder")
VARIABLE_OPS = ops_with("variable")
