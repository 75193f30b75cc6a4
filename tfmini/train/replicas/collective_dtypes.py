"""Conversion of tensors to one of the five dtypes that collective ops support, without loss."""

from __future__ import annotations

from collections.abc import Callable

from tfmini.graph.operation import Tensor
from tfmini.ops.array import casting

Carried = tuple[Tensor, Callable[[Tensor], Tensor]]
"""(the converted tensor, a function that converts the result back)."""

_DIRECT = frozenset({"float32", "float16", "float64", "int32", "int64"})
# Conversion by value. Sums and products of integers in a wider type are right in the last n bits.
_ARITHMETIC = {
    "uint32": "int64", "bfloat16": "float32", **dict.fromkeys(("bool", "uint8", "int8", "uint16", "int16"), "int32")
}  # fmt: skip
_PARTS = {"complex64": "float32", "complex128": "float64"}
_SAME_BITS = {
    **dict.fromkeys(("uint16", "int16", "bfloat16"), "float16"),
    "uint32": "int32", "uint64": "int64", "complex64": "int64", "complex128": "int64",
}  # fmt: skip
_SMALL = frozenset({"bool", "uint8", "int8"})


def as_bits(value: Tensor) -> Carried:
    """Converts a tensor for collectives that only copy data: broadcast and gather.

    Raises:
      TypeError: when the tensor's values are no numbers.
    """
    name = value.dtype.name
    if name in _DIRECT:
        return value, _as_it_is
    if name in _SMALL:
        return _by_value(value, "int32")
    if name in _SAME_BITS:
        return _by_bits(value, _SAME_BITS[name])
    raise _refused(value)


def for_arithmetic(value: Tensor, merge: str, mean: bool) -> Carried:
    """Converts a tensor for a reduction to a dtype in which the result is right.

    Raises:
      TypeError: when the tensor's values are no numbers, or no supported dtype gives the right result.
    """
    name = value.dtype.name
    what = f"mean of {name}" if mean else f"reduction by {merge} of {name}"
    if name in _DIRECT:
        return value, _as_it_is
    if name in _PARTS:
        if merge != "Add":
            raise TypeError(f"There is no {what} ({value.name}); gather the tensors and compute it from them.")
        return _by_bits(value, _PARTS[name])
    if name == "uint64":
        if mean or merge not in ("Add", "Mul"):
            raise TypeError(f"There is no {what} ({value.name}); cast it to int64 or float64 first.")
        return _by_bits(value, "int64")
    if name == "bool" and mean:
        raise TypeError(f"There is no {what} ({value.name}); cast it to float32 first.")
    if name in _ARITHMETIC:
        return _by_value(value, _ARITHMETIC[name])
    raise _refused(value)


def _as_it_is(value: Tensor) -> Tensor:
    return value


def _by_value(value: Tensor, dtype: str) -> Carried:
    return casting.cast(value, dtype), lambda got: casting.cast(got, value.dtype)


def _by_bits(value: Tensor, dtype: str) -> Carried:
    return casting.bitcast(value, dtype), lambda got: casting.bitcast(got, value.dtype)


def _refused(value: Tensor) -> TypeError:
    remedy = "encode it as numbers, or initialise it on each worker"
    if value.dtype.is_quantized:
        remedy = "tf.cast or tf.bitcast it first"
    return TypeError(f"Collectives carry numbers; {value.name} is of type {value.dtype.name}: {remedy}.")
