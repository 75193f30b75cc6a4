"""Lists of ops and tensors, what patterns and walks select, and names of placeholders (``tf.contrib.graph_editor``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

from tfmini.core_types import DTypeLike, ShapeLike
from tfmini.export import export, export_names
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.identity import placeholder

# ---- lists of ops and tensors --------------------------------------------------------------------------------------


def is_iterable(obj: object) -> TypeGuard[Iterable[Any]]:
    """Whether one can iterate over ``obj``; texts count (``tf.contrib.graph_editor.util.is_iterable``)."""
    try:
        iter(obj)  # type: ignore[call-overload]
    except Exception:  # a Tensor refuses with an error of its own
        return False
    return True


def _once(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def concatenate_unique(la: list[Any], lb: Iterable[Any]) -> list[Any]:
    """``la``, with what only ``lb`` has at its end (``tf.contrib.graph_editor.util.concatenate_unique``)."""
    known = set(la)
    for item in lb:
        if item not in known:
            known.add(item)
            la.append(item)
    return la


class ListView:
    """A list that nobody can change (``tf.contrib.graph_editor.util.ListView``).

    Raises:
      TypeError: for anything but a list.
    """

    def __init__(self, list_: list[Any]) -> None:
        if not isinstance(list_, list):
            raise TypeError(f"Expected a list, got: {type(list_)}.")
        self._list = list_

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    def __bool__(self) -> bool:
        return bool(self._list)

    def __getitem__(self, i: Any) -> Any:
        return self._list[i]

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return self._list + list(other)


def get_unique_graph(tops: object, check_types: object = None, none_if_empty: bool = False) -> Graph | None:
    """The graph of ops and tensors (``tf.contrib.graph_editor.util.get_unique_graph``).

    Args:
      tops: a list of them, or a graph.
      check_types: the class, or classes, that they must have; default: ``tf.Operation`` and ``tf.Tensor``.
      none_if_empty: None for an empty list.

    Raises:
      TypeError: when one has another type.
      ValueError: when they are of several graphs, or the list is empty.
    """
    if isinstance(tops, Graph):
        return tops
    if not is_iterable(tops):
        raise TypeError(f"{type(tops)} is not iterable")
    kinds = (Operation, Tensor) if check_types is None else check_types
    kinds = tuple(kinds) if isinstance(kinds, (list, tuple)) else (kinds,)
    graph: Graph | None = None
    for item in tops:
        if not isinstance(item, kinds):
            expected = ", ".join(map(str, kinds))
            raise TypeError(f"Expected a type in ({expected}), got: {type(item)}")
        if graph is not None and item.graph is not graph:
            raise ValueError(f"Operation {item.name!r} does not belong to given graph")
        graph = item.graph
    if graph is None and not none_if_empty:
        raise ValueError("Can't find the unique graph of an empty list")
    return graph


def check_graphs(*args: Any) -> None:
    """Refuses things of several graphs, by their ``graph`` (``tf.contrib.graph_editor.util.check_graphs``).

    Raises:
      ValueError: when they are; one without a graph is of any.
    """
    graph = None
    for index, thing in enumerate(args):
        if graph is not None and thing.graph is not None and thing.graph is not graph:
            raise ValueError(f"Argument[{index}]: Wrong graph!")
        graph = thing.graph if graph is None else graph


@export("tf.contrib.graph_editor.make_list_of_op")
def make_list_of_op(
    ops: object, check_graph: bool = True, allow_graph: bool = True, ignore_ts: bool = False
) -> list[Any]:
    """The ops of a list or a graph, or one op (``tf.contrib.graph_editor.make_list_of_op``).

    Raises:
      TypeError: for anything else, tensors without ``ignore_ts`` among it.
      ValueError: when the ops are of several graphs.
    """
    if isinstance(ops, Graph) and allow_graph:
        return ops.get_operations()
    return _listed(ops, Operation, check_graph, Tensor if ignore_ts else None)


@export("tf.contrib.graph_editor.make_list_of_t")
def make_list_of_t(
    ts: object, check_graph: bool = True, allow_graph: bool = True, ignore_ops: bool = False
) -> list[Any]:
    """The tensors of a list or a graph, or one (``tf.contrib.graph_editor.make_list_of_t``): see `make_list_of_op`."""
    if isinstance(ts, Graph) and allow_graph:
        return get_tensors(ts)
    return _listed(ts, Tensor, check_graph, Operation if ignore_ops else None)


def _listed(items: object, kind: type, check_graph: bool, ignored: type | None) -> list[Any]:
    if isinstance(items, Graph):
        raise TypeError("allow_graph is False: cannot convert a tf.Graph.")
    given = list(items) if is_iterable(items) else [items]
    found = given if ignored is None else [item for item in given if not isinstance(item, ignored)]
    if check_graph:
        get_unique_graph(found, kind, none_if_empty=True)
    return found


@export("tf.contrib.graph_editor.get_tensors")
def get_tensors(graph: Graph) -> list[Tensor]:
    """All tensors of a graph (``tf.contrib.graph_editor.get_tensors``); raises TypeError for anything else."""
    if not isinstance(graph, Graph):
        raise TypeError(f"Expected a graph, got: {type(graph)}")
    return [t for op in graph.get_operations() for t in op.outputs]


@export("tf.contrib.graph_editor.get_generating_ops")
def get_generating_ops(ts: object) -> list[Operation]:
    """The op of each tensor (``tf.contrib.graph_editor.get_generating_ops``)."""
    return [t.op for t in make_list_of_t(ts, allow_graph=False)]


@export("tf.contrib.graph_editor.get_consuming_ops")
def get_consuming_ops(ts: object) -> list[Operation]:
    """The ops that take the tensors (``tf.contrib.graph_editor.get_consuming_ops``)."""
    return _once(op for t in make_list_of_t(ts, allow_graph=False) for op in t.consumers())


@export("tf.contrib.graph_editor.ControlOutputs")
class ControlOutputs:
    """The ops that wait for each op of a graph (``tf.contrib.graph_editor.ControlOutputs``).

    It is as they were when it was made, or when `update` found new ops.
    """

    def __init__(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"Expected a tf.Graph, got: {type(graph)}")
        self._graph = graph
        self._known = -1
        self._waiting: dict[Operation, list[Operation]] = {}
        self.update()

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    def update(self) -> ControlOutputs:
        """Looks again, if the graph has other ops than before; returns itself."""
        ops = self._graph.get_operations()
        if len(ops) != self._known:
            self._known, self._waiting = len(ops), {}
            for op in ops:
                for first in op.control_inputs:
                    self._waiting.setdefault(first, []).append(op)
        return self

    def get(self, op: Operation) -> Any:
        """The list of the ops with the control input ``op``; an empty tuple if there are none."""
        return self._waiting.get(op, ())

    def get_all(self) -> dict[Operation, list[Operation]]:
        """The same for all ops that others wait for."""
        return self._waiting


# ---- trees and names -----------------------------------------------------------------------------------------------


def flatten_tree(tree: Any, leaves: list[Any] | None = None) -> list[Any]:
    """The leaves of nested iterables (of a dict: its values) (``tf.contrib.graph_editor.util.flatten_tree``)."""
    found = [] if leaves is None else leaves
    if not is_iterable(tree):
        found.append(tree)
    else:
        for child in tree.values() if isinstance(tree, dict) else tree:
            flatten_tree(child, found)
    return found


def transform_tree(tree: Any, fn: Callable[[Any], Any], iterable_type: Any = tuple) -> Any:
    """The same lists, tuples and dicts with ``fn`` of each leaf (``tf.contrib.graph_editor.util.transform_tree``).

    Args:
      iterable_type: what other iterables become.
    """
    if not is_iterable(tree):
        return fn(tree)
    if isinstance(tree, dict):
        made = type(tree)()
        made.update((key, transform_tree(child, fn)) for key, child in tree.items())
        return made
    children = [transform_tree(child, fn) for child in tree]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*children)
    return (type(tree) if isinstance(tree, (list, tuple)) else iterable_type)(children)


def scope_finalize(scope: str | None) -> str | None:
    """A scope's name that ends in a slash (``tf.contrib.graph_editor.util.scope_finalize``)."""
    return f"{scope}/" if scope and not scope.endswith("/") else scope


def scope_dirname(scope: str) -> str:
    """The scope around a name, with its slash (``tf.contrib.graph_editor.util.scope_dirname``)."""
    return scope[: scope.rfind("/") + 1]


def scope_basename(scope: str) -> str:
    """The last part of a name (``tf.contrib.graph_editor.util.scope_basename``)."""
    return scope[scope.rfind("/") + 1 :]


@export("tf.contrib.graph_editor.placeholder_name")
def placeholder_name(t: Tensor | None = None, scope: str | None = None, prefix: str = "geph") -> str:
    """The name of a placeholder that stands for ``t`` (``tf.contrib.graph_editor.placeholder_name``).

    Args:
      t: a tensor, or None.
      scope: the scope of the name; None: that of ``t``, "": none.
      prefix: what the name's last part begins with.

    Raises:
      TypeError: when ``t`` is anything else.
    """
    if t is None:
        return f"{scope_finalize(scope) or ''}{prefix}"
    if not isinstance(t, Tensor):
        raise TypeError(f"Expected a tf.Tenfor, got: {type(t)}")
    last = scope_basename(t.op.name)
    if not last.startswith(f"{prefix}__"):
        last = f"{prefix}__{last}_{t.value_index}"
    return f"{scope_dirname(t.op.name) if scope is None else scope_finalize(scope)}{last}"


@export("tf.contrib.graph_editor.make_placeholder_from_tensor")
def make_placeholder_from_tensor(t: Tensor, scope: str | None = None, prefix: str = "geph") -> Tensor:
    """A placeholder of the dtype and shape of ``t``, named by `placeholder_name`.

    ``tf.contrib.graph_editor.make_placeholder_from_tensor``. It belongs to the default graph and its name scope.

    Args:
      t: a tensor, of any graph.
      scope, prefix: those of `placeholder_name`.
    """
    return placeholder(t.dtype.base_dtype, t.shape, placeholder_name(t, scope, prefix))


@export("tf.contrib.graph_editor.make_placeholder_from_dtype_and_shape", "tf.contrib.graph_editor.ph")
def make_placeholder_from_dtype_and_shape(
    dtype: DTypeLike, shape: ShapeLike = None, scope: str | None = None, prefix: str = "geph"
) -> Tensor:
    """A placeholder named by `placeholder_name` (``tf.contrib.graph_editor.make_placeholder_from_dtype_and_shape``).

    Args:
      dtype: its dtype.
      shape: its shape; None: any.
      scope, prefix: those of `placeholder_name`.
    """
    return placeholder(dtype, shape, placeholder_name(scope=scope, prefix=prefix))


ph = make_placeholder_from_dtype_and_shape


def get_predefined_collection_names() -> list[str]:
    """The collections of ``tf.GraphKeys`` (``tf.contrib.graph_editor.util.get_predefined_collection_names``)."""
    return [value for key, value in vars(GraphKeys).items() if not key.startswith("_")]


def find_corresponding_elem(target: object, dst_graph: Graph, dst_scope: str = "", src_scope: str = "") -> Any:
    """The op or tensor of another graph with the same name.

    ``tf.contrib.graph_editor.util.find_corresponding_elem``.

    Args:
      target: an op or a tensor.
      dst_graph: the other graph.
      dst_scope: a scope that the name has more there.
      src_scope: a scope that it has less there.

    Raises:
      TypeError: when ``target`` is neither.
      ValueError: when the name is not in ``src_scope``.
      KeyError: when the other graph has no such name.
    """
    if not isinstance(target, (Operation, Tensor)):
        raise TypeError(f"Expected a tf.Tensor or a tf.Operation, got a {type(target)}")
    before = scope_finalize(src_scope) or ""
    if not target.name.startswith(before):
        raise ValueError(f"{target.name} does not start with {before}")
    name = (scope_finalize(dst_scope) or "") + target.name[len(before) :]
    return dst_graph.get_tensor_by_name(name) if isinstance(target, Tensor) else dst_graph.get_operation_by_name(name)


def find_corresponding(targets: object, dst_graph: Graph, dst_scope: str = "", src_scope: str = "") -> Any:
    """`find_corresponding_elem` of each in nested lists (``tf.contrib.graph_editor.util.find_corresponding``)."""
    return transform_tree(targets, lambda target: find_corresponding_elem(target, dst_graph, dst_scope, src_scope))


# ---- selection by name and by predicate ----------------------------------------------------------------------------


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
def filter_ops(ops: object, positive_filter: Any) -> list[Any]:
    """The ops for which a predicate holds; True: all (``tf.contrib.graph_editor.filter_ops``)."""
    found = make_list_of_op(ops)
    return found if positive_filter is True else [op for op in found if positive_filter(op)]


@export("tf.contrib.graph_editor.filter_ops_from_regex")
def filter_ops_from_regex(ops: object, regex: object) -> list[Any]:
    """The ops whose names match a pattern somewhere (``tf.contrib.graph_editor.filter_ops_from_regex``)."""
    pattern = make_regex(regex)
    return filter_ops(ops, lambda op: pattern.search(op.name) is not None)


@export("tf.contrib.graph_editor.filter_ts")
def filter_ts(ops: object, positive_filter: Any) -> list[Any]:
    """The inputs and outputs of ops for which a predicate holds; True: all (``tf.contrib.graph_editor.filter_ts``)."""
    found = _once(t for op in make_list_of_op(ops) for t in (*op.inputs, *op.outputs))
    return found if positive_filter is True else [t for t in found if positive_filter(t)]


@export("tf.contrib.graph_editor.filter_ts_from_regex")
def filter_ts_from_regex(ops: object, regex: object) -> list[Any]:
    """The inputs and outputs of ops whose names match a pattern (``tf.contrib.graph_editor.filter_ts_from_regex``)."""
    pattern = make_regex(regex)
    return filter_ts(ops, lambda t: pattern.search(t.name) is not None)


def _settings(kwargs: Mapping[str, Any], *known: str) -> list[Any]:
    """The graph, the predicate and the further keywords of a selection."""
    unknown = [key for key in kwargs if key not in ("graph", "positive_filter", *known)]
    if unknown:
        raise ValueError(f"Wrong keywords argument: {unknown[0]}.")
    graph = kwargs.get("graph")
    if graph is not None and not isinstance(graph, Graph):
        raise TypeError(f"Expected a tf.Graph, got: {type(graph)}")
    return [graph, kwargs.get("positive_filter"), *(kwargs.get(key, False) for key in known)]


def _where(graph: Graph | None) -> Graph:
    if graph is None:
        raise ValueError("Use the keyword argument 'graph' to use regex.")
    return graph


def _selected(
    args: Iterable[object], kwargs: Mapping[str, Any], own: str, other: str,
    matching: Callable[[Graph, Any], list[Any]], listed: Callable[[object], list[Any]],
) -> list[Any]:  # fmt: skip
    """What arguments select: those by patterns, unless these are for the ``other`` kind, and those by themselves."""
    graph, positive, restricted = _settings(kwargs, f"restrict_{own}_regex")
    found: list[Any] = []
    for arg in args:
        if not can_be_regex(arg):
            concatenate_unique(found, listed(arg))
            continue
        pattern, where = make_regex(arg), _where(graph)
        if pattern.pattern.startswith(f"(?#{own})") or not (restricted or pattern.pattern.startswith(f"(?#{other})")):
            concatenate_unique(found, matching(where, pattern))
    return found if positive is None else [item for item in found if positive(item)]


@export("tf.contrib.graph_editor.select_ops")
def select_ops(*args: object, **kwargs: object) -> list[Any]:
    """Ops by themselves and by patterns of their names (``tf.contrib.graph_editor.select_ops``).

    Args:
      *args: ops, lists of them, patterns. Tensors, and patterns that begin with ``(?#ts)``, count for nothing.
      **kwargs: ``graph``, where the patterns select; ``positive_filter``, a predicate that the ops must fulfil, too;
        ``restrict_ops_regex``, True if only patterns that begin with ``(?#ops)`` count.

    Raises:
      TypeError: for an argument or graph of another type.
      ValueError: for another keyword, or a pattern without a graph.
    """
    return _selected(args, kwargs, "ops", "ts", filter_ops_from_regex, lambda arg: make_list_of_op(arg, ignore_ts=True))


@export("tf.contrib.graph_editor.select_ts")
def select_ts(*args: object, **kwargs: object) -> list[Any]:
    """Tensors by themselves and by patterns of their names (``tf.contrib.graph_editor.select_ts``).

    Args:
      *args: tensors, lists of them, patterns. Ops, and patterns that begin with ``(?#ops)``, count for nothing.
      **kwargs: as of `select_ops`, but ``restrict_ts_regex``: True if only patterns that begin with ``(?#ts)`` count.
    """
    return _selected(
        args, kwargs, "ts", "ops",
        lambda graph, pattern: [t for t in get_tensors(graph) if pattern.search(t.name)],
        lambda arg: make_list_of_t(arg, ignore_ops=True),
    )  # fmt: skip


@export("tf.contrib.graph_editor.select_ops_and_ts")
def select_ops_and_ts(*args: object, **kwargs: object) -> tuple[list[Any], list[Any]]:
    """Ops and tensors by themselves and by patterns (``tf.contrib.graph_editor.select_ops_and_ts``).

    Args:
      *args: ops, tensors, lists of both, patterns; one of tensors' names begins with ``(?#ts)``.
      **kwargs: ``graph`` and ``positive_filter`` of `select_ops`.

    Returns:
      (ops, tensors).
    """
    ops = select_ops(*args, restrict_ops_regex=False, **kwargs)
    return ops, select_ts(*args, restrict_ts_regex=True, **kwargs)


@export("tf.contrib.graph_editor.get_name_scope_ops")
def get_name_scope_ops(ops: object, scope: str) -> list[Any]:
    """The ops of a name scope; of "": none (``tf.contrib.graph_editor.get_name_scope_ops``)."""
    if not scope:
        return []
    inside = scope.rstrip("/") + "/"
    return [op for op in make_list_of_op(ops) if op.name.startswith(inside) or op.name == inside[:-1]]


export_names(
    "tf.contrib.graph_editor.util",
    "ControlOutputs ListView check_graphs concatenate_unique find_corresponding find_corresponding_elem flatten_tree "
    "get_consuming_ops get_generating_ops get_predefined_collection_names get_tensors get_unique_graph is_iterable "
    "make_list_of_op make_list_of_t make_placeholder_from_dtype_and_shape make_placeholder_from_tensor "
    "placeholder_name scope_basename scope_dirname scope_finalize transform_tree",
)
export_names(
    "tf.contrib.graph_editor.select",
    "can_be_regex filter_ops filter_ops_from_regex filter_ts filter_ts_from_regex get_name_scope_ops make_regex "
    "select_ops select_ops_and_ts select_ts",
)
