"""Assertions about values: checked at once where they are static, else in the step (``tf.assert_equal``…)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, control_dependencies, convert_to_tensor, name_scope
from tfmini.graph.prune import traverse
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.control import group, no_op, with_dependencies
from tfmini.ops.debugging import Assert
from tfmini.ops.math import comparison as compare
from tfmini.ops.math.comparison import equal, less, less_equal
from tfmini.ops.math.elementwise import add, multiply, subtract
from tfmini.ops.math.reductions import reduce_all

Test = Callable[[Any, Any], Any]

# The ops through which TensorFlow knows a value while it builds a graph; `constant_value` knows more.
_OF_SHAPES = frozenset({"Const", "Rank", "Shape", "Size"})
_STATIC_OPS = _OF_SHAPES | {
    "Cast", "Concat", "ConcatOffset", "ConcatV2", "Equal", "Fill", "NotEqual", "Pack", "Range",
}  # fmt: skip


def all_true(x: Tensor) -> Tensor:
    """Whether all elements are true."""
    if x.raw_shape is not None:
        axes = constant(np.arange(len(x.raw_shape), dtype=np.int32), name="Const")
    else:
        axes = raw_ops.Range(0, raw_ops.Rank(x), 1, name="range")
    return raw_ops.All(x, axes)


def _binary(
    symbol: str, default_name: str, test: Test, static_test: Test, x: TensorLike, y: TensorLike,
    data: Sequence[TensorLike] | None, summarize: int | None, message: str | None, name: str | None,
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
        condition = all_true(test(x, y))
        x_value, y_value = _static_value(x), _static_value(y)
        if x_value is not None and y_value is not None and not np.all(static_test(x_value, y_value)):
            refuse("\n".join(map(_static_text, data)))
        return Assert(condition, data, summarize=summarize)


def _static_value(tensor: Tensor) -> Any:
    """The value, if TensorFlow knows it while the graph is built, else None: then the check fails in the step."""
    behind = traverse([tensor.op], lambda op: () if op.type in _OF_SHAPES else [t.op for t in op.inputs])
    return constant_value(tensor) if all(op.type in _STATIC_OPS for op in behind) else None


def _static_text(item: object) -> str:
    value = _static_value(item) if isinstance(item, Tensor) else None
    return str(item if value is None else value)


def _binary_family(symbol: str, name: str, test: Test, static_test: Test) -> Callable[..., Operation]:
    def check(
        x: TensorLike, y: TensorLike, data: Sequence[TensorLike] | None = None, summarize: int | None = None,
        message: str | None = None, name: str | None = None,
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
        x: TensorLike, data: TensorLike | None = None, summarize: int | None = None, message: str | None = None,
        name: str | None = None,
    ) -> Operation:  # fmt: skip
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
    x: TensorLike, y: TensorLike, rtol: TensorLike | None = None, atol: TensorLike | None = None,
    data: TensorLike | None = None, summarize: int | None = None, message: str | None = None, name: str | None = None,
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
        return Assert(all_true(close), data, summarize=summarize)


# ---- types ----------------------------------------------------------------------------------


@export("tf.assert_type", "tf.debugging.assert_type")
def assert_type(tensor: Any, tf_type: DTypeLike, message: str | None = None, name: str | None = None) -> Operation:
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
def assert_integer(x: TensorLike, message: str | None = None, name: str | None = None) -> Operation:
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
def assert_proper_iterable(values: object) -> None:
    """Checks that ``values`` is iterable and not a tensor, array or string (``tf.assert_proper_iterable``).

    Raises:
      TypeError: when it is not.
    """
    if isinstance(values, (Tensor, np.ndarray, bytes, str)):
        raise TypeError(f'Expected argument "values" to be a "proper" iterable.  Found: {type(values)}')
    if not hasattr(values, "__iter__"):
        raise TypeError(f'Expected argument "values" to be iterable.  Found: {type(values)}')


@export(
    "tf.assert_same_float_dtype", "tf.debugging.assert_same_float_dtype", "tf.contrib.framework.assert_same_float_dtype"
)
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


# ---- Assertions about ranks and scalars (``tf.assert_rank``…), checked statically where shapes are known -----------


@export("tf.assert_rank", "tf.debugging.assert_rank")
def assert_rank(
    x: TensorLike, rank: TensorLike, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless ``x`` has the rank; a no-op if the static rank matches (``tf.assert_rank``).

    Raises:
      ValueError: when the static rank is another.
    """
    return _check("assert_rank", "rank", "Equal", x, [rank], data, summarize, message, name)


@export("tf.assert_rank_at_least", "tf.debugging.assert_rank_at_least")
def assert_rank_at_least(
    x: TensorLike, rank: TensorLike, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """Like `assert_rank`, for a rank of at least ``rank`` (``tf.assert_rank_at_least``)."""
    return _check("assert_rank_at_least", "rank at least", "GreaterEqual", x, [rank], data, summarize, message, name)


@export("tf.assert_rank_in", "tf.debugging.assert_rank_in")
def assert_rank_in(
    x: Any, ranks: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """Like `assert_rank`, for one of several ranks (``tf.assert_rank_in``)."""
    return _check("assert_rank_in", "rank in", "Equal", x, list(ranks), data, summarize, message, name)


def _check(
    default_name: str, wording: str, relation: str, x: TensorLike, ranks: list[Any], data: object,
    summarize: int | None, message: str | None, name: str | None,
) -> Operation:  # fmt: skip
    with name_scope(name, default_name, [x, *ranks]):
        x = convert_to_tensor(x, name="x")
        ranks = [convert_to_tensor(rank, name="rank") for rank in ranks]
        if data is None:
            said = f"Tensor {x.name} must have {wording}"
            data = [message or "", said, *ranks, "Received shape: ", raw_ops.Shape(x)]
        for rank in ranks:
            assert_type(rank, dtypes.int32)
        known = [constant_value(rank) for rank in ranks]
        if any(value is not None and value.ndim for value in known):
            raise ValueError("Rank must be a scalar.")
        if x.raw_shape is not None and all(value is not None for value in known):
            wanted = [int(value) for value in known]  # type: ignore[arg-type]
            _check_static(default_name, wording, x, wanted, message)
            return no_op(name="static_checks_determined_all_ok")
        return Assert(_condition(relation, x, ranks, known), data, summarize=summarize)


def _check_static(default_name: str, wording: str, x: Tensor, wanted: list[int], message: str | None) -> None:
    rank = len(x.raw_shape or ())
    holds = rank >= wanted[0] if default_name == "assert_rank_at_least" else rank in wanted
    if not holds:
        prefix = f"{message}.  " if message else ""
        what = tuple(wanted) if default_name == "assert_rank_in" else wanted[0]
        raise ValueError(f"{prefix}Tensor {x.name} must have {wording} {what}.  Received rank {rank}, shape {x.shape}")


def _condition(relation: str, x: Tensor, ranks: list[Tensor], known: list[Any]) -> Tensor:
    actual = raw_ops.Rank(x)
    condition = None
    for rank, value in zip(ranks, known):
        holds = raw_ops.named(relation)(actual, rank)
        condition = holds if condition is None else compare.logical_or(condition, holds)
        if value is None:
            check = assert_rank(rank, 0, data=["Rank must be a scalar. Received rank: ", rank])
            condition = with_dependencies([check], condition)
    return constant(False) if condition is None else condition


@export("tf.assert_scalar", "tf.debugging.assert_scalar", "tf.contrib.framework.assert_scalar")
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """``tensor``, if its static shape is that of a scalar (``tf.assert_scalar``).

    Raises:
      ValueError: when it is not.
    """
    with name_scope(name, "assert_scalar", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name=scope)
        if tensor.raw_shape != ():
            prefix = f"{message}  " if message else ""
            raise ValueError(f"{prefix}Expected scalar shape for {tensor.name}, saw shape: {tensor.shape}.")
        return tensor  # type: ignore[no-any-return]


# ---- Assertions about shapes with symbols, and the order of elements (``tf.debugging.assert_shapes``…) -------------

_ANY = (None, ".")
_REST = (Ellipsis, "*")


class _Wanted:
    """One tensor with its symbols; ``inner``: they describe only its last axes."""

    def __init__(self, tensor: Tensor, symbols: tuple[Any, ...], message: str) -> None:
        if not hasattr(symbols, "__iter__") and not hasattr(symbols, "__getitem__"):
            raise ValueError(
                f"{message}.  Tensor {tensor.name}.  Specified shape must be an iterable.  An iterable has the"
                f" attribute `__iter__` or `__getitem__`.  Received specified shape: {symbols}"
            )
        self.tensor = tensor
        sizes = tuple(symbols)
        for i, symbol in enumerate(sizes):
            if i and any(symbol is rest or symbol == rest for rest in _REST):
                raise ValueError(
                    f"{message}.  Tensor {tensor.name} specified shape index {i}.  Symbol `...` or `*` for a variable"
                    " number of unspecified dimensions is only allowed as the first entry"
                )
        self.inner = bool(sizes) and sizes[0] in _REST
        self.symbols = [_number(s) for s in (sizes[1:] if self.inner else sizes)]
        if not self.symbols and not self.inner:
            self.symbols = [1]  # A scalar counts as a vector of one element.

    def axis(self, position: int) -> int:
        return position - len(self.symbols) if self.inner else position

    def size(self, axis: int) -> Any:
        """The size of an axis: an int if it is known, else a scalar tensor."""
        shape = self.tensor.raw_shape
        if shape == ():
            return 1
        if shape is not None and shape[axis] is not None:
            return shape[axis]
        return getitem(array_shape.shape(self.tensor), axis)


def _number(symbol: object) -> Any:
    """Sizes of any form as ints; other symbols unchanged."""
    if isinstance(symbol, (str, bytes)) or symbol is None or symbol is Ellipsis:
        return int(symbol) if isinstance(symbol, str) and symbol.isdigit() else symbol
    if isinstance(symbol, (int, np.integer)) or hasattr(symbol, "value"):
        return getattr(symbol, "value", symbol)
    return symbol


@export("tf.debugging.assert_shapes")
def assert_shapes(
    shapes: Mapping[Any, Any] | Sequence[Any], data: TensorLike | None = None, summarize: int | None = None,
    message: str | None = None, name: str | None = None,
) -> Operation:  # fmt: skip
    """Asserts shapes and that equal symbols mean equal sizes (``tf.debugging.assert_shapes``).

    Args:
      shapes: {tensor: shape}, or pairs; a shape is an iterable of ints, symbols such as ``"N"``, ``"."`` or
        None (any size), and at its beginning ``"*"`` or ``...`` (any axes).
      data: the tensors to print on failure.
      summarize: the number of elements printed of each.
      message: a prefix of the error message.
      name: of the scope.

    Returns:
      An operation that fails when a shape differs.

    Raises:
      ValueError: when a static shape differs.
    """
    pairs = shapes.items() if isinstance(shapes, dict) else shapes
    message = message or ""
    with name_scope(name, "assert_shapes", [data]):
        wanted = [_Wanted(convert_to_tensor(x), s, message) for x, s in pairs if s is not None]
        ranks = [check for w in wanted if (check := _rank_check(w, data, summarize, message)) is not None]
        checks = _size_checks(wanted, data, summarize, message)
        with control_dependencies(ranks):
            return group(checks)


def _rank_check(wanted: _Wanted, data: Any, summarize: int | None, message: str) -> Any:
    rank = len(wanted.symbols)
    options = {"data": data, "summarize": summarize, "message": message}
    if wanted.inner:
        return assert_rank_at_least(wanted.tensor, rank, **options) if rank > 1 else None
    if rank <= 1:
        return assert_rank_in(wanted.tensor, [0, 1], **options)
    return assert_rank(wanted.tensor, rank, **options)


def _size_checks(wanted: list[_Wanted], data: object, summarize: int | None, message: str) -> list[Any]:
    """Assertions for the sizes that are not known statically; the first use of a symbol defines it."""
    known: dict[Any, tuple[Any, str]] = {}
    checks = []
    for item in wanted:
        for position, symbol in enumerate(item.symbols):
            if symbol in _ANY:
                continue
            axis = item.axis(position)
            actual = item.size(axis)
            if not isinstance(symbol, (int, np.integer)) and symbol not in known:
                known[symbol] = actual, f"Specified by tensor {item.tensor.name} dimension {axis}"
                continue
            size, origin = known.get(symbol, (symbol, "Specified explicitly"))
            if not isinstance(actual, Tensor) and not isinstance(size, Tensor):
                if actual != size:
                    raise ValueError(
                        f"{message}.  {origin}.  Tensor {item.tensor.name} dimension {axis} must have size {size}."
                        f"  Received size {actual}, shape {item.tensor.shape}"
                    )
                continue
            said = data if data is not None else [
                message, origin, f"Tensor {item.tensor.name} dimension", axis, "must have size", size,
                "Received shape: ", array_shape.shape(item.tensor),
            ]  # fmt: skip
            checks.append(Assert(equal(actual, size), said, summarize=summarize))
    return checks


def _neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
    """The flattened tensor without its last element, and without its first."""
    flat = array_shape.reshape(x, [-1])
    return getitem(flat, slice(None, -1)), getitem(flat, slice(1, None))


@export("tf.is_non_decreasing", "tf.debugging.is_non_decreasing", "tf.math.is_non_decreasing")
def is_non_decreasing(x: TensorLike, name: str | None = None) -> Tensor:
    """Whether no element is less than the one before it, in row-major order (``tf.is_non_decreasing``)."""
    with name_scope(name, "is_non_decreasing", [x]):
        before, after = _neighbours(convert_to_tensor(x, name="x"))
        return reduce_all(less_equal(before, after))


@export("tf.is_strictly_increasing", "tf.debugging.is_strictly_increasing", "tf.math.is_strictly_increasing")
def is_strictly_increasing(x: TensorLike, name: str | None = None) -> Tensor:
    """Whether each element exceeds the one before it, in row-major order (``tf.is_strictly_increasing``)."""
    with name_scope(name, "is_strictly_increasing", [x]):
        before, after = _neighbours(convert_to_tensor(x, name="x"))
        return reduce_all(less(before, after))
