"""Python functions as ops: ``PyFunc``, ``PyFuncStateless``, ``tf.py_func``, ``tf.numpy_function``,
and ``EagerPyFunc``, whose functions `tf.py_function` prepares.

A graph holds only a token. The function stays in the process that built the graph, so the op must
run there. Tokens differ between processes, so a worker never calls a function of another worker that
runs the same script. A graph keeps its functions alive.
"""

from __future__ import annotations

import functools
import os
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.families import Operation, Tensor, all_of, control_dependencies, convert_to_tensor, op, unknown_shapes
from tfmini.graph.graph import Graph
from tfmini.graph.node import Node
from tfmini.graph.registry import OpHandle
from tfmini.ops.array.kernel_arguments import refuse

_SIGNATURE = "(input: Tin) -> output: Tout; token: string; Tin: list(type) >= 0; Tout: list(type) >= 0"
py_func_op = op("PyFunc" + _SIGNATURE, stateful=True, shape=unknown_shapes, differentiable=False)
py_func_stateless_op = op("PyFuncStateless" + _SIGNATURE, shape=unknown_shapes, differentiable=False)
eager_py_func_op = op(
    "EagerPyFunc(input: Tin) -> output: Tout; token: string; is_async: bool = false; Tin: list(type) >= 0;"
    " Tout: list(type) >= 0", stateful=True, shape=unknown_shapes,
)  # fmt: skip


class _Functions:
    """The functions of this process by token, held weakly: graphs own them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self.renew_process()
        self._by_token: weakref.WeakValueDictionary[str, _Entry] = weakref.WeakValueDictionary()

    def renew_process(self) -> None:
        """Gives this process a random number for its tokens; a forked child needs one of its own."""
        self._process = os.urandom(4).hex()

    def insert(self, function: Callable[..., Any], graph: Graph) -> str:
        """Stores a function under a new token for as long as ``graph`` lives."""
        entry = _Entry(function)
        with self._lock:
            token = f"pyfunc_{self._next}@{self._process}"
            self._next += 1
            self._by_token[token] = entry
        graph.attachments.setdefault("py_func", []).append(entry)
        return token

    def find(self, token: str) -> Callable[..., Any] | None:
        entry = self._by_token.get(token)
        return None if entry is None else entry.function

    def __len__(self) -> int:
        return len(self._by_token)


class _Entry:
    """Holds a function, for weak references: many callables do not support them."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


functions = _Functions()
os.register_at_fork(after_in_child=functions.renew_process)

# The error class for each class of Python exceptions; UnknownError for all others.
_ERROR_CLASSES: tuple[tuple[Any, Any], ...] = (
    ((ValueError, TypeError), errors.InvalidArgumentError),
    (StopIteration, errors.OutOfRangeError),
    (MemoryError, errors.ResourceExhaustedError),
    (NotImplementedError, errors.UnimplementedError),
)


@py_func_stateless_op.kernel_factory("CPU", may_block=True)
def _stateless_kernel(node: Node) -> Callable[..., Any]:
    """A stateless function without inputs is a constant, so it is called once."""
    call = _kernel(node)
    if node.attrs["Tin"]:
        return call
    constant = functools.cache(lambda: call([]))
    return lambda values: constant()


@all_of(eager_py_func_op, py_func_op).kernel_factory("CPU", may_block=True)
def _kernel(node: Node) -> Callable[..., Any]:
    token = node.attrs["token"].decode()
    wanted = list(node.attrs["Tout"])

    def call(values: list[Any]) -> Any:
        function = functions.find(token)
        if function is None:
            refuse(
                f"callback {token} is not found in this process: a py_func runs only in the process that built its"
                " graph, while that graph exists. Place it on that process's task, and open the session there."
            )
        return _as_outputs(_call(function, values), wanted, token)

    return call


def _call(function: Callable[..., Any], values: list[Any]) -> Any:
    try:
        return function(*[_as_argument(v) for v in values])
    except (Exception, SystemExit) as error:  # of the user's function; the exception's class decides the status
        raise status_of(error) from error


def status_of(error: BaseException) -> errors.OpError:
    """The error that a step gets for an exception of a user's function; an `OpError` is itself."""
    if isinstance(error, errors.OpError):
        return error
    kind = next((cls for types, cls in _ERROR_CLASSES if isinstance(error, types)), errors.UnknownError)
    return kind.of(f"{type(error).__name__}: {error}\n{_frames_of(error)}")


def _frames_of(error: BaseException) -> str:
    """The traceback of the user's function as text, because another process may read the error."""
    inner = error.__traceback__.tb_next if error.__traceback__ else None  # without our own frame
    return "".join(traceback.format_exception(type(error), error, inner))


def _as_argument(value: Array) -> Any:
    """Rank 0 as a scalar, arrays as copies: the function may change its arguments."""
    if isinstance(value, np.ndarray):
        return value.copy() if value.ndim else value[()]
    return value


def _as_outputs(result: object, wanted: list[dtypes.DType], token: str) -> tuple[Any, ...]:
    found: Sequence[Any]
    if isinstance(result, (list, tuple)):
        found = result
    else:
        found = [] if result is None else [result]
    if len(found) != len(wanted):
        refuse(f"{token} returns {len(found)} values, but expects to see {len(wanted)} values.")
    return tuple(_as_output(i, value, dtype, token) for i, (value, dtype) in enumerate(zip(found, wanted)))


def _as_output(index: int, value: object, dtype: dtypes.DType, token: str) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "SU" and not isinstance(value, (np.ndarray, np.generic)):
        array = np.array(value, object)  # numpy's type of texts drops the zeros at their end
    _check_representable(array)
    is_text = array.dtype.kind in "OSU"
    if is_text and dtype is dtypes.string:
        return _as_bytes(array)
    if is_text or array.dtype != dtype.numpy:
        got = "string" if is_text else dtypes.cpp_name(array.dtype)
        refuse(f"{index}-th value returned by {token} is {got}, but expects {dtypes.cpp_name(dtype)}")
    # The function may keep its array and change it later.
    return array.copy()


def _check_representable(array: Array) -> None:
    """Refuses values that no tensor can hold: structured arrays, and objects other than text."""
    if array.dtype.kind == "V" and array.dtype.names is not None:
        raise errors.InternalError.of(f"Unsupported numpy data type: {array.dtype}")
    if array.dtype.kind == "O":
        odd = next((item for item in array.ravel() if not isinstance(item, (str, bytes))), None)
        if odd is not None:
            raise errors.InternalError.of(f"Unsupported object type {type(odd).__name__}")


def _as_bytes(array: Array) -> Any:
    flat = np.empty(array.size, dtype=object)
    flat[:] = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
    return flat.reshape(array.shape)


@export("tf.py_func")
def py_func(
    func: Callable[..., Any], inp: Sequence[TensorLike], Tout: DTypeLike | Sequence[DTypeLike], stateful: bool = True,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Wraps a Python function of numpy arrays as an op (``tf.py_func``).

    Args:
      func: takes one array per input, returns arrays of the types ``Tout``. ValueError and
        TypeError become `InvalidArgumentError`, StopIteration `OutOfRangeError`, MemoryError
        `ResourceExhaustedError`, NotImplementedError `UnimplementedError`, others `UnknownError`.
      inp: a list of tensors.
      Tout: a type, for one output, or a list of types.
      stateful: whether two calls with the same inputs may differ.
      name: of the op.

    Returns:
      A tensor for a single type, and a list of tensors for a list of types. For an empty list: the
      operation if stateful, else an empty list. Shapes are unknown: use ``set_shape``.
    """
    return _made(py_func_op if stateful else py_func_stateless_op, func, inp, Tout, name)


def eager_py_func(
    function: Any, inp: Sequence[TensorLike], Tout: DTypeLike | Sequence[DTypeLike], name: str | None = None
) -> Any:
    """The op of ``tf.py_function``; see `py_func`.

    Args:
      function: takes and returns arrays. Its method ``backward`` takes the gradients of the results of its latest call,
        and returns those of the inputs.
    """
    return _made(eager_py_func_op, function, inp, Tout, name)


@eager_py_func_op.gradient
def _eager_gradient(op: Operation, *upstream: Tensor) -> list[Any]:
    function: Any = functions.find(op.attrs["token"].decode())
    if function is None:  # imported from a GraphDef
        raise LookupError(f"The function of {op.name} is not in this process, so it has no gradient.")
    with control_dependencies([op]):
        found = py_func(function.backward, upstream, [t.dtype.base_dtype for t in op.inputs])
    for gradient, tensor in zip(found, op.inputs):
        gradient.set_shape(tensor.shape)
    return [g if t.dtype.is_floating or t.dtype.is_complex else None for g, t in zip(found, op.inputs)]


def _made(
    handle: OpHandle, function: Callable[..., Any], inp: Sequence[TensorLike], Tout: Any, name: str | None,
) -> Any:  # fmt: skip
    graph = get_default_graph()
    token = functions.insert(function, graph)
    is_list = isinstance(Tout, (list, tuple))
    types = [dtypes.as_dtype(t) for t in (Tout if is_list else [Tout])]
    if not types:
        inputs = [convert_to_tensor(value) for value in inp]
        attrs = {"token": token.encode(), "Tin": [t.dtype.base_dtype for t in inputs], "Tout": []}
        made = graph.create_op(handle.name, inputs, name=name, attrs=attrs)
        return [] if handle is py_func_stateless_op else made  # As in TensorFlow: no effect to run it for.
    result = handle(list(inp), token=token, Tout=types, name=name)
    outputs: list[Tensor] = list(result)
    return outputs if is_list else outputs[0]


@export("tf.numpy_function")
def numpy_function(
    func: Callable[..., Any], inp: Sequence[TensorLike], Tout: DTypeLike | Sequence[DTypeLike], name: str | None = None
) -> Any:
    """`py_func`, always stateful (``tf.numpy_function``)."""
    return py_func(func, inp, Tout, stateful=True, name=name)
