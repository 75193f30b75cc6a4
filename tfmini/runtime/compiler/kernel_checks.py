"""Whether kernels return what their ops declare: a check for tests and for writers of ops.

With ``TFMINI_CHECK_KERNELS=1`` every kernel is wrapped when a program is compiled, and the number
of its results, their dtypes and their shapes (as far as the client's graph knows them) are
compared with the declaration. Without it no program contains a trace of this: a kernel that is
wrong then gives wrong numbers, at full speed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.graph.node import Node
from tfmini.graph.op_def import output_dtypes
from tfmini.graph.op_types import KERNELS, OPS, Kernel
from tfmini.graph.operation import Operation, node_of
from tfmini.shapes import RawShape, compatible_raw, format_raw

CHECK_ENV = "TFMINI_CHECK_KERNELS"
ENABLED = os.environ.get(CHECK_ENV) == "1"
_SHAPES = "_checked_shapes"
# Values of these types are objects of the runtime.
_OPAQUE = frozenset({dtypes.resource, dtypes.variant})


def node_with_shapes(operation: Operation) -> Node:
    """`node_of`, with the shapes that the client knows for the worker to check."""
    node = node_of(operation)
    shapes = [tensor.raw_shape for tensor in operation.outputs]
    return node.replace(attrs={**node.attrs, _SHAPES: shapes})


def checked(function: Callable[..., Any], kernel: Kernel, node: Node) -> Callable[..., Any]:
    """The function of a kernel, which raises an error for a result that ``node`` does not declare."""
    if kernel.makes_state:
        return function
    check = ResultCheck(node)
    if kernel.is_async:
        return lambda wait, *args: function(_CheckedWait(wait, check), *args)
    return lambda *args: check(function(*args))


# They are arrays and compute otherwise: a product of matrices is no product of elements.
_OTHER_RULES = (np.matrix, np.ma.MaskedArray)


class ResultCheck:
    """Compares the result of a kernel with the declaration of its node, and returns it.

    Raises:
      InternalError: naming the op and where its kernel stands.
    """

    def __init__(self, node: Node, shapes: Sequence[RawShape] | None = None) -> None:
        op_def = OPS[node.op].op_def
        self.node = node
        self._dtypes = output_dtypes(op_def, node.attrs)
        self._shapes = node.attrs.get(_SHAPES) if shapes is None else shapes
        self._names = [f"'{out.name}'" for out in op_def.outputs]
        self._single = len(op_def.outputs) == 1 and not op_def.outputs[0].is_list

    def __call__(self, result: Any) -> Any:
        if not self._dtypes:
            return result
        values = (result,) if self._single else result
        if type(values) not in (tuple, list):
            raise self._wrong(f"one {type(values).__name__} instead of a tuple of {len(self._dtypes)} outputs")
        if len(values) != len(self._dtypes):
            raise self._wrong(f"{len(values)} outputs instead of {len(self._dtypes)}")
        for index, (value, dtype) in enumerate(zip(values, self._dtypes)):
            if dtype.base_dtype not in _OPAQUE and not dtype._is_ref_dtype:
                self._check(index, value, dtype)
        return result

    def _check(self, index: int, value: Any, dtype: dtypes.DType) -> None:
        what = self._names[index] if len(self._names) == len(self._dtypes) else str(index)
        if dtype is dtypes.string and type(value) is bytes:
            found: Any = dtype.numpy
        elif isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, _OTHER_RULES):
            found = value.dtype
        else:
            raise self._wrong(f"{type(value).__name__} for output {what}: an array or a numpy scalar is wanted")
        if found != dtype.numpy:
            raise self._wrong(f"{found} for output {what}, which is declared as {dtype.name}")
        shape = np.shape(value)
        expected = None if self._shapes is None or index >= len(self._shapes) else self._shapes[index]
        if not compatible_raw(expected, shape):
            raise self._wrong(
                f"shape {format_raw(shape)} for output {what}, where the graph has {format_raw(expected)}"
            )

    def _wrong(self, what: str) -> errors.InternalError:
        return errors.InternalError.of(f"The kernel of {self.node.op} at {kernel_site(self.node.op)} returned {what}.")


def kernel_site(op_type: str) -> str:
    """``file:line`` of an op's kernel, or of its declaration when the kernel has no line."""
    kernel = next((k for (name, _), k in tuple(KERNELS.items()) if name == op_type), None)
    code = getattr(kernel.function, "__code__", None) if kernel is not None else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else OPS[op_type].site


class _CheckedWait:
    """A `graph.waiting.Wait` whose answer is checked."""

    __slots__ = ("_wait", "_check")

    def __init__(self, wait: Any, check: ResultCheck) -> None:
        self._wait = wait
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wait, name)

    def done(self, result: Any = None) -> bool:
        try:
            self._check(result)
        except errors.InternalError as error:
            return bool(self._wait.fail(error))
        return bool(self._wait.done(result))
