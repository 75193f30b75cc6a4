"""Copies of parts of a graph, and how each op and tensor is copied (``tf.contrib.graph_editor``)."""

from __future__ import annotations

import copy as python_copy
from collections.abc import Callable, Mapping
from typing import Any

from tfmini.compat.graph_editor.selection import (
    ControlOutputs,
    flatten_tree,
    get_consuming_ops,
    get_generating_ops,
    get_predefined_collection_names,
    get_unique_graph,
    make_placeholder_from_tensor,
    scope_finalize,
    transform_tree,
)
from tfmini.compat.graph_editor.views import SubGraphView, make_view
from tfmini.compat.graph_editor.walks import get_walks_intersection_ops
from tfmini.export import export, export_names
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import plain_attr
from tfmini.graph.operation import Operation, Tensor
from tfmini.library_log import library_logger

# ---- handlers: what becomes of an op, of a tensor from outside, and of collections ---------------------------------


@export("tf.contrib.graph_editor.replace_t_with_placeholder_handler")
def replace_t_with_placeholder_handler(info: Any, t: Tensor) -> Tensor:
    """A placeholder in place of a tensor (``tf.contrib.graph_editor.replace_t_with_placeholder_handler``)."""
    with info.graph_.as_default():
        return make_placeholder_from_tensor(t, scope=info.scope_)


@export("tf.contrib.graph_editor.keep_t_if_possible_handler")
def keep_t_if_possible_handler(info: Any, t: Tensor) -> Tensor:
    """The tensor itself; in another graph a placeholder (``tf.contrib.graph_editor.keep_t_if_possible_handler``)."""
    return t if info.graph is info.graph_ else replace_t_with_placeholder_handler(info, t)


@export("tf.contrib.graph_editor.assign_renamed_collections_handler")
def assign_renamed_collections_handler(info: Any, elem: Any, elem_: Any) -> None:
    """Puts a copy into the collections of its original.

    ``tf.contrib.graph_editor.assign_renamed_collections_handler``. Those that ``tf.GraphKeys`` does not have get the
    name that an op of theirs would get.

    Args:
      info: what the transformer knows.
      elem: an op or a tensor.
      elem_: its copy.

    Raises:
      ValueError: for a collection whose name is not in the scope of the originals.
    """
    known = get_predefined_collection_names()
    for name, members in info.collections.items():
        if elem in members:
            info.graph_.add_to_collection(name if name in known else info.new_name(name), elem_)


@export("tf.contrib.graph_editor.transform_op_if_inside_handler")
def transform_op_if_inside_handler(info: Any, op: Operation | None, keep_if_possible: bool = True) -> Operation | None:
    """The copy of an op (``tf.contrib.graph_editor.transform_op_if_inside_handler``).

    Args:
      info: what the transformer knows.
      op: an op, or None.
      keep_if_possible: an op that is not copied is taken itself, in the same graph.

    Returns:
      The op, or None.
    """
    if op in info.sgv.ops:
        return info.transformed_ops[op]  # type: ignore[no-any-return]
    return op if keep_if_possible and info.graph is info.graph_ else None


@export("tf.contrib.graph_editor.copy_op_handler")
def copy_op_handler(
    info: Any, op: Operation, new_inputs: Any, copy_shape: bool = False, nodedef_fn: Callable[[Any], Any] | None = None
) -> tuple[Operation, list[Tensor]]:
    """A copy of an op (``tf.contrib.graph_editor.copy_op_handler``).

    Args:
      info: what the transformer knows.
      op: the op.
      new_inputs: the inputs of the copy.
      copy_shape: give the outputs the static shapes of the original's.
      nodedef_fn: changes the NodeDef from which the copy gets its device and attrs, and returns it.

    Returns:
      (the copy, its outputs).
    """
    graph: Graph = info.graph_
    name, device, attrs = graph.unique_name(info.new_name(op.name)), op.device, dict(op.attrs)
    if nodedef_fn is not None:
        node_def = python_copy.deepcopy(op.node_def)
        node_def.name = name
        changed = nodedef_fn(node_def)
        name, device = changed.name, changed.device
        attrs = {key: plain_attr(value) for key, value in changed.attr.items()}
    kinds = [t.dtype for t in op.outputs]
    with graph.as_default(), graph.control_dependencies(None), graph.device(None), graph.colocate_with(None, True):
        made = graph.add_op(op.handle, name, list(new_inputs), attrs, kinds)
    made._set_device(device)
    for old, new in zip(op.outputs, made.outputs) if copy_shape else ():
        new.set_shape(old.shape)
    if op._original_op is not None:
        made._original_op = info.transform_original_op_handler(info, op._original_op)
    return made, made.outputs


# ---- transformers --------------------------------------------------------------------------------------------------


class _Transformation:
    """What handlers get: the originals, their copies so far, and both graphs and scopes (with a ``_`` those of copies).

    Attributes:
      sgv: the view of the originals.
      transformed_ops, transformed_ts: original -> copy.
      cyclic_ops: the ops that take a tensor which was copied after them.
    """

    def __init__(self, sgv: SubGraphView, dst_graph: Graph, dst_scope: str, src_scope: str, handler: Any) -> None:
        self.sgv, self.sgv_inputs_set, self.ops = sgv, frozenset(sgv.inputs), frozenset(sgv.ops)
        assert sgv.graph is not None, "an empty view is refused before"
        self.graph: Graph = sgv.graph
        self.control_outputs = ControlOutputs(self.graph)
        self.scope, self.scope_, self.graph_ = src_scope, dst_scope, dst_graph
        self.transform_original_op_handler = handler
        self.transformed_ops: dict[Operation, Operation] = {}
        self.transformed_ts: dict[Tensor, Tensor] = {}
        self.collections = {key: self.graph.get_collection(key) for key in self.graph.get_all_collection_keys()}
        self.cyclic_ops: list[Operation] = []
        self.tmp_cyclic_ts: list[tuple[Tensor, Tensor, Operation]] = []

    def new_name(self, name: str) -> str:
        """The name of a copy; raises ValueError when the original's is not in the scope of the originals."""
        if not name.startswith(self.scope):
            raise ValueError(f"{name} does not belong to source scope: {self.scope}.")
        return self.scope_ + name[len(self.scope) :]


@export("tf.contrib.graph_editor.TransformerInfo")
class TransformerInfo:
    """What is the copy of what (``tf.contrib.graph_editor.TransformerInfo``)."""

    def __init__(self, info: Any) -> None:
        """What a transformer returns beside its view.

        Args:
          info: what its handlers got.
        """
        self._graph_, self._scope_ = info.graph_, info.scope_
        self._ops, self._ts = info.transformed_ops, info.transformed_ts

    def transformed(self, original: Any, missing_fn: Callable[[Any], Any] | None = None) -> Any:
        """The copies of ops and tensors.

        Args:
          original: an op, a tensor, or nested lists of them.
          missing_fn: called for one that has no copy; default: None in its place.

        Raises:
          TypeError: for anything else.
        """
        return transform_tree(original, lambda one: _found(self._map(one), one, missing_fn))

    def original(self, transformed: Any, missing_fn: Callable[[Any], Any] | None = None) -> Any:
        """What ops and tensors are the copies of; see `transformed`."""
        sources = {copied: source for known in (self._ops, self._ts) for source, copied in known.items()}

        def before(one: Any) -> Any:
            self._map(one)  # refuses anything else
            return _found(sources, one, missing_fn)

        return transform_tree(transformed, before)

    def _map(self, one: object) -> Any:
        if isinstance(one, Operation):
            return self._ops
        if isinstance(one, Tensor):
            return self._ts
        raise TypeError(f"Expected a tf.Tensor or a tf.Operation, got a {type(one)}")

    def __str__(self) -> str:
        lines = [
            "Transform result info:",
            f"  Within graph[{id(self._graph_)}]",
            f"  Scope destination: {self._scope_}",
        ]
        rows = [f"  {source.name} => {copied.name}" for source, copied in self._ops.items()]
        return "\n".join([*lines, "Operations mapping:", *rows]) + "\n"


def _found(known: Mapping[Any, Any], one: Any, missing_fn: Callable[[Any], Any] | None) -> Any:
    if one in known:
        return known[one]
    return None if missing_fn is None else missing_fn(one)


@export("tf.contrib.graph_editor.Transformer")
class Transformer:
    """Copies ops, as its handlers say (``tf.contrib.graph_editor.Transformer``).

    A handler gets the original and, first, what is known so far (``graph``, ``scope`` and ``graph_``, ``scope_`` of
    the copies, ``transformed_ops``, ``transformed_ts``, ``new_name``, …).

    Attributes:
      transform_op_handler: (info, op, new inputs) -> (an op, its outputs); default: `copy_op_handler`.
      assign_collections_handler: (info, original, copy); default: `assign_renamed_collections_handler`.
      transform_external_input_handler: (info, an input of the view) -> a tensor, for each op that takes it; default:
        `replace_t_with_placeholder_handler`.
      transform_external_hidden_input_handler: the same for other tensors from outside; default:
        `keep_t_if_possible_handler`.
      transform_control_input_handler, transform_original_op_handler: (info, op) -> an op or None; default:
        `transform_op_if_inside_handler`.
    """

    def __init__(self) -> None:
        self.transform_op_handler: Any = copy_op_handler
        self.transform_control_input_handler: Any = transform_op_if_inside_handler
        self.assign_collections_handler: Any = assign_renamed_collections_handler
        self.transform_external_input_handler: Any = replace_t_with_placeholder_handler
        self.transform_external_hidden_input_handler: Any = keep_t_if_possible_handler
        self.transform_original_op_handler: Any = transform_op_if_inside_handler

    def __call__(
        self, sgv: object, dst_graph: Graph, dst_scope: str, src_scope: str = "", reuse_dst_scope: bool = False
    ) -> tuple[SubGraphView, TransformerInfo]:
        """Copies the ops of a view.

        Args:
          sgv: the view, or what `make_view` makes one of.
          dst_graph: where the copies go.
          dst_scope: the name scope of the copies; made unique unless ``reuse_dst_scope``.
          src_scope: the scope of the originals, which the names of copies lack.

        Returns:
          (a view of the copies, which copy is of what).

        Raises:
          TypeError: when ``dst_graph`` is no graph.
          ValueError: when an op is not in ``src_scope``, or a handler returns the original.
        """
        view = make_view(sgv)
        if not isinstance(dst_graph, Graph):
            raise TypeError(f"Expected a tf.Graph, got: {type(dst_graph)}")
        scope = scope_finalize(dst_scope) or ""
        if scope and not reuse_dst_scope:
            scope = scope_finalize(dst_graph.unique_name(scope[:-1])) or ""
        elif not scope and view.graph is dst_graph:
            library_logger().warning("The source and the destination are the same: the copies have other names only.")
        info = _Transformation(
            view, dst_graph, scope, scope_finalize(src_scope) or "", self.transform_original_op_handler
        )
        self._copy_ops(info)
        for t, stand_in, consumer in info.tmp_cyclic_ts:
            for index, taken in enumerate(info.transformed_ops[consumer].inputs):
                if taken is stand_in and consumer.inputs[index] is t:
                    info.transformed_ops[consumer]._update_input(index, info.transformed_ts[t])
        for op in info.ops:
            controls = [self.transform_control_input_handler(info, other) for other in op.control_inputs]
            info.transformed_ops[op]._add_control_inputs([other for other in controls if other is not None])
        return _view_of_copies(info), TransformerInfo(info)

    def _copy_ops(self, info: _Transformation) -> None:
        for op in sorted(info.sgv.ops, key=lambda op: op._id):
            new_inputs: list[Tensor] = []
            for t in op.inputs:
                new_inputs.append(self._copied(info, t, op, new_inputs))
            op_, outputs_ = self.transform_op_handler(info, op, new_inputs)
            if op is op_:
                raise ValueError("In-place transformation not allowed.")
            info.transformed_ops[op] = op_
            self.assign_collections_handler(info, op, op_)
            for t, t_ in zip(op.outputs, outputs_):
                info.transformed_ts[t] = t_
                self.assign_collections_handler(info, t, t_)

    def _copied(self, info: _Transformation, t: Tensor, consumer: Operation, before: list[Tensor]) -> Tensor:
        """What a copy takes for an input of its original."""
        if t.op not in info.ops:
            if t in info.sgv_inputs_set:
                return self.transform_external_input_handler(info, t)  # type: ignore[no-any-return]
            return self.transform_external_hidden_input_handler(info, t)  # type: ignore[no-any-return]
        if t in info.transformed_ts:
            return info.transformed_ts[t]
        # The back edge of a loop comes later. Until then its Merge takes what enters the loop twice.
        if before and consumer.type == "Merge":
            stand_in = before[0]
        else:
            with info.graph_.as_default():
                stand_in = make_placeholder_from_tensor(t, scope="geph_tmp")
        info.cyclic_ops.append(consumer)
        info.tmp_cyclic_ts.append((t, stand_in, consumer))
        return stand_in


def _view_of_copies(info: _Transformation) -> SubGraphView:
    view = SubGraphView(list(info.transformed_ops.values()))
    inputs, outputs = (
        [copied for t in wanted if (copied := info.transformed_ts.get(t)) in known]
        for wanted, known in ((info.sgv.inputs, {*view.inputs}), (info.sgv.outputs, {*view.outputs}))
    )
    return view.remap(inputs, outputs)


@export("tf.contrib.graph_editor.copy")
def copy(
    sgv: object, dst_graph: Graph | None = None, dst_scope: str = "", src_scope: str = "", reuse_dst_scope: bool = False
) -> tuple[SubGraphView, TransformerInfo]:
    """Copies ops, with placeholders for what goes into them (``tf.contrib.graph_editor.copy``).

    Args:
      sgv: a view, or what `make_view` makes one of.
      dst_graph: where the copies go; default: the graph of the ops.
      dst_scope, src_scope, reuse_dst_scope: those of a `Transformer`.

    Returns:
      (a view of the copies, which copy is of what).
    """
    view = make_view(sgv)
    return Transformer()(view, _destination(view, dst_graph), dst_scope, src_scope, reuse_dst_scope)


def _destination(view: SubGraphView, dst_graph: Any) -> Any:
    return view.graph if dst_graph is None else dst_graph


@export("tf.contrib.graph_editor.copy_with_input_replacements")
def copy_with_input_replacements(
    sgv: object, replacement_ts: Mapping[Any, Any], dst_graph: Graph | None = None, dst_scope: str = "",
    src_scope: str = "", reuse_dst_scope: bool = False,
) -> tuple[SubGraphView, TransformerInfo]:  # fmt: skip
    """Copies ops, with other tensors in place of some (``tf.contrib.graph_editor.copy_with_input_replacements``).

    Args:
      sgv: the ops, or a view of them.
      replacement_ts: input of the view -> what the copies take instead. Other inputs stay the same; in another graph
        they become placeholders.
      dst_graph, dst_scope, src_scope, reuse_dst_scope: those of `copy`.

    Returns:
      (a view of the copies, which copy is of what).
    """
    view = make_view(sgv)
    copier = Transformer()

    def replaced(info: Any, t: Tensor) -> Tensor:
        return replacement_ts[t] if t in replacement_ts else keep_t_if_possible_handler(info, t)

    copier.transform_external_input_handler = replaced
    return copier(view, _destination(view, dst_graph), dst_scope, src_scope, reuse_dst_scope)


@export("tf.contrib.graph_editor.graph_replace")
def graph_replace(
    target_ts: object, replacement_ts: Mapping[Any, Any], dst_scope: str = "", src_scope: str = "",
    reuse_dst_scope: bool = False,
) -> Any:  # fmt: skip
    """The targets, computed from other tensors in place of some (``tf.contrib.graph_editor.graph_replace``).

    Args:
      target_ts: a tensor, or nested lists, tuples or dicts of tensors.
      replacement_ts: tensor -> what takes its place.
      dst_scope, src_scope, reuse_dst_scope: those of `copy`.

    Returns:
      New tensors in the structure of ``target_ts``; a target that does not depend on a replaced one stays.

    Raises:
      ValueError: when no target depends on a tensor to replace.
    """
    targets = flatten_tree(target_ts)
    graph = get_unique_graph(targets, check_types=Tensor)
    changed = get_walks_intersection_ops(
        get_consuming_ops(list(replacement_ts)),
        get_generating_ops(targets),
        control_ios=None if graph is None else ControlOutputs(graph),
    )
    if not changed:
        raise ValueError("Targets and replacements are not connected!")
    _, info = copy_with_input_replacements(changed, replacement_ts, None, dst_scope, src_scope, reuse_dst_scope)
    return info.transformed(target_ts, missing_fn=lambda original: original)


export_names(
    "tf.contrib.graph_editor.transform",
    "Transformer TransformerInfo assign_renamed_collections_handler copy copy_op_handler copy_with_input_replacements "
    "graph_replace keep_t_if_possible_handler replace_t_with_placeholder_handler transform_op_if_inside_handler",
)
