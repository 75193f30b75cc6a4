"""The workers that are present in an elastic synchronous run, as its parameter servers know them.

A worker's hook adds the worker to a table beside the global step when its session is ready, and takes it out when it
leaves in good order. The chief reads how many there are with each of its steps, and changes the numbers of the run by
the difference. The keys are the workers' device names, so a worker that was killed and started again is one, not two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfmini import dtypes
from tfmini.graph.scoping import device, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.tables import table_ops

if TYPE_CHECKING:
    from tfmini.train.replicas.sync_numbers import ChangingNumbers


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


class Follower:
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
