"""The declaration of ops: one handle per op type, to which its rules are attached; and its call, which adds a node.

A family file in ``tfmini/ops`` declares an op and attaches its rules to the handle::

    matmul = op("MatMul(a: T, b: T) -> product: T; transpose_a: bool = false; …")

    @matmul.shape
    def _shape(node): ...                     # Operation -> list of raw shapes, one per output
                                              # (shared ones: `graph/families.py`, as ``op(..., shape=...)``)

    @matmul.gradient
    def _gradient(node, grad): ...            # Operation, grads of outputs -> grads of inputs

    @matmul.kernel("CPU")
    def _cpu(a, b, *, transpose_a, transpose_b): ...   # numpy values -> numpy value(s)

A call of the handle converts the inputs, infers attrs, checks both and adds a node to the graph of its inputs, or to
the default graph. Another family calls the op as ``raw_ops.MatMul(a, b)`` (`tfmini.graph.raw_ops`). Each decorator
writes into the table of its reader; `tfmini.graph.op_types` has the tables and describes kernels.

Other facts about an op that placer, compiler or inspector need (it may wait, it is a variable, it enters a loop) are
traits: arguments of `op`, which `tfmini.graph.op_types` describes. No module decides by a list of op names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.graph.attr_checks import check_attr
from tfmini.graph.conversion import internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph, innermost
from tfmini.graph.op_def import ArgDef, CallPlan, output_dtypes
from tfmini.graph.op_types import F, OpType, S, ShapeRule, Traits, declare
from tfmini.graph.operation import Operation, Tensor

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    R = DefaultTypeVar("R", default=Tensor)
else:
    R = TypeVar("R")


class OpHandle(OpType, Generic[R]):
    """An op type with its rules. A call adds a node to the graph of its inputs or to the default graph.

    A call returns the output: a `Tensor`, unless the handle is annotated otherwise where it is declared
    (``OpHandle[Operation]`` for an op without outputs, ``OpHandle[Any]`` for several outputs or a list).
    """

    __slots__ = ()

    def __call__(self, *args: object, **kwargs: object) -> R:
        return _apply(self, args, kwargs)  # type: ignore[no-any-return]


class all_of:  # noqa: N801 - it reads as words: ``@all_of(equal_op, not_equal_op).shape``
    """Several ops that share a rule: each method attaches it to all of them, as that of `OpHandle` to one."""

    def __init__(self, *handles: OpHandle[Any]) -> None:
        self._handles = handles

    def shape(self, rule: S) -> S:
        for handle in self._handles:
            handle.shape(rule)
        return rule

    def gradient(self, function: F) -> F:
        return self._with(OpHandle.gradient, function)

    def not_differentiable(self) -> None:
        for handle in self._handles:
            handle.not_differentiable()

    def without_gradient(self) -> None:
        for handle in self._handles:
            handle.without_gradient()

    def kernel(self, device_type: str) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.kernel(device_type)(f), function)

    def kernel_factory(self, device_type: str, may_block: bool = False) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.kernel_factory(device_type, may_block)(f), function)

    def state_kernel(self, device_type: str) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.state_kernel(device_type)(f), function)

    def async_kernel(self, device_type: str) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.async_kernel(device_type)(f), function)

    def into(self, rule: F) -> F:
        return self._with(OpHandle.into, rule)

    def _with(self, attach: Callable[[OpHandle[Any], Any], Any], function: F) -> F:
        for handle in self._handles:
            attach(handle, function)
        return function


def op(
    text: str, *, stateful: bool = False, uninit_ok: bool = False, shape: ShapeRule | None = None,
    differentiable: bool | None = True, **traits: Unpack[Traits],
) -> OpHandle[R]:  # fmt: skip
    """Declares an op (see `op_def` for the grammar) and returns its handle.

    Args:
      text: the declaration.
      stateful: the op has side effects or state. Passes never fold, merge or drop it.
      uninit_ok: its reference inputs may be uninitialised variables.
      shape: as for `OpHandle.shape`; ``[()]`` is one scalar, ``[]`` no output.
      differentiable: False: see `OpHandle.not_differentiable`; None: see `OpHandle.without_gradient`.
      traits: see `Traits`.

    Raises:
      ValueError: the name is taken, a trait does not exist, or the text does not follow the grammar. (tfmini's own
        declarations are parsed at first use, and by a test.)
    """
    handle: OpHandle[R] = OpHandle(text, {"stateful": stateful, "uninit_ok": uninit_ok}, traits)
    unknown = next((trait for trait in traits if trait not in Traits.__annotations__), None)
    if unknown is not None:
        raise ValueError(f"op {handle.name} is declared with {unknown}={traits[unknown]!r}; "  # type: ignore[literal-required]
                         "tfmini.graph.op_types has no such trait")  # fmt: skip
    if shape is not None:
        handle.shape(shape)
    if differentiable is None:
        handle.without_gradient()
    elif not differentiable:
        handle.not_differentiable()
    declare(handle)
    return handle


# ---- the call of a handle ------------------------------------------------------------------


def _apply(handle: OpType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Adds a node for ``handle(*inputs, name=…, **attrs)`` and returns its output(s), or the op if it has none.

    Raises:
      TypeError: an argument is missing or unexpected, or an input has the wrong type.
      ValueError: an attr has a value that is not allowed, or the shape function refuses the inputs.
    """
    plan = handle.plan
    if len(args) != len(plan.names):
        args = _bind(plan, args, kwargs)
    name = kwargs.pop("name", None)
    graph = _graph_for(args)
    full_name = graph._full_name(name, handle.name)
    attrs = plan.defaults.copy()
    if kwargs:
        _set_attrs(plan, attrs, kwargs)
    if plan.simple:
        inputs = _simple_inputs(plan, graph, full_name, args, attrs, kwargs)
    else:
        inputs = _general_inputs(plan, graph, full_name, args, attrs, kwargs)
    for attr in plan.required:
        if attr not in attrs:
            raise TypeError(f"Op '{handle.name}' needs a value for its attr '{attr}'.")
    for attr, allowed in plan.type_checks.items():
        if attrs[attr] not in allowed:
            raise _not_allowed(plan, attr, attrs[attr])
    op = graph.add_op(handle, full_name, inputs, attrs, output_dtypes(plan.op_def, attrs))
    return _results(plan, op)


def _bind(plan: CallPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Returns all inputs in order, from positional and keyword arguments."""
    if len(args) > len(plan.names):
        return _bind_attrs(plan, args, kwargs)
    rest = plan.names[len(args) :]
    missing = [n for n in rest if n not in kwargs]
    if missing:
        raise TypeError(f"No argument for input {missing[0]} of Op '{plan.op_def.name}'")
    return args + tuple(kwargs.pop(n) for n in rest)


# Attrs that came after TensorFlow 1.15, which a call by place does not count: name -> how the names of the ops begin.
_LATER = {
    "explicit_paddings": ("DepthwiseConv", "MaxPool"), "exponential_avg_factor": ("FusedBatchNorm",),
    "Treal": ("IRFFT",), "Tcomplex": ("RFFT",),
}  # fmt: skip


def _bind_attrs(plan: CallPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Names the attrs that follow the inputs by place, as in the functions that TensorFlow generates."""
    op_name, inferred = plan.op_def.name, plan.op_def.inferred_attrs()
    optional = (a for a in plan.defaults if a not in inferred and not op_name.startswith(_LATER.get(a, ())))
    names = [*plan.names, *plan.required, *optional, "name"]
    if len(args) > len(names):
        raise TypeError(f"Op '{op_name}' takes {len(names)} arguments but {len(args)} were given.")
    for name, value in zip(names[len(plan.names) :], args[len(plan.names) :]):
        if name in kwargs:
            raise TypeError(f"Op '{op_name}' got multiple values for argument '{name}'.")
        kwargs[name] = value
    return args[: len(plan.names)]


def _graph_for(args: tuple[Any, ...]) -> Graph:
    """Returns the graph of the first tensor among the inputs, or the default graph."""
    for value in args:
        if isinstance(value, Tensor):
            return innermost(value.op.graph)
        if type(value) in (list, tuple):
            for item in value:
                if isinstance(item, Tensor):
                    return innermost(item.op.graph)
                if hasattr(item, "_as_graph_element"):
                    return innermost(item.graph)
        elif hasattr(value, "_as_graph_element"):
            return innermost(value.graph)
    return get_default_graph()


def _simple_inputs(
    plan: CallPlan, graph: Graph, full_name: str, args: tuple[Any, ...], attrs: dict[str, Any], given: dict[str, Any]
) -> list[Tensor]:
    inputs: list[Tensor] = []
    known: dict[str, dtypes.DType] = {}
    for arg, value in zip(plan.op_def.inputs, args):
        attr = arg.type_attr
        expected = arg.dtype if attr is None else known.get(attr) or (attrs.get(attr) if attr in given else None)
        if isinstance(value, Tensor):
            if expected is not None and value.dtype is not expected and value.dtype.base_dtype is not expected:
                raise _mismatch(plan, arg, value.dtype, expected, attr, inputs)
        else:
            value = _convert(plan, graph, full_name, arg, arg.name, value, expected, attrs, inputs)
        if value.op.graph is not graph:  # after the conversion: a variable brings a tensor of its own graph
            value = _captured(plan, graph, arg, value, (*inputs, *args))
        if attr is not None and expected is None:
            known[attr] = attrs[attr] = value.dtype.base_dtype
        inputs.append(value)
    return inputs


def _general_inputs(
    plan: CallPlan, graph: Graph, full_name: str, args: tuple[Any, ...], attrs: dict[str, Any], given: dict[str, Any]
) -> list[Tensor]:
    inputs: list[Tensor] = []
    known: dict[str, Any] = {a: attrs[a] for a in given if a in attrs}
    for arg, value in zip(plan.op_def.inputs, args):
        if arg.is_list:
            found = _list_input(plan, graph, full_name, arg, value, attrs, known, inputs)
        else:
            found = [_one_input(plan, graph, full_name, arg, value, attrs, known, inputs)]
        inputs.extend(t if t.op.graph is graph else _captured(plan, graph, arg, t, [*inputs, *found]) for t in found)
    return inputs


def _captured(plan: CallPlan, graph: Graph, arg: ArgDef, tensor: Tensor, others: Sequence[Any]) -> Tensor:
    """Returns the capture of another graph's tensor, if ``graph`` is the graph of a function.

    Raises:
      ValueError: ``graph`` is no graph of a function, or of a function elsewhere.
      TypeError: the op changes a reference, of which a function has only the value.
    """
    if graph.outer is None:
        here = next((t for t in others if isinstance(t, Tensor) and t.op.graph is graph), graph)
        raise ValueError(f"{tensor} must be from the same graph as {here}.")
    captured = graph.capture(tensor)
    if arg.is_ref:
        raise TypeError(
            f"'{plan.op_def.name}' Op requires that input '{arg.name}' be a mutable tensor (e.g.: a tf.Variable), but"
            f" a function that is traced inside another graph has only the value of '{tensor.op.name}'. Make that"
            " variable with use_resource=True: functions can change those."
        )
    return captured


def _one_input(
    plan: CallPlan, graph: Graph, full_name: str, arg: ArgDef, value: TensorLike, attrs: dict[str, Any],
    known: dict[str, Any], before: list[Tensor],
) -> Tensor:  # fmt: skip
    attr = arg.type_attr
    expected = arg.dtype if attr is None else known.get(attr)
    tensor = (
        value
        if isinstance(value, Tensor)
        else _convert(plan, graph, full_name, arg, arg.name, value, expected, attrs, before)
    )
    if expected is not None and tensor.dtype.base_dtype is not expected:
        raise _mismatch(plan, arg, tensor.dtype, expected, attr, before)
    if arg.is_ref and not tensor.dtype._is_ref_dtype:
        raise TypeError(
            f"'{plan.op_def.name}' Op requires that input '{arg.name}' be a mutable tensor (e.g.: a tf.Variable)"
        )
    if attr is not None and expected is None:
        known[attr] = attrs[attr] = tensor.dtype.base_dtype
    return tensor


def _list_input(
    plan: CallPlan, graph: Graph, full_name: str, arg: ArgDef, values: TensorLike, attrs: dict[str, Any],
    known: dict[str, Any], before: list[Tensor],
) -> list[Tensor]:  # fmt: skip
    op_name = plan.op_def.name
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"Expected list for '{arg.name}' argument to '{op_name}' Op, not {values}.")
    if arg.type_list_attr is not None:
        wanted = known.get(arg.type_list_attr) or [None] * len(values)
        tensors = [
            _convert(plan, graph, full_name, arg, f"{arg.name}_{i}", v, wanted[i], attrs, before)
            for i, v in enumerate(values)
        ]
        attrs[arg.type_list_attr] = [t.dtype.base_dtype for t in tensors]
        _check_minimum(plan, arg.type_list_attr, len(tensors), arg)
        return tensors
    expected = arg.dtype if arg.type_attr is None else known.get(arg.type_attr)
    if expected is None:
        expected = next(
            (v.dtype.base_dtype for v in values if hasattr(v, "dtype") and isinstance(v.dtype, dtypes.DType)), None
        )
    try:
        tensors = [
            _convert(plan, graph, full_name, arg, f"{arg.name}_{i}", value, expected, attrs, before)
            for i, value in enumerate(values)
        ]
        if len({tensor.dtype.base_dtype for tensor in tensors} | ({expected} if expected else set())) > 1:
            raise TypeError
    except (TypeError, ValueError):
        types = [_own_type(value) for value in values]
        if None in types:
            raise  # a value of another graph, for one: its own error says more
        text = (
            f"Tensors in list passed to '{arg.name}' of '{op_name}' Op have types [{', '.join(map(str, types))}] that"
        )
        raise TypeError(f"{text} {_wanted(arg, known)}.") from None
    if tensors:
        expected = tensors[0].dtype.base_dtype
    if arg.type_attr is not None and expected is not None:
        known[arg.type_attr] = attrs[arg.type_attr] = expected
    number = arg.number_attr
    assert number is not None
    if number in known and known[number] != len(tensors):
        raise ValueError(
            f"List argument '{arg.name}' to '{op_name}' Op with length {len(tensors)} must match length"
            f" {known[number]} of argument '{number}'."
        )
    known[number] = attrs[number] = len(tensors)
    _check_minimum(plan, number, len(tensors), arg)
    return tensors


def _own_type(value: TensorLike) -> str | None:
    """The type that a value of a list has by itself, for an error; None: it is no tensor."""
    try:
        return str(internal_convert(value, None).dtype.base_dtype.name)
    except (TypeError, ValueError):
        return None


def _wanted(arg: ArgDef, known: dict[str, Any]) -> str:
    """How the types of a list's values break the op's declaration, as the end of a sentence."""
    if arg.type_attr is None:
        return f"do not match expected type {arg.dtype.name}" if arg.dtype else "don't all match"
    if arg.type_attr in known:
        return f"do not match type {known[arg.type_attr].name} inferred from earlier arguments"
    return "don't all match"


def _check_minimum(plan: CallPlan, attr: str, count: int, arg: ArgDef) -> None:
    minimum = plan.op_def.attrs[attr].minimum
    if minimum is not None and count < minimum:
        raise ValueError(
            f"List argument '{arg.name}' to '{plan.op_def.name}' Op with length {count}"
            f" shorter than minimum length {minimum}."
        )


def _convert(
    plan: CallPlan, graph: Graph, full_name: str, arg: ArgDef, label: str, value: TensorLike, expected: Any,
    attrs: dict[str, Any], before: list[Tensor],
) -> Tensor:  # fmt: skip
    """Converts a Python value to a tensor. A constant that this makes is named ``<op>/<argument>``."""
    if isinstance(value, Tensor):
        return value
    preferred = attrs.get(arg.type_attr) if expected is None and arg.type_attr is not None else None
    with graph.as_default(), graph.name_scope(full_name + "/"):
        try:
            return internal_convert(value, expected, label, preferred, as_ref=arg.is_ref)
        except (TypeError, ValueError) as error:
            if expected is None:
                raise
            return _reconvert(plan, arg, label, value, expected, before, error)


def _reconvert(
    plan: CallPlan,
    arg: ArgDef,
    label: str,
    value: TensorLike,
    expected: dtypes.DType,
    before: list[Tensor],
    cause: Exception,
) -> Tensor:
    """Raises the error for a value that cannot have the expected type, with the type that it has by default."""
    try:
        observed = internal_convert(value, None, label, as_ref=arg.is_ref).dtype
    except (TypeError, ValueError):
        raise cause from None
    if observed.base_dtype is expected:
        raise cause
    raise _mismatch(plan, arg, observed, expected, arg.type_attr, before) from None


def _mismatch(
    plan: CallPlan, arg: ArgDef, got: dtypes.DType, expected: dtypes.DType, attr: str | None, before: list[Tensor]
) -> TypeError:
    op_name = plan.op_def.name
    prefix = f"Input '{arg.name}' of '{op_name}' Op has type {got.name} that does not match"
    if attr is None:
        return TypeError(f"{prefix} expected type of {expected.name}.")
    source = next((a.name for a in plan.op_def.inputs if a.type_attr == attr and a.name != arg.name), attr)
    if plan.names.index(arg.name) == 0 or not before:
        return TypeError(f"{prefix} type {expected.name} of argument '{attr}'.")
    return TypeError(f"{prefix} type {expected.name} of argument '{source}'.")


def _not_allowed(plan: CallPlan, attr: str, got: dtypes.DType) -> TypeError:
    allowed = ", ".join(d.name for d in plan.op_def.attrs[attr].allowed or ())
    arg = next((a.name for a in plan.op_def.inputs if a.type_attr == attr), None)
    what = f"parameter '{arg}'" if arg else f"attr '{attr}'"
    return TypeError(f"Value passed to {what} has DataType {got.name} not in list of allowed values: {allowed}")


def _results(plan: CallPlan, op: Operation) -> Any:
    outputs = op.outputs
    if plan.result_type is None:
        if not plan.op_def.outputs:
            return op
        return outputs[0] if plan.outputs_simple else outputs
    if plan.outputs_simple:
        return plan.result_type(*outputs)
    grouped: list[Tensor | list[Tensor]] = []
    position = 0
    for out in plan.op_def.outputs:
        if not out.is_list:
            grouped.append(outputs[position])
            position += 1
            continue
        count = len(op.attrs[out.type_list_attr]) if out.type_list_attr else op.attrs[out.number_attr]  # type: ignore[index]
        grouped.append(outputs[position : position + count])
        position += count
    return plan.result_type(*grouped)


# ---- attrs ----------------------------------------------------------------------------------


def _set_attrs(plan: CallPlan, attrs: dict[str, Any], given: dict[str, Any]) -> None:
    for name, value in given.items():
        definition = plan.op_def.attrs.get(name)
        if definition is None:
            if name.startswith("_"):
                attrs[name] = value
                continue
            raise TypeError(f"Op '{plan.op_def.name}' got an unexpected keyword argument '{name}'")
        if value is None and definition.has_default and definition.kind not in ("shape", "tensor"):
            continue
        attrs[name] = check_attr(plan.op_def.name, definition, value)
