"""Elastic all-reduce: training goes on with fewer workers when some are lost, and with more when they come (back).

The semantics are those of elastic Horovod: commit, restore, synchronise. Every worker keeps a copy of its variables
after each so many steps (it *commits*). When a worker is lost, the steps of the others fail. Each makes a
new session, goes back to what it has committed, and joins the group again. The group is complete when all workers
are there, or when its leader has waited a few seconds for those that are missing. Then all take over the variables
of the worker with the latest commit, and go on from there. A worker that comes while the others train waits until the
leader has committed; then the leader ends the group, and it forms anew in the same way.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.collectives.schedules import rows_of
from tfmini.core_types import TensorLike
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device, name_scope
from tfmini.ops import collectives as collective_ops
from tfmini.ops import control, table_ops
from tfmini.ops.array import identity
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.identity import placeholder
from tfmini.ops.array.shape import reshape
from tfmini.ops.math.comparison import where_v2
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.functions import global_variables
from tfmini.runtime import process
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.collectives.calls import BEGINS, LEAST
from tfmini.runtime.collectives.executor import end_group, newcomers
from tfmini.train.global_steps import get_global_step
from tfmini.train.session_run_hook import SessionRunHook

if TYPE_CHECKING:
    from tfmini.train.replicas.sync_state import ChangingNumbers


_log = logging.getLogger("tensorflow")
_RANKS = 1 << 20
OnChange = Callable[[Any, tuple[int, ...]], Any]


class ElasticHook(SessionRunHook):
    """Commits, restores and synchronises the variables of one worker; see the module.

    Args:
      ranks: an elastic group.
      commit_every_steps: runs of the session between two commits. So many steps at most are repeated after a loss.
      on_change: called as ``on_change(session, members)`` whenever the group has formed, before the next step; it may
        change the learning rate, say.

    Attributes:
      members: the ranks in the group, ascending; () before it has formed.
    """

    def __init__(self, ranks: Ranks, commit_every_steps: int = 10, on_change: OnChange | None = None) -> None:
        if commit_every_steps < 1:
            raise ValueError(f"commit_every_steps must be at least 1, got {commit_every_steps}.")
        self._ranks, self._every, self._on_change = ranks, commit_every_steps, on_change
        self.members: tuple[int, ...] = ()
        self._graph: Any = None
        self._committed: list[Any] = []
        self._committed_step = -1
        self._since = 0
        self._collectives: Any = None
        self._variables: list[Any] = []

    def begin(self) -> None:
        """Adds the ops that the hook runs.

        Raises:
          ValueError: there is no global step, which tells the latest commit, or a variable has no known shape.
        """
        if self._graph is get_default_graph():
            return
        self._graph = get_default_graph()
        step = get_global_step()
        self._variables = [variable for variable in global_variables() if "/job:ps" not in variable.device]
        names = [variable.op.name for variable in self._variables]
        if step is None or step.op.name not in names:
            raise ValueError("Elastic training needs a global step on each worker; see tf.train.create_global_step.")
        self._step_at = names.index(step.op.name)
        with name_scope("elastic"), device(self._ranks.device):
            self._key = placeholder(dtypes.int64, [])
            self._keys = self._ranks.all_gather(reshape(self._key, [1]), "elastic group", begins=True)
            self._is_source = placeholder(dtypes.bool, [])
            self._sync = control.group(*(self._synchronise(variable) for variable in self._variables))
            self._new = [placeholder(variable.dtype.base_dtype, variable.shape) for variable in self._variables]
            self._load = control.group(*(assign(var, new).op for var, new in zip(self._variables, self._new)))

    def _synchronise(self, variable: Variable) -> Operation:
        """Assigns the value of the source: the sum of its value and of zeros. (A broadcast has a fixed source.)"""
        value: Tensor = variable.value()
        if not value.shape.is_fully_defined():
            raise ValueError(f"Elastic training needs variables of known shape; {variable.name} has {value.shape}.")
        own = where_v2(self._is_source, value, zeros_like(value))
        merge = "Max" if value.dtype.base_dtype == dtypes.bool else "Add"
        taken_over: Operation = assign(variable, self._ranks.all_reduce(own, f"{variable.op.name}/elastic", merge)).op
        return taken_over

    def after_create_session(self, session: BaseSession, coord: Any) -> None:
        """Goes back to the last commit, joins the group, and takes over the variables of the latest commit in it.

        Raises:
          FailedPreconditionError: the session's server is in another process.
        """
        self._collectives = _collectives_of(session)
        rank = self._ranks.rank
        end_group(self._collectives, self._ranks.group_key, f"rank {rank} has begun a new session")
        if self._committed:
            session.run(self._load, dict(zip(self._new, self._committed)))
        key = (self._committed_step + 1) * _RANKS + _RANKS - 1 - rank
        keys = session.run(self._keys, {self._key: key})
        session.run(self._sync, {self._is_source: key == max(keys)})
        self.members = tuple(sorted(int(_RANKS - 1 - other % _RANKS) for other in keys))
        self._commit(session)
        _log.info("Rank %d: %d ranks train from step %d on: %s", rank, len(keys), self._committed_step, self.members)
        if self._on_change is not None:
            self._on_change(session, self.members)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Commits after so many steps. The leader then lets those join that wait."""
        self._since += 1
        if self._since < self._every:
            return
        self._commit(run_context.session)
        waiting = newcomers(self._collectives, self._ranks.group_key)
        if waiting:
            end_group(self._collectives, self._ranks.group_key, f"{', '.join(waiting)} joins")

    def _commit(self, session: BaseSession) -> None:
        values = session.run([variable.value() for variable in self._variables])
        self._committed = [np.array(value) for value in values]
        self._committed_step = int(self._committed[self._step_at])
        self._since = 0


def _collectives_of(session: Any) -> Any:
    """The collectives of the task that is the session's target."""
    target = session.sess_str
    target = (target.decode() if isinstance(target, bytes) else target) or process.default_target()
    server = process.server_at(process.address_of_target(target)) if target else None
    if server is None:
        raise errors.FailedPreconditionError.of(
            "Elastic training needs a tf.train.Server in this process, and its target for the session."
        )
    return server.worker.collectives


# ---- The workers that are present in an elastic synchronous run, as its parameter servers know them ----------------
# A worker's hook adds the worker to a table beside the global step when its session is ready, and takes it out when it
# leaves in good order. The chief reads how many there are with each of its steps, and changes the numbers of the run by
# the difference. The keys are the workers' device names, so a worker that was killed and started again is one, not two.


class Roster:
    """The table of present workers. The ops are added by the constructor.

    Args:
      place: the device of the global step.
      worker: this worker's device. Without one the workers cannot be told apart, and the roster stays empty.

    Attributes:
      enter, leave: operations.
      count: the number of present workers, an int64 scalar.
    """

    def __init__(self, place: str, worker: str) -> None:
        with device(place), name_scope("elastic"):
            table: Any = table_ops.mutable_hash_table(
                shared_name="sync_rep_workers", key_dtype=dtypes.string, value_dtype=dtypes.bool, name="workers"
            )
            names = [worker] if worker else []
            keys = constant(names, dtypes.string, shape=[len(names)])
            self.enter = table_ops.insert(table, keys, constant([True] * len(names), dtypes.bool, shape=[len(names)]))
            self.leave = table_ops.remove(table, keys)
            self.count = table_ops.size(table)


class NumbersFollower:
    """Changes the numbers of a run with the number of present workers; on the chief.

    It begins as soon as the workers of the script are all there: until then an update waits for those that start late.
    The same holds for the workers that `SyncReplicasOptimizer.resize` announces. Where it takes workers out that are
    dead, and so still counted, later changes add to the number that it set.

    Args:
      numbers: those of the run.
    """

    def __init__(self, numbers: ChangingNumbers) -> None:
        self._numbers = numbers
        self._total = self._counted = numbers.first.total
        self._complete = False

    def wanted(self, count: int) -> int | None:
        """The new number of workers, when ``count`` are present; None: it stays as it is."""
        total = self._numbers.wanted.total
        if total != self._total:  # somebody has called `resize`
            self._total, self._counted, self._complete = total, max(count, total), False
        self._complete = self._complete or count >= self._counted
        if not self._complete or count == self._counted:
            return None
        self._total, self._counted = max(1, total + count - self._counted), count
        return self._total


# ---- Conversion of tensors to one of the five dtypes that collective ops support, without loss ---------------------

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
    return identity.cast(value, dtype), lambda got: identity.cast(got, value.dtype)


def _by_bits(value: Tensor, dtype: str) -> Carried:
    return identity.bitcast(value, dtype), lambda got: identity.bitcast(got, value.dtype)


def _refused(value: Tensor) -> TypeError:
    remedy = "encode it as numbers, or initialise it on each worker"
    if value.dtype.is_quantized:
        remedy = "tf.cast or tf.bitcast it first"
    return TypeError(f"Collectives carry numbers; {value.name} is of type {value.dtype.name}: {remedy}.")


# ---- ranks ----------------------------------------
# The collectives of a group of workers, each of which builds the same graph and runs it in its own session.
# Names match the collectives of different workers, as in Horovod: workers may build and run them in different orders.
# Collectives without a name are matched by keys that count them in the order of construction.

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

    def _scope(self, value: Tensor, name: str, **more: object) -> Any:
        """Adds attrs to a collective, beyond those of TensorFlow's op, that the ranks compare."""
        attrs = {"_collective_name": name.encode(), "_collective_dtype": value.dtype.name.encode(), **more}
        if self.least:
            attrs[LEAST] = self.least
        return get_default_graph()._attr_scope(attrs)

    def all_reduce(
        self, tensor: TensorLike, name: str = "", merge: str = "Add", mean: bool = False, begins: bool = False
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

    def all_gather(self, tensor: TensorLike, name: str = "", begins: bool = False) -> Tensor:
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

    def reduce_scatter(self, tensor: TensorLike, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
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

    def all_to_all(self, tensor: TensorLike, splits: TensorLike | None = None, name: str = "") -> tuple[Tensor, Tensor]:
        """Sends the first rows of a tensor to worker 0, the next ones to worker 1, and so on.

        Args:
          tensor: of at least one dimension; all but the first are the same on all workers.
          splits: a vector of integers: how many rows each worker gets; None: all get as many.

        Returns:
          (the rows that the workers have sent to this one, in their order; how many came from each).
        """
        value = convert_to_tensor(tensor)
        counts = constant([], "int32") if splits is None else identity.cast(convert_to_tensor(splits), "int32")
        if self.size == 1:
            counts = array_shape.shape(value)[:1] if splits is None else counts
            return value[: counts[0]], counts
        carried, restored = as_bits(value)
        name, keys = self._identity(name)
        with device(self.device), self._scope(value, name, _collective_any_rows=True):
            got, received = collective_ops.all_to_all(carried, counts, *keys)
        return restored(got), received

    def broadcast(self, tensor: TensorLike, root_rank: int = 0, name: str = "") -> Tensor:
        """The tensor of worker ``root_rank``, on all workers.

        Args:
          tensor: of the same shape and dtype on all workers.

        Raises:
          ValueError: when there is no worker ``root_rank``.
          TypeError: for tensors that are no numbers.
        """
        return self._broadcast(tensor, root_rank, name)

    def _broadcast(self, tensor: TensorLike, root_rank: int, name: str, **more: object) -> Tensor:
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
