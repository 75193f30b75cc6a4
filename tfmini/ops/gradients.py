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

import enum
import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.conversion import (
    IndexedSlices,
    convert_n_to_tensor_or_indexed_slices,
    convert_to_tensor_or_indexed_slices,
    internal_convert,
)
from tfmini.graph.families import Operation, Tensor, colocate_with, device, get_default_graph, name_scope
from tfmini.graph.op_types import GRADIENTS, OPS, register_gradient
from tfmini.graph.prune import traverse
from tfmini.memory import collector_at_rest
from tfmini.ops.array.constant import constant
from tfmini.ops.control import identity
from tfmini.ops.control import tuple as gate_together
from tfmini.shapes import TensorShape, merge_raw

# ---- The arguments of ``tf.gradients`` as tensors: targets, sources, and the gradients of the targets --------------

# DType kinds: float, complex, resource, variant.
_TRAINABLE_KINDS = "fcRV"


def is_trainable(tensor: Any) -> bool:
    """Whether the tensor's type can have gradients: floats, complex numbers, resources, variants."""
    return tensor.dtype._kind in _TRAINABLE_KINDS


def as_targets(ys: list[Any]) -> list[Any]:
    """The ys as tensors or indexed slices."""
    return convert_n_to_tensor_or_indexed_slices(ys, name="y")


def as_sources(xs: list[Any]) -> list[Tensor]:
    """The xs as tensors: a resource variable by its handle, a ref variable by its reference.

    In the graph of a function, one from outside is what stands for it there.
    """
    graph, found = get_default_graph(), []
    for i, x in enumerate(xs):
        handle = None if isinstance(x, Tensor) else getattr(x, "handle", None)
        x = handle if isinstance(handle, Tensor) else x
        x = convert_to_tensor_or_indexed_slices(x, name=f"x_{i}", as_ref=True)
        found.append(graph.capture(x) if isinstance(x, Tensor) and graph.is_inside(x.op.graph) else x)
    return found


def as_tensors(values: list[Any]) -> list[Any]:
    """``stop_gradients`` as tensors."""
    return [
        value if isinstance(value, (Tensor, IndexedSlices)) else internal_convert(value, as_ref=True)
        for value in values
    ]


def default_gradients(grad_ys: list[Any], ys: list[Any], colocate: bool) -> list[Any]:
    """The gradients of the ys: the given ones, checked, and ones in place of None.

    Raises:
      ValueError: when the counts differ.
      TypeError: when a type does not fit its y.
    """
    if len(grad_ys) != len(ys):
        raise ValueError(f"Passed {len(grad_ys)} grad_ys for {len(ys)} ys")
    grad_ys = convert_n_to_tensor_or_indexed_slices(grad_ys, name="grad_y")
    found = []
    for i, (y, grad) in enumerate(zip(ys, grad_ys)):
        with colocate_with(y.op) if colocate else nullcontext():
            if grad is None:
                found.append(_ones(y, f"grad_ys_{i}"))
            else:
                _check_type(grad, y)
                found.append(_named(grad, f"grad_ys_{i}"))
    return found


def _ones(y: Tensor, name: str) -> Tensor:
    if y.dtype.is_complex:
        raise TypeError(f"Gradients of complex tensors must set grad_ys (y.dtype = {y.dtype!r})")
    y = internal_convert(y)
    if y.raw_shape is not None and None not in y.raw_shape:
        shape = constant(np.array(y.raw_shape, np.int32), name="Shape")
    else:
        shape = raw_ops.Shape(y, name="Shape")
    return raw_ops.Fill(shape, constant(1, dtype=y.dtype.base_dtype, name=name), name="Fill")


def _check_type(grad: Any, y: Any) -> None:
    got, wanted = grad.dtype, y.dtype
    start = f"Gradient type {got.name} generated for "
    end = f"tensor {y} with type {wanted.name} must be"
    if wanted.is_floating or wanted.is_integer:
        if not (got.is_floating or got.is_integer):
            raise TypeError(f"{start}real or integer-valued {end} real or integer")
    elif wanted.is_complex:
        if not got.is_complex:
            raise TypeError(f"{start}complex-valued {end} real")
    elif wanted.base_dtype is dtypes.variant:
        if got.base_dtype is not dtypes.variant:
            raise TypeError(f"{start}variant {end} variant")
    elif wanted.base_dtype is dtypes.resource:
        if got.base_dtype is dtypes.resource:
            raise TypeError(f"Input gradient {grad} for resource tensor {y} should not be a resource")
    else:
        raise TypeError(f"Tensor {y} with type {wanted.name} must be numeric to obtain a default gradient")


def _named(grad: Any, name: str) -> Any:
    """``grad`` under a name with the number of its y."""
    if isinstance(grad, Tensor):
        return identity(grad, name)
    shape = grad.dense_shape
    return IndexedSlices(
        identity(grad.values, f"{name}_values"),
        identity(grad.indices, f"{name}_indices"),
        None if shape is None else identity(shape, f"{name}_shape"),
    )


# ---- Registration of gradients by user code: ``tf.RegisterGradient``, ``tf.NotDifferentiable`` ---------------------

F = TypeVar("F", bound=Callable[..., Any])


@export("tf.RegisterGradient")
class RegisterGradient:
    """Decorator that makes ``f(op, *grads)`` the gradient of an op type or override name.

    Args:
      op_type: an op type, or any name for use with ``graph.gradient_override_map``.

    Raises:
      TypeError: when ``op_type`` is not a string.
      KeyError: when the name has a gradient already.
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: F) -> F:
        OPS.get(self._op_type)  # so that a gradient that tfmini has is registered first
        register_gradient(self._op_type, f)
        return f


@export("tf.no_gradient")
def no_gradient(op_type: str) -> None:
    """Declares that gradients stop at ops of this type (``tf.NotDifferentiable``, ``tf.NoGradient``).

    Raises:
      TypeError: when ``op_type`` is not a string.
      KeyError: when the type has a gradient already.
    """
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    OPS.get(op_type)  # as above
    register_gradient(op_type, None)


NotDifferentiable = no_gradient
NoGradient = no_gradient

export_names("tf", "NoGradient NotDifferentiable")


# ---- Sums of the contributions to one gradient: ``tf.AggregationMethod``, ``tf.UnconnectedGradients`` --------------


@export("tf.AggregationMethod")
class AggregationMethod:
    """How ``tf.gradients`` adds contributions.

    ``ADD_N`` (the default) adds all of them in one op; the experimental methods add them one after
    another, so that each can be freed earlier.
    """

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


@export("tf.UnconnectedGradients")
class UnconnectedGradients(enum.Enum):
    """What ``tf.gradients`` returns for an x on which no y depends."""

    NONE = "none"
    ZERO = "zero"


def sum_gradients(found: list[Any], method: int | None, op: Operation) -> Any:
    """The sum of contributions to one output of ``op``: dense if one of them is dense, else indexed slices.

    Raises:
      ValueError: for an unknown method.
      TypeError: when a contribution is neither a tensor nor indexed slices.
    """
    if method not in (None, 0, 1, 2):
        raise ValueError(f"Invalid `aggregation_method` specified {method}.")
    if not all(isinstance(g, (Tensor, IndexedSlices)) for g in found):
        raise TypeError("gradients have to be either all Tensors or all IndexedSlices")
    if len(found) == 1:
        return found[0]
    if any(isinstance(g, Tensor) for g in found):
        return _sum_dense([internal_convert(g) for g in found], method, op)
    return _sum_slices(found)


def _add_n(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else raw_ops.AddN(tensors)


def _sum_dense(tensors: list[Tensor], method: int | None, op: Operation) -> Tensor:
    if not method:
        return _sum_per_device(tensors)
    with name_scope(op.name + "_gradient_sum"):
        total = tensors[0]
        for tensor in tensors[1:]:
            total = _add_n([total, tensor])
        return total


def _sum_per_device(tensors: list[Tensor]) -> Tensor:
    """Adds the contributions of each device there, then the sums: one transfer per device."""
    by_device: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device, []).append(tensor)
    sums = []
    for where in sorted(by_device):
        with colocate_with(by_device[where][0].op, ignore_existing=True):
            sums.append(_add_n(by_device[where]))
    return _add_n(sums)


def _sum_slices(found: list[IndexedSlices]) -> IndexedSlices:
    """All rows concatenated; the op that applies them adds rows of the same index."""
    indices = [g.indices for g in found]
    if any(i.dtype.base_dtype is not indices[0].dtype.base_dtype for i in indices):
        cast = raw_ops.Cast
        indices = [cast(i, DstT=dtypes.int64) if i.dtype.base_dtype is not dtypes.int64 else i for i in indices]
    concat = raw_ops.ConcatV2
    return IndexedSlices(
        concat([g.values for g in found], constant(0, name="concat/axis"), name="concat"),
        concat(indices, constant(0, name="concat/axis"), name="concat"),
        found[0].dense_shape,
    )


# ---- Tells gradient functions which gradients the current backward pass uses ---------------------------------------
# A gradient function may return None for an input that does not depend on any x: for the constant in
# ``x * 2`` or the images in a first layer. The result is the same with fewer ops.


class _Current(threading.local):
    """Per thread, the ops between the ys and the xs; None outside of a backward pass."""

    region: Container[Operation] | None = None


_current = _Current()


@contextmanager
def region(operations: Container[Operation]) -> Iterator[None]:
    """While it lasts, only gradients of these ops' outputs are used."""
    outer, _current.region = _current.region, operations
    try:
        yield
    finally:
        _current.region = outer


def is_wanted(node: Operation, index: int) -> bool:
    """Whether the gradient of an input may be used."""
    operations = _current.region
    return operations is None or node.inputs[index].op in operations


# ---- backprop ------------------------------------------------------------

_log = logging.getLogger("tensorflow")


@export("tf.gradients")
def gradients(
    ys: Any,
    xs: TensorLike,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: TensorLike | None = None,
    unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
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
    ys: TensorLike,
    xs: TensorLike,
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


def _hessian(x: Tensor, first: object, options: dict[str, Any]) -> Tensor:
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


def as_list(value: TensorLike) -> list[Any]:
    """``value`` as a list: lists and tuples item by item, any other value as the only item."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _unconnected(value: object) -> UnconnectedGradients:
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

    def add(self, tensor: Tensor, gradient: object) -> None:
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
        with region(pending):
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

    def readers(op: Operation) -> list[Operation]:
        return [
            other for output in op.outputs if output._consumers and is_trainable(output) for other in output._consumers
        ]

    reached = set(traverse([x.op for x in xs], readers))

    def sources(ops: Iterable[Operation]) -> list[Operation]:
        return [op for op in ops if op in reached]

    return list(traverse(sources(targets), lambda op: sources(tensor.op for tensor in op.inputs)))


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


@export("tensorflow.python.framework.ops.get_gradient_function")
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


class _GradientRegistry:
    """TensorFlow's registry of gradients, as far as libraries ask it."""

    def lookup(self, name: str) -> Callable[..., Any] | None:
        """The gradient function of an op type or an override name; raises LookupError for others."""
        OPS.get(name)
        if name not in GRADIENTS:
            raise LookupError(f"gradient registry has no entry for: {name}")
        return GRADIENTS[name]


_gradient_registry = _GradientRegistry()
export_names("tensorflow.python.framework.ops", "_gradient_registry")
