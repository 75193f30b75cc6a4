"""Traits of op types: facts about an op that follow neither from its signature nor from its kernels.

A trait stands on the op's declaration, as an argument of `tfmini.graph.registry.op`::

    variable_v2 = op("VariableV2() -> ref: Ref(dtype); …", stateful=True, variable="reference", on_ps=True)

Code elsewhere asks for the ops that have it, and keeps no names of its own::

    VARIABLES = ops_with("variable")
    REFERENCE_VARIABLES = ops_with("variable", "reference")
    if node.op in VARIABLES: ...

An op that nothing declares has no trait. Only `may_wait` answers otherwise for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set
from typing import Any, Literal, TypedDict


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


_TRAITS: dict[str, dict[str, Any]] = {}
# Per trait the sets that were asked for, by the values asked for (none of them: any).
_LOCK = threading.Lock()  # modules of ops are imported in any thread
_SETS: dict[str, dict[tuple[str, ...], set[str]]] = {trait: {} for trait in Traits.__annotations__}


def add_traits(op_type: str, traits: Mapping[str, Any]) -> None:
    """Notes the traits of an op; called by its declaration, and when a kernel is attached to it.

    Raises:
      ValueError: there is no such trait.
    """
    for trait, value in traits.items():
        if trait not in _SETS:
            raise ValueError(f"op {op_type} is declared with {trait}={value!r}; tfmini.graph.traits has no such trait")
        if value:
            with _LOCK:
                _TRAITS.setdefault(op_type, {})[trait] = value
                for values, ops in _SETS[trait].items():
                    if not values or value in values:
                        ops.add(op_type)


def trait_of(op_type: str, trait: str) -> Any:
    """The value of an op's trait, None where it does not have it."""
    traits = _TRAITS.get(op_type)
    return None if traits is None else traits.get(trait)


def ops_with(trait: str, *values: str) -> Set[str]:
    """The names of the ops that have a trait with one of these values; without values, with any.

    The set is live: ops join it when they are declared, so whoever tests an op has looked it up in `OPS` before. The
    nodes of graphs have been, in the client as in the tasks.

    Raises:
      KeyError: there is no such trait.
    """
    sets = _SETS[trait]
    with _LOCK:
        if values not in sets:
            found = ((op_type, trait_of(op_type, trait)) for op_type in _TRAITS)
            sets[values] = {op_type for op_type, value in found if value in values or value and not values}
        return sets[values]


FLOW_OPS = ops_with("flow")
ENTER_OPS = ops_with("flow", "enter")
EXIT_OPS = ops_with("flow", "exit")
MERGE_OPS = ops_with("flow", "merge")
NEXT_OPS = ops_with("flow", "next_iteration")
SWITCH_OPS = ops_with("flow", "switch")
PLACEHOLDER_OPS = ops_with("placeholder")
VARIABLE_OPS = ops_with("variable")
