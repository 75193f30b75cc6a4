"""Collective ops: ``CollectiveReduce``, ``CollectiveBcastSend``, ``CollectiveBcastRecv``, ``CollectiveGather``.

``CollectiveAllToAll``, ``CollectiveReduceScatter`` and ``CollectiveBcastAlike`` are tfmini's own: TF1 has none, and
those of later versions take their keys as tensors.

The members of a group are the devices on which ops with its ``group_key`` run. Ops of the members with one
``instance_key`` form one collective. The task's collective executor runs it (see
`tfmini.runtime.collectives.executor`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.dtypes import as_dtype
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, all_of, declared_shape, op, same_shape
from tfmini.graph.node import Node
from tfmini.graph.op_types import Wait
from tfmini.graph.scoping import device
from tfmini.ops.array.identity import identity
from tfmini.shapes import RawShape, TensorShape, with_rank

_KEYS = """T: {float32, float16, float64, int32, int64}
    group_size: int
    group_key: int
    instance_key: int"""
_SHAPED = f"{_KEYS}\nshape: shape\ncommunication_hint: string = 'auto'"

collective_reduce = op(
    f"""CollectiveReduce(input: T) -> data: T
    {_KEYS}
    merge_op: {{'Min', 'Max', 'Mul', 'Add'}}
    final_op: {{'Id', 'Div'}}
    subdiv_offsets: list(int)
    wait_for: list(int) = []
    communication_hint: string = 'auto'""",
    stateful=True,
    shape=same_shape,
    collective="all-reduce",
    differentiable=None,
)
collective_bcast_send = op(
    f"CollectiveBcastSend(input: T) -> data: T\n{_SHAPED}",
    stateful=True,
    shape=declared_shape,
    collective="broadcast",
    differentiable=None,
)
collective_bcast_recv = op(
    f"CollectiveBcastRecv() -> data: T\n{_SHAPED}",
    stateful=True,
    shape=declared_shape,
    collective="broadcast",
    differentiable=False,
)
collective_bcast_alike = op(
    f"CollectiveBcastAlike(input: T) -> data: T\n{_KEYS}\nis_source: bool",
    stateful=True, shape=same_shape, collective="broadcast", differentiable=None,
)  # fmt: skip
collective_gather = op(
    f"CollectiveGather(input: T) -> data: T\n{_SHAPED}",
    stateful=True,
    shape=declared_shape,
    collective="all-gather",
    differentiable=None,
)

collective_reduce_scatter = op(
    f"""CollectiveReduceScatter(input: T) -> data: T
    {_KEYS}
    merge_op: {{'Min', 'Max', 'Mul', 'Add'}}
    final_op: {{'Id', 'Div'}}""",
    stateful=True,
    collective="reduce-scatter",
    differentiable=None,
    shape=lambda node: [_other_rows(node)],
)
collective_all_to_all = op(
    f"CollectiveAllToAll(input: T, splits: int32) -> data: T, received_splits: int32\n{_KEYS}",
    stateful=True,
    collective="all-to-all",
    differentiable=None,
)


def _other_rows(node: Operation) -> RawShape:
    known = node.inputs[0].raw_shape
    if known == ():
        raise ValueError(f"{node.name} needs a tensor of at least one dimension; {node.inputs[0].name} is a scalar.")
    return None if known is None else (None, *known[1:])


@collective_all_to_all.shape
def _all_to_all_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[1].raw_shape, 1)
    return [_other_rows(node), (node.attrs["group_size"],)]


@all_of(collective_reduce, collective_bcast_send).async_kernel("CPU")
@all_of(collective_bcast_alike, collective_gather, collective_reduce_scatter).async_kernel("CPU")
def _collective(wait: Wait, value: TensorLike, *, node: Node) -> None:
    wait.step.owner.collectives.begin(wait, node, value)


@collective_bcast_recv.async_kernel("CPU")
def _receive(wait: Wait, *, node: Node) -> None:
    wait.step.owner.collectives.begin(wait, node, None)


@collective_all_to_all.async_kernel("CPU")
def _all_to_all(wait: Wait, value: TensorLike, splits: TensorLike, *, node: Node) -> None:
    wait.step.owner.collectives.begin(wait, node, value, splits)


def _check_size(group_size: int, what: str) -> None:
    if group_size <= 1:
        raise ValueError(f"Parameter `group_size` to {what} must be at least 2. Received: {group_size}.")


@export("tf.collective_ops.all_reduce")
def all_reduce(
    t: TensorLike,
    group_size: int,
    group_key: int,
    instance_key: int,
    merge_op: str,
    final_op: str,
    subdiv_offsets: Sequence[int] = (0,),
    communication_hint: str = "auto",
) -> Tensor:
    """Reduces a tensor over the members of a group; all get the same bits (``tf.collective_ops.all_reduce``).

    Args:
      t: a tensor, of the same shape and dtype on every member.
      group_size: the number of members; each is on a device of its own.
      group_key: identifies the group.
      instance_key: identifies the collective within the group.
      merge_op: ``"Add"``, ``"Mul"``, ``"Min"`` or ``"Max"``.
      final_op: ``"Id"``, or ``"Div"`` to divide by ``group_size``.
      subdiv_offsets: its length is the least number of pieces in which each member's share of the tensor is sent.
      communication_hint: accepted and unused.

    Raises:
      ValueError: for fewer than two members.
    """
    _check_size(group_size, "all_reduce")
    return collective_reduce(
        t, group_size=group_size, group_key=group_key, instance_key=instance_key, merge_op=merge_op,
        final_op=final_op, subdiv_offsets=list(subdiv_offsets), communication_hint=communication_hint.lower(),
    )  # fmt: skip


@export("tf.collective_ops.all_gather")
def all_gather(
    t: Tensor, group_size: int, group_key: int, instance_key: int, communication_hint: str = "auto"
) -> Tensor:
    """The members' tensors, joined along the first dimension in the order of their devices.

    Args:
      t: a tensor of at least one dimension, of the same shape on every member.
      group_size, group_key, instance_key, communication_hint: as in `all_reduce`.
    """
    _check_size(group_size, "all_gather")
    known = t.shape
    shape: Any = TensorShape(None)
    if known.ndims is not None:
        rows = known.as_list()
        shape = TensorShape([None if rows[0] is None else rows[0] * group_size, *rows[1:]])
    return collective_gather(
        t, shape=shape, group_size=group_size, group_key=group_key, instance_key=instance_key,
        communication_hint=communication_hint.lower(),
    )  # fmt: skip


@export("tf.collective_ops.broadcast_send")
def broadcast_send(
    t: Tensor,
    shape: ShapeLike,
    dtype: DTypeLike,
    group_size: int,
    group_key: int,
    instance_key: int,
    communication_hint: str = "auto",
) -> Tensor:
    """Sends a tensor to all other members of a group; returns it (``tf.collective_ops.broadcast_send``).

    Args:
      t: the tensor, of exactly that shape and dtype.
      group_size, group_key, instance_key, communication_hint: as in `all_reduce`.

    Raises:
      ValueError: for another shape or dtype, or fewer than two members.
    """
    _check_size(group_size, "broadcast_send")
    if t.shape != TensorShape(shape):
        raise ValueError(f"Shape of broadcast_send tensor `t` is {t.shape} but passed shape is {shape}.")
    if t.dtype != as_dtype(dtype):
        raise ValueError(f"Type of broadcast_send tensor `t` is {t.dtype} but passed type is {dtype}.")
    return collective_bcast_send(
        t, shape=shape, group_size=group_size, group_key=group_key, instance_key=instance_key,
        communication_hint=communication_hint.lower(),
    )  # fmt: skip


def broadcast_alike(t: TensorLike, is_source: bool, group_size: int, group_key: int, instance_key: int) -> Tensor:
    """Broadcasts a tensor to members that have one of the same shape, which they need not know before the step.

    Args:
      t: the tensor; only its shape matters on members that are not the source.
      is_source: whether this member sends its tensor; true on exactly one.
      group_size, group_key, instance_key: as in `all_reduce`.
    """
    _check_size(group_size, "broadcast_alike")
    return collective_bcast_alike(
        t, group_size=group_size, group_key=group_key, instance_key=instance_key, is_source=is_source
    )


@export("tf.collective_ops.broadcast_recv")
def broadcast_recv(
    shape: ShapeLike | TensorLike, dtype: DTypeLike, group_size: int, group_key: int, instance_key: int,
    communication_hint: str = "auto",
) -> Tensor:  # fmt: skip
    """Receives the tensor that another member of the group broadcasts (``tf.collective_ops.broadcast_recv``).

    Args:
      shape, dtype: of the tensor.
      group_size, group_key, instance_key, communication_hint: as in `all_reduce`.
    """
    _check_size(group_size, "broadcast_recv")
    return collective_bcast_recv(
        T=dtype, shape=shape, group_size=group_size, group_key=group_key, instance_key=instance_key,
        communication_hint=communication_hint.lower(),
    )  # fmt: skip


def reduce_scatter(
    t: TensorLike, group_size: int, group_key: int, instance_key: int, merge_op: str, final_op: str
) -> Tensor:
    """Reduces a tensor over the members of a group, and leaves each member some rows of the result.

    The rows are divided as evenly as possible; the first members, in the order of their devices, have one more.

    Args:
      t: a tensor of at least one dimension, of the same shape and dtype on every member.
      group_size, group_key, instance_key, merge_op, final_op: as in `all_reduce`.
    """
    _check_size(group_size, "reduce_scatter")
    return collective_reduce_scatter(
        t, group_size=group_size, group_key=group_key, instance_key=instance_key, merge_op=merge_op, final_op=final_op
    )


def all_to_all(
    t: TensorLike, splits: TensorLike, group_size: int, group_key: int, instance_key: int
) -> tuple[Tensor, Tensor]:
    """Scatters the rows of every member's tensor to all members; returns the rows for this one, and their splits.

    Args:
      t: a tensor of at least one dimension; all but the first are the same on every member.
      splits: how many rows go to each member in the order of their devices; without elements: as many to each. No
        member gets the rows behind their sum.
      group_size, group_key, instance_key: as in `all_reduce`.

    Returns:
      (the rows in the order of the senders, how many each member has sent).
    """
    _check_size(group_size, "all_to_all")
    keys = {"group_size": group_size, "group_key": group_key, "instance_key": instance_key}
    data, received = collective_all_to_all(t, splits, **keys)
    return data, received


# ---- all-reduces of graphs with several devices in one task -----------------------------

_Reduction = Callable[..., Any]


def _on_all(
    tensors: Sequence[Tensor], total: Callable[[], Tensor], where: str, un_op: _Reduction | None
) -> list[Tensor]:
    """The reduction, computed on one device, and a copy of it on the device of each tensor."""
    with device(where):
        reduced = total()
        reduced = reduced if un_op is None else un_op(reduced)
    copies = []
    for tensor in tensors:
        with device(tensor.device):
            copies.append(identity(reduced))
    return copies


def _fold(tensors: Sequence[Tensor], red_op: _Reduction, un_op: _Reduction | None) -> list[Tensor]:
    return _on_all(tensors, lambda: functools.reduce(red_op, tensors), tensors[0].device, un_op)


@export(
    "tensorflow.contrib.all_reduce.python.all_reduce.build_ring_all_reduce",
    "tensorflow.python.distribute.all_reduce.build_ring_all_reduce",
)
def build_ring_all_reduce(
    input_tensors: Sequence[Tensor], num_workers: int, num_subchunks: int, gpu_perm: Sequence[int], red_op: _Reduction,
    un_op: _Reduction | None = None,
) -> list[Tensor]:  # fmt: skip
    """Reduces tensors of several devices, and gives each device the result. The order of the ring is not kept.

    Args:
      input_tensors: tensors of one shape and dtype, one of each device.
      num_workers, num_subchunks, gpu_perm: where TensorFlow's ring goes along; not read.
      red_op: a function of two tensors, such as `tf.add`.
      un_op: a function of the result, such as a division by the number of tensors.

    Raises:
      ValueError: for fewer than two tensors.
    """
    if len(input_tensors) < 2:
        raise ValueError("input_tensors must be length 2 or longer")
    return _fold(input_tensors, red_op, un_op)


@export(
    "tensorflow.contrib.all_reduce.python.all_reduce.build_recursive_hd_all_reduce",
    "tensorflow.python.distribute.all_reduce.build_recursive_hd_all_reduce",
)
def build_recursive_hd_all_reduce(
    input_tensors: Sequence[Tensor], red_op: _Reduction, un_op: _Reduction | None = None
) -> list[Tensor]:  # fmt: skip
    """`build_ring_all_reduce` of a number of tensors that is a power of 2; raises ValueError for others."""
    if len(input_tensors) & (len(input_tensors) - 1):
        raise ValueError("num_devices must be a power of 2")
    return _fold(input_tensors, red_op, un_op)


@export(
    "tensorflow.contrib.all_reduce.python.all_reduce.build_shuffle_all_reduce",
    "tensorflow.python.distribute.all_reduce.build_shuffle_all_reduce",
)
def build_shuffle_all_reduce(
    input_tensors: Sequence[Tensor], gather_devices: Sequence[str], red_op: _Reduction, un_op: _Reduction | None = None
) -> list[Tensor]:  # fmt: skip
    """Reduces tensors of several devices on the first of ``gather_devices``, and gives each device the result.

    Args:
      input_tensors: tensors of one shape and dtype, one of each device.
      gather_devices: the devices that TensorFlow gives a part of the work.
      red_op: a function of a list of tensors, such as `tf.add_n`.
      un_op: a function of the result.
    """
    return _on_all(input_tensors, lambda: red_op(list(input_tensors)), gather_devices[0], un_op)
