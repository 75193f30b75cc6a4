"""Ops that print or report values: ``Print``, ``PrintV2``, ``StringFormat``, ``Assert``."""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import either, export
from tfmini.graph.conversion import SparseComponents, convert_n_to_tensor, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    colocate_with,
    control_dependencies,
    name_scope,
    op,
    same_shape,
    sized,
)
from tfmini.graph.node import Node
from tfmini.numerics.texts import edges_text, summary
from tfmini.ops.array.identity import check_numerics
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.control import group, no_op, with_dependencies
from tfmini.ops.flow.cond import cond

_log = logging.getLogger("tensorflow")

print_op = op(
    """Print(input: T, data: U) -> output: T
    T: type
    U: list(type) >= 0
    message: string = ''
    first_n: int = -1
    summarize: int = 3""",
    stateful=True,
    shape=same_shape,
)
print_op.gradient(lambda node, grad: [grad] + [None] * (len(node.inputs) - 1))
print_v2_op: OpHandle[Operation] = op(
    r"PrintV2(input: string); output_stream: string = 'stderr'; end: string = '\n'",
    stateful=True,
    differentiable=False,
    shape=sized("() ->"),
)
string_format_op = op(
    """StringFormat(inputs: T) -> output: string
    T: list(type) >= 0
    template: string = '%s'
    placeholder: string = '%s'
    summarize: int = 3""",
    shape=[()],
    differentiable=False,
)
assert_op: OpHandle[Operation] = op(
    "Assert(condition: bool, data: T); T: list(type) >= 1; summarize: int = 3",
    stateful=True,
    copyable=True,
    differentiable=False,
    shape=sized("() ->"),
)


@print_op.kernel_factory("CPU")
def _print(node: Node) -> Callable[..., Any]:
    attrs = node.attrs
    message, first_n, limit = attrs["message"].decode(errors="replace"), attrs["first_n"], attrs["summarize"]
    calls = itertools.count()

    def show(value: Array, data: list[Any]) -> Any:
        if first_n < 0 or next(calls) < first_n:
            sys.stderr.write(message + "".join(f"[{summary(d, limit)}]" for d in data) + "\n")
        return value

    return show


_LOG_LEVELS = {b"log(info)": logging.INFO, b"log(warning)": logging.WARNING, b"log(error)": logging.ERROR}


@print_v2_op.kernel("CPU")
def _print_v2(value: Array, *, output_stream: bytes, end: bytes) -> tuple[()]:
    found: Any = value if isinstance(value, bytes) else value[()]
    if not isinstance(found, bytes):
        refuse(f"Input is expected to be scalar, but got {list(found.shape)}")
    text = found.decode(errors="replace")
    line = text + end.decode(errors="replace")
    if output_stream in _LOG_LEVELS:
        _log.log(_LOG_LEVELS[output_stream], "%s", text)
    elif output_stream.startswith(b"file://"):
        with open(os.fsdecode(output_stream[7:]), "a", encoding="utf-8") as file:
            file.write(line)
    else:
        stream = sys.stdout if output_stream == b"stdout" else sys.stderr
        stream.write(line)
        stream.flush()
    return ()


@string_format_op.kernel("CPU")
def _string_format(inputs: list[Any], *, template: bytes, placeholder: bytes, summarize: int) -> Any:
    pieces = template.split(placeholder)
    if len(pieces) - 1 != len(inputs):
        refuse(f"num placeholders in template and num inputs must match: {len(pieces) - 1} vs. {len(inputs)}")
    texts = [edges_text(value, summarize).encode() for value in inputs]
    return pieces[0] + b"".join(text + piece for text, piece in zip(texts, pieces[1:]))


@assert_op.kernel("CPU")
def _assert(condition: Array, data: list[Any], *, summarize: int) -> tuple[()]:
    if np.ndim(condition):
        refuse(f"In[0] should be a scalar: {list(np.shape(condition))}")
    if not condition:
        texts = " ".join(f"[{summary(d, summarize)}]" for d in data)
        refuse(f"assertion failed: {texts}")
    return ()


@export("tf.Print")
def Print(
    input_: TensorLike, data: Sequence[TensorLike], message: str | None = None, first_n: int | None = None,
    summarize: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``input_``, printing ``data`` to the worker's stderr whenever it is computed (``tf.Print``).

    Args:
      message: a prefix.
      first_n: print only this many times.
      summarize: elements per tensor, default 3, all when negative.
    """
    options = {"message": message, "first_n": first_n, "summarize": summarize}
    return print_op(input_, list(data), name=name, **options)


_STREAM_NAMES = {
    logging.INFO: "log(info)",
    logging.WARNING: "log(warning)",
    logging.ERROR: "log(error)",
}


@export("tf.print")
def print_v2(*inputs: Any, **kwargs: Any) -> Operation:
    """An operation that prints tensors and nested Python values (``tf.print``).

    Keyword args:
      output_stream: ``sys.stderr`` (default), ``sys.stdout``, a logging level, or ``"file://path"``.
      summarize: elements shown at each end of a dimension, default 3, all when -1.
      sep, end: as in Python's print.
      name: of the op.

    Raises:
      ValueError: for unknown keyword arguments and streams.
    """
    stream = _stream_name(kwargs.pop("output_stream", sys.stderr))
    name, summarize = kwargs.pop("name", None), kwargs.pop("summarize", 3)
    sep, end = kwargs.pop("sep", " "), kwargs.pop("end", "\n")
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {kwargs}")
    only = inputs[0] if len(inputs) == 1 else None
    if isinstance(only, Tensor) and only.dtype is dtypes.string and only.raw_shape == ():
        text = only
    else:
        text = _formatted(inputs, sep, summarize, name)
    return print_v2_op(text, output_stream=stream, end=end, name=name)


def _stream_name(stream: object) -> str:
    if isinstance(stream, str) and stream.startswith("file://"):
        return stream
    if stream is sys.stderr or stream is sys.stdout:
        return "stderr" if stream is sys.stderr else "stdout"
    found = _STREAM_NAMES.get(stream) if isinstance(stream, int) else None
    if found is None:
        raise ValueError(
            f"Unsupported output stream, logging level, or file.{stream}. Supported streams are sys.stdout, sys.stderr,"
            " tf.logging.info, tf.logging.warning, tf.logging.error. File needs to be in the form of 'file://<filepath>'."
        )
    return found


def _formatted(inputs: tuple[Any, ...], sep: str, summarize: int, name: str | None) -> Tensor:
    import pprint  # Imported here to save some ms in `import tfmini`.

    tensors: list[Tensor] = []
    plain = " ".join(item for item in inputs if isinstance(item, str)) + repr(inputs)
    # A placeholder that the user's text does not contain.
    placeholder = next(p for i in itertools.count() if (p := "{" * i + "{}" + "}" * i) not in plain)
    texts = []
    for item in inputs:
        text = item if isinstance(item, str) else pprint.pformat(_without_tensors(item, placeholder, tensors))
        texts.append(text.replace(f"'{placeholder}'", placeholder))
    format_name = f"{name}_format" if name else None
    options = {"template": sep.join(texts), "placeholder": placeholder, "summarize": summarize}
    return string_format_op(tensors, name=format_name, **options)


def _without_tensors(value: object, placeholder: str, tensors: list[Tensor]) -> Any:
    """The structure with a placeholder for each tensor; dicts are in the order of their keys."""
    if isinstance(value, dict):
        return {key: _without_tensors(value[key], placeholder, tensors) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        items = [_without_tensors(item, placeholder, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, SparseComponents):
        tensors += [value.indices, value.values, value.dense_shape]
        return f"SparseTensor(indices={placeholder}, values={placeholder}, shape={placeholder})"
    if isinstance(value, Tensor) or hasattr(value, "_as_graph_element"):
        tensors.append(convert_to_tensor(value))
        return placeholder
    return value


@export("tf.strings.format")
def string_format(
    template: str, inputs: TensorLike, placeholder: str = "{}", summarize: int = 3, name: str | None = None
) -> Tensor:
    """``template`` with each placeholder replaced by the text of a tensor (``tf.strings.format``).

    Raises:
      ValueError: when placeholders and inputs differ in number.
    """
    tensors = convert_n_to_tensor(inputs if isinstance(inputs, (list, tuple)) else [inputs])
    if template.count(placeholder) != len(tensors):
        raise ValueError(
            f"{len(tensors)} placeholder(s) in template does not match {template.count(placeholder)} tensor(s)"
            " provided as input"
        )
    options = {"template": template, "placeholder": placeholder, "summarize": summarize}
    return string_format_op(tensors, name=name, **options)


# ---- ``tf.Assert``: an operation that fails unless a condition holds -----------------------------------------------

_CHEAP = (dtypes.string, dtypes.int32)


@export("tf.Assert", "tf.debugging.Assert")
def Assert(condition: TensorLike, data: Any, summarize: int | None = None, name: str | None = None) -> Operation:
    """An operation that fails with ``data`` when ``condition`` is false (``tf.Assert``).

    ``data`` is computed and sent to the device of the check only when the check fails. Strings and
    int32 tensors are assumed to be small, and are sent always.

    Args:
      condition: a scalar bool.
      data: a list of tensors for the error message.
      summarize: the number of elements shown of each, default 3.
      name: of the name scope.

    Raises:
      TypeError: when ``data`` is not a list. A false condition raises `InvalidArgumentError` in the step.
    """
    if not isinstance(data, (list, tuple)):
        raise TypeError("values must be a sequence.")
    limit = 3 if summarize is None else summarize
    with name_scope(name, "Assert", [condition, *data]):
        values = convert_n_to_tensor(data)
        if all(value.dtype.base_dtype in _CHEAP for value in values):
            return assert_op(condition, values, summarize=limit, name="Assert")
        condition = convert_to_tensor(condition, name="Condition")

        def fail_if_false() -> Operation:
            return assert_op(condition, data, summarize=limit, name="Assert")

        return cond(condition, no_op, fail_if_false, name="AssertGuard").op  # type: ignore[no-any-return]


# ---- check numerics ----------------------------------------
# Checks that every float of a graph is finite: ``tf.add_check_numerics_ops``, ``tf.verify_tensor_all_finite``.

_CHECKED = (dtypes.float16, dtypes.float32, dtypes.float64)


@export("tf.verify_tensor_all_finite", "tf.debugging.assert_all_finite")
def verify_tensor_all_finite(
    t: TensorLike | None = None, msg: str | None = None, name: str | None = None, x: TensorLike | None = None,
    message: str | None = None,
) -> Tensor:  # fmt: skip
    """``t``; the step fails when it holds a NaN or an infinity (``tf.verify_tensor_all_finite``).

    Args:
      msg: the error message.
    """
    value, text = either("x", x, "t", t), either("message", message, "msg", msg)
    with name_scope(name, "VerifyFinite", [value]):
        tensor = convert_to_tensor(value, name="t")
        with colocate_with(tensor):
            check = check_numerics(tensor, message=text)
            return with_dependencies([check], tensor)


@export("tf.add_check_numerics_ops")
def add_check_numerics_ops() -> Operation:
    """A check of each float tensor of the graph, in the order of the ops (``tf.add_check_numerics_ops``).

    Returns:
      The op that runs all checks.

    Raises:
      ValueError: when a float is computed in a conditional or a loop.
    """
    checks: list[Any] = []
    for node in get_default_graph().get_operations():
        for output in node.outputs:
            if output.dtype not in _CHECKED:
                continue
            if node._get_control_flow_context() is not None:
                raise ValueError(
                    "`tf.add_check_numerics_ops() is not compatible with TensorFlow control flow operations such as"
                    " `tf.cond()` or `tf.while_loop()`."
                )
            with control_dependencies(checks):
                checks = [check_numerics(output, message=f"{node.name}:{output.value_index}")]
    return group(*checks)
