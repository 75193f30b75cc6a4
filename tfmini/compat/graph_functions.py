"""Names of TensorFlow's private module ``function``: `Defun`, and `symbolic_gradient` of ``functional_ops``.

A defined function has no body of its own in the graph: each call adds the ops of the body under a name scope with the
function's name. So a GraphDef needs no library of functions, and the placer sees every op.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.control import group
from tfmini.ops.gradients.backprop import gradients
from tfmini.ops.gradients.custom_gradient import custom_gradient


class CalledFunction:
    """What a gradient function gets as the op of a call.

    Attributes:
      name: of the call's name scope.
      type: the function's name.
      inputs, outputs: tensors.
    """

    def __init__(self, name: str, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.name, self.type = name, kind
        self.inputs, self.outputs = list(inputs), list(outputs)


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

    def add_to_graph(self, graph: Any) -> None:
        """Does nothing: calls bring their ops along."""

    def __call__(self, *args: object, name: str | None = None) -> Any:
        """Adds the function's ops to the graph.

        Args:
          *args: tensors, or what becomes tensors of the declared types.
          name: of the name scope; default: the function's name.

        Returns:
          The result, a list of results, or an operation for a function without results.

        Raises:
          ValueError: for a wrong number of arguments.
          TypeError: for arguments of wrong types.
        """
        with name_scope(name or self.name) as scope:
            inputs = self._inputs(args)
            if self._grad_func is None and self._python_grad_func is None:
                return self._results(inputs)
            return custom_gradient(functools.partial(self._with_gradient, scope))(*inputs)

    def _inputs(self, args: Sequence[Any]) -> list[Tensor]:
        types = self.declared_input_types
        if types and len(args) != len(types):
            raise ValueError(f"Expected number of arguments: {len(types)}, received: {len(args)}")
        return [convert_to_tensor(arg, types[i] if types else None) for i, arg in enumerate(args)]

    def _results(self, inputs: Sequence[Tensor]) -> Any:
        found = self._function(*inputs)
        if found is None:
            return group(*inputs)
        several = isinstance(found, (list, tuple))
        results = [convert_to_tensor(one) for one in (found if several else [found])]
        self._give_shapes(inputs, results)
        return results[0] if len(results) == 1 else results

    def _give_shapes(self, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        if self._shape_func is None:
            return
        shapes = self._shape_func(CalledFunction("", self.name, inputs, results))
        for result, shape in zip(results, shapes):
            result.set_shape(shape)

    def _with_gradient(self, scope: str, *inputs: Tensor) -> tuple[Any, Callable[..., Any]]:
        results = self._results(inputs)
        outputs = results if isinstance(results, list) else [results]

        def gradient(*grads: Tensor) -> Any:
            if self._grad_func is not None:
                return self._grad_func(*inputs, *grads)
            assert self._python_grad_func is not None
            return self._python_grad_func(CalledFunction(scope.rstrip("/"), self.name, inputs, outputs), *grads)

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
        *input_types: Any,
        func_name: str | None = None,
        grad_func: DefinedFunction | None = None,
        python_grad_func: Callable[..., Any] | None = None,
        shape_func: Callable[..., Any] | None = None,
        **other: Any,
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
