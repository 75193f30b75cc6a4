"""Assertions about shapes with symbols, and the order of elements (``tf.debugging.assert_shapes``…)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, control_dependencies, convert_to_tensor, name_scope
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.slicing import getitem
from tfmini.ops.control import group
from tfmini.ops.debugging.assertion import Assert
from tfmini.ops.debugging.rank_checks import assert_rank, assert_rank_at_least, assert_rank_in
from tfmini.ops.math.comparison import equal, less, less_equal
from tfmini.ops.math.reduce_functions import reduce_all

_ANY = (None, ".")
_REST = (Ellipsis, "*")


class _Wanted:
    """One tensor with its symbols; ``inner``: they describe only its last axes."""

    def __init__(self, tensor: Tensor, symbols: Any, message: str) -> None:
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


def _number(symbol: Any) -> Any:
    """Sizes of any form as ints; other symbols unchanged."""
    if isinstance(symbol, (str, bytes)) or symbol is None or symbol is Ellipsis:
        return int(symbol) if isinstance(symbol, str) and symbol.isdigit() else symbol
    if isinstance(symbol, (int, np.integer)) or hasattr(symbol, "value"):
        return getattr(symbol, "value", symbol)
    return symbol


@export("tf.debugging.assert_shapes")
def assert_shapes(
    shapes: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None
) -> Operation:
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


def _size_checks(wanted: list[_Wanted], data: Any, summarize: int | None, message: str) -> list[Any]:
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
def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Whether no element is less than the one before it, in row-major order (``tf.is_non_decreasing``)."""
    with name_scope(name, "is_non_decreasing", [x]):
        before, after = _neighbours(convert_to_tensor(x, name="x"))
        return reduce_all(less_equal(before, after))


@export("tf.is_strictly_increasing", "tf.debugging.is_strictly_increasing", "tf.math.is_strictly_increasing")
def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Whether each element exceeds the one before it, in row-major order (``tf.is_strictly_increasing``)."""
    with name_scope(name, "is_strictly_increasing", [x]):
        before, after = _neighbours(convert_to_tensor(x, name="x"))
        return reduce_all(less(before, after))
