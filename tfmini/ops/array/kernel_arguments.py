"""Checks and conversions of arguments, for kernels and shape functions."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.machine_memory import check_room
from tfmini.shapes import RawShape


def as_ndarray(value: Any) -> np.ndarray[Any, Any]:
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


def check_axis(axis: int, rank: int, message: str | None = None) -> int:
    """``axis`` as a non-negative number.

    Raises:
      ValueError: when it is outside [-rank, rank).
    """
    if not -rank <= axis < rank:
        raise ValueError(message or f"Dimension size, given by scalar input {axis} must be in range [{-rank}, {rank})")
    return axis % rank


def at_least_rank(shape: RawShape, rank: int) -> RawShape:
    """``shape`` if it can have that rank or more.

    Raises:
      ValueError: otherwise.
    """
    if shape is not None and len(shape) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(shape)}")
    return shape


def zero_of(dtype: np.dtype[Any]) -> Any:
    """The element of ``zeros``: the empty string for strings."""
    return b"" if dtype.kind == "O" else dtype.type(0)


def filled(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A new array of one value; zeros are allocated rather than written."""
    check_room(shape, dtype.itemsize)
    if dtype.kind != "O" and not value:
        return np.zeros(shape, dtype)
    return np.full(shape, value, dtype)
