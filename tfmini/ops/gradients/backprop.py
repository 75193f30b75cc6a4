"""``tf.gradients``: reverse-mode differentiation as a graph transformation.

The graph between ``xs`` and ``ys`` is visited once, from the ys back, each op after all its consumers
in that region. At each op the contributions to each output are summed and passed to the op's gradient
function, whose results become contributions to the ops that made its inputs. The cost is linear in the
region's size.

Ops of other families (``Fill``, ``AddN``, ``Identity``…) are found by op type in the registry, because
the families import this module.

`ControlFlowGradients` is the interface for conds and loops.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tfmini import dtypes
from tfmini.collector import collector_at_rest
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, colocate_with, device, get_default_graph, name_scope
from tfmini.graph.op_types import GRADIENTS, OPS
from tfmini.ops.array.constant import constant
from tfmini.ops.control import tuple as gate_together
from tfmini.ops.gradients import wanted as gradient_wanted
from tfmini.ops.gradients.inputs import as_sources, as_targets, as_tensors, default_gradients, is_trainable
from tfmini.ops.gradients.sums import UnconnectedGradients, sum_gradients
from tfmini.shapes import TensorShape, merge_raw

_log = logging.getLogger("tensorflow")


@export("tf.gradients")
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = UnconnectedGradients.NONE,
) -> list[Any]:
    """The gradient of the sum of ``ys`` with respect to each of ``xs`` (``tf.gradients``).

    Args:
      ys: a tensor or a list of tensors.
      xs: a tensor, variable or a list of those. Ref variables are differentiated by their
        reference, resource variables by their handle.
      grad_ys: the gradients of the ys, each of the shape of its y; None stands for ones.
      name: of the name scope of the new ops.
      colocate_gradients_with_ops: put each gradient op on the device of the op it belongs to.
      gate_gradients: let no gradient of an op be used before all of them are computed.
      aggregation_method: one of `AggregationMethod`.
      stop_gradients: tensors to treat as constants.
      unconnected_gradients: the gradient of an x on which no y depends: None, or zeros.

    Returns:
      One tensor, `IndexedSlices` or None per x.

    Raises:
      LookupError: when an op between them has no gradient function.
      ValueError, TypeError: for arguments that do not fit together, and when the results of a gradient
        function do not fit its op.
    """
    ys, xs = as_list(ys), as_list(xs)
    stop_gradients = [] if stop_gradients is None else as_list(stop_gradients)
    grad_ys = [None] * len(ys) if grad_ys is None else as_list(grad_ys)
    unconnected = _unconnected(unconnected_gradients)
    with get_default_graph().building():  # loops that are made early are changed later
        with name_scope(name, "gradients", [*ys, *xs, *stop_gradients, *grad_ys]):
            targets = as_targets(ys)
            sources = as_sources(xs)
            stops = as_tensors(stop_gradients)
            seeds = default_gradients(grad_ys, targets, colocate_gradients_with_ops)
            _warn_of_integers(targets)
            settings = (colocate_gradients_with_ops, gate_gradients, aggregation_method)
            sweep = _Sweep(targets, sources, stops, settings)
            for y, seed in zip(targets, seeds):
                sweep.add(y, seed)
            with collector_at_rest():
                sweep.run()
        sweep.control_flow.finish()
    return [sweep.result(x, unconnected) for x in sources]


@export("tf.hessians")
def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[Tensor]:
    """The second derivatives of the sum of ``ys`` with respect to each x: shape of x twice (``tf.hessians``).

    The graph has one backward pass of the gradient per element of x.

    Raises:
      ValueError: when an x has no static shape, or no y or no gradient depends on it.
    """
    options: dict[str, Any] = {
        "colocate_gradients_with_ops": colocate_gradients_with_ops,
        "gate_gradients": gate_gradients,
        "aggregation_method": aggregation_method,
    }
    xs = as_list(xs)
    with name_scope(name):
        return [_hessian(x, first, options) for x, first in zip(xs, gradients(ys, xs, **options))]


def _hessian(x: Any, first: Any, options: dict[str, Any]) -> Tensor:
    shape = x.shape.as_list() if x.shape.ndims is not None and x.shape.is_fully_defined() else None
    if shape is None:
        raise ValueError(f"tf.hessians needs a static shape for {x}, to unroll one row per element.")
    if first is None:
        raise ValueError(f"tf.hessians: the ys do not depend on {x}.")
    count = TensorShape(shape).num_elements() or 0
    flat = raw_ops.Reshape(first, [count])
    rows = []
    for element in raw_ops.Unpack(flat, num=count, axis=0) if count else ():
        row = gradients(element, x, **options)[0]
        if row is None:
            raise ValueError(f"tf.hessians: the first derivative does not depend on {x}; all second ones are zero.")
        rows.append(raw_ops.Reshape(row, [count]))
    stacked = raw_ops.Pack(rows, axis=0) if rows else raw_ops.Reshape(first, [0])
    return raw_ops.Reshape(stacked, shape + shape, name="reshape_hessian")


def as_list(value: Any) -> list[Any]:
    """``value`` as a list: lists and tuples item by item, any other value as the only item."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _unconnected(value: Any) -> UnconnectedGradients:
    try:
        return UnconnectedGradients(value)
    except ValueError:
        raise ValueError(f"Unknown value for unconnected_gradients: {value!r}") from None


def _warn_of_integers(targets: list[Tensor]) -> None:
    for y in targets:
        if not is_trainable(y):
            _log.warning(
                "The dtype of the target tensor must be floating (e.g. tf.float32) when calling GradientTape.gradient,"
                " got %r",
                y.dtype,
            )


class ControlFlowGradients:
    """Differentiation of conds and loops. This class does nothing; it serves for regions without them.

    Args:
      between: the ops of the region, targets first; more may be appended.
      colocate: as ``colocate_gradients_with_ops``.

    Attributes:
      is_plain: whether no op needs a control flow context.
      sweep: the backward pass; its method ``add`` takes further gradients.
    """

    is_plain = True

    def __init__(self, between: list[Operation], colocate: bool) -> None:
        self.between = between
        self.colocate = colocate
        self.sweep: _Sweep

    def first_ready(self, pending: dict[Operation, int], targets: set[Operation]) -> list[Operation]:
        """Ops to start from besides the targets, such as loop exits without consumers."""
        return []

    def outside(self, op: Operation) -> AbstractContextManager[Any]:
        """The context for the ops that sum the contributions to the gradients of the outputs of ``op``."""
        return nullcontext()

    def inside(self, op: Operation) -> AbstractContextManager[Any]:
        """The context for the gradient ops of ``op``."""
        return nullcontext()

    def check(self, op: Operation, from_ops: list[Operation]) -> None:
        """Refuses an op through which gradients cannot pass to ``from_ops``."""

    def zeros_like(self, op: Operation, index: int) -> Tensor | None:
        """The gradient of an output without contributions, when another output has some."""
        return raw_ops.ZerosLike(op.outputs[index], name="zeros_like")

    def released(self, op: Operation, pending: dict[Operation, int]) -> Iterable[Operation]:
        """The ops that become ready now that a consumer of ``op`` is done."""
        return () if pending[op] else (op,)

    def finish(self) -> None:
        """Called when all ops of the region are done."""


# The module `tfmini.ops.flow.gradients` sets its own class here.
control_flow_gradients: Callable[[list[Operation], bool], ControlFlowGradients] = ControlFlowGradients


class _Sweep:
    """One backward pass: the region, the number of consumers each op waits for, and the contributions so far."""

    def __init__(
        self, ys: list[Tensor], xs: list[Tensor], stops: list[Tensor], settings: tuple[bool, bool, int | None]
    ) -> None:
        self.colocate, self.gate, self.aggregation = settings
        self.targets = list(dict.fromkeys(y.op for y in ys))
        self.from_ops = [x.op for x in xs]
        self.stopped = {t.op for t in stops}
        between = _region(self.targets, xs)
        self.control_flow = control_flow_gradients(between, self.colocate)
        self.control_flow.sweep = self
        self.pending = dict.fromkeys(between, 0)
        for op in between:
            for tensor in op.inputs:
                if tensor.op in self.pending:
                    self.pending[tensor.op] += 1
        # Per op: the contributions to each output; after the op's visit, one sum (or none) each.
        self.contributions: dict[Operation, list[list[Any]]] = {}

    def add(self, tensor: Tensor, gradient: Any) -> None:
        """Adds a contribution to the gradient of ``tensor``."""
        slots = self.contributions.get(tensor.op)
        if slots is None:
            slots = self.contributions[tensor.op] = [[] for _ in tensor.op.outputs]
        slots[tensor.value_index].append(gradient)

    def has_gradient(self, op: Operation) -> bool:
        """Whether an output of ``op`` got a contribution."""
        return any(self.contributions.get(op, ()))

    def run(self) -> None:
        """Visits the ops of the region from the targets back."""
        pending, control_flow = self.pending, self.control_flow
        queue = deque(op for op in self.targets if pending.get(op) == 0)
        queue.extend(control_flow.first_ready(pending, set(self.targets)))
        self.stopped.update(_stop_ops(self.from_ops, pending))
        with gradient_wanted.region(pending):
            self._walk(queue)

    def _walk(self, queue: deque[Operation]) -> None:
        pending, control_flow = self.pending, self.control_flow
        visit = self._visit if control_flow.is_plain and not self.colocate else self._visit_in_context
        while queue:
            op = queue.popleft()
            visit(op)
            for tensor in op.inputs:
                source = tensor.op
                if source in pending:
                    pending[source] -= 1
                    queue.extend(control_flow.released(source, pending))

    def _visit(self, op: Operation) -> None:
        if op in self.contributions:
            self._pass_on(op, self._sums(op))

    def _visit_in_context(self, op: Operation) -> None:
        control_flow = self.control_flow
        with colocate_with(op) if self.colocate else nullcontext():
            with control_flow.outside(op):
                sums = self._sums(op) if op in self.contributions else None
            with control_flow.inside(op):
                control_flow.check(op, self.from_ops)
                if sums is not None:
                    self._pass_on(op, sums)

    def _sums(self, op: Operation) -> list[Any]:
        slots = self.contributions[op]
        sums = [sum_gradients(found, self.aggregation, op) if found else None for found in slots]
        self.contributions[op] = [[] if s is None else [s] for s in sums]
        return sums

    def _pass_on(self, op: Operation, sums: list[Any]) -> None:
        if op in self.stopped or all(s is None for s in sums):
            return
        function = gradient_function(op)
        if function is None:
            return
        for i, output in enumerate(op.outputs):
            if sums[i] is None and is_trainable(output):
                sums[i] = self.control_flow.zeros_like(op, i)
        for tensor, gradient in zip(op.inputs, self._differentiate(op, function, sums)):
            if gradient is not None:
                self.add(tensor, gradient)

    def _differentiate(self, op: Operation, function: Callable[..., Any], sums: list[Any]) -> list[Any]:
        # The name scope is set by hand, because a context manager per op would be slow.
        scopes = op.graph.name_scopes
        outer = scopes.current
        scopes.current = op.graph.unique_name(op.name + "_grad")
        first_new = len(op.graph._order)
        try:
            found = as_list(function(op, *sums))
            if len(found) != len(op.inputs):
                raise ValueError(
                    f"Num gradients {len(found)} generated for op {op.node_def}"
                    f" do not match num inputs {len(op.inputs)}"
                )
            if self.gate and sum(g is not None for g in found) > 1:
                with device(None), colocate_with(None, ignore_existing=True):
                    found = gate_together(found)
        finally:
            scopes.current = outer
        for made in op.graph._order[first_new:]:
            made._original_op = op
        for i, gradient in enumerate(found):
            if isinstance(gradient, Tensor):
                _match_shape(op, i, gradient)
        return found

    def result(self, x: Tensor, unconnected: UnconnectedGradients) -> Any:
        """The summed gradient of ``x``."""
        slots = self.contributions.get(x.op)
        if slots is None or not slots[x.value_index]:
            return _zeros(x) if unconnected is UnconnectedGradients.ZERO else None
        # An x that is not between the ys and the xs was never visited, but may itself be a y.
        return sum_gradients(slots[x.value_index], self.aggregation, x.op)


def _zeros(x: Tensor) -> Tensor:
    if x.dtype.name != "resource":
        return raw_ops.ZerosLike(x, name="zeros_like")
    dtype, shape = x.handle_data or (dtypes.float32, None)
    unknown = shape is None or None in shape
    sizes = raw_ops.VariableShape(x) if unknown else constant(shape, dtypes.int32, name="zeros/shape")
    return raw_ops.Fill(sizes, constant(0, dtype=dtype, name="zeros/Const"), name="zeros")


def _region(targets: list[Operation], xs: list[Tensor]) -> list[Operation]:
    """The ops on a path from an x to a target, both included, targets first."""
    reached: set[Operation] = set()
    waiting = [x.op for x in xs]
    while waiting:
        op = waiting.pop()
        if op not in reached:
            reached.add(op)
            for output in op.outputs:
                if output._consumers and is_trainable(output):
                    waiting.extend(output._consumers)
    between: list[Operation] = []
    queue = deque(targets)
    while queue:
        op = queue.popleft()
        if op in reached:
            reached.discard(op)
            between.append(op)
            queue.extend(tensor.op for tensor in op.inputs)
    return between


def _stop_ops(from_ops: list[Operation], pending: dict[Operation, int]) -> set[Operation]:
    """The ops of xs that depend on no other x: the visit ends there."""
    return {op for op in from_ops if not any(pending.get(t.op) for t in op.inputs)}


def _match_shape(op: Operation, index: int, gradient: Tensor) -> None:
    """Merges the static shape of its input into a gradient's static shape."""
    source = op.inputs[index]
    if source.dtype.name == "resource":
        return
    try:
        gradient.raw_shape = merge_raw(gradient.raw_shape, source.raw_shape)
    except ValueError:
        raise ValueError(
            "Incompatible shapes between op input and calculated input gradient. "
            f" Forward operation: {op.name}.  Input index: {index}. Original input shape: {source.shape}. "
            f" Calculated input gradient shape: {gradient.shape}"
        ) from None


def gradient_function(op: Operation) -> Callable[..., Any] | None:
    """The gradient function of an op's type, or of its name by `gradient_override_map`; None if not differentiable.

    Raises:
      LookupError: when no gradient is registered.
    """
    if not op.inputs:
        return None
    override = op.attrs.get("_gradient_op_type")
    OPS.get(op.type)  # imports the gradient, if nothing has done so
    try:
        return GRADIENTS[op.type if override is None else override.decode()]
    except KeyError:
        raise LookupError(f"No gradient defined for operation '{op.name}' (op type: {op.type})") from None
