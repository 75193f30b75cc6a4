"""The collectives of a group of workers, each of which builds the same graph and runs it in its own session.

Names match the collectives of different workers, as in Horovod: workers may build and run them in different orders.
Collectives without a name are matched by keys that count them in the order of construction.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from tfmini.collectives.scatters import rows_of
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device, name_scope
from tfmini.ops import collectives as collective_ops
from tfmini.ops import control
from tfmini.ops.array import casting
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.variables.assignment import assign
from tfmini.runtime.collectives.calls import BEGINS, LEAST
from tfmini.train.replicas.collective_dtypes import as_bits, for_arithmetic

_used: weakref.WeakKeyDictionary[Any, dict[tuple[int, str], int]] = weakref.WeakKeyDictionary()
"""By graph: how often each group has used each name."""
_KEY_BYTES = 7


class Ranks:
    """A group of workers, which makes collectives. A name that is used again in a graph gets a number, as an op does.

    Args:
      size: number of workers.
      rank: rank of this worker; 0 is the chief.
      group_key: number of the group; different sets of workers need different numbers.
      device: the device of this worker that runs the collectives; None for the session's.
      least: the least number of workers of an elastic group, of which ``size`` is the largest; 0: it is not elastic.
    """

    def __init__(self, size: int, rank: int = 0, group_key: int = 1, device: Any = None, least: int = 0) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank must be in [0, {size}), got {rank}.")
        if not 0 <= least <= size:
            raise ValueError(f"The least number of workers must be in [0, {size}], got {least}.")
        self.size, self.rank, self.group_key, self.device, self.least = size, rank, group_key, device, least

    def _identity(self, name: str) -> tuple[str, tuple[int, int, int]]:
        """(the name, (group_size, group_key, instance_key)) of the next collective of that name."""
        used = _used.setdefault(get_default_graph(), {})
        count = used[self.group_key, name] = used.get((self.group_key, name), 0) + 1
        if not name:
            return "", (self.size, self.group_key, count)
        called = name if count == 1 else f"{name}_{count - 1}"
        if called != name and (self.group_key, called) in used:  # somebody has given this name himself
            return self._identity(name)
        used.setdefault((self.group_key, called), 1)
        key = int.from_bytes(blake2b(called.encode(), digest_size=_KEY_BYTES).digest(), "big")
        return called, (self.size, self.group_key, key)

    def _scope(self, value: Tensor, name: str, **more: Any) -> Any:
        """Adds attrs to a collective, beyond those of TensorFlow's op, that the ranks compare."""
        attrs = {"_collective_name": name.encode(), "_collective_dtype": value.dtype.name.encode(), **more}
        if self.least:
            attrs[LEAST] = self.least
        return get_default_graph()._attr_scope(attrs)

    def all_reduce(
        self, tensor: Any, name: str = "", merge: str = "Add", mean: bool = False, begins: bool = False
    ) -> Tensor:
        """The sum of a tensor over all workers, its mean, or its ``Mul``, ``Min`` or ``Max`` (``merge``).

        Integers wrap around, and their mean is rounded towards zero. For booleans, Add and Max mean "any", Mul and
        Min mean "all".

        Args:
          begins: whether an elastic group may begin with it.

        Raises:
          TypeError: for tensors that are no numbers, and for operations that a dtype does not support: Min, Max and
            mean of uint64; Mul, Min and Max of complex numbers; the mean of booleans.
        """
        value = convert_to_tensor(tensor)
        if self.size == 1:
            return value
        carried, restored = for_arithmetic(value, merge, mean)
        name, keys = self._identity(name)
        with device(self.device), self._scope(value, name, **_begins(begins)):
            got = collective_ops.all_reduce(carried, *keys, merge, "Div" if mean else "Id")
        return restored(got)

    def all_gather(self, tensor: Any, name: str = "", begins: bool = False) -> Tensor:
        """The workers' tensors concatenated along the first dimension, whose lengths may differ.

        Args:
          begins: whether an elastic group may begin with it.

        Raises:
          TypeError: for tensors that are no numbers.
        """
        value = convert_to_tensor(tensor)
        if self.size == 1:
            return value
        carried, restored = as_bits(value)
        shape = carried.shape if carried.shape.ndims is None else [None, *carried.shape.as_list()[1:]]
        name, (size, group, instance) = self._identity(name)
        with device(self.device), self._scope(value, name, _collective_any_rows=True, **_begins(begins)):
            got = collective_ops.collective_gather(
                carried, shape=shape, group_size=size, group_key=group, instance_key=instance
            )  # fmt: skip
        return restored(got)

    def reduce_scatter(self, tensor: Any, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
        """This worker's rows of the reduced tensor (see `all_reduce`); the first workers have one more if they differ.

        Args:
          tensor: of at least one dimension.

        Raises:
          TypeError: as `all_reduce`.
          ValueError: for a scalar.
        """
        value = convert_to_tensor(tensor)
        if value.shape.ndims == 0:
            raise ValueError(f"A tensor to reduce and scatter needs at least one dimension; {value.name} is a scalar.")
        if self.size == 1:
            return value
        carried, restored = for_arithmetic(value, merge, mean)
        name, keys = self._identity(name)
        with device(self.device), self._scope(value, name):
            got = collective_ops.reduce_scatter(carried, *keys, merge, "Div" if mean else "Id")
        sizes = value.raw_shape
        if sizes is not None and sizes[0] is not None:
            low, high = rows_of(self.rank, self.size, sizes[0])
            got.set_shape([high - low, *sizes[1:]])
        return restored(got)

    def all_to_all(self, tensor: Any, splits: Any = None, name: str = "") -> tuple[Tensor, Tensor]:
        """Sends the first rows of a tensor to worker 0, the next ones to worker 1, and so on.

        Args:
          tensor: of at least one dimension; all but the first are the same on all workers.
          splits: a vector of integers: how many rows each worker gets; None: all get as many.

        Returns:
          (the rows that the workers have sent to this one, in their order; how many came from each).
        """
        value = convert_to_tensor(tensor)
        counts = constant([], "int32") if splits is None else casting.cast(convert_to_tensor(splits), "int32")
        if self.size == 1:
            counts = array_shape.shape(value)[:1] if splits is None else counts
            return value[: counts[0]], counts
        carried, restored = as_bits(value)
        name, keys = self._identity(name)
        with device(self.device), self._scope(value, name, _collective_any_rows=True):
            got, received = collective_ops.all_to_all(carried, counts, *keys)
        return restored(got), received

    def broadcast(self, tensor: Any, root_rank: int = 0, name: str = "") -> Tensor:
        """The tensor of worker ``root_rank``, on all workers.

        Args:
          tensor: of the same shape and dtype on all workers.

        Raises:
          ValueError: when there is no worker ``root_rank``.
          TypeError: for tensors that are no numbers.
        """
        return self._broadcast(tensor, root_rank, name)

    def _broadcast(self, tensor: Any, root_rank: int, name: str, **more: Any) -> Tensor:
        value = convert_to_tensor(tensor)
        if not 0 <= root_rank < self.size:
            raise ValueError(f"root_rank must be in [0, {self.size}), got {root_rank}.")
        if self.size == 1:
            return value
        name, keys = self._identity(name)
        carried, restored = as_bits(value)
        with device(self.device), self._scope(value, name, _collective_root=root_rank, **more):
            if not carried.shape.is_fully_defined():
                got = collective_ops.broadcast_alike(carried, self.rank == root_rank, *keys)
            elif self.rank == root_rank:
                got = collective_ops.broadcast_send(carried, carried.shape, carried.dtype, *keys)
            else:
                got = collective_ops.broadcast_recv(carried.shape, carried.dtype, *keys)
        return restored(got)

    def broadcast_variables(self, variables: Iterable[Any], root_rank: int = 0) -> Operation:
        """An operation that assigns to variables the values that they have on worker ``root_rank``.

        After a failure, workers that have come to different steps may begin anew with it.
        """
        updates = []
        with name_scope("broadcast_variables"):
            for variable in variables:
                name = f"{variable.op.name}/broadcast"  # its gradient may have the variable's name
                value = self._broadcast(variable.value(), root_rank, name, **_begins(True))
                updates.append(value.op if self.rank == root_rank else assign(variable, value).op)
            return control.group(*updates)


def _begins(begins: bool) -> dict[str, bool]:
    return {BEGINS: True} if begins else {}
