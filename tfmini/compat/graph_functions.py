"""Names of TensorFlow's private module ``function``: `Defun`; of ``functional_ops``, what calls a function.

A defined function has no body of its own in the graph: each call adds the ops of the body under a name scope with the
function's name. So a GraphDef needs no library of functions, and the placer sees every op.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike
from tfmini.export import export
from tfmini.graph.attr_values import tensor_proto
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.graph import Graph
from tfmini.graph.graph_util import extract_sub_graph
from tfmini.graph.op_types import ENTER_OPS, MERGE_OPS, SWITCH_OPS, VARIABLE_OPS
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.control import group
from tfmini.ops.custom_gradient import custom_gradient
from tfmini.ops.gradients import gradients
from tfmini.protos import GraphDef
from tfmini.runtime.client.session import BaseSession


class CalledFunction:
    """What a gradient function gets as the op of a call.

    Attributes:
      name: of the call's name scope.
      type: the function's name.
      inputs, outputs: tensors.
      made: the op of the results, which has the attributes that a program has given to the call; None before the call.
    """

    def __init__(self, name: str, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.name, self.type = name, kind
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.made: Operation | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.made is None:
            raise AttributeError(f"'CalledFunction' object has no attribute {name!r}")
        return getattr(self.made, name)


class DefinedFunction:
    """A function of tensors; each call adds its ops to the graph.

    Attributes:
      name: of the name scopes of its calls.
      declared_input_types: the types that `Defun` was given; empty if the arguments may have any.
      captured_inputs: empty, since the body uses tensors of the graph as they are.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        input_types: Sequence[Any],
        func_name: str | None = None,
        grad_func: DefinedFunction | None = None,
        python_grad_func: Callable[..., Any] | None = None,
        shape_func: Callable[..., Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.name = func_name or getattr(function, "__name__", "function").strip("<>")
        self.declared_input_types = [dtypes.as_dtype(one) for one in input_types]
        self.captured_inputs: list[Tensor] = []
        self._grad_func, self._python_grad_func = grad_func, python_grad_func
        self._shape_func = shape_func
        self._check_arguments()

    def _check_arguments(self) -> None:
        signature = inspect.signature(self._function)
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        if any(kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD) for kind in kinds):
            raise ValueError("Functions with keyword arguments are not supported.")
        if inspect.Parameter.VAR_POSITIONAL in kinds or not self.declared_input_types:
            return
        least = sum(one.default is inspect.Parameter.empty for one in signature.parameters.values())
        if not least <= len(self.declared_input_types) <= len(kinds):
            raise ValueError("The function has fewer arguments than the number of specified input types.")

    @property
    def python_grad_func(self) -> Callable[..., Any] | None:
        """The gradient as a function of the call and the gradients of its results; None if it has none."""
        return self._python_grad_func

    @property
    def grad_func_name(self) -> str | None:
        """The name of the function that is the gradient; None if there is none."""
        return None if self._grad_func is None else self._grad_func.name

    def set_grad_func(self, grad_func: DefinedFunction) -> None:
        """Makes a function of the inputs and of the results' gradients the gradient of later calls."""
        self._grad_func = grad_func

    def add_to_graph(self, graph: Graph) -> None:
        """Does nothing: calls bring their ops along."""

    def __call__(self, *args: object, name: str | None = None) -> Any:
        """Adds the function's ops to the graph.

        Args:
          *args: tensors, or what becomes tensors of the declared types.
          name: of the name scope; default: the function's name.

        Returns:
          The result, a tuple of results, or an operation for a function without results.

        Raises:
          ValueError: for a wrong number of arguments.
          TypeError: for arguments of wrong types.
        """
        with name_scope(name or self.name) as scope:
            inputs = self._inputs(args)
            if self._grad_func is None and self._python_grad_func is None:
                return self._results(inputs)
            call = CalledFunction(scope.rstrip("/"), self.name, inputs, [])
            results = custom_gradient(functools.partial(self._with_gradient, call))(*inputs)
            call.made = (results[0] if isinstance(results, (list, tuple)) else results).op
            return results

    def _inputs(self, args: Sequence[Any]) -> list[Tensor]:
        types = self.declared_input_types
        if types and len(args) != len(types):
            raise ValueError(f"Expected number of arguments: {len(types)}, received: {len(args)}")
        # A declared reference, the type of a variable, takes what the variable holds.
        return [convert_to_tensor(arg, types[i].base_dtype if types else None) for i, arg in enumerate(args)]

    def _results(self, inputs: Sequence[Tensor]) -> Any:
        found = self._function(*inputs)
        if found is None:
            return group(*inputs)
        several = isinstance(found, (list, tuple))
        results = [convert_to_tensor(one) for one in (found if several else [found])]
        self._give_shapes(inputs, results)
        return results[0] if len(results) == 1 else tuple(results)

    def _give_shapes(self, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        if self._shape_func is None:
            return
        shapes = self._shape_func(CalledFunction("", self.name, inputs, results))
        for result, shape in zip(results, shapes):
            result.set_shape(shape)

    def _with_gradient(self, call: CalledFunction, *inputs: Tensor) -> tuple[Any, Callable[..., Any]]:
        results = self._results(inputs)
        call.inputs, call.outputs = list(inputs), list(results) if isinstance(results, tuple) else [results]

        def gradient(*grads: Tensor) -> Any:
            if self._grad_func is not None:
                return self._grad_func(*inputs, *grads)
            assert self._python_grad_func is not None
            return self._python_grad_func(call, *grads)

        return results, gradient


class Defun:
    """Decorates a function of tensors (``tensorflow.python.framework.function.Defun``).

    Args:
      *input_types: one for each argument; none at all for arguments of any type.
      func_name: the function's name; default: that of the Python function.
      grad_func: a `DefinedFunction` of the inputs and of the gradients of the results that returns the gradients of the
        inputs.
      python_grad_func: called with a `CalledFunction` and the gradients of the results instead.
      shape_func: called with a `CalledFunction`; returns the shapes of its results.
      **other: how TensorFlow compiles the body (``noinline``, ``out_names``, ``capture_by_value``): without effect.
    """

    def __init__(
        self,
        *input_types: DTypeLike,
        func_name: str | None = None,
        grad_func: DefinedFunction | None = None,
        python_grad_func: Callable[..., Any] | None = None,
        shape_func: Callable[..., Any] | None = None,
        **other: object,
    ) -> None:
        if grad_func is not None and python_grad_func is not None:
            raise ValueError("Gradient defined twice for function: give grad_func or python_grad_func")
        self._input_types = input_types
        self._settings = {"func_name": func_name, "grad_func": grad_func, "python_grad_func": python_grad_func}
        self._shape_func = shape_func

    def __call__(self, func: Callable[..., Any]) -> DefinedFunction:
        """Raises ValueError for what is no function, or has other arguments than declared."""
        if not callable(func):
            raise ValueError(f"function {func} must be callable")
        return DefinedFunction(func, self._input_types, shape_func=self._shape_func, **self._settings)  # type: ignore[arg-type]


def symbolic_gradient(input: Sequence[Any], Tout: Sequence[Any], f: Any, name: str | None = None) -> list[Tensor]:
    """The gradients of a function's inputs (``functional_ops.symbolic_gradient``).

    Args:
      input: the inputs of ``f``, then the gradients of its results.
      Tout: the types of the gradients, one for each input of ``f``.
      f: a `DefinedFunction`.
      name: of the name scope.
    """
    with name_scope(name or "SymbolicGradient"):
        tensors = [convert_to_tensor(one) for one in input]
        inputs = tensors[: len(Tout)]
        results = f(*inputs)
        found = gradients(results, inputs, tensors[len(Tout) :])
        return [zeros_like(one) if grad is None else convert_to_tensor(grad) for one, grad in zip(inputs, found)]


def remote_call(target: Any, args: Sequence[Any], Tout: Sequence[Any], f: Any, name: str | None = None) -> list[Tensor]:
    """Calls a function on a device, of another task too (``functional_ops.remote_call``).

    Args:
      target: a full device name: a string, or a tensor whose value the graph tells.
      args: the inputs of ``f``.
      Tout: the types of its results.
      f: a `DefinedFunction`.
      name: of the name scope.

    Raises:
      NotImplementedError: only a step can tell the value of ``target``; here each op has one device.
    """
    place = constant_value(convert_to_tensor(target, dtype=dtypes.string))
    if place is None:
        raise NotImplementedError("remote_call: `target` must be a constant, since each op of the call has one device.")
    with name_scope(name or "RemoteCall"), device(place.item().decode()):
        results = f(*(convert_to_tensor(one) for one in args))
        listed = results if isinstance(results, (list, tuple)) else () if isinstance(results, Operation) else (results,)
        return [convert_to_tensor(one, dtype=kind) for one, kind in zip(listed, Tout, strict=True)]


# ---- ``tf.graph_util``: reduces GraphDefs to the needed nodes and converts variables to constants ------------------


def _forwards_handle(op_type: str) -> bool:
    """Whether ops of a type forward the handle of a variable, into a conditional or a loop."""
    return op_type == "Identity" or op_type in SWITCH_OPS or op_type in ENTER_OPS


def _node_name(input_name: str) -> str:
    """The node of an input of a NodeDef: ``a`` for ``^a`` and ``a:1``."""
    return input_name.lstrip("^").partition(":")[0]


def _with_nodes(graph_def: GraphDef, nodes: Iterable[Any]) -> Any:
    found = type(graph_def)()
    found.node.extend(nodes)
    for part in ("library", "versions"):
        if graph_def.HasField(part):
            getattr(found, part).CopyFrom(getattr(graph_def, part))
    return found


@export("tf.graph_util.convert_variables_to_constants")
def convert_variables_to_constants(
    sess: BaseSession, input_graph_def: GraphDef, output_node_names: list[str],
    variable_names_whitelist: Sequence[str] | None = None, variable_names_blacklist: Sequence[str] | None = None,
) -> Any:  # fmt: skip
    """Converts the variables of a GraphDef to constants with their current values.

    Args:
      sess: the session that has the values.
      input_graph_def: the graph of the session.
      output_node_names: the nodes that the result must be able to compute.
      variable_names_whitelist, variable_names_blacklist: the variables to convert, and not to convert.
    """
    inference = extract_sub_graph(input_graph_def, output_node_names)
    by_name = {node.name: node for node in inference.node}
    chosen = [
        node for node in inference.node
        if node.op in VARIABLE_OPS
        and (variable_names_whitelist is None or node.name in variable_names_whitelist)
        and (variable_names_blacklist is None or node.name not in variable_names_blacklist)
    ]  # fmt: skip
    names = [f"{node.name}/Read/ReadVariableOp:0" if node.op == "VarHandleOp" else f"{node.name}:0" for node in chosen]
    values = sess.run(names) if names else []
    constants = {node.name: value for node, value in zip(chosen, values)}
    frozen = [_frozen(node, by_name, constants) for node in inference.node]
    axes = [_axis_of(made) for made, node in zip(frozen, inference.node) if made.op != node.op == "ResourceGather"]
    return _with_nodes(inference, axes + frozen)


def _axis_of(gather: Any) -> Any:
    """Makes the constant 0, the axis of a gather."""
    made = type(gather)(name=gather.input[2], op="Const", device=gather.device)
    made.attr["dtype"].type = dtypes.int32.as_datatype_enum
    made.attr["value"].tensor.CopyFrom(tensor_proto(np.int32(0)))
    return made


def _frozen(node: Any, by_name: dict[str, Any], constants: dict[str, Any]) -> Any:
    """Returns the node, or the constant or copy that replaces it."""
    made = type(node)(name=node.name, device=node.device)
    if node.name in constants:
        dtype = dtypes.as_dtype(node.attr["dtype"].type)
        made.op = "Const"
        made.attr["dtype"].type = dtype.as_datatype_enum
        made.attr["value"].tensor.CopyFrom(tensor_proto(constants[node.name]))
        return made
    source = _handle_of(node, by_name)
    if source not in constants:
        return node
    if node.op == "ReadVariableOp":
        made.op = "Identity"
        made.input.extend(node.input)
        made.attr["T"].CopyFrom(node.attr["dtype"])
        return made
    if node.op == "ResourceGather":
        _gather(made, node)
        return made
    if _forwards_handle(node.op):
        made.CopyFrom(node)
        made.attr["T"].CopyFrom(by_name[source].attr["dtype"])
        return made
    return node


def _handle_of(node: Any, by_name: dict[str, Any]) -> str:
    """The variable of the node's first input, through any nodes that forward handles; "" if there is none."""
    while node.input:
        node = by_name[_node_name(node.input[0])]
        if node.op == "VarHandleOp":
            return str(node.name)
        if not _forwards_handle(node.op):
            return ""
    return ""


def _gather(made: Any, node: Any) -> None:
    made.op = "GatherV2"
    made.input.extend([node.input[0], node.input[1], f"{node.name}/axis"])
    made.attr["Tparams"].CopyFrom(node.attr["dtype"])
    made.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    made.attr["Taxis"].type = dtypes.int32.as_datatype_enum


@export("tf.graph_util.remove_training_nodes")
def remove_training_nodes(input_graph: Any, protected_nodes: Sequence[str] | None = None) -> Any:
    """Removes nodes that only training needs: CheckNumerics, and Identity nodes that are not protected."""
    protected = set(protected_nodes or ())
    checked = _without(input_graph, lambda node: node.op == "CheckNumerics" and node.name not in protected)
    depended_on = {source.lstrip("^") for node in checked.node for source in node.input if source.startswith("^")}
    flow = SWITCH_OPS | MERGE_OPS
    several = {_node_name(s) for node in checked.node for s in node.input if node.op in flow}

    def plain_copy(node: Any) -> bool:
        return node.op == "Identity" and len(node.input) == 1 and node.name not in protected | depended_on | several

    return _without(checked, plain_copy)


def _without(graph_def: GraphDef, dropped: Callable[[Any], bool]) -> Any:
    """Removes the chosen nodes; their consumers get their inputs directly."""
    inputs = {node.name: node.input[0] for node in graph_def.node if dropped(node)}
    orders = {f"^{name}" for name in inputs}

    def source(name: str) -> str:
        while name in inputs:
            name = inputs[name]
        return name

    kept = []
    for node in graph_def.node:
        if node.name not in inputs:
            made = type(node)()
            made.CopyFrom(node)
            del made.input[:]
            made.input.extend(source(name) for name in node.input if name not in orders)
            kept.append(made)
    return _with_nodes(graph_def, kept)
