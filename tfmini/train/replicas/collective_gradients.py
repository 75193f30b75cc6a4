"""Differentiable collectives: the gradient of a rank's input includes the losses of all ranks.

The definitions are Horovod's. Each rank contributes the gradient of its own loss. The gradient of a reduction is
reduced in the same way; those of a gather and of a broadcast are means over the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.padding import pad
from tfmini.ops.array.splitting import split
from tfmini.ops.gradients.custom_gradient import custom_gradient
from tfmini.ops.math import reduce_functions
from tfmini.train.replicas.ranks import Ranks


def all_reduce(ranks: Ranks, tensor: Any, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
    """`Ranks.all_reduce`; its gradient is reduced in the same way.

    Raises (when differentiated):
      LookupError: when ``merge`` is not ``Add``.
    """

    def reduce(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            _check_merge(merge)
            return ranks.all_reduce(grad, _of_gradient(name), mean=mean)

        return ranks.all_reduce(value, name, merge, mean), gradient

    return _differentiable(reduce, tensor)


def all_reduce_packed(
    ranks: Ranks, tensors: Sequence[Tensor], name: str = "", merge: str = "Add", mean: bool = False
) -> list[Tensor]:
    """`all_reduce` of several tensors of one dtype in one collective; their gradients have one collective, too."""

    def reduce(*values: Tensor) -> tuple[list[Tensor], Any]:
        def gradient(*grads: Tensor) -> list[Tensor]:
            _check_merge(merge)
            return _packed(ranks, grads, _of_gradient(name), "Add", mean)

        return _packed(ranks, values, name, merge, mean), gradient

    if not tensors[0].dtype.is_floating:
        return reduce(*tensors)[0]
    return custom_gradient(reduce)(*tensors)  # type: ignore[no-any-return]


def _packed(ranks: Ranks, values: Sequence[Tensor], name: str, merge: str, mean: bool) -> list[Tensor]:
    """Reduces the concatenation of several tensors."""
    if len(values) == 1 or ranks.size == 1:
        return [ranks.all_reduce(value, name, merge, mean) for value in values]
    flat = array_joining.concat([array_shape.reshape(value, [-1]) for value in values], 0)
    total = ranks.all_reduce(flat, name, merge, mean)
    sizes = [array_shape.size(value) for value in values]
    parts = split(total, array_joining.stack(sizes), 0, num=len(values))
    whole = [array_shape.reshape(part, array_shape.shape(value)) for part, value in zip(parts, values)]
    for part, value in zip(whole, values):
        part.set_shape(value.shape)
    return whole


def all_gather(ranks: Ranks, tensor: Any, name: str = "") -> Tensor:
    """`Ranks.all_gather`; its gradient is the mean of all ranks' gradients, restricted to this rank's rows."""

    def gather(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            inner = _of_gradient(name)
            total = ranks.all_reduce(grad, inner, mean=True)
            rows = array_shape.shape(value)[:1]
            counts = ranks.all_gather(rows, f"{inner}/rows" if inner else "")
            before = reduce_functions.reduce_sum(counts[: ranks.rank])
            own = total[before : before + rows[0]]
            own.set_shape(value.shape)
            return own

        return ranks.all_gather(value, name), gradient

    return _differentiable(gather, tensor)


def broadcast(ranks: Ranks, tensor: Any, root_rank: int = 0, name: str = "") -> Tensor:
    """`Ranks.broadcast`; its gradient is the mean of all ranks' gradients on the root, and zero on other ranks."""

    def send(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            total = ranks.all_reduce(grad, _of_gradient(name), mean=True)
            return total if ranks.rank == root_rank else total * 0  # all ranks must take part in the all-reduce

        return ranks.broadcast(value, root_rank, name), gradient

    return _differentiable(send, tensor)


def reduce_scatter(ranks: Ranks, tensor: Any, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
    """`Ranks.reduce_scatter`; its gradient gathers the gradients of all parts, for a sum times the number of ranks.

    Raises (when differentiated):
      LookupError: when ``merge`` is not ``Add``.
    """

    def reduce(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            _check_merge(merge)
            whole = ranks.all_gather(grad if mean else grad * ranks.size, _of_gradient(name))
            whole.set_shape(value.shape)
            return whole

        return ranks.reduce_scatter(value, name, merge, mean), gradient

    return _differentiable(reduce, tensor)


def all_to_all(ranks: Ranks, tensor: Any, splits: Any = None, name: str = "") -> tuple[Tensor, Tensor]:
    """`Ranks.all_to_all`; its gradient sends each row's gradient back, and is zero for rows that no rank got."""

    def exchange(value: Tensor) -> tuple[list[Tensor], Any]:
        def gradient(grad: Tensor, _: Any = None) -> Tensor:
            back, _ = ranks.all_to_all(grad, received, _of_gradient(name))
            unsent = array_shape.shape(value)[0] - array_shape.shape(back)[0]
            rest = array_filling.zeros(array_joining.stack([array_shape.rank(value) - 1, 2]), "int32")
            margins = array_joining.concat([[[0, unsent]], rest], 0)
            own = pad(back, margins)
            own.set_shape(value.shape)
            return own

        rows, received = ranks.all_to_all(value, splits, name)
        return [rows, received], gradient

    value = convert_to_tensor(tensor)
    rows, received = exchange(value)[0] if not value.dtype.is_floating else custom_gradient(exchange)(value)
    return rows, received


def _of_gradient(name: str) -> str:
    return f"{name}/gradient" if name else ""


def _check_merge(merge: str) -> None:
    if merge != "Add":
        raise LookupError(f"A reduction by {merge} has no gradient; reduce by hvd.Sum or hvd.Average.")


def _differentiable(collective: Any, tensor: Any) -> Tensor:
    value = convert_to_tensor(tensor)
    if not value.dtype.is_floating:
        return collective(value)[0]  # type: ignore[no-any-return]
    return custom_gradient(collective)(value)  # type: ignore[no-any-return]
