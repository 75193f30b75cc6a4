"""``tf.function``: a function of tensors, whose ops with effects run in the order of the program.

A function has no body of its own in the graph: each call calls the Python function, which adds its ops to the caller's
graph under a name scope, as with `Defun`. So the placer sees every op, and gradients pass as through any other ops.

``tf.xla.experimental`` is here, too. What is compiled is decided by the device (`tfmini.xla`), so its functions only
make the graph that TensorFlow makes: a computation is the ops of a Python function between identities.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini.core_types import TensorLike
from tfmini.dtypes import as_dtype
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.families import control_dependencies
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.op_types import register_gradient
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import init_scope, name_scope
from tfmini.ops.array.identity import identity, placeholder
from tfmini.ops.composites import TensorSpec, TypeSpec
from tfmini.ops.control import group, no_op
from tfmini.ops.flow import autograph
from tfmini.ops.flow.effects import Order
from tfmini.ops.flow.functional import FunctionGraph
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.variables.base import variable_creator_scope
from tfmini.ops.variables.scope import get_variable_scope
from tfmini.shapes import TensorShape

_FEW_ARGUMENTS = "When input_signature is provided, only pass arguments covered by it. Received {} argument(s)."


class PolymorphicFunction:
    """What `function` returns.

    Attributes:
      python_function: what each call calls.
      input_signature: a `TensorSpec` per argument; None if these may have any shapes and types.
    """

    def __init__(
        self, python_function: Callable[..., Any], input_signature: Sequence[Any] | None = None,
        autograph: bool = True, features: object = None, instance: weakref.ref[Any] | None = None,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self._autograph, self._features, self._instance = autograph, features, instance
        self._is_called = False
        self._lifted: set[Operation] = set()  # those that make variables: they run when their initializer is run
        self._traced: dict[str, ConcreteFunction] = {}
        self._called: dict[str, tuple[Any, Any]] = {}  # arguments with specs for tensors, until they are traced
        self._methods: weakref.WeakKeyDictionary[Any, PolymorphicFunction] = weakref.WeakKeyDictionary()

    def __get__(self, instance: Any, owner: type | None = None) -> PolymorphicFunction:
        """The function as a method; each instance has its own, whose first call may create variables."""
        if instance is None:
            return self
        if instance not in self._methods:
            this = weakref.ref(instance)  # the table must not keep the instance alive
            made = self._methods[instance] = PolymorphicFunction(
                self.python_function, self.input_signature, self._autograph, self._features, this
            )
            vars(made)["__signature__"] = inspect.signature(types.MethodType(self.python_function, instance))
        return self._methods[instance]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the function's ops to the default graph.

        Args:
          *args, **kwargs: those of the Python function. Arrays become tensors; other Python values stay what they are.

        Returns:
          What the function returns, with tensors for numbers and arrays. Each of them comes after all effects of the
          call. An operation that runs these if the function returns None.

        Raises:
          ValueError: when arguments do not fit the input signature, and when a later call creates variables.
          TypeError: when the function returns something else, or changes a variable made without ``use_resource``.
        """
        self._remember(args, kwargs)
        return self._add_ops(args, kwargs)

    def _add_ops(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.input_signature is not None:
            args, kwargs = self._by_signature(args, kwargs), {}
        args, kwargs = nest.map_structure(_argument, (args, kwargs))
        graph = get_default_graph()
        with graph.building(), name_scope(self._name()) as scope:
            context, begin = graph._get_control_flow_context(), len(graph._order)
            with variable_creator_scope(functools.partial(self._make_variable, scope)):
                found = self._call(args, kwargs)
            self._is_called = True
            ops = self._checked([op for op in graph._order[begin:] if op not in self._lifted])
            ends = [*Order(context, ops).ends, *_outside(ops, context)]
            if found is None:
                return group(*ends)
            with control_dependencies(ends):
                return nest.map_structure(self._result, found, expand_composites=True)

    def get_concrete_function(self, *args: object, **kwargs: object) -> ConcreteFunction:
        """The function for arguments of certain types and shapes.

        Args:
          *args, **kwargs: those of the Python function, with a `TensorSpec` or a tensor for each that is a tensor. May
            be left out where there is an input signature.

        Raises:
          ValueError: when the arguments do not fit the input signature.
        """
        if self.input_signature is None:
            return self._trace(args, kwargs)
        if kwargs:
            raise ValueError("Pass what get_concrete_function gets by position: the function has an input_signature.")
        if args:
            nest.assert_same_structure(self.input_signature, args)
            for spec, other in zip(nest.flatten(self.input_signature), nest.flatten(args)):
                if not isinstance(other, (Tensor, TensorSpec)) or not spec.is_compatible_with(other):
                    raise ValueError(
                        f"Python inputs incompatible with input_signature: inputs ({args}), input_signature"
                        f" ({self.input_signature})"
                    )
        return self._trace(self.input_signature, {})

    def traced_functions(self) -> list[ConcreteFunction]:
        """The functions for all arguments that it was called or traced with, traced now where it was only called.

        With an input signature these are the arguments that it tells, and there is one function.
        """
        if self.input_signature is not None:
            return [self.get_concrete_function()]
        for args, kwargs in self._called.values():
            if self._key(args, kwargs) not in self._traced:
                self._trace(args, kwargs)
        self._called.clear()
        return [*self._traced.values()]

    def _trace(self, args: Sequence[object], kwargs: dict[str, object]) -> ConcreteFunction:
        made = self._traced[self._key(args, kwargs)] = ConcreteFunction(self, args, kwargs)
        return made

    def _key(self, args: Sequence[object], kwargs: dict[str, object]) -> str:
        """The arguments as a text, without the names of specs."""
        return repr(nest.map_structure(_spec_of, _canonical(self, args, kwargs)))

    def _remember(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Notes the arguments of a call, if all are tensors, numbers and texts: files of models hold no others."""
        leaves = nest.flatten((args, kwargs))
        if self.input_signature is None and all(isinstance(leaf, _KEPT) for leaf in leaves):
            specs = nest.map_structure(_spec_of, (args, kwargs))
            self._called.setdefault(repr(specs), specs)

    def _call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        args = args if self._instance is None else (self._instance(), *args)
        if self._autograph:
            return autograph.call(self.python_function, args, kwargs, requested=True, features=self._features)
        with autograph.switched(False):
            return self.python_function(*args, **kwargs)

    def _name(self) -> str:
        return str(getattr(self.python_function, "__name__", type(self.python_function).__name__)).strip("<_>")

    def _bind(self, args: Sequence[object], kwargs: dict[str, object]) -> inspect.BoundArguments:
        """What each parameter of the Python function gets, the instance of a method included."""
        instance = () if self._instance is None else (self._instance(),)
        return inspect.signature(self.python_function).bind(*instance, *args, **kwargs)

    def _by_signature(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        assert self.input_signature is not None
        if kwargs:
            args = self._bind(args, kwargs).args[self._instance is not None :]
        if len(args) > len(self.input_signature):
            raise TypeError(_FEW_ARGUMENTS.format(len(args)))
        return tuple(map(_fitting, self.input_signature, args))

    def _make_variable(self, scope: str, following: Callable[..., Any], **kwargs: Any) -> Any:
        """Makes a variable as it would be made outside of the call, whose name scope is ``scope``."""
        if self._is_called:
            raise ValueError(
                f"tf.function-decorated function tried to create variables on non-first call ({self._name()}). Create"
                " them outside of it, or keep those of its first call."
            )
        graph = get_default_graph()
        begin, inner = len(graph._order), f"{graph.get_name_scope()}/".removeprefix(scope)
        with init_scope(), graph.name_scope(None if inner in ("", "/") else inner):
            variable = following(**{**kwargs, "use_resource": True})
        self._lifted.update(graph._order[begin:])
        return variable

    def _checked(self, ops: list[Operation]) -> list[Operation]:
        """TypeError if one of them changes a reference variable, whose reads outside have no place in the order."""
        for op in ops:
            if op.type != "Identity" and any(t.dtype is not t.dtype.base_dtype for t in op.inputs):
                raise TypeError(
                    f"{op.name} ({op.type}) of the tf.function {self._name()} uses {op.inputs[0].op.name} by reference:"
                    " make the variable with use_resource=True, or call tf.enable_resource_variables() first."
                )
        return ops

    def _result(self, value: TensorLike | None) -> Any:
        if value is None:
            return None
        if isinstance(value, TensorArray):
            return value.identity()
        try:
            return identity(convert_to_tensor(value))
        except (TypeError, ValueError):
            raise TypeError(
                "To be compatible with tf.contrib.eager.defun, Python functions must return zero or more Tensors; in"
                f" compilation of {self.python_function}, found return value of type {type(value)}, which is not a"
                " Tensor."
            ) from None


class ConcreteFunction:
    """A `tf.function` for arguments of certain types and shapes.

    It is traced once, in a graph of its own, which says what it returns. A call adds the ops to the caller's graph, as
    a call of the `tf.function` does, so the Python function runs once more.

    Attributes:
      graph: where it was traced.
      inputs, outputs: the tensors of that graph for the arguments and what is captured, and in the result.
      captured_inputs: what the function uses from outside.
      argument_names: the names by which it takes tensors, in their order.
      structured_outputs: the result in that graph.
      structured_input_signature: the positional arguments, and the others by name; a `TensorSpec` for each tensor,
        with the name to call it by.
    """

    def __init__(self, function: PolymorphicFunction, args: Sequence[object], kwargs: dict[str, object]) -> None:
        self._function = function
        self.name, self.argument_names = function._name(), list[str]()
        positional, named = _canonical(function, args, kwargs)
        self.structured_input_signature = (
            tuple(self._specified(*one) for one in positional),
            {name: self._specified(name, value) for name, value in named.items()},
        )
        self.graph = FunctionGraph(get_default_graph())
        with self.graph.as_default():
            specs = [leaf for leaf in nest.flatten(self.structured_input_signature) if isinstance(leaf, TensorSpec)]
            given = [placeholder(spec.dtype, spec.shape, name) for spec, name in zip(specs, self.argument_names)]
            found = self._run(given)
        self.captured_inputs = [*self.graph.captures]
        self.inputs = [*given, *self.graph.captures.values()]
        self.structured_outputs = None if isinstance(found, Operation) else found
        self._ends = [found] if isinstance(found, Operation) else []
        flat = nest.flatten(self.structured_outputs, expand_composites=True)
        self.outputs = [value for value in flat if value is not None]

    @property
    def ends(self) -> list[Operation]:
        """The operations of that graph that run in any case; outputs come after them."""
        return [*dict.fromkeys([*(end for x in self.outputs for end in x.op.control_inputs), *self._ends])]

    @property
    def output_shapes(self) -> Any:
        """The static shapes of the result, nested like it."""
        return self._told(lambda value: getattr(value, "shape", TensorShape(None)))

    @property
    def output_dtypes(self) -> Any:
        """The types of the result, nested like it."""
        return self._told(lambda value: getattr(value, "dtype", None))

    def _told(self, about: Callable[[object], object]) -> Any:
        """Something about each tensor of the result; a composite is a list of its parts."""
        parts = nest.map_structure(
            lambda value: nest.flatten(value, expand_composites=True) if nest.is_composite(value) else value,
            self.structured_outputs,
        )
        return nest.map_structure(about, parts)

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> Any:
        """Adds the function's ops to the default graph.

        Args:
          *args, **kwargs: a tensor for each `TensorSpec`, by position or by its name: that of the spec, or of the
            parameter. Several of one name are called ``x``, ``x_1`` ….

        Returns:
          What the `tf.function` returns.

        Raises:
          TypeError: when there are too many or too few arguments, or one has another name.
          ValueError: when an argument is no tensor, or has another type or shape.
        """
        names = self.argument_names[len(args) :]
        if len(args) > len(self.argument_names) or set(names) != set(kwargs):
            raise TypeError(
                f"Expected argument names {self.argument_names} but got {len(args)} by position and {[*kwargs]} by"
                f" name: pass one tensor for each name to the concrete function of {self.name}."
            )
        values: list[Tensor] = [*args, *(kwargs[name] for name in names)]
        for name, value, expected in zip(self.argument_names, values, self._expected()):
            self._check(name, value, expected)
        return self._run(values)

    def _expected(self) -> Sequence[Any]:
        """What has the types and shapes of the arguments."""
        return self.inputs

    def _specified(self, name: str, value: object) -> Any:
        """One argument, with a `TensorSpec` for each tensor, whose name is the one to call it by."""
        return nest.map_structure(lambda leaf: self._leaf(name, leaf), value)

    def _leaf(self, name: str, leaf: object) -> object:
        if isinstance(leaf, TypeSpec) and not isinstance(leaf, TensorSpec):
            raise NotImplementedError(f"A concrete function has dense tensors as arguments: pass the parts of {leaf}.")
        if not isinstance(leaf, (Tensor, TensorSpec, np.ndarray)):
            return leaf
        wanted = (isinstance(leaf, TensorSpec) and leaf.name) or name
        others = (f"{wanted}_{number}" for number in itertools.count(1))
        self.argument_names.append(
            next(one for one in itertools.chain([wanted], others) if one not in self.argument_names)
        )
        return TensorSpec(leaf.shape, leaf.dtype, self.argument_names[-1])

    def _run(self, values: Sequence[Tensor]) -> Any:
        waiting = iter(values)
        args, kwargs = nest.map_structure(
            lambda leaf: next(waiting) if isinstance(leaf, TensorSpec) else leaf, self.structured_input_signature
        )
        return self._function._add_ops(args, kwargs)

    def _check(self, name: str, value: object, traced: Any) -> None:
        if not isinstance(value, Tensor):
            raise ValueError(
                f"All inputs to `ConcreteFunction`s must be Tensors; on invocation of {self.name}, the input {name}"
                f" ({value}) was not a Tensor."
            )
        if value.dtype.base_dtype is not traced.dtype or not traced.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"The argument '{name}' (value {value}) is not compatible with the type and shape this function was"
                f" traced with. Expected {traced.dtype.name} of shape {traced.shape}, but got shape {value.shape}."
                " Give get_concrete_function a tf.TensorSpec with None for axes which can vary."
            )


def _canonical(
    function: PolymorphicFunction, args: Sequence[object], kwargs: dict[str, object]
) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """The positional arguments with their names, without the instance of a method, and the others, sorted by name."""
    bound = function._bind(args, kwargs)
    if function.input_signature is None:  # else it tells all arguments that there are
        bound.apply_defaults()
    positional = [*zip(_positional_names(bound), bound.args)][function._instance is not None :]
    return positional, {name: bound.kwargs[name] for name in sorted(bound.kwargs)}


def _positional_names(bound: inspect.BoundArguments) -> Iterator[str]:
    """The names of the positional arguments; those after the named ones are ``args_0``, ``args_1`` …."""
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from (f"{name}_{number}" for number in range(len(bound.arguments[name])))
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            yield name


def _outside(ops: list[Operation], context: Any) -> list[Operation]:
    """The ops from outside that some of ``ops`` wait for: a function may group what initializes its variables."""
    made = set(ops)
    controls = [control for op in ops if op._control_flow_context is context for control in op.control_inputs]
    return [*dict.fromkeys(control for control in controls if control not in made)]


_KEPT = (Tensor, TensorSpec, np.ndarray, bool, int, float, str, type(None))


def _spec_of(leaf: Any) -> Any:
    if isinstance(leaf, (Tensor, TensorSpec, np.ndarray)):
        return TensorSpec(leaf.shape, as_dtype(leaf.dtype).base_dtype)
    return leaf


def _argument(value: Any) -> Any:
    return convert_to_tensor(value) if isinstance(value, np.ndarray) else value


def _fitting(spec: Any, value: Any) -> Any:
    """The argument with tensors of the spec's types; ValueError if one has another type or shape."""
    if isinstance(spec, dict) and isinstance(value, dict) and spec.keys() == value.keys():
        return {name: _fitting(part, value[name]) for name, part in spec.items()}  # a value may be a list of numbers
    if not isinstance(spec, TypeSpec):
        return nest.map_structure(_fitting, spec, value)
    if isinstance(spec, TensorSpec) and not isinstance(value, Tensor):
        value = convert_to_tensor(value, spec.dtype)
    if not spec.is_compatible_with(value):
        raise ValueError(
            f"Python inputs incompatible with input_signature:\n  inputs: ({value})\n  input_signature: ({spec})"
        )
    return value


@export(
    "tf.function", "tensorflow.python.eager.def_function.function", "tensorflow.python.eager.function.defun",
    "tensorflow.contrib.eager.defun", "tensorflow.contrib.eager.function", "tensorflow.contrib.eager.python.tfe.defun",
    "tensorflow.contrib.eager.python.tfe.function",
)  # fmt: skip
def function(
    func: Callable[..., Any] | None = None, input_signature: Sequence[Any] | None = None, autograph: bool = True,
    experimental_autograph_options: object = None, experimental_relax_shapes: bool = False,
    experimental_compile: bool | None = None,
) -> Any:  # fmt: skip
    """Makes a function whose ops with effects run in the order of the program (``tf.function``).

    Each call calls ``func`` anew and adds its ops to the graph. TensorFlow calls it once for each combination of types
    and shapes, and makes one op of it. Python's own effects (``print``, lists that grow) differ in this, and so do the
    numbers of random ops without a seed of their own.

    Args:
      func: of tensors, variables and Python values; None: returns a decorator.
      input_signature: a `TensorSpec` per argument, nested like these.
      autograph: whether ``if``, ``while``, ``for`` and their kin on tensors become conds and loops of the graph, which
        needs diastatic-malt (the extra ``autograph``).
      experimental_autograph_options: one or several `tf.autograph.experimental.Feature`.
      experimental_relax_shapes, experimental_compile: without effect.
    """
    if func is None:
        return lambda func: PolymorphicFunction(func, input_signature, autograph, experimental_autograph_options)
    return PolymorphicFunction(func, input_signature, autograph, experimental_autograph_options)


# ---- tf.xla ----------------------------------------------------------------------------------------------------

_COMPILED = "_xla_compile_id"  # the attr of the ops of a computation: its name
_OUTPUT = "XlaClusterOutput"  # the type that the outputs' identities have in TensorFlow, for their gradient
_scope_numbers: weakref.WeakKeyDictionary[Graph, Iterator[int]] = weakref.WeakKeyDictionary()


@export(
    "tf.xla.experimental.compile", "tf.compat.v2.xla.experimental.compile", "tf.contrib.compiler.xla.compile",
    "tensorflow.python.compiler.xla.xla.compile",
)  # fmt: skip
def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Adds the ops of a computation that is to be compiled as one (``tf.xla.experimental.compile``).

    Here each device decides what it compiles, so the ops run as they would without this call; a GPU compiles them.
    Variables that the computation makes are resources, and summaries do not join their collection.

    Args:
      computation: gets a tensor for each of ``inputs``, nested like these. It may not compile others.
      inputs: tensors, or what becomes tensors; nested or not.

    Returns:
      A list of the tensors that the computation returns, without the operations after them, which run before these
      tensors are there. An operation if it returns no tensors. The tensors in their structure if that is a nested one.

    Raises:
      TypeError: when ``inputs`` is no sequence.
      ValueError: when the computation returns something else, or is part of another one. `RuntimeError` when somebody
        asks for gradients through it: they have to be taken inside.
    """
    inputs = [] if inputs is None else inputs
    if not isinstance(inputs, Sequence):
        raise TypeError("inputs must be a list")
    values = [convert_to_tensor(value) for value in nest.flatten(inputs)]
    graph = get_default_graph()
    if _COMPILED in graph.scopes.attr_scope:
        inner = graph.unique_name("input_0", mark_as_used=False)
        raise ValueError(f"XLA compiled computations cannot be nested, (operator name: {inner})")
    name = graph.unique_name("cluster")
    no_op(name=f"{name}/pivot")
    with graph._attr_scope({_COMPILED: name.encode()}), _of_computation(graph):
        values = [identity(value, name=f"input_{number}") for number, value in enumerate(values)]
        found = computation(*nest.pack_sequence_as(inputs, values))
        tensors, ops = _nested_outputs(found) if _is_nested(found) else _flat_outputs(found)
        tensors = [identity(tensor) for tensor in tensors]
    if not tensors:
        return group(*ops, name="output_0")
    with graph.gradient_override_map({"Identity": _OUTPUT}):
        tensors = [identity(tensor, name=f"output{number}") for number, tensor in enumerate(tensors)]
    with control_dependencies(ops):
        tensors = [identity(tensor, name=f"output_{number}") for number, tensor in enumerate(tensors)]
    return nest.pack_sequence_as(found, tensors) if _is_nested(found) else tensors


@contextmanager
def _of_computation(graph: Graph) -> Iterator[None]:
    """While it lasts, variables are resources. The summaries that are made leave the collection after it."""
    scope, summaries = get_variable_scope(), graph.get_collection_ref(GraphKeys.SUMMARIES)
    saved, count = scope.use_resource, len(summaries)
    scope.set_use_resource(True)
    try:
        yield
    finally:
        scope.set_use_resource(saved)
        del summaries[count:]


def _is_nested(found: Any) -> bool:
    """Whether what a computation returned is more than one value, or one sequence of values."""
    if isinstance(found, Sequence):
        return any(isinstance(one, (Mapping, Sequence)) for one in found)  # a string is a sequence, too
    return nest.is_nested(found)


def _flat_outputs(found: Any) -> tuple[list[Tensor], list[Operation]]:
    found = [] if found is None else found
    values = list(found) if isinstance(found, Sequence) else [found]
    made = [*map(_output, [*values, no_op()])]
    tensors = [value for value in made if isinstance(value, Tensor)]
    if any(not isinstance(value, Tensor) for value in made[: len(tensors)]):
        raise ValueError(
            "XLA computation function must return zero or more Tensor values followed by zero or more Operations."
        )
    return tensors, made[len(tensors) :]


def _nested_outputs(found: Any) -> tuple[list[Tensor], list[Operation]]:
    made = [*map(_output, nest.flatten(found))]
    for value in made:
        if isinstance(value, Operation):
            raise ValueError(
                "xla.compile does not support Operation as return value in non-flat output structure. You can set"
                " returned Operations as control dependencies of returned Tensors so Operations are triggered when"
                f' Tensors are evaluated. Operation found: "{value.name}"'
            )
    return made, []


def _output(value: Any) -> Any:
    if isinstance(value, Operation):
        return value
    try:
        return convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "XLA computation function return values must all either be Operations or convertible to Tensors. Got"
            f' error: "{error}"'
        ) from None


def _no_gradient(node: Operation, grad: Tensor) -> Any:
    raise RuntimeError(
        "Gradient computation of graph in xla.compile() is prohibited because it can cause performance"
        " degradation.Please move gradient computation inside xla.compile()."
    )


register_gradient(_OUTPUT, _no_gradient)


@export(
    "tf.xla.experimental.jit_scope", "tf.compat.v2.xla.experimental.jit_scope",
    "tf.contrib.compiler.jit.experimental_jit_scope", "tensorflow.python.compiler.xla.jit.experimental_jit_scope",
)  # fmt: skip
@contextmanager
def jit_scope(
    compile_ops: bool | Callable[[Any], bool] = True, separate_compiled_gradients: bool = False
) -> Iterator[None]:
    """Marks the ops made inside as ones to compile (``tf.xla.experimental.jit_scope``).

    They get TensorFlow's attrs ``_XlaCompile``, ``_XlaScope`` and ``_XlaSeparateCompiledGradients``, which an exported
    graph keeps. Here each device decides what it compiles: the marks change nothing.

    Args:
      compile_ops: whether to compile them, or a function that gets the NodeDef of each op and says so.
      separate_compiled_gradients: a mark as well.
    """
    graph = get_default_graph()
    scope = graph.scopes.attr_scope.get("_XlaScope")
    if scope is None:
        scope = b"jit_scope_%d" % next(_scope_numbers.setdefault(graph, itertools.count()))
    marks = {"_XlaSeparateCompiledGradients": bool(separate_compiled_gradients), "_XlaScope": scope}
    chosen = (lambda node_def: bool(compile_ops(node_def))) if callable(compile_ops) else bool(compile_ops)
    with graph._attr_scope({"_XlaCompile": chosen, **marks}):
        yield
