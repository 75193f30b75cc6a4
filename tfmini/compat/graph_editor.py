"""``tf.contrib.graph_editor``: selects parts of a graph, copies them, and exchanges inputs of ops.

A change of inputs must come before the first run that needs them: a session's master knows the ops as they were sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.identity import placeholder

# ---- lists of ops and tensors --------------------------------------------------------------------------------------


def _each(items: Any) -> list[Any]:
    """The items of nested lists, tuples and sets, or the one item."""
    if isinstance(items, (list, tuple, set, frozenset)) or hasattr(items, "__next__"):
        return [one for item in items for one in _each(item)]
    return [items]


def _once(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


@export("tf.contrib.graph_editor.make_list_of_op")
def make_list_of_op(ops: Any, check_graph: bool = True, allow_graph: bool = True, ignore_ts: bool = False) -> list[Any]:
    """The ops of a list, a view or a graph (``tf.contrib.graph_editor.make_list_of_op``).

    Raises:
      TypeError: for anything else, tensors without ``ignore_ts`` among it.
      ValueError: when the ops are of several graphs.
    """
    if isinstance(ops, Graph):
        if not allow_graph:
            raise TypeError("allow_graph is False: cannot convert a tf.Graph.")
        return ops.get_operations()
    if isinstance(ops, SubGraphView):
        return list(ops.ops)
    found = [op for op in _each(ops) if not (ignore_ts and isinstance(op, Tensor))]
    return _checked(found, Operation, check_graph)


@export("tf.contrib.graph_editor.make_list_of_t")
def make_list_of_t(ts: Any, check_graph: bool = True, allow_graph: bool = True, ignore_ops: bool = False) -> list[Any]:
    """The tensors of a list or a graph (``tf.contrib.graph_editor.make_list_of_t``); errors as `make_list_of_op`."""
    if isinstance(ts, Graph):
        if not allow_graph:
            raise TypeError("allow_graph is False: cannot convert a tf.Graph.")
        return get_tensors(ts)
    found = [t for t in _each(ts) if not (ignore_ops and isinstance(t, Operation))]
    return _checked(found, Tensor, check_graph)


def _checked(items: list[Any], kind: type, check_graph: bool) -> list[Any]:
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"Expected a {kind.__name__}, but got {item!r} of type {type(item).__name__}.")
    if check_graph and len({item.graph for item in items}) > 1:
        raise ValueError(f"Items of one graph are needed, but {items[0]!r} has others beside it.")
    return items


@export("tf.contrib.graph_editor.get_tensors")
def get_tensors(graph: Graph) -> list[Tensor]:
    """All tensors of a graph (``tf.contrib.graph_editor.get_tensors``)."""
    return [t for op in graph.get_operations() for t in op.outputs]


@export("tf.contrib.graph_editor.get_generating_ops")
def get_generating_ops(ts: Any) -> list[Operation]:
    """The op of each tensor (``tf.contrib.graph_editor.get_generating_ops``)."""
    return [t.op for t in make_list_of_t(ts, allow_graph=False)]


@export("tf.contrib.graph_editor.get_consuming_ops")
def get_consuming_ops(ts: Any) -> list[Operation]:
    """The ops that take the tensors (``tf.contrib.graph_editor.get_consuming_ops``)."""
    return _once(op for t in make_list_of_t(ts, allow_graph=False) for op in t.consumers())


@export("tf.contrib.graph_editor.ControlOutputs")
class ControlOutputs:
    """The ops that wait for each op of a graph (``tf.contrib.graph_editor.ControlOutputs``)."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    def get(self, op: Operation) -> list[Operation]:
        """The ops with the control input ``op``."""
        return list(op._control_outputs)

    def get_all(self) -> dict[Operation, list[Operation]]:
        """The same for all ops that others wait for."""
        return {op: self.get(op) for op in self._graph.get_operations() if op._control_outputs}


# ---- selection by name and by predicate ----------------------------------------------------------------------------

Filter = str | re.Pattern[str] | Callable[[Any], bool] | bool


@export("tf.contrib.graph_editor.can_be_regex")
def can_be_regex(obj: object) -> bool:
    """Whether ``obj`` is a text or a compiled pattern (``tf.contrib.graph_editor.can_be_regex``)."""
    return isinstance(obj, (str, re.Pattern))


@export("tf.contrib.graph_editor.make_regex")
def make_regex(obj: Any) -> re.Pattern[str]:
    """A compiled pattern; raises ValueError for what is none (``tf.contrib.graph_editor.make_regex``)."""
    if not can_be_regex(obj):
        raise ValueError(f"Expected a string or a regex, got: {type(obj)}")
    return re.compile(obj)


@export("tf.contrib.graph_editor.filter_ops")
def filter_ops(ops: Any, positive_filter: Any) -> list[Any]:
    """The ops for which a predicate holds; True: all (``tf.contrib.graph_editor.filter_ops``)."""
    found = make_list_of_op(ops)
    return found if positive_filter is True else [op for op in found if positive_filter(op)]


@export("tf.contrib.graph_editor.filter_ops_from_regex")
def filter_ops_from_regex(ops: Any, regex: Any) -> list[Any]:
    """The ops whose names match a pattern somewhere (``tf.contrib.graph_editor.filter_ops_from_regex``)."""
    pattern = make_regex(regex)
    return filter_ops(ops, lambda op: pattern.search(op.name) is not None)


@export("tf.contrib.graph_editor.filter_ts")
def filter_ts(ops: Any, positive_filter: Any) -> list[Any]:
    """The inputs and outputs of ops for which a predicate holds; True: all (``tf.contrib.graph_editor.filter_ts``)."""
    found = _once(t for op in _ops_of(ops) for t in (*op.inputs, *op.outputs))
    return found if positive_filter is True else [t for t in found if positive_filter(t)]


def _ops_of(ops: Any) -> list[Operation]:
    return _once(make_list_of_op(ops, ignore_ts=True)) if ops else []


@export("tf.contrib.graph_editor.filter_ts_from_regex")
def filter_ts_from_regex(ops: Any, regex: Any) -> list[Any]:
    """The inputs and outputs of ops whose names match a pattern (``tf.contrib.graph_editor.filter_ts_from_regex``)."""
    pattern = make_regex(regex)
    return filter_ts(ops, lambda t: pattern.search(t.op.name) is not None)


def _selected(
    args: Sequence[Any], graph: Graph | None, filtered: Callable[..., Any], listed: Callable[..., Any]
) -> Any:
    """What patterns select in a graph, and what is given as it is."""
    found: list[Any] = []
    for arg in args:
        if can_be_regex(arg):
            if graph is None:
                raise ValueError("Use the keyword argument 'graph' to use regex.")
            found += filtered(graph, arg)
        else:
            found += listed(arg)
    return _once(found)


@export("tf.contrib.graph_editor.select_ops")
def select_ops(*args: Any, graph: Graph | None = None, positive_filter: Any = None, **kwargs: Any) -> list[Any]:
    """Ops by themselves and by patterns of their names (``tf.contrib.graph_editor.select_ops``).

    Args:
      *args: ops, lists of them, patterns.
      graph: where the patterns select.
      positive_filter: a predicate that patterns' ops must fulfil, too.
      **kwargs: ``restrict_ops_regex``, another pattern that they must match.
    """
    restriction = kwargs.get("restrict_ops_regex")

    def filtered(where: Graph, pattern: Any) -> list[Any]:
        ops = filter_ops_from_regex(where, pattern)
        ops = ops if restriction is None else filter_ops_from_regex(ops, restriction)
        return ops if positive_filter is None else filter_ops(ops, positive_filter)

    return _selected(args, graph, filtered, make_list_of_op)  # type: ignore[no-any-return]


@export("tf.contrib.graph_editor.select_ts")
def select_ts(*args: Any, graph: Graph | None = None, positive_filter: Any = None, **kwargs: Any) -> list[Any]:
    """Tensors by themselves and by patterns of their names; as `select_ops` (``tf.contrib.graph_editor.select_ts``)."""

    def filtered(where: Graph, pattern: Any) -> list[Any]:
        search = make_regex(pattern).search
        return [t for t in get_tensors(where) if search(t.name) and (positive_filter is None or positive_filter(t))]

    return _selected(args, graph, filtered, make_list_of_t)  # type: ignore[no-any-return]


@export("tf.contrib.graph_editor.get_name_scope_ops")
def get_name_scope_ops(ops: Any, scope: str) -> list[Any]:
    """The ops of a name scope (``tf.contrib.graph_editor.get_name_scope_ops``)."""
    inside = scope.rstrip("/") + "/"
    return [
        op for op in make_list_of_op(ops) if not scope or op.name.startswith(inside) or op.name == scope.rstrip("/")
    ]


# ---- walks ---------------------------------------------------------------------------------------------------------


def _walked(
    seeds: list[Operation], step: Callable[[Operation], Iterator[Operation]], inclusive: bool
) -> list[Operation]:
    """The seeds and all that ``step`` reaches, in waves."""
    found = dict.fromkeys(seeds)
    wave = list(found)
    while wave:
        wave = _once(op for at in wave for op in step(at) if op not in found)
        found.update(dict.fromkeys(wave))
    return list(found) if inclusive else [op for op in found if op not in set(seeds)]


def _within(ops: Any, function: Callable[[Operation], bool] | None) -> Callable[[Operation], bool]:
    allowed = frozenset(make_list_of_op(ops, allow_graph=False)) if ops else None
    return lambda op: (allowed is None or op in allowed) and (function is None or function(op))


def _seeds(given: Any, of_tensors: Callable[[Any], list[Operation]]) -> list[Operation]:
    items = _each(given) if not isinstance(given, SubGraphView) else list(given.ops)
    return _once(of_tensors(items) if items and isinstance(items[0], Tensor) else make_list_of_op(items))


@export("tf.contrib.graph_editor.get_backward_walk_ops")
def get_backward_walk_ops(
    seed_ops: Any, inclusive: bool = True, within_ops: Any = None,
    within_ops_fn: Callable[[Operation], bool] | None = None, stop_at_ts: Any = (), control_inputs: bool = False,
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
    return _walked(seeds, inputs, inclusive)


@export("tf.contrib.graph_editor.get_forward_walk_ops")
def get_forward_walk_ops(
    seed_ops: Any, inclusive: bool = True, within_ops: Any = None,
    within_ops_fn: Callable[[Operation], bool] | None = None, stop_at_ts: Any = (), control_outputs: Any = None,
) -> list[Operation]:  # fmt: skip
    """The ops that are computed from ``seed_ops`` (or tensors) (``tf.contrib.graph_editor.get_forward_walk_ops``).

    Args:
      control_outputs: a `ControlOutputs`, or True, to follow them as well. For the others see `get_backward_walk_ops`.
    """
    stops, allowed = frozenset(make_list_of_t(stop_at_ts)), _within(within_ops, within_ops_fn)

    def consumers(op: Operation) -> Iterator[Operation]:
        yield from (other for t in op.outputs if t not in stops for other in t.consumers() if allowed(other))
        yield from (other for other in op._control_outputs if control_outputs and allowed(other))

    seeds = [op for op in _seeds(seed_ops, get_consuming_ops) if not within_ops or allowed(op)]
    return _walked(seeds, consumers, inclusive)


def _both_walks(forward: Any, backward: Any, settings: Mapping[str, Any]) -> tuple[list[Operation], list[Operation]]:
    shared = {key: settings.get(key) for key in ("within_ops", "within_ops_fn")}
    ahead = get_forward_walk_ops(
        forward, settings.get("forward_inclusive", True), control_outputs=settings.get("control_outputs"), **shared
    )
    behind = get_backward_walk_ops(
        backward,
        settings.get("backward_inclusive", True),
        control_inputs=settings.get("control_inputs", False),
        **shared,
    )
    return ahead, behind


@export("tf.contrib.graph_editor.get_walks_intersection_ops")
def get_walks_intersection_ops(forward_seed_ops: Any, backward_seed_ops: Any, **settings: Any) -> list[Operation]:
    """The ops on paths from some ops to others (``tf.contrib.graph_editor.get_walks_intersection_ops``)."""
    ahead, behind = _both_walks(forward_seed_ops, backward_seed_ops, settings)
    return [op for op in ahead if op in set(behind)]


@export("tf.contrib.graph_editor.get_walks_union_ops")
def get_walks_union_ops(forward_seed_ops: Any, backward_seed_ops: Any, **settings: Any) -> list[Operation]:
    """The ops of either walk (``tf.contrib.graph_editor.get_walks_union_ops``)."""
    return _once(op for walk in _both_walks(forward_seed_ops, backward_seed_ops, settings) for op in walk)


# ---- views and copies ----------------------------------------------------------------------------------------------


@export("tf.contrib.graph_editor.SubGraphView")
class SubGraphView:
    """Some ops of a graph with what goes into them and comes out (``tf.contrib.graph_editor.SubGraphView``).

    Attributes:
      ops: the ops.
      inputs: the tensors of other ops that they take.
      outputs: their tensors that others take, or nobody.
    """

    def __init__(self, inside_ops: Any = (), passthrough_ts: Any = ()) -> None:
        self.ops: list[Operation] = _once(make_list_of_op(inside_ops))
        inside = set(self.ops)
        self._passed = make_list_of_t(passthrough_ts)
        inputs = _once(t for op in self.ops for t in op.inputs if t.op not in inside)
        outputs = [t for op in self.ops for t in op.outputs if not t.consumers() or set(t.consumers()) - inside]
        self.inputs: list[Tensor] = [*inputs, *(t for t in self._passed if t not in inputs)]
        self.outputs: list[Tensor] = [*outputs, *(t for t in self._passed if t not in outputs)]

    @property
    def graph(self) -> Graph:
        """The graph of the ops."""
        return (self.ops or self._passed)[0].graph

    def __len__(self) -> int:
        return len(self.ops)

    def __contains__(self, op: object) -> bool:
        return op in self.ops


@export("tf.contrib.graph_editor.sgv", "tf.contrib.graph_editor.make_view")
def sgv(*args: Any, graph: Graph | None = None, **kwargs: Any) -> SubGraphView:
    """A view of the ops that `select_ops` selects (``tf.contrib.graph_editor.sgv``)."""
    if len(args) == 1 and isinstance(args[0], SubGraphView):
        return args[0]
    return SubGraphView(select_ops(*args, graph=graph, **kwargs))


@export("tf.contrib.graph_editor.sgv_scope", "tf.contrib.graph_editor.make_view_from_scope")
def sgv_scope(scope: str, graph: Graph) -> SubGraphView:
    """A view of the ops of a name scope (``tf.contrib.graph_editor.sgv_scope``)."""
    return SubGraphView(get_name_scope_ops(graph, scope))


class _Copied:
    """What a copy made of ops and tensors: the ``info`` of `copy`."""

    def __init__(self, replaced: Mapping[Tensor, Tensor]) -> None:
        self.transformed_ops: dict[Operation, Operation] = {}
        self.transformed_ts: dict[Tensor, Tensor] = dict(replaced)

    def transformed(self, original: Any, missing: Any = None) -> Any:
        """The copy of an op or tensor, or ``missing``."""
        known = self.transformed_ops if isinstance(original, Operation) else self.transformed_ts
        return known.get(original, missing)

    def original(self, copied: Any, missing: Any = None) -> Any:
        """What an op or tensor is the copy of, or ``missing``."""
        known: Any = self.transformed_ops if isinstance(copied, Operation) else self.transformed_ts
        return next((before for before, after in known.items() if after is copied), missing)


@export("tf.contrib.graph_editor.copy_with_input_replacements")
def copy_with_input_replacements(
    sgv: Any, replacement_ts: Mapping[Any, Any], dst_graph: Graph | None = None, dst_scope: str = "",
    src_scope: str = "", reuse_dst_scope: bool = False,
) -> tuple[SubGraphView, Any]:  # fmt: skip
    """Copies ops, with other tensors in place of some (``tf.contrib.graph_editor.copy_with_input_replacements``).

    Args:
      sgv: the ops, or a view of them.
      replacement_ts: tensor -> what the copies take instead. Other inputs from outside stay the same; in another
        graph they become placeholders.
      dst_graph: where the copies go; default: the graph of the ops.
      dst_scope: the name scope of the copies; made unique unless ``reuse_dst_scope``.
      src_scope: a prefix of the ops' names that the copies' names lose.

    Returns:
      (a view of the copies, what knows the copy of an op or tensor: its method ``transformed``).
    """
    ops = sorted(make_list_of_op(sgv), key=lambda op: op._id)
    graph: Graph = dst_graph or (ops[0].graph if ops else get_default_graph())
    scope = dst_scope.rstrip("/")
    if scope and not reuse_dst_scope:
        scope = graph.unique_name(scope)
    info, late = _Copied(replacement_ts), []
    for op in ops:
        name = op.name[len(src_scope) :].lstrip("/") if src_scope and op.name.startswith(src_scope) else op.name
        late += _copy_op(info, op, graph, scope, name)
    for made, index, tensor in late:  # of a loop's back edge
        made._update_input(index, info.transformed_ts[tensor])
    for op, made in info.transformed_ops.items():
        controls = [info.transformed_ops.get(other, other) for other in op.control_inputs]
        made._add_control_inputs([other for other in controls if other.graph is graph])
    return SubGraphView(list(info.transformed_ops.values())), info


def _copy_op(info: _Copied, op: Operation, graph: Graph, scope: str, name: str) -> list[tuple[Operation, int, Tensor]]:
    """Copies one op; returns the inputs that are made later: (copy, index, the original's input)."""
    inputs, late = [], []
    for index, tensor in enumerate(op.inputs):
        taken = info.transformed_ts.get(tensor, tensor)
        if taken.op.graph is not graph:
            taken = info.transformed_ts[tensor] = _placeholder(tensor, graph, scope)
        if taken is tensor and tensor.op._id > op._id:
            late.append((index, tensor))
        inputs.append(taken)
    kinds, name = [t.dtype for t in op.outputs], graph.unique_name(f"{scope}/{name}" if scope else name)
    with graph.as_default(), graph.control_dependencies(None), graph.device(None), graph.colocate_with(None, True):
        made = graph.add_op(op.handle, name, inputs, dict(op.attrs), kinds)
    made._set_device(op.device)
    info.transformed_ops[op] = made
    info.transformed_ts.update({t: info.transformed_ts.get(t, copy) for t, copy in zip(op.outputs, made.outputs)})
    return [(made, index, tensor) for index, tensor in late]


def _placeholder(tensor: Tensor, graph: Graph, scope: str) -> Tensor:
    """A placeholder in another graph for an input from outside."""
    name = f"geph__{tensor.op.name.rpartition('/')[2]}_{tensor.value_index}"
    with graph.as_default(), graph.name_scope(f"{scope}/" if scope else None):
        return placeholder(tensor.dtype.base_dtype, tensor.shape, name)


@export("tf.contrib.graph_editor.copy")
def copy(
    sgv: Any, dst_graph: Graph | None = None, dst_scope: str = "", src_scope: str = "", reuse_dst_scope: bool = False
) -> tuple[SubGraphView, Any]:
    """`copy_with_input_replacements` without replacements (``tf.contrib.graph_editor.copy``)."""
    return copy_with_input_replacements(sgv, {}, dst_graph, dst_scope, src_scope, reuse_dst_scope)


@export("tf.contrib.graph_editor.graph_replace")
def graph_replace(
    target_ts: Any, replacement_ts: Mapping[Any, Any], dst_scope: str = "", src_scope: str = "",
    reuse_dst_scope: bool = False,
) -> Any:  # fmt: skip
    """The targets, computed from other tensors in place of some (``tf.contrib.graph_editor.graph_replace``).

    Returns:
      New tensors in the structure of ``target_ts``: one tensor, a list, or a dict.

    Raises:
      ValueError: when no target depends on a tensor to replace.
    """
    targets = list(target_ts.values()) if isinstance(target_ts, Mapping) else _each(target_ts)
    changed = get_walks_intersection_ops(get_consuming_ops(list(replacement_ts)), get_generating_ops(targets))
    if not changed:
        raise ValueError("Targets and replacements are not connected!")
    _, info = copy_with_input_replacements(changed, replacement_ts, None, dst_scope, src_scope, reuse_dst_scope)
    if isinstance(target_ts, Mapping):
        return {key: info.transformed(t, t) for key, t in target_ts.items()}
    found = [info.transformed(t, t) for t in targets]
    return found if isinstance(target_ts, (list, tuple)) else found[0]


# ---- changes in place ----------------------------------------------------------------------------------------------


@export("tf.contrib.graph_editor.reroute_ts")
def reroute_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Makes the consumers of each tensor of ``ts1`` take that of ``ts0`` (``tf.contrib.graph_editor.reroute_ts``).

    Args:
      can_modify: the ops whose inputs may change; default: all.
      cannot_modify: those whose inputs may not.

    Returns:
      The number of inputs changed.
    """
    return sum(_move(_consumers(old, can_modify, cannot_modify), new) for new, old in _pairs(ts0, ts1))


@export("tf.contrib.graph_editor.swap_ts")
def swap_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Exchanges the consumers of each pair of tensors; see `reroute_ts` (``tf.contrib.graph_editor.swap_ts``)."""
    count = 0
    for one, other in _pairs(ts0, ts1):
        places = [_consumers(t, can_modify, cannot_modify) for t in (other, one)]
        count += _move(places[0], one) + _move(places[1], other)
    return count


def _pairs(ts0: Any, ts1: Any) -> list[tuple[Tensor, Tensor]]:
    given = [list(ts.values()) if isinstance(ts, Mapping) else list(ts) if _is_view(ts) else ts for ts in (ts0, ts1)]
    first, second = (make_list_of_t(ts) for ts in given)
    if len(first) != len(second):
        raise ValueError(f"As many tensors are needed on both sides, but got {len(first)} and {len(second)}.")
    return list(zip(first, second))


def _is_view(ts: object) -> bool:
    return isinstance(ts, Iterable) and not isinstance(ts, (Tensor, list, tuple))


def _consumers(tensor: Tensor, can_modify: Any, cannot_modify: Any) -> list[tuple[Operation, int]]:
    allowed = None if can_modify is None else frozenset(make_list_of_op(can_modify))
    refused = frozenset() if cannot_modify is None else frozenset(make_list_of_op(cannot_modify))
    ops = [op for op in _once(tensor.consumers()) if (allowed is None or op in allowed) and op not in refused]
    return [(op, index) for op in ops for index, taken in enumerate(op.inputs) if taken is tensor]


def _move(places: list[tuple[Operation, int]], new: Tensor) -> int:
    for op, index in places:
        op._update_input(index, new)
    return len(places)


@export("tf.contrib.graph_editor.add_control_inputs")
def add_control_inputs(op: Operation, cops: Any) -> None:
    """Lets an op wait for others (``tf.contrib.graph_editor.add_control_inputs``).

    Raises:
      ValueError: when it waits for one of them already.
    """
    others = make_list_of_op(cops, allow_graph=False)
    for other in others:
        if other in op.control_inputs:
            raise ValueError(f"{other.name} is already a control_input of {op.name}")
    op._add_control_inputs(others)


@export("tf.contrib.graph_editor.remove_control_inputs")
def remove_control_inputs(op: Operation, cops: Any) -> None:
    """Lets an op no longer wait for others (``tf.contrib.graph_editor.remove_control_inputs``).

    Raises:
      ValueError: when it does not wait for one of them.
    """
    gone = make_list_of_op(cops, allow_graph=False)
    for other in gone:
        if other not in op.control_inputs:
            raise ValueError(f"{other.name} is not a control_input of {op.name}")
    left = [other for other in op.control_inputs if other not in gone]
    op._remove_all_control_inputs()
    op._add_control_inputs(left)
