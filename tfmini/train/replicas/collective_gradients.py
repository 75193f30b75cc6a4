"""Differentiable collectives: the gradient of a rank's input includes the losses of all ranks.

The definition is Horovod's: each rank contributes the gradient of its own loss, and the contributions are
reduced in the same way as the values.
"""

from __future__ import annotations

from typing import Any

from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array import slicing as array_slicing
from tfmini.ops.gradients.custom_gradient import custom_gradient
from tfmini.ops.math import reduce_functions
from tfmini.train.replicas.all_reduce import Ranks


def all_reduce(ranks: Ranks, tensor: Any, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
    """`Ranks.all_reduce`; its gradient is reduced in the same way.

    Raises (when differentiated):
      LookupError: when ``merge`` is not ``Add``.
    """

    def reduce(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            if merge != "Add":
                raise LookupError(f"An all-reduce by {merge} has no gradient.")
            return ranks.all_reduce(grad, f"{name}/gradient" if name else "", mean=mean)

        return ranks.all_reduce(value, name, merge, mean), gradient

    return _differentiable(reduce, tensor)


def all_gather(ranks: Ranks, tensor: Any, name: str = "") -> Tensor:
    """`Ranks.all_gather`; its gradient is the sum of all ranks' gradients, restricted to this rank's rows."""

    def gather(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            inner = f"{name}/gradient" if name else ""
            total = ranks.all_reduce(grad, inner)
            rows = array_shape.shape(value)[:1]
            counts = ranks.all_gather(rows, f"{inner}/rows" if inner else "")
            before = reduce_functions.reduce_sum(counts[: ranks.rank], keepdims=True)
            rest = array_filling.zeros_like(array_shape.shape(value)[1:])
            size = array_shape.shape(value)
            own = array_slicing.slice(total, array_joining.concat([before, rest], 0), size)
            own.set_shape(value.shape)
            return own

        return ranks.all_gather(value, name), gradient

    return _differentiable(gather, tensor)


def broadcast(ranks: Ranks, tensor: Any, root_rank: int = 0, name: str = "") -> Tensor:
    """`Ranks.broadcast`; its gradient is the sum of all ranks' gradients on the root, and zero on other ranks."""

    def send(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            total = ranks.all_reduce(grad, f"{name}/gradient" if name else "")
            return total if ranks.rank == root_rank else total * 0  # all ranks must take part in the all-reduce

        return ranks.broadcast(value, root_rank, name), gradient

    return _differentiable(send, tensor)


def _differentiable(collective: Any, tensor: Any) -> Tensor:
    value = convert_to_tensor(tensor)
    if not value.dtype.is_floating:
        return collective(value)[0]  # type: ignore[no-any-return]
    return custom_gradient(collective)(value)  # type: ignore[no-any-return]
