"""Horovod's collectives of one tensor: reduce, gather, broadcast, all-to-all, reduce-scatter; and those of groups.

Each takes a ``process_set``, whose members alone take part. On another worker the result is a tensor that fails when a
step computes it, so such a worker may build the same graph, with the collective in a conditional.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.compat.horovod.compression import Compression, Compressor
from tfmini.compat.horovod.world import ProcessSet, global_process_set, refused, world
from tfmini.core_types import TensorLike
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.ops import control
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.variables.assignment import assign
from tfmini.train.replicas import all_reduce
from tfmini.train.replicas.elastic import Ranks

# ---- The reductions over the ranks (``hvd.Sum`` and others), and the factors around them ---------------------------

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


def chosen(op: ReduceOp | None, average: bool | None = None) -> ReduceOp:
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


# ---- The collectives, of one tensor and of groups ------------------------------------------------------------------


def allreduce(
    tensor: TensorLike,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all workers, by default to the mean; concatenates `IndexedSlices`. Differentiable.

    Args:
      tensor: of the same shape and dtype on all workers.
      average: mean (default) or sum.
      device_dense, device_sparse: ignored; the CPU does the work.
      compression: from `Compression`.
      op: `Average`, `Sum`, `Min`, `Max` or `Product`, instead of ``average``.
      prescale_factor, postscale_factor: factors before and after.
      name: the workers find each other's collectives by their names, in whichever order they build and run them.
        Default: Horovod's, which follows from the name of the tensor. A name that is used again gets a number.
      process_set: the workers that take part.
      ignore_name_scope: leave out the name scope, which the name begins with otherwise.

    Raises:
      ValueError: for both ``average`` and ``op``, or a process set that is not registered.
      NotImplementedError: for `Adasum`, and for slices with a factor or with anything but a mean or sum.
    """
    reduction = chosen(op, average)
    factors = prescale_factor, postscale_factor
    if isinstance(tensor, IndexedSlices):
        called = _called("Allreduce", tensor.values, name, ignore_name_scope)
        return _reduced_slices(tensor, reduction, factors, called, process_set)
    value = convert_to_tensor(tensor)
    ranks = world().group(process_set.process_set_id)
    if ranks is None:
        return _outside(value, "allreduce", name, process_set)
    called = _called("Allreduce", value, name, ignore_name_scope)
    small, context = compression.compress(value)
    total = all_reduce.all_reduce(ranks, scaled(small, prescale_factor), called, reduction.merge, reduction.mean)
    return compression.decompress(scaled(total, postscale_factor), context)


# ---- Private names of Horovod that libraries use -------------------------------------------------------------------


def _allreduce(
    tensor: TensorLike,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """`allreduce` without compression, by default to the sum."""
    return allreduce(
        tensor, op=Sum if op is None else op, prescale_factor=prescale_factor, postscale_factor=postscale_factor,
        name=name, process_set=process_set, ignore_name_scope=ignore_name_scope,
    )  # fmt: skip


def _normalize_name(name: str) -> str:
    """``name`` as a part of an op's name."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _called(what: str, value: Tensor, name: str | None, ignore_name_scope: bool) -> str:
    """Horovod's name of a collective: that of its op in Horovod's graph, by which the ranks find each other."""
    own = name or f"Horovod{what}_{_normalize_name(value.name)}"
    scope = "" if ignore_name_scope else value.graph.get_name_scope()
    return f"{scope}/{own}" if scope else own


def _reduced_slices(
    slices: IndexedSlices, reduction: ReduceOp, factors: tuple[float, float], name: str, process_set: ProcessSet
) -> IndexedSlices:
    """Gathers the values and the indices of slices."""
    if reduction.merge != "Add":
        raise NotImplementedError(f"{reduction!r} does not support sparse tensors; use tf.convert_to_tensor first.")
    if factors != (1.0, 1.0):
        text = "prescale_factor and postscale_factor do not support sparse tensors; use tf.convert_to_tensor first."
        raise NotImplementedError(text)
    values = allgather(slices.values, f"{name}/values", True, process_set)
    if reduction.mean:
        count = len(world().members(process_set.process_set_id))
        values = values / cast(count, values.dtype)  # of integers it is a float
    return IndexedSlices(values, allgather(slices.indices, f"{name}/indices", True, process_set), slices.dense_shape)


def _outside(value: Tensor, what: str, name: str | None, process_set: ProcessSet) -> Tensor:
    """What a worker gets that is not in the process set."""
    return refused(
        value,
        f"Rank {world().ranks.rank} runs hvd.{what} of {name or value.op.name} in the process set"
        f" {process_set.process_set_id} of the ranks {process_set.ranks}, to which it does not belong. Run it only"
        " where process_set.included() is true.",
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """`allreduce` of several tensors; those of one dtype travel together, in one collective. Differentiable.

    Args:
      tensors: each of the same shape and dtype on all workers; `IndexedSlices` are gathered one by one.
      others: as in `allreduce`.
    """
    reduction = chosen(op, average)
    results: list[Any] = list(tensors)
    dense: list[int] = []
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, IndexedSlices):
            factors = prescale_factor, postscale_factor
            called = _called("GroupedAllreduce", tensor.values, name and f"{name}/{i}", ignore_name_scope)
            results[i] = _reduced_slices(tensor, reduction, factors, called, process_set)
        else:
            dense.append(i)
            results[i] = convert_to_tensor(tensor)
    ranks = world().group(process_set.process_set_id)
    if ranks is None:
        return [_outside(r, "grouped_allreduce", name, process_set) if i in dense else r for i, r in enumerate(results)]
    small = {i: compression.compress(results[i]) for i in dense}
    for together in _by_dtype({i: value for i, (value, _) in small.items()}):
        first = results[together[0]]
        called = _called("GroupedAllreduce", first, name and f"{name}/{first.dtype.name}", ignore_name_scope)
        values = [scaled(small[i][0], prescale_factor) for i in together]
        totals = all_reduce.all_reduce_packed(ranks, values, called, reduction.merge, reduction.mean)
        for i, total in zip(together, totals):
            results[i] = compression.decompress(scaled(total, postscale_factor), small[i][1])
    return results


def _by_dtype(tensors: dict[int, Tensor]) -> Iterable[list[int]]:
    groups: dict[str, list[int]] = {}
    for i, tensor in tensors.items():
        groups.setdefault(tensor.dtype.base_dtype.name, []).append(i)
    return groups.values()


def reducescatter(
    tensor: TensorLike,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Reduces a tensor over all workers and leaves each an equal number of its rows; the first may have one more.

    Differentiable.

    Args:
      tensor: of at least one dimension, and of the same shape and dtype on all workers.
      others: as in `allreduce`.

    Raises:
      ValueError: for a scalar, or a process set that is not registered.
    """
    reduction = chosen(op)
    value = convert_to_tensor(tensor)
    ranks = world().group(process_set.process_set_id)
    if ranks is None:
        return _outside(value, "reducescatter", name, process_set)
    small, context = compression.compress(value)
    called = _called("Reducescatter", value, name, ignore_name_scope)
    part = all_reduce.reduce_scatter(ranks, scaled(small, prescale_factor), called, reduction.merge, reduction.mean)
    part = compression.decompress(scaled(part, postscale_factor), context)
    return part  # type: ignore[no-any-return]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """`reducescatter` of several tensors; their collectives run at the same time."""
    return [
        reducescatter(
            tensor, compression=compression, op=op, process_set=process_set, prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        for tensor in tensors
    ]  # fmt: skip


def allgather(
    tensor: TensorLike,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Concatenates the workers' tensors along the first dimension, which may differ. Differentiable.

    Args:
      tensor: of at least one dimension.
      others: as in `allreduce`.
    """
    return _collective(tensor, "allgather", name, ignore_name_scope, process_set, all_reduce.all_gather)


def _collective(
    tensor: TensorLike, what: str, name: str | None, ignore_name_scope: bool, process_set: ProcessSet,
    run: Callable[[Ranks, Tensor, str], Tensor],
) -> Tensor:  # fmt: skip
    value = convert_to_tensor(tensor)
    ranks = world().group(process_set.process_set_id)
    if ranks is None:
        return _outside(value, what, name, process_set)
    return run(ranks, value, _called(what.capitalize(), value, name, ignore_name_scope))


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """`allgather` of several tensors; their collectives run at the same time."""
    return [
        allgather(tensor, name and f"{name}/{i}", ignore_name_scope, process_set) for i, tensor in enumerate(tensors)
    ]


def broadcast(
    tensor: TensorLike,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the tensor of ``root_rank`` on all workers. Differentiable.

    Args:
      tensor: of the same shape and dtype on all workers.
      root_rank: the worker that sends its value, as a rank among all workers; the same on all.
      others: as in `allreduce`.

    Raises:
      ValueError: ``root_rank`` is not in the process set.
    """

    def send(ranks: Ranks, value: Tensor, called: str) -> Tensor:
        return all_reduce.broadcast(ranks, value, position(root_rank, process_set), called)

    return _collective(tensor, "broadcast", name, ignore_name_scope, process_set, send)


def position(root_rank: int, process_set: ProcessSet) -> int:
    """The position of a rank in a process set.

    Raises:
      ValueError: it is not in the set.
    """
    members = world().members(process_set.process_set_id)
    if root_rank not in members:
        raise ValueError(f"root_rank {root_rank} is not in the process set of the ranks {list(members)}.")
    return members.index(root_rank)


def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """Assigns the values of ``root_rank`` to variables; returns their new values."""
    results = []
    for i, variable in enumerate(variables):
        called = f"{name}/{i}" if name else f"{variable.op.name}/broadcast"
        update = assign(variable, broadcast(variable.value(), root_rank, called, True, process_set))
        with control_dependencies([update]):
            results.append(identity(variable.read_value()))
    return results


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Operation:
    """Makes an operation that assigns the values of ``root_rank`` to variables.

    Args:
      inplace: ignored.
    """
    ranks = world().group(process_set.process_set_id)
    if ranks is not None:
        return ranks.broadcast_variables(variables, position(root_rank, process_set))
    outsiders = [_outside(v.value(), "broadcast_variables", v.op.name, process_set) for v in variables]
    return control.group(*outsiders)


def alltoall(
    tensor: TensorLike,
    splits: TensorLike | None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first rows of a tensor to rank 0, the next ones to rank 1, and so on. Differentiable.

    Args:
      tensor: of at least one dimension; all but the first are the same on all workers.
      splits: how many rows each worker gets; default: all get as many.
      others: as in `allreduce`.

    Returns:
      The rows that came from the workers, in their order; with ``splits`` (rows, how many came from each).
    """
    value = convert_to_tensor(tensor)
    ranks = world().group(process_set.process_set_id)
    if ranks is None:
        outside = _outside(value, "alltoall", name, process_set)
        return outside if splits is None else (outside, convert_to_tensor(splits))
    called = _called("Alltoall", value, name, ignore_name_scope)
    rows, received = all_reduce.all_to_all(ranks, value, splits, called)
    return rows if splits is None else (rows, received)
