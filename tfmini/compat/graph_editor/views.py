"""Views of parts of a graph, and edits of what they are connected to (``tf.contrib.graph_editor``).

A change of inputs must come before the first run that needs them: a session's master knows the ops as they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.compat.graph_editor.selection import (
    ControlOutputs,
    ListView,
    check_graphs,
    concatenate_unique,
    get_name_scope_ops,
    get_unique_graph,
    make_list_of_op,
    make_list_of_t,
    make_placeholder_from_tensor,
    placeholder_name,
    select_ops_and_ts,
)
from tfmini.compat.graph_editor.walks import check_cios, compute_boundary_ts, get_walks_union_ops
from tfmini.export import export, export_names
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.identity import placeholder


@export("tf.contrib.graph_editor.SubGraphView")
class SubGraphView:
    """Some ops of a graph with what goes into them and comes out (``tf.contrib.graph_editor.SubGraphView``).

    A tensor that no op of the view takes or makes is passed through: it is an input and an output. The inputs and
    outputs can be others than those of the ops (`remap`); the graph stays as it is.
    """

    def __init__(self, inside_ops: object = (), passthrough_ts: object = ()) -> None:
        """A view of ops.

        Args:
          inside_ops: the ops.
          passthrough_ts: tensors that are passed through; those that the ops take or make count for nothing.
        """
        self._ops: list[Operation] = make_list_of_op(inside_ops)
        inputs, outputs, insides = compute_boundary_ts(self._ops)
        connected = {*inputs, *outputs, *insides}
        self._passed: list[Tensor] = [t for t in make_list_of_t(passthrough_ts) if t not in connected]
        self._inputs = [*inputs, *self._passed]
        self._outputs = [*outputs, *self._passed]
        self._graph = get_unique_graph([*self._passed, *self._ops], none_if_empty=True)

    def __copy__(self) -> SubGraphView:
        made = SubGraphView()
        made._assign_from(self)
        return made

    def copy(self) -> SubGraphView:
        """Another view of the same."""
        return self.__copy__()

    def _assign_from(self, other: SubGraphView) -> None:
        if not isinstance(other, SubGraphView):
            raise TypeError(f"Expected SubGraphView, got: {type(other)}")
        self._graph, self._ops, self._passed = other._graph, list(other._ops), list(other._passed)
        self._inputs, self._outputs = list(other._inputs), list(other._outputs)

    # ---- what it has -----------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph | None:
        """The graph; None of an empty view."""
        return self._graph

    @property
    def ops(self) -> list[Operation]:
        """The ops."""
        return self._ops

    @property
    def inputs(self) -> ListView:
        """The tensors that go in."""
        return ListView(self._inputs)

    @property
    def outputs(self) -> ListView:
        """The tensors that come out."""
        return ListView(self._outputs)

    @property
    def connected_inputs(self) -> list[Tensor]:
        """The inputs without those that are passed through."""
        return [t for t in self._inputs if t not in self._passed]

    @property
    def connected_outputs(self) -> list[Tensor]:
        """The outputs without those that are passed through."""
        return [t for t in self._outputs if t not in self._passed]

    @property
    def passthroughs(self) -> ListView:
        """The tensors that are passed through."""
        return ListView(self._passed)

    def __bool__(self) -> bool:
        return self._graph is not None

    def __enter__(self) -> SubGraphView:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __str__(self) -> str:
        if not self:
            return "SubGraphView: empty"
        lines = [f"SubGraphView (graphid={id(self._graph)}):"]
        for title, names in (
            ("ops", [op.name for op in self._ops]),
            ("inputs", [t.name + " *" * (t in self._passed) for t in self._inputs]),
            ("outputs", [t.name + " *" * (t in self._passed) for t in self._outputs]),
        ):
            lines += [f"** {title}[{len(names)}]:", *(f"  {name}" for name in names)]
        return "\n".join(lines) + "\n"

    def op(self, op_id: int) -> Operation:
        """One of the ops, by its place."""
        return self._ops[op_id]

    def find_op_by_name(self, op_name: str) -> Operation:
        """The op of a name; raises ValueError when there is none."""
        for op in self._ops:
            if op.name == op_name:
                return op
        raise ValueError(f"{op_name} not in subgraph.")

    def is_passthrough(self, t: Tensor) -> bool:
        """Whether a tensor is passed through."""
        return t in self._passed

    def input_index(self, t: Tensor) -> int:
        """The place of a tensor in the inputs; raises ValueError when it is none."""
        return _index(self._inputs, t)

    def output_index(self, t: Tensor) -> int:
        """The place of a tensor in the outputs; raises ValueError when it is none."""
        return _index(self._outputs, t)

    def consumers(self) -> list[Operation]:
        """The ops outside that take the outputs."""
        found: list[Operation] = []
        for t in self._outputs:
            concatenate_unique(found, [op for op in t.consumers() if op not in self._ops])
        return found

    # ---- other inputs and outputs ----------------------------------------------------------------------------------

    def remap_inputs(self, new_input_indices: Iterable[Any]) -> SubGraphView:
        """A view with some of the inputs, in another order.

        Args:
          new_input_indices: their places, or the tensors themselves; each once.

        Raises:
          ValueError: for another tensor or place, and for a repetition.
        """
        return self.remap(new_input_indices=new_input_indices)

    def remap_outputs(self, new_output_indices: Iterable[Any]) -> SubGraphView:
        """A view with some of the outputs, in another order, also repeatedly; see `remap_inputs`."""
        return self.remap(new_output_indices=new_output_indices)

    def remap(
        self, new_input_indices: Iterable[Any] | None = None, new_output_indices: Iterable[Any] | None = None
    ) -> SubGraphView:
        """`remap_inputs` and `remap_outputs` in one; None: as they are."""
        made = self.copy()
        if new_input_indices is not None:
            places = _places(new_input_indices, self._inputs)
            if len(set(places)) != len(places):
                raise ValueError(f"Found repetition in mapping: {places}")
            made._inputs = [self._inputs[place] for place in places]
        if new_output_indices is not None:
            made._outputs = [self._outputs[place] for place in _places(new_output_indices, self._outputs)]
        return made

    def remap_default(self, remove_input_map: bool = True, remove_output_map: bool = True) -> SubGraphView:
        """A view with the ops' own inputs, or outputs, or both."""
        made = self.copy()
        inputs, outputs, _ = compute_boundary_ts(self._ops)
        made._inputs = [*inputs, *self._passed] if remove_input_map else made._inputs
        made._outputs = [*outputs, *self._passed] if remove_output_map else made._outputs
        return made

    def remap_outputs_make_unique(self) -> SubGraphView:
        """A view with each output once."""
        made = self.copy()
        made._outputs = list(dict.fromkeys(self._outputs))
        return made

    def remap_outputs_to_consumers(self) -> SubGraphView:
        """A view with each output as often as ops take it."""
        made = self.remap_outputs_make_unique()
        made._outputs = [t for t in made._outputs for _ in t.consumers()]
        return made

    def remove_unused_ops(self, control_inputs: bool = True) -> SubGraphView:
        """A view without the ops that neither depend on an input nor contribute to an output.

        Args:
          control_inputs: whether one contributes by a control input.
        """
        made = self.copy()
        used = frozenset(
            get_walks_union_ops(
                self.connected_inputs, self.connected_outputs, within_ops=self._ops, control_inputs=control_inputs
            )
        )
        made._ops = [op for op in self._ops if op in used]
        return made


def _index(tensors: list[Tensor], t: Tensor) -> int:
    if t not in tensors:
        raise ValueError(f"Can't find {t.name} in {[one.name for one in tensors]}.")
    return tensors.index(t)


def _places(wanted: Iterable[Any], tensors: list[Tensor]) -> list[int]:
    places = [_index(tensors, one) if isinstance(one, Tensor) else int(one) for one in wanted]
    for place in places:
        if not 0 <= place < len(tensors):
            raise ValueError(f"Out of [0, {len(tensors)}[ range: {place}")
    return places


@export("tf.contrib.graph_editor.make_view", "tf.contrib.graph_editor.sgv")
def make_view(*args: object, **kwargs: object) -> SubGraphView:
    """A view of what `select_ops_and_ts` selects; of a view: itself (``tf.contrib.graph_editor.make_view``).

    Args:
      *args: ops, tensors to pass through, lists of both, patterns.
      **kwargs: ``graph`` of `select_ops`.

    Raises:
      ValueError: when the ops are not of that graph.
    """
    if len(args) == 1 and isinstance(args[0], SubGraphView):
        return args[0]
    made = SubGraphView(*select_ops_and_ts(*args, **kwargs))
    if kwargs.get("graph") is not None and made and made.graph is not kwargs["graph"]:
        raise ValueError("Graph mismatch.")
    return made


@export("tf.contrib.graph_editor.make_view_from_scope", "tf.contrib.graph_editor.sgv_scope")
def make_view_from_scope(scope: str, graph: Graph) -> SubGraphView:
    """A view of the ops of a name scope (``tf.contrib.graph_editor.make_view_from_scope``)."""
    return SubGraphView(get_name_scope_ops(graph, scope))


sgv, sgv_scope = make_view, make_view_from_scope

# ---- other tensors for consumers -----------------------------------------------------------------------------------


@export("tf.contrib.graph_editor.reroute_ts")
def reroute_ts(ts0: object, ts1: object, can_modify: object = None, cannot_modify: object = None) -> int:
    """Makes the consumers of each tensor of ``ts1`` take that of ``ts0`` (``tf.contrib.graph_editor.reroute_ts``).

    Args:
      can_modify: the ops whose inputs may change; default: all.
      cannot_modify: those whose inputs may not.

    Returns:
      The number of inputs changed.

    Raises:
      ValueError: when there are not as many tensors on both sides, or a pair has other dtypes or shapes.
    """
    return _exchange(make_list_of_t(ts0), make_list_of_t(ts1), False, can_modify, cannot_modify)


@export("tf.contrib.graph_editor.swap_ts")
def swap_ts(ts0: object, ts1: object, can_modify: object = None, cannot_modify: object = None) -> int:
    """Exchanges the consumers of each pair of tensors; see `reroute_ts` (``tf.contrib.graph_editor.swap_ts``)."""
    return _exchange(make_list_of_t(ts0), make_list_of_t(ts1), True, can_modify, cannot_modify)


def _exchange(ts0: list[Tensor], ts1: list[Tensor], both: bool, can_modify: object, cannot_modify: object) -> int:
    check_graphs(*ts0, *ts1)
    _check_pairs(ts0, ts1)
    allowed = None if can_modify is None else frozenset(make_list_of_op(can_modify))
    refused = frozenset() if cannot_modify is None else frozenset(make_list_of_op(cannot_modify))

    def consumers(t: Tensor) -> list[Operation]:
        ops = dict.fromkeys(t.consumers())
        return [op for op in ops if (allowed is None or op in allowed) and op not in refused]

    # All consumers are asked first: a tensor may be in several pairs.
    pairs = [(one, other, consumers(one), consumers(other)) for one, other in zip(ts0, ts1)]
    count = 0
    for one, other, of_one, of_other in pairs:
        if one is not other:
            count += _replace(of_other, other, one)
            count += _replace(of_one, one, other) if both else 0
    return count


def _check_pairs(ts0: list[Tensor], ts1: list[Tensor]) -> None:
    if len(ts0) != len(ts1):
        raise ValueError(f"ts0 and ts1 have different sizes: {len(ts0)} != {len(ts1)}")
    for one, other in zip(ts0, ts1):
        if not one.dtype.is_compatible_with(other.dtype):
            raise ValueError(f"Dtypes {one.dtype} and {other.dtype} are not compatible.")
        if not one.shape.is_compatible_with(other.shape):
            raise ValueError(f"Shapes {one.shape} and {other.shape} are not compatible.")


def _replace(ops: list[Operation], old: Tensor, new: Tensor) -> int:
    places = [(op, index) for op in ops for index, taken in enumerate(op.inputs) if taken is old]
    for op, index in places:
        op._update_input(index, new)
    return len(places)


def _reroute_inputs(sgv0: object, sgv1: object, both: bool) -> tuple[SubGraphView, SubGraphView]:
    sgv0, sgv1 = make_view(sgv0), make_view(sgv1)
    check_graphs(sgv0, sgv1)
    changed = [*sgv0.ops, *sgv1.ops]
    for view in (sgv0, sgv1):
        concatenate_unique(changed, (op for t in view._passed for op in t.consumers()))
    _exchange(sgv0._inputs, sgv1._inputs, both, changed, None)
    before = sgv0.copy(), sgv1.copy()
    _take_inputs(sgv1, before[0], both)
    if both:
        _take_inputs(sgv0, before[1], both)
    return sgv0, sgv1


def _take_inputs(view: SubGraphView, other: SubGraphView, outputs_follow: bool) -> None:
    """Gives a view the inputs of another one, with what is passed through; its own outputs may follow them."""
    if outputs_follow:
        place = {t: index for index, t in enumerate(view._inputs) if t in view._passed}
        view._outputs = [other._inputs[place[t]] if t in place else t for t in view._outputs]
    view._inputs, view._passed = list(other._inputs), list(other._passed)


def _reroute_outputs(sgv0: object, sgv1: object, both: bool) -> tuple[SubGraphView, SubGraphView]:
    sgv0, sgv1 = make_view(sgv0), make_view(sgv1)
    check_graphs(sgv0, sgv1)
    _exchange(sgv0._outputs, sgv1._outputs, both, None, [*sgv0.ops, *sgv1.ops])
    return sgv0, sgv1


@export("tf.contrib.graph_editor.swap_inputs")
def swap_inputs(sgv0: object, sgv1: object) -> tuple[SubGraphView, SubGraphView]:
    """Exchanges the inputs of two views (``tf.contrib.graph_editor.swap_inputs``); see `reroute_inputs`."""
    return _reroute_inputs(sgv0, sgv1, True)


@export("tf.contrib.graph_editor.reroute_inputs")
def reroute_inputs(sgv0: object, sgv1: object) -> tuple[SubGraphView, SubGraphView]:
    """Makes the ops of ``sgv1`` take the inputs of ``sgv0`` (``tf.contrib.graph_editor.reroute_inputs``).

    Args:
      sgv0, sgv1: views with as many inputs, or what `make_view` makes them of.

    Returns:
      The views, which have changed.

    Raises:
      ValueError: as `reroute_ts`.
    """
    return _reroute_inputs(sgv0, sgv1, False)


@export("tf.contrib.graph_editor.swap_outputs")
def swap_outputs(sgv0: object, sgv1: object) -> tuple[SubGraphView, SubGraphView]:
    """Exchanges who takes the outputs of two views (``tf.contrib.graph_editor.swap_outputs``)."""
    return _reroute_outputs(sgv0, sgv1, True)


@export("tf.contrib.graph_editor.reroute_outputs")
def reroute_outputs(sgv0: object, sgv1: object) -> tuple[SubGraphView, SubGraphView]:
    """Makes what takes the outputs of ``sgv1`` take those of ``sgv0`` (``tf.contrib.graph_editor.reroute_outputs``).

    The ops of both views stay as they are. For arguments and errors see `reroute_inputs`.
    """
    return _reroute_outputs(sgv0, sgv1, False)


@export("tf.contrib.graph_editor.swap_ios")
def swap_ios(sgv0: object, sgv1: object) -> tuple[SubGraphView, SubGraphView]:
    """`swap_outputs`, then `swap_inputs` (``tf.contrib.graph_editor.swap_ios``)."""
    return swap_inputs(*swap_outputs(sgv0, sgv1))


@export("tf.contrib.graph_editor.reroute_ios")
def reroute_ios(sgv0: object, sgv1: object) -> tuple[SubGraphView, SubGraphView]:
    """`reroute_outputs`, then `reroute_inputs` (``tf.contrib.graph_editor.reroute_ios``)."""
    return reroute_inputs(*reroute_outputs(sgv0, sgv1))


@export("tf.contrib.graph_editor.add_control_inputs")
def add_control_inputs(op: Operation, cops: object) -> None:
    """Lets an op wait for others (``tf.contrib.graph_editor.add_control_inputs``).

    Raises:
      TypeError: when ``op`` is no op.
      ValueError: when it waits for one of them already.
    """
    others = _control_ops(op, cops)
    for other in others:
        if other in op.control_inputs:
            raise ValueError(f"{other.name} is already a control_input of {op.name}")
    op._add_control_inputs(others)


@export("tf.contrib.graph_editor.remove_control_inputs")
def remove_control_inputs(op: Operation, cops: object) -> None:
    """Lets an op no longer wait for others (``tf.contrib.graph_editor.remove_control_inputs``).

    Raises:
      TypeError: when ``op`` is no op.
      ValueError: when it does not wait for one of them.
    """
    gone = _control_ops(op, cops)
    for other in gone:
        if other not in op.control_inputs:
            raise ValueError(f"{op.name} is not a control_input of {other.name}")
    left = [other for other in op.control_inputs if other not in gone]
    op._remove_all_control_inputs()
    op._add_control_inputs(left)


def _control_ops(op: Any, cops: object) -> list[Operation]:
    if not isinstance(op, Operation):
        raise TypeError(f"Expected a tf.Operation, got: {type(op)}")
    return make_list_of_op(cops, allow_graph=False)


# ---- parts that are cut off, joined and left out -------------------------------------------------------------------


@export("tf.contrib.graph_editor.detach_control_inputs")
def detach_control_inputs(sgv: object) -> None:
    """Lets the ops of a view no longer wait for others (``tf.contrib.graph_editor.detach_control_inputs``)."""
    view = make_view(sgv)
    for op in view.ops:
        outside = [other for other in op.control_inputs if other not in view.ops]
        remove_control_inputs(op, outside)


@export("tf.contrib.graph_editor.detach_control_outputs")
def detach_control_outputs(sgv: object, control_outputs: ControlOutputs) -> None:
    """Lets others no longer wait for the ops of a view (``tf.contrib.graph_editor.detach_control_outputs``).

    Raises:
      TypeError: when ``control_outputs`` is no `ControlOutputs`.
    """
    if not isinstance(control_outputs, ControlOutputs):
        raise TypeError(f"Expected a util.ControlOutputs, got: {type(control_outputs)}")
    control_outputs.update()
    view = make_view(sgv)
    for op in view.ops:
        for other in control_outputs.get(op):
            if other not in view.ops:
                remove_control_inputs(other, op)


@export("tf.contrib.graph_editor.detach_inputs")
def detach_inputs(sgv: object, control_inputs: bool = False) -> tuple[SubGraphView, list[Tensor]]:
    """Gives the ops of a view placeholders as inputs (``tf.contrib.graph_editor.detach_inputs``).

    Args:
      sgv: a view, or what `make_view` makes one of.
      control_inputs: `detach_control_inputs`, too.

    Returns:
      (the view, which has changed; the placeholders, of any shape).
    """
    view = make_view(sgv)
    if not view:
        return view, []
    with view.graph.as_default():  # type: ignore[union-attr]
        made = [placeholder(t.dtype.base_dtype, None, placeholder_name(t)) for t in view.inputs]
    swap_inputs(view, made)
    if control_inputs:
        detach_control_inputs(view)
    return view, made


@export("tf.contrib.graph_editor.detach_outputs")
def detach_outputs(sgv: object, control_outputs: ControlOutputs | None = None) -> tuple[SubGraphView, list[Tensor]]:
    """Gives what takes the outputs of a view placeholders instead (``tf.contrib.graph_editor.detach_outputs``).

    Args:
      sgv: a view, or what `make_view` makes one of.
      control_outputs: for `detach_control_outputs`, or None.

    Returns:
      (a view with the outputs that somebody took; the placeholders).
    """
    view = make_view(sgv)
    view = view.remap_outputs([index for index, t in enumerate(view.outputs) if t.consumers()])
    if not view:
        return view, []
    with view.graph.as_default():  # type: ignore[union-attr]
        made = [make_placeholder_from_tensor(t) for t in view.outputs]
    swap_outputs(view, made)
    if control_outputs is not None:
        detach_control_outputs(view, control_outputs)
    return view, made


@export("tf.contrib.graph_editor.detach")
def detach(
    sgv: object,
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> tuple[SubGraphView, list[Tensor], list[Tensor]]:
    """`detach_inputs` and `detach_outputs` (``tf.contrib.graph_editor.detach``).

    Args:
      sgv: a view, or what `make_view` makes one of.
      control_inputs, control_outputs, control_ios: those of `check_cios`.

    Returns:
      (the view, which has changed; the placeholders that it takes; those that take its place).
    """
    control_inputs, control_outputs = check_cios(control_inputs, control_outputs, control_ios)
    view, inputs = detach_inputs(sgv, control_inputs)
    _, outputs = detach_outputs(view, control_outputs)
    return view, inputs, outputs


@export("tf.contrib.graph_editor.connect")
def connect(sgv0: object, sgv1: object, disconnect_first: bool = False) -> tuple[SubGraphView, SubGraphView]:
    """Makes the ops of ``sgv1`` take the outputs of ``sgv0`` as inputs (``tf.contrib.graph_editor.connect``).

    Args:
      sgv0, sgv1: views, the latter with as many inputs as the former has outputs.
      disconnect_first: `detach_outputs` of ``sgv0`` before.

    Returns:
      The views; the latter has changed.
    """
    sgv0, sgv1 = make_view(sgv0), make_view(sgv1)
    check_graphs(sgv0, sgv1)
    if disconnect_first:
        detach_outputs(sgv0)
    reroute_inputs(SubGraphView(passthrough_ts=sgv0.outputs), sgv1)
    return sgv0, sgv1


@export("tf.contrib.graph_editor.bypass")
def bypass(sgv: object) -> tuple[SubGraphView, list[Tensor]]:
    """Gives what takes the outputs of a view its inputs (``tf.contrib.graph_editor.bypass``).

    Args:
      sgv: a view with as many outputs as inputs.

    Returns:
      (the view, which has changed; the placeholders that it takes).
    """
    view = make_view(sgv)
    inputs = list(view.inputs)
    view, made = detach_inputs(view)
    reroute_ts(inputs, view.outputs)
    return view, made


export_names("tf.contrib.graph_editor.subgraph", "SubGraphView make_view make_view_from_scope")
export_names(
    "tf.contrib.graph_editor.reroute",
    "add_control_inputs remove_control_inputs reroute_inputs reroute_ios reroute_outputs reroute_ts swap_inputs "
    "swap_ios swap_outputs swap_ts",
)
export_names(
    "tf.contrib.graph_editor.edit",
    "bypass connect detach detach_control_inputs detach_control_outputs detach_inputs detach_outputs",
)
