"""Assertions about values: checked at once where they are static, else in the step (``tf.assert_equal``…)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.control import no_op
from tfmini.ops.debugging.assertion import Assert
from tfmini.ops.math import comparison as compare
from tfmini.ops.math.elementwise import add, multiply, subtract

Test = Callable[[Any, Any], Any]

# The ops through which TensorFlow knows a value while it builds a graph; `constant_value` knows more.
_OF_SHAPES = frozenset({"Const", "Rank", "Shape", "Size"})
_STATIC_OPS = _OF_SHAPES | {
    "Cast", "Concat", "ConcatOffset", "ConcatV2", "Equal", "Fill", "NotEqual", "Pack", "Range",
}  # fmt: skip


def reduce_all(x: Tensor) -> Tensor:
    """Whether all elements are true."""
    if x.raw_shape is not None:
        axes = constant(np.arange(len(x.raw_shape), dtype=np.int32), name="Const")
    else:
        axes = raw_ops.Range(0, raw_ops.Rank(x), 1, name="range")
    return raw_ops.All(x, axes)


def _binary(
    symbol: str, default_name: str, test: Test, static_test: Test, x: Any, y: Any, data: Any, summarize: int | None,
    message: str | None, name: str | None,
) -> Operation:  # fmt: skip
    with name_scope(name, default_name, [x, y]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y")
        if x is y and symbol == "==":
            return no_op(name="NoOp")
        if data is None:
            data = [
                f"Condition x {symbol} y did not hold element-wise:", f"x ({x.name}) = ", x, f"y ({y.name}) = ", y,
            ]  # fmt: skip
        if message is not None:
            data = [message, *data]
        condition = reduce_all(test(x, y))
        x_value, y_value = _static_value(x), _static_value(y)
        if x_value is not None and y_value is not None and not np.all(static_test(x_value, y_value)):
            refuse("\n".join(map(_static_text, data)))
        return Assert(condition, data, summarize=summarize)


def _static_value(tensor: Tensor) -> Any:
    """The value, if TensorFlow knows it while the graph is built, else None: then the check fails in the step."""
    pending, seen = [tensor.op], {tensor.op}
    while pending:
        op = pending.pop()
        if op.type not in _STATIC_OPS:
            return None
        fresh = [t.op for t in op.inputs if t.op not in seen] if op.type not in _OF_SHAPES else []
        seen.update(fresh)
        pending += fresh
    return constant_value(tensor)


def _static_text(item: Any) -> str:
    value = _static_value(item) if isinstance(item, Tensor) else None
    return str(item if value is None else value)


def _binary_family(symbol: str, name: str, test: Test, static_test: Test) -> Callable[..., Operation]:
    def check(
        x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
        name: str | None = None,
    ) -> Operation:  # fmt: skip
        return _binary(symbol, check.__name__, test, static_test, x, y, data, summarize, message, name)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"""An operation that fails unless ``x {symbol} y`` for all elements (``tf.{name}``).

    Args:
      x, y: tensors that broadcast together.
      data: what to show, default both tensors.
      summarize: how many elements of each.
      message: comes first.

    Raises:
      InvalidArgumentError: at once when both values are static, else when the operation runs.
    """
    return check


assert_equal = _binary_family("==", "assert_equal", compare.equal, np.equal)
assert_none_equal = _binary_family("!=", "assert_none_equal", compare.not_equal, np.not_equal)
assert_less = _binary_family("<", "assert_less", compare.less, np.less)
assert_less_equal = _binary_family("<=", "assert_less_equal", compare.less_equal, np.less_equal)
assert_greater = _binary_family(">", "assert_greater", compare.greater, np.greater)
assert_greater_equal = _binary_family(">=", "assert_greater_equal", compare.greater_equal, np.greater_equal)


def _sign_family(
    symbol: str, name: str, binary: Callable[..., Operation], zero_first: bool
) -> Callable[..., Operation]:
    def check(
        x: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None
    ) -> Operation:
        with name_scope(name, check.__name__, [x]):
            x = convert_to_tensor(x, name="x")
            if data is None:
                data = [message or "", f"Condition x {symbol} 0 did not hold element-wise:", f"x ({x.name}) = ", x]
            zero = convert_to_tensor(0, dtype=x.dtype.base_dtype)
            operands = (zero, x) if zero_first else (x, zero)
            return binary(*operands, data=data, summarize=summarize)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"""An operation that fails unless ``x {symbol} 0`` for all elements (``tf.{name}``).

    Raises:
      InvalidArgumentError: at once when the value is static, else when the operation runs.
    """
    return check


assert_positive = _sign_family(">", "assert_positive", assert_less, True)
assert_negative = _sign_family("<", "assert_negative", assert_less, False)
assert_non_negative = _sign_family(">=", "assert_non_negative", assert_less_equal, True)
assert_non_positive = _sign_family("<=", "assert_non_positive", assert_less_equal, False)


@export("tf.assert_near", "tf.debugging.assert_near")
def assert_near(
    x: Any, y: Any, rtol: Any = None, atol: Any = None, data: Any = None, summarize: int | None = None,
    message: str | None = None, name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless ``|x - y| < atol + rtol * |y|`` for all elements (``tf.assert_near``).

    Both tolerances default to ten times the resolution of the type.
    """
    with name_scope(name, "assert_near", [x, y, rtol, atol]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype)
        default = 10 * np.finfo(x.dtype.as_numpy_dtype).eps
        rtol = convert_to_tensor(default if rtol is None else rtol, name="rtol", dtype=x.dtype)
        atol = convert_to_tensor(default if atol is None else atol, name="atol", dtype=x.dtype)
        if data is None:
            text = f"x and y not equal to tolerance rtol = {rtol}, atol = {atol}"
            data = [message or "", text, f"x ({x.name}) = ", x, f"y ({y.name}) = ", y]
        absolute = raw_ops.Abs
        tolerance = add(atol, multiply(rtol, absolute(y), name="mul"), name="add")
        close = compare.less(absolute(subtract(x, y, name="sub")), tolerance)
        return Assert(reduce_all(close), data, summarize=summarize)


# ---- types ----------------------------------------------------------------------------------


@export("tf.assert_type", "tf.debugging.assert_type")
def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> Operation:
    """A no-op; refuses a tensor of another type (``tf.assert_type``).

    Raises:
      TypeError: when it is not.
    """
    wanted = dtypes.as_dtype(tf_type)
    with name_scope(name, "assert_type", [tensor]):
        tensor = convert_to_tensor(tensor, name="tensor")
        if tensor.dtype is not wanted:
            prefix = f"{message}.  " if message else ""
            raise TypeError(f"{prefix}{tensor.name} must be of type {wanted!r}; got {tensor.dtype!r}")
        return no_op(name="statically_determined_correct_type")


@export("tf.assert_integer", "tf.debugging.assert_integer")
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """A no-op; refuses a tensor that is not of an integer type (``tf.assert_integer``).

    Raises:
      TypeError: when it is not.
    """
    with name_scope(name, "assert_integer", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_integer:
            prefix = f"{message}  " if message else ""
            raise TypeError(f'{prefix}Expected "x" to be integer type.  Found: {x.name} of dtype {x.dtype}')
        return no_op(name="statically_determined_was_integer")


@export("tf.assert_proper_iterable", "tf.debugging.assert_proper_iterable")
def assert_proper_iterable(values: Any) -> None:
    """Checks that ``values`` is iterable and not a tensor, array or string (``tf.assert_proper_iterable``).

    Raises:
      TypeError: when it is not.
    """
    if isinstance(values, (Tensor, np.ndarray, bytes, str)):
        raise TypeError(f'Expected argument "values" to be a "proper" iterable.  Found: {type(values)}')
    if not hasattr(values, "__iter__"):
        raise TypeError(f'Expected argument "values" to be iterable.  Found: {type(values)}')


@export("tf.assert_same_float_dtype", "tf.debugging.assert_same_float_dtype")
def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> dtypes.DType:
    """The float type that all ``tensors`` share, ignoring None; float32 if there are none.

    Raises:
      ValueError: when types differ from each other or from ``dtype``, or are not floats.
    """
    first = None
    expected = None if dtype is None else dtypes.as_dtype(dtype)
    for tensor in tensors or ():
        if tensor is None:
            continue
        found = tensor.dtype.base_dtype
        if expected is None:
            expected, first = found, tensor
        elif found is not expected:
            beside = f" as {first.name}" if first is not None else ""
            raise ValueError(f"{tensor.name}, type={found}, must be of the same type ({expected}){beside}.")
    expected = expected or dtypes.float32
    if not expected.is_floating:
        raise ValueError(f"Expected floating point type, got {expected}.")
    return expected


@export("tf.is_numeric_tensor", "tf.debugging.is_numeric_tensor")
def is_numeric_tensor(tensor: Any) -> bool:
    """Whether ``tensor`` is a tensor of numbers (``tf.is_numeric_tensor``)."""
    if not isinstance(tensor, Tensor):
        return False
    dtype = tensor.dtype.base_dtype
    return dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_quantized


export_names(
    "tf tf.debugging",
    "assert_equal assert_greater assert_greater_equal assert_less assert_less_equal assert_negative "
    "assert_non_negative assert_non_positive assert_none_equal assert_positive",
)
