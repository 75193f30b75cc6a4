"""Conversion and checks of the elements that Python generators yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.data.structure import Leaf, Structure
from tfmini.graph import nest
from tfmini.ops.array.constant import as_array
from tfmini.shapes import TensorShape, compatible_raw

Begin = Callable[..., Iterator[tuple[Any, ...]]]


def element_reader(generator: Callable[..., Any], structure: Structure) -> Begin:
    """A function that starts ``generator`` and yields its elements as components."""

    def begin(*args: Any) -> Iterator[tuple[Any, ...]]:
        # A generator expression would end at the first malformed element; `map` continues with the next one.
        return map(partial(_components, structure), iter(generator(*args)))

    return begin


def _components(structure: Structure, element: Any) -> tuple[Any, ...]:
    try:
        flat = _flatten_like(structure.skeleton, element)
    except (TypeError, ValueError, KeyError) as error:
        raise errors.InvalidArgumentError.of(
            "TypeError: `generator` yielded an element that did not match the expected structure. The expected"
            f" structure was {structure.map(lambda leaf: leaf.dtype)}, but the yielded element was {element}."
        ) from error
    return tuple(_component(value, leaf) for value, leaf in zip(flat, structure.leaves))


def _flatten_like(skeleton: Any, value: Any) -> list[Any]:
    if isinstance(skeleton, Leaf):
        return [value]
    if isinstance(skeleton, dict):
        if set(value) != set(skeleton):
            raise ValueError("keys differ")
        return [leaf for key in sorted(skeleton) for leaf in _flatten_like(skeleton[key], value[key])]
    items = list(nest._items(skeleton))
    if isinstance(value, (str, bytes)) or len(value) != len(items):
        raise ValueError("lengths differ")
    return [leaf for part, item in zip(items, value) for leaf in _flatten_like(part, item)]


def _component(value: Any, leaf: Leaf) -> Any:
    try:
        array = _converted(value, leaf.dtype)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgumentError.of(
            "TypeError: `generator` yielded an element that could not be converted to the expected type. The"
            f" expected type was {leaf.dtype.name}, but the yielded element was {value}."
        ) from error
    if not compatible_raw(leaf.shape, array.shape):
        raise errors.InvalidArgumentError.of(
            f"ValueError: `generator` yielded an element of shape {TensorShape(array.shape)} where an element of"
            f" shape {TensorShape(leaf.shape)} was expected."
        )
    return array if array.ndim else array[()]


def _converted(value: Any, dtype: Any) -> Any:
    if dtype is dtypes.string:
        array = as_array(value)
        if array.dtype != object:
            raise TypeError("no strings")
        return array
    array = np.asarray(value)
    if array.dtype.kind in "SUO":
        raise TypeError("no numbers")
    return array.astype(dtype.numpy)  # a copy: the generator may use its array again
