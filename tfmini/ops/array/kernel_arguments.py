"""Checks and conversions of arguments, for kernels and shape functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tfmini.dtypes import DType, resource, string, variant
from tfmini.errors import InvalidArgumentError
from tfmini.memory import check_room
from tfmini.shapes import RawShape, compatible_raw, format_raw


def as_ndarray(value: object) -> np.ndarray[Any, Any]:
    """A kernel's value as an array; at rank 0 the value may be a numpy scalar or ``bytes``."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bytes):
        array = np.empty((), dtype=object)
        array[()] = value
        return array
    return np.asarray(value)


def refuse(message: str) -> NoReturn:
    """Raises InvalidArgumentError, which fails the step."""
    raise InvalidArgumentError.of(message)


def holds(dtype: DType, value: Any) -> bool:
    """Whether a value, as kernels and feeds have it, is of a type."""
    is_array = isinstance(value, (np.ndarray, np.generic))
    if dtype is resource or dtype is variant:  # objects of the runtime, or arrays of them
        return type(value) is not bytes and (not is_array or value.dtype == object)
    return bool(value.dtype == dtype.numpy) if is_array else dtype is string and type(value) is bytes


def check_components(values: Sequence[Any], types: Sequence[DType], shapes: Sequence[RawShape] | None = None) -> Any:
    """The values that a handle or a variant stands for, refused unless they are what a node says that it gets.

    Raises:
      InvalidArgumentError: for another number, type or shape, in TensorFlow's words.
    """
    if len(values) != len(types):
        refuse(f"Number of components does not match: expected {len(types)} types but got {len(values)}.")
    for i, (value, dtype) in enumerate(zip(values, types)):
        if not holds(dtype, value):
            found = getattr(value, "dtype", type(value).__name__)
            refuse(f"Data type mismatch at component {i}: expected {dtype.name} but got {found}.")
        if shapes is not None and dtype is not variant and not compatible_raw(shapes[i], np.shape(value)):
            texts = format_raw(shapes[i]), format_raw(np.shape(value))
            refuse(f"Incompatible shapes at component {i}: expected {texts[0]} but got {texts[1]}.")
    return values


class ComponentWait:
    """A `graph.op_types.Wait` whose answer goes through `check_components`."""

    __slots__ = ("_wait", "_types", "_shapes")

    def __init__(self, wait: Any, types: Sequence[DType], shapes: Sequence[RawShape] | None = None) -> None:
        self._wait, self._types, self._shapes = wait, types, shapes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wait, name)

    def done(self, result: Any = None) -> bool:
        try:
            check_components(result if type(result) in (tuple, list) else (result,), self._types, self._shapes)
        except InvalidArgumentError as error:
            return bool(self._wait.fail(error))
        return bool(self._wait.done(result))


def check_axis(axis: int, rank: int, message: str | None = None) -> int:
    """``axis`` as a non-negative number.

    Raises:
      ValueError: when it is outside [-rank, rank).
    """
    if not -rank <= axis < rank:
        raise ValueError(message or f"Dimension size, given by scalar input {axis} must be in range [{-rank}, {rank})")
    return axis % rank


def zero_of(dtype: np.dtype[Any]) -> Any:
    """The element of ``zeros``: the empty string for strings."""
    return b"" if dtype.kind == "O" else dtype.type(0)


def filled(shape: tuple[int, ...], value: object, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A new array of one value; zeros are allocated rather than written.

    Args:
      value: of a string it may be ``bytes`` or an array of no dimension.

    Raises:
      MemoryError: there is no room for it.
    """
    check_room(shape, dtype.itemsize)
    if dtype.kind == "O":  # numpy.full takes bytes for a text without the zeros at its end
        array = np.empty(shape, dtype)
        array.fill(as_element(value))
        return array
    element = np.asarray(value, dtype)
    return np.full(shape, element) if any(element.tobytes()) else np.zeros(shape, dtype)  # -0.0 is no zero


def as_element(value: Any) -> Any:
    """What an array of objects holds of a scalar string: the ``bytes``, not an array of no dimension around them."""
    return value[()] if isinstance(value, np.ndarray) else value
