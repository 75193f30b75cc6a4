"""The reductions over the ranks (``hvd.Sum`` and others), and the factors around them."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.graph.operation import Tensor
from tfmini.ops.array.casting import cast

_HALVES = frozenset({"float16", "bfloat16"})


class ReduceOp:
    """A reduction over the ranks.

    Attributes:
      merge: the merge op of the collective; ``mean``: whether the result is divided by the number of ranks.
    """

    def __init__(self, name: str, merge: str, mean: bool = False) -> None:
        self.name, self.merge, self.mean = name, merge, mean

    def __repr__(self) -> str:
        return f"hvd.{self.name}"


Average, Sum = ReduceOp("Average", "Add", mean=True), ReduceOp("Sum", "Add")
Min, Max, Product = ReduceOp("Min", "Min"), ReduceOp("Max", "Max"), ReduceOp("Product", "Mul")
Adasum = ReduceOp("Adasum", "")


def chosen(op: Any, average: bool | None = None) -> ReduceOp:
    """Selects the reduction from ``op`` and the older ``average``.

    Raises:
      ValueError: when both are given, or ``op`` is no reduction.
      NotImplementedError: for `Adasum`.
    """
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is None:
        return Sum if average is False else Average
    if not isinstance(op, ReduceOp):
        raise ValueError(f"op must be hvd.Average, Sum, Min, Max or Product, got {op!r}.")
    if op is Adasum:
        raise NotImplementedError("hvd.Adasum is not supported; use hvd.Average.")
    return op


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """The product, of the tensor's dtype: computed in float32 for halves, in float64 for integers, and truncated."""
    if factor == 1.0:
        return tensor
    wide = None
    if tensor.dtype.name in _HALVES:
        wide = dtypes.float32
    elif not (tensor.dtype.is_floating or tensor.dtype.is_complex):
        wide = dtypes.float64
    if wide is None:
        return tensor * factor
    product: Tensor = cast(cast(tensor, wide) * factor, tensor.dtype)
    return product
