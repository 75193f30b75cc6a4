"""``tf.py_function``: a Python function of eager tensors as an op."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.compat.eager_tensors import EagerGraph
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import exactly_default
from tfmini.graph.operation import Tensor
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.gradients.backprop import gradients
from tfmini.ops.py_func import eager_py_func
from tfmini.ops.variables.base import Variable


class EagerFunction:
    """What a step calls with arrays, and its gradient function, which differentiates the ops of the latest call."""

    def __init__(self, function: Callable[..., Any], input_types: Sequence[Any], output_types: Sequence[Any]) -> None:
        self._function = function
        self._input_types, self._output_types = list(input_types), list(output_types)
        self._lock = threading.Lock()
        self._latest: tuple[EagerGraph, list[Tensor], list[Tensor]] | None = None

    def __call__(self, *values: Any) -> list[Any]:
        graph = EagerGraph()
        with exactly_default(graph):
            arguments = [graph.argument(value, dtype) for value, dtype in zip(values, self._input_types)]
            returned = self._function(*arguments)
            if not isinstance(returned, (list, tuple)):
                returned = [] if returned is None else [returned]
            results = [_result(value, dtype) for value, dtype in zip(returned, self._output_types)]
            found = graph.values_of(results)
        with self._lock:
            self._latest = graph, arguments, results
        return found + list(returned[len(found) :])  # the op says that these are too many

    def backward(self, *upstream: Any) -> list[Any]:
        """The gradients of the latest call's arguments; zeros where they do not depend on an argument.

        Args:
          upstream: the gradient of each result.

        Raises:
          RuntimeError: there was no call, or its gradients have been computed already.
        """
        with self._lock:
            latest, self._latest = self._latest, None
        if latest is None:
            raise RuntimeError("the gradient of a py_function can be computed once after each call of it")
        graph, arguments, results = latest
        with exactly_default(graph):
            given = [graph.argument(value, t.dtype) for value, t in zip(upstream, results)]
            pairs = [(t, dy) for t, dy in zip(results, given) if t.dtype.is_floating or t.dtype.is_complex]
            found = gradients([t for t, _ in pairs], arguments, [dy for _, dy in pairs])
            wanted = [zeros_like(t) if g is None else convert_to_tensor(g) for t, g in zip(arguments, found)]
            return graph.values_of(wanted)


def _result(value: object, dtype: dtypes.DType) -> Tensor:
    if isinstance(value, Variable):
        raise RuntimeError(
            "Attempting to return a variable from an eagerly executed py_func. Return a tensor or an array instead,"
            f" such as the result of its `read_value()`: {value}"
        )
    return convert_to_tensor(value, dtype)


@export("tf.py_function")
def py_function(func: Callable[..., Any], inp: Any, Tout: Any, name: str | None = None) -> Any:
    """Wraps a Python function of tensors with values as an op (``tf.py_function``).

    The function may use op functions, ``numpy()`` and Python's control flow on its arguments. Gradients pass through
    it, once after each step. It runs in the process that built the graph, as that of `tf.py_func`, whose errors it
    also has.

    Args:
      func: takes one tensor per input; returns tensors, or what can be converted to them, of the types ``Tout``.
      inp: a list of tensors.
      Tout: a type, for one output, or a list of types.
      name: of the op.

    Returns:
      A tensor for a single type, and a list of tensors for a list of types; the operation for an empty list. Shapes are
      unknown: use ``set_shape``.

    Raises:
      ValueError: ``func`` cannot be called.
    """
    if not callable(func):
        raise ValueError(f"Expected func to be callable. Received func={func} of type {type(func)}.")
    inputs = [convert_to_tensor(value) for value in inp]
    types = [dtypes.as_dtype(t) for t in (Tout if isinstance(Tout, (list, tuple)) else [Tout])]
    function = EagerFunction(func, [t.dtype.base_dtype for t in inputs], types)
    return eager_py_func(function, inputs, Tout, name)
