"""``tf.py_function``: a Python function of eager tensors as an op."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import DTypeLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import exactly_default
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scopes import ControlScope
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.identity import placeholder
from tfmini.ops.gradients import gradients
from tfmini.ops.py_func import eager_py_func
from tfmini.ops.variables.base import Variable
from tfmini.protos import ConfigProto
from tfmini.runtime.client.master_clients import MasterClient
from tfmini.runtime.client.session import BaseSession, Session
from tfmini.shapes import TensorShape


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
def py_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: DTypeLike | Sequence[DTypeLike], name: str | None = None
) -> Any:
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


# ---- Tensors with values, for the functions of ``tf.py_function`` --------------------------------------------------
# Such a function runs during a step and calls op functions on values. Each call of it has an `EagerGraph`, in which its
# ops are built as usual. The graph computes an op when its value is asked for, at the latest when the function returns,
# and keeps the values: an op runs once, and ops with side effects run in the order in which they were made.


@export("tensorflow.python.framework.ops.EagerTensor")
class EagerTensor(Tensor):
    """A tensor of an `EagerGraph`: it has a value."""

    __slots__ = ()

    def numpy(self) -> Any:
        """The value: an array of its own, or a scalar for rank 0.

        Raises:
          errors.OpError: an op that it depends on has failed.
        """
        value = self._value()
        return value.copy() if isinstance(value, np.ndarray) else value

    def _value(self) -> Any:
        graph = self.op.graph
        assert isinstance(graph, EagerGraph)
        return graph.values_of([self])[0]

    @property
    def shape(self) -> TensorShape:
        """The shape of the value, always known."""
        if self.raw_shape is None or None in self.raw_shape:
            self.raw_shape = np.shape(self._value())
        return TensorShape(self.raw_shape)

    def get_shape(self) -> TensorShape:
        """`shape`."""
        return self.shape

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: BaseSession | None = None) -> Any:
        """`numpy`."""
        return self.numpy()

    def __bool__(self) -> bool:
        return bool(self._value())

    __nonzero__ = __bool__

    def __int__(self) -> int:
        return int(self._value())

    def __float__(self) -> float:
        return float(self._value())

    def __complex__(self) -> complex:
        return complex(self._value())

    def __index__(self) -> int:
        return self._value().__index__()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self._value())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array__(self, *options: Any, **named: Any) -> Any:
        return np.array(self._value(), *options, **{**named, "copy": True})

    def __format__(self, spec: str) -> str:
        return format(self._value(), spec) if spec else str(self)

    def __str__(self) -> str:
        return f"tf.Tensor({self._value()}, shape={self.shape}, dtype={self.dtype.name})"

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, numpy={self._value()!r}>"


class EagerGraph(Graph):
    """See the module. One thread uses it at a time."""

    tensor_class = EagerTensor
    prefers_resources = True  # a read of such a variable is an effect, in order with assignments

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[Tensor, Any] = {}
        self._effects: list[Operation] = []  # that have not run yet
        self._session: Session | None = None

    def argument(self, value: Any, dtype: dtypes.DType) -> Tensor:
        """A tensor with a given value."""
        made = placeholder(dtype, np.shape(value), name="argument")
        self._values[made] = value
        return made

    def add_op(self, *args: Any, **options: Any) -> Operation:
        """As in `Graph`; an op with side effects runs after those before it, outside of conds and loops."""
        made = super().add_op(*args, **options)
        if made.handle.op_def.is_stateful and made._control_flow_context is None:
            made._add_control_inputs(self._effects[-1:])
            self._effects.append(made)
        return made

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> ControlScope:
        """Only leaves the dependencies around: effects run in their order anyway."""
        return super().control_dependencies(None if control_inputs is None else [])

    def values_of(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The values of tensors. All effects so far run before.

        Raises:
          errors.OpError: of an op that has failed.
        """
        effects, self._effects = self._effects, []
        wanted = [t for t in tensors if t not in self._values]
        wanted += [t for op in effects for t in op.outputs if _is_fetched(t) and t not in wanted]
        if wanted or effects:
            found = self._run([*wanted, *effects])
            self._values.update(zip(wanted, found))
        return [self._values[t] for t in tensors]

    def _run(self, fetches: list[Any]) -> list[Any]:
        if self._session is None:
            self._session = _LocalSession(graph=self, config=ConfigProto(allow_soft_placement=True))
        try:
            return self._session.run(fetches, self._values)  # type: ignore[no-any-return]
        except errors.OpError as error:  # its operation is none of the graph whose step runs the function
            raise errors.from_code(error.error_code, str(error)) from error


def _is_fetched(output: Tensor) -> bool:
    """Whether the output of an effect is kept. Handles and variables are asked for again, which changes nothing."""
    return not output.dtype._is_ref_dtype and output.dtype not in (dtypes.resource, dtypes.variant)


class _LocalSession(Session):
    """A session in this process, also where others belong to a server."""

    def _connect(self) -> MasterClient:
        self._target = ""
        return super()._connect()

    def _note_growth(self, operations: list[Operation]) -> None:
        """Its graph grows with each value that is asked for."""
