"""Which ops of a graph others reach, surround or enclose (``tf.contrib.graph_editor``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tfmini.compat.graph_editor.selection import (
    ControlOutputs,
    concatenate_unique,
    get_consuming_ops,
    get_generating_ops,
    make_list_of_op,
    make_list_of_t,
)
from tfmini.export import export, export_names
from tfmini.graph.operation import Operation, Tensor

_Predicate = Callable[[Operation], bool]


@export("tf.contrib.graph_editor.check_cios")
def check_cios(
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> tuple[bool, ControlOutputs | None]:
    """Which control edges count (``tf.contrib.graph_editor.check_cios``).

    Args:
      control_inputs: whether those into an op do.
      control_outputs: a `ControlOutputs` if those out of it do.
      control_ios: one in place of both.

    Returns:
      (whether those in do, the `ControlOutputs` or None).

    Raises:
      TypeError: for another value of ``control_outputs`` or ``control_ios``.
      ValueError: when both are given.
    """
    if control_ios is not None:
        if not isinstance(control_ios, ControlOutputs):
            raise TypeError(f"Expected a util.ControlOutputs, got: {type(control_ios)}")
        if control_outputs is not None:
            raise ValueError("control_outputs should be None when using control_ios.")
        return True, control_ios
    if control_outputs is not None and not isinstance(control_outputs, ControlOutputs):
        raise TypeError(f"Expected a util.ControlOutputs, got: {type(control_outputs)}")
    return control_inputs, control_outputs


@export("tf.contrib.graph_editor.get_ops_ios")
def get_ops_ios(
    ops: object,
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> list[Operation]:
    """The ops beside some: those that they take from and give to (``tf.contrib.graph_editor.get_ops_ios``).

    Args:
      ops: the ops.
      control_inputs, control_outputs, control_ios: those of `check_cios`.
    """
    control_inputs, control_outputs = check_cios(control_inputs, control_outputs, control_ios)
    found: list[Operation] = []
    for op in make_list_of_op(ops):
        concatenate_unique(found, [t.op for t in op.inputs])
        for t in op.outputs:
            concatenate_unique(found, t.consumers())
        concatenate_unique(found, op.control_inputs if control_inputs else ())
        concatenate_unique(found, control_outputs.get(op) if control_outputs else ())
    return found


@export("tf.contrib.graph_editor.compute_boundary_ts")
def compute_boundary_ts(ops: object) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """What goes into ops, comes out, and stays inside (``tf.contrib.graph_editor.compute_boundary_ts``).

    Returns:
      (the tensors of other ops that they take, their tensors that others take or nobody, those that they take
      themselves); one may be in the last two.
    """
    listed = make_list_of_op(ops)
    inside = frozenset(listed)
    inputs: list[Tensor] = []
    for op in listed:
        concatenate_unique(inputs, [t for t in op.inputs if t.op not in inside])
    made = [(t, frozenset(t.consumers())) for op in listed for t in op.outputs]
    outputs = [t for t, consumers in made if not consumers or consumers - inside]
    return inputs, outputs, [t for t, consumers in made if consumers & inside]


@export("tf.contrib.graph_editor.get_within_boundary_ops")
def get_within_boundary_ops(
    ops: object, seed_ops: object, boundary_ops: object = (), inclusive: bool = True, control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None, control_ios: ControlOutputs | None = None,
) -> list[Operation]:  # fmt: skip
    """The ops that one reaches, forwards and backwards, without crossing some.

    ``tf.contrib.graph_editor.get_within_boundary_ops``.

    Args:
      ops: the ops among which to go, or a graph.
      seed_ops: where to begin.
      boundary_ops: the ops that are not crossed.
      inclusive: with those of them that are reached.
      control_inputs, control_outputs, control_ios: those of `check_cios`.

    Raises:
      ValueError: when a seed is one of ``boundary_ops``.
    """
    control_inputs, control_outputs = check_cios(control_inputs, control_outputs, control_ios)
    listed = make_list_of_op(ops)
    wave, boundary = make_list_of_op(seed_ops, allow_graph=False), frozenset(make_list_of_op(boundary_ops))
    if boundary & set(wave):
        raise ValueError("Boundary is intersecting with the seeds.")
    reached = dict.fromkeys(wave)
    while wave:
        beside = get_ops_ios(wave, control_inputs, control_outputs)
        wave = [op for op in beside if op not in reached and op not in boundary]
        reached.update(dict.fromkeys(beside) if inclusive else dict.fromkeys(wave))
    return [op for op in listed if op in reached]


def _walked(seeds: list[Operation], step: Callable[[Operation], Iterator[Operation]]) -> list[Operation]:
    """The seeds and all that ``step`` reaches, in waves."""
    found = dict.fromkeys(seeds)
    wave = list(found)
    while wave:
        wave = list(dict.fromkeys(op for at in wave for op in step(at) if op not in found))
        found.update(dict.fromkeys(wave))
    return list(found)


def _within(ops: object, function: _Predicate | None) -> _Predicate:
    allowed = frozenset(make_list_of_op(ops, allow_graph=False)) if ops else None
    return lambda op: (allowed is None or op in allowed) and (function is None or function(op))


def _seeds(given: Any, of_tensors: Callable[[Any], list[Operation]]) -> list[Operation]:
    items = [given] if isinstance(given, (Operation, Tensor)) else list(given)
    return of_tensors(items) if items and isinstance(items[0], Tensor) else make_list_of_op(items, allow_graph=False)


@export("tf.contrib.graph_editor.get_backward_walk_ops")
def get_backward_walk_ops(
    seed_ops: object, inclusive: bool = True, within_ops: object = None, within_ops_fn: _Predicate | None = None,
    stop_at_ts: object = (), control_inputs: bool = False,
) -> list[Operation]:  # fmt: skip
    """The ops that ``seed_ops`` (or tensors) are computed from (``tf.contrib.graph_editor.get_backward_walk_ops``).

    Args:
      seed_ops: where the walk begins.
      inclusive: with the seeds.
      within_ops, within_ops_fn: a list and a predicate of the ops that the walk may enter.
      stop_at_ts: tensors beyond which it does not go.
      control_inputs: follow control inputs as well.
    """
    stops, allowed = frozenset(make_list_of_t(stop_at_ts)), _within(within_ops, within_ops_fn)

    def inputs(op: Operation) -> Iterator[Operation]:
        yield from (t.op for t in op.inputs if t not in stops and allowed(t.op))
        yield from (other for other in op.control_inputs if control_inputs and allowed(other))

    seeds = [op for op in _seeds(seed_ops, get_generating_ops) if not within_ops or allowed(op)]
    found = _walked(seeds, inputs)
    return found if inclusive else [op for op in found if op not in set(seeds)]


@export("tf.contrib.graph_editor.get_forward_walk_ops")
def get_forward_walk_ops(
    seed_ops: object, inclusive: bool = True, within_ops: object = None, within_ops_fn: _Predicate | None = None,
    stop_at_ts: object = (), control_outputs: ControlOutputs | None = None,
) -> list[Operation]:  # fmt: skip
    """The ops that are computed from ``seed_ops`` (or tensors) (``tf.contrib.graph_editor.get_forward_walk_ops``).

    Args:
      control_outputs: a `ControlOutputs` to follow its edges as well. For the others see `get_backward_walk_ops`.
    """
    _, control_outputs = check_cios(False, control_outputs)
    stops, allowed = frozenset(make_list_of_t(stop_at_ts)), _within(within_ops, within_ops_fn)

    def consumers(op: Operation) -> Iterator[Operation]:
        yield from (other for t in op.outputs if t not in stops for other in t.consumers() if allowed(other))
        yield from (other for other in (control_outputs.get(op) if control_outputs else ()) if allowed(other))

    seeds = [op for op in _seeds(seed_ops, get_consuming_ops) if not within_ops or allowed(op)]
    found = _walked(seeds, consumers)
    return found if inclusive else [op for op in found if op not in set(seeds)]


@export("tf.contrib.graph_editor.get_walks_intersection_ops")
def get_walks_intersection_ops(
    forward_seed_ops: object, backward_seed_ops: object, forward_inclusive: bool = True,
    backward_inclusive: bool = True, within_ops: object = None, within_ops_fn: _Predicate | None = None,
    control_inputs: bool = False, control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> list[Operation]:  # fmt: skip
    """The ops on paths from some ops to others (``tf.contrib.graph_editor.get_walks_intersection_ops``).

    Args:
      forward_seed_ops, forward_inclusive: those of `get_forward_walk_ops`.
      backward_seed_ops, backward_inclusive: those of `get_backward_walk_ops`.
      within_ops, within_ops_fn: a list and a predicate of the ops that both walks may enter.
      control_inputs, control_outputs, control_ios: those of `check_cios`.
    """
    control_inputs, control_outputs = check_cios(control_inputs, control_outputs, control_ios)
    ahead = get_forward_walk_ops(
        forward_seed_ops, forward_inclusive, within_ops, within_ops_fn, control_outputs=control_outputs
    )
    behind = frozenset(
        get_backward_walk_ops(
            backward_seed_ops, backward_inclusive, within_ops, within_ops_fn, control_inputs=control_inputs
        )
    )
    return [op for op in ahead if op in behind]


@export("tf.contrib.graph_editor.get_walks_union_ops")
def get_walks_union_ops(
    forward_seed_ops: object, backward_seed_ops: object, forward_inclusive: bool = True,
    backward_inclusive: bool = True, within_ops: object = None, within_ops_fn: _Predicate | None = None,
    control_inputs: bool = False, control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> list[Operation]:  # fmt: skip
    """The ops of either walk, with the arguments of `get_walks_intersection_ops`.

    ``tf.contrib.graph_editor.get_walks_union_ops``.
    """
    control_inputs, control_outputs = check_cios(control_inputs, control_outputs, control_ios)
    ahead = get_forward_walk_ops(
        forward_seed_ops, forward_inclusive, within_ops, within_ops_fn, control_outputs=control_outputs
    )
    behind = get_backward_walk_ops(
        backward_seed_ops, backward_inclusive, within_ops, within_ops_fn, control_inputs=control_inputs
    )
    return concatenate_unique(ahead, behind)


export_names(
    "tf.contrib.graph_editor.select",
    "check_cios compute_boundary_ts get_backward_walk_ops get_forward_walk_ops get_ops_ios get_walks_intersection_ops "
    "get_walks_union_ops get_within_boundary_ops",
)
