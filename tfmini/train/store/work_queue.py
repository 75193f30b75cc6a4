"""What users see of work queues: `WorkQueue` in graphs, and `Shards`, the same for programs without a graph.

::

    queue = tf.WorkQueue(files, num_epochs=3)  # or tf.WorkQueue(1_000_000, num_slices=500): ranges of rows
    dataset = tf.data.TextLineDataset(queue.input_dataset())

A fast worker takes more shards than a slow one. A shard whose worker has died or is too slow goes to another worker;
one that was acknowledged is never handed out again. What is left is a part of each checkpoint. The state of a queue,
on its task, is `tfmini.ops.queues.work_queue`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, TensorLike
from tfmini.data.dataset import Dataset
from tfmini.data.dataset_ops import queue_dataset
from tfmini.data.structure import Leaf, Structure
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, name_scope
from tfmini.ops.array.identity import cast, placeholder
from tfmini.ops.array.shape import reshape
from tfmini.ops.control import group
from tfmini.ops.queues import work_queue as ops
from tfmini.ops.queues.queues import FIFOQueue
from tfmini.ops.string_ops import string_join, string_to_number
from tfmini.ops.string_pieces import string_split
from tfmini.ops.summary import scalar
from tfmini.ops.variables.functions import register_resource
from tfmini.runtime.client.session import Session
from tfmini.train.checkpointing.saver_builder import SaveableObject, SaveSpec
from tfmini.train.queue_runners import QueueRunner, add_queue_runner
from tfmini.train.store.pace import Leaving


@export("tf.WorkQueue", "tensorflow.python.ops.work_queue.WorkQueue")
class WorkQueue(SaveableObject):
    """A queue of works that all workers of a cluster share, by its name.

    It stands where variables stand: under `tf.train.replica_device_setter` on a ps. A Saver saves what is not
    acknowledged, and a restored queue hands that out again. The chief's initialisation makes all works open again.

    Args:
      works: texts, such as the names of files; or the number of rows of the data: then a work is a range of rows.
      num_epochs: how often all works are handed out; None: without end.
      shuffle: whether each epoch has another order.
      seed: of the orders; default: it follows from the name, and from the graph's seed.
      prefix: is put before each text.
      num_slices: into how many ranges the rows are cut; default: 100. Texts are not cut.
      num_clients: DeepRec's; not used.
      name: of the queue; default: ``work_queue``, made unique in the graph.
      lease_s: after so many seconds a work that was not acknowledged goes to another taker, too; None: never.

    Attributes:
      has_ranges: whether a work is a range of rows.

    Raises:
      ValueError: there are no works, or a number is not positive.
    """

    def __init__(
        self, works: Sequence[str | bytes] | int, num_epochs: int | None = 1, shuffle: bool = True,
        seed: int | None = None, prefix: str | None = None, num_slices: int | None = None, num_clients: int = 1,
        name: str | None = None, lease_s: float | None = 600.0,
    ) -> None:  # fmt: skip
        if num_epochs is not None and num_epochs <= 0:
            raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
        if lease_s is not None and lease_s <= 0:
            raise ValueError(f"lease_s must be > 0 not {lease_s}.")
        graph = get_default_graph()
        label = graph.unique_name(name or "work_queue")
        self._prefix, self.has_ranges = prefix, isinstance(works, (int, np.integer))
        self._works = _ranges(int(works), num_slices) if isinstance(works, (int, np.integer)) else _texts(works)
        if seed is None:
            seed = zlib.crc32(f"{label} {graph.seed}".encode())
        with name_scope(f"{label}/"):
            self._handle: Tensor = ops.work_queue(
                works=self._works, num_epochs=num_epochs or 0, shuffle=shuffle, seed=seed,
                lease_ms=0 if lease_s is None else max(1, int(lease_s * 1e3)), shared_name=label, name="queue",
            )  # fmt: skip
            with colocate_with(self._handle):
                left, added = ops.work_save(self._handle, name="save")
                begin = ops.work_begin(self._handle, name="begin")
                is_begun = ops.work_is_begun(self._handle, name="is_begun")
        super().__init__(
            self._handle, [SaveSpec(left, "", f"{label}/left"), SaveSpec(added, "", f"{label}/added")], label
        )
        register_resource(self._handle, begin, is_begun)
        graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, self)

    def __len__(self) -> int:
        """The number of works of an epoch, without those that were added."""
        return len(self._works)

    @property
    def works(self) -> list[bytes]:
        """The works of an epoch, without those that were added; a range of rows is ``begin:end``."""
        return list(self._works)

    # ---- in the graph ---------------------------------------------------------------------------

    def take(self) -> Tensor:
        """The next work; each step takes one. It acknowledges the works that this op has taken before in its session.

        Returns:
          a string scalar, or an int64 vector: the first row, and the one after the last.

        It does so also if the step that has taken a work has failed: who must not lose that work takes `lease`.
        The op fails with OutOfRangeError when all works are acknowledged. It waits while the works that are left are on
        lease.
        """
        return self._taken(True)[0]

    def lease(self) -> tuple[Tensor, Tensor]:
        """As `take`, but acknowledges nothing: `acknowledge` does so.

        Returns:
          (work, ticket). The ticket is an int64 vector.
        """
        return self._taken(False)

    def _taken(self, acknowledges: bool) -> tuple[Tensor, Tensor]:
        with name_scope(f"{self.name}/"):
            with colocate_with(self._handle):
                taker = ops.work_taker(name="taker")
                work, ticket = ops.work_take(self._handle, taker, acknowledges=acknowledges, name="take")
            return self._value(work), ticket

    def _value(self, work: Tensor) -> Tensor:
        if self.has_ranges:
            bounds: Tensor = string_to_number(string_split([work], ":").values, dtypes.int64)
            bounds.set_shape([2])
            return bounds
        return work if self._prefix is None else string_join([self._prefix, work])

    def acknowledge(self, ticket: TensorLike) -> Tensor:
        """A work is done, and is not handed out again: a bool scalar, whether this counts.

        It does not when the lease has ended and the work has gone to another taker, or when a checkpoint was restored.
        """
        found: Tensor = self._colocated(ops.work_acknowledge, ticket, dtypes.int64, "acknowledge")
        return found

    def renew(self, ticket: TensorLike) -> Tensor:
        """Begins the lease of a work anew: a bool scalar, whether its taker still has it."""
        found: Tensor = self._colocated(ops.work_renew, ticket, dtypes.int64, "renew")
        return found

    def add(self, works: TensorLike) -> Operation:
        """Adds works to the epoch that is handed out and to all later ones.

        Args:
          works: texts; of a queue of ranges each ``begin:end``.
        """
        found: Operation = self._colocated(ops.work_add, works, dtypes.string, "add")
        return found

    def size(self) -> Tensor:
        """How many works of all epochs are not acknowledged, an int64 scalar; -1 without an end."""
        with name_scope(f"{self.name}/"), colocate_with(self._handle):
            return ops.work_size(self._handle, name="size")  # type: ignore[no-any-return]

    def _colocated(self, op: Any, value: TensorLike, dtype: dtypes.DType, name: str) -> Any:
        with name_scope(f"{self.name}/"):
            given = convert_to_tensor(value, dtype)
            with colocate_with(self._handle):
                return op(self._handle, given, name=name)

    def input_producer(self) -> FIFOQueue:
        """A local queue of strings [1] for readers (`tf.TextLineReader`), which a queue runner fills.

        The queue takes a work when a reader has begun the one before. So a worker that dies may leave two works that
        it has acknowledged and not read; `input_dataset` leaves none.
        """
        with name_scope(f"{self.name}/"):
            proxy = FIFOQueue(1, [dtypes.string], [[1]], name="proxy")
            add_queue_runner(QueueRunner(proxy, [proxy.enqueue(reshape(self.take(), [1]))]))
        return proxy

    def input_dataset(self) -> Dataset:
        """A dataset of works. When it is asked for the next one, the one before is acknowledged.

        So what reads one file after the other (`tf.data.TextLineDataset`, ``flat_map``) has read an acknowledged one to
        its end. A queue runner asks the queue (`tf.train.start_queue_runners`; a MonitoredSession starts it).
        """
        with name_scope(f"{self.name}/"):
            requests = FIFOQueue(-1, [dtypes.int64], [[]], name="requests")
            with control_dependencies([requests.dequeue()]):
                work = self.take()
            proxy = FIFOQueue(1, [work.dtype], [work.shape], name="works")
            cancel = group(*(each.close(cancel_pending_enqueues=True) for each in (proxy, requests)))
            add_queue_runner(QueueRunner(proxy, [proxy.enqueue(work)], cancel_op=cancel))

            structure = Structure(Leaf(Tensor, work.dtype, work.raw_shape))
            made = queue_dataset(requests.queue_ref, proxy.queue_ref, **structure.attrs, name="input")
            return Dataset(made, structure)

    def add_summary(self) -> None:
        """Adds a summary of how many works are left."""
        scalar(f"{self.name}/works_left", cast(self.size(), dtypes.float32))

    # ---- checkpoints ----------------------------------------------------------------------------

    def restore(self, restored_tensors: list[Tensor], restored_shapes: object) -> Operation:
        """An op that makes the works of a checkpoint open again, and no others."""
        with colocate_with(self._handle):
            return ops.work_restore(self._handle, *restored_tensors, name="restore")  # type: ignore[no-any-return]


def _texts(works: Sequence[str | bytes]) -> list[bytes]:
    if isinstance(works, (str, bytes)):
        raise ValueError(f"A WorkQueue needs a list of texts, or a number of rows; {works!r} is one text.")
    found = [each.encode() if isinstance(each, str) else each for each in works]
    if not found or not all(isinstance(each, bytes) for each in found):
        raise ValueError("A WorkQueue needs a list of texts, or a number of rows.")
    return [each.strip() for each in found]


def _ranges(rows: int, slices: int | None) -> list[bytes]:
    if rows <= 0 or (slices is not None and slices <= 0):
        raise ValueError(
            f"A WorkQueue cuts a positive number of rows into a positive number of ranges: {rows}, {slices}"
        )
    count = min(rows, 100 if slices is None else slices)
    borders = [rows * i // count for i in range(count + 1)]
    return [b"%d:%d" % each for each in zip(borders, borders[1:])]


class LeasedShard(NamedTuple):
    """A work that this process has on lease.

    Attributes:
      work: a text, or a `range` of rows.
      ticket: what acknowledges it.
    """

    work: Any
    ticket: Array


class Shards:
    """A `WorkQueue` for programs without a graph; `tf.ParameterStore.shards` makes it. Any thread may use it.

    ::

        for rows in store.shards("train", 60_000, num_epochs=5):
            store.push({"w": gradient(store.pull("w"), x[rows], y[rows])})

    The loop acknowledges a shard when its body has run. One that it leaves by an exception or a ``break`` is for others
    when the store is closed, or when the lease is over. A process that is told to end (SIGTERM) first lets the body run
    to its end, for some seconds at most, if the loop is in the ``with`` block of its store.
    """

    def __init__(self, session: Session, queue: WorkQueue, leaving: Leaving) -> None:
        work, ticket = queue.lease()
        given, works = placeholder(dtypes.int64, [3], "ticket"), placeholder(dtypes.string, [None], "works")
        self._take = session.make_callable([work, ticket])
        self._acknowledge = session.make_callable(queue.acknowledge(given), [given])
        self._renew = session.make_callable(queue.renew(given), [given])
        self._add = session.make_callable(queue.add(works), [works])
        self._size = session.make_callable(queue.size())
        self.queue, self._leaving = queue, leaving

    def take(self) -> LeasedShard | None:
        """The next shard, on lease; None when all are acknowledged. Waits while those that are left are on lease.

        Raises:
          SystemExit: this process was told to end.
        """
        self._leaving.check()
        try:
            work, ticket = self._take()
        except errors.OutOfRangeError:
            return None
        return LeasedShard(range(*work.tolist()) if isinstance(work, np.ndarray) else work.decode(), ticket)

    def example(self) -> LeasedShard:
        """A shard that is not on lease."""
        text = self.queue.works[0].decode()
        return LeasedShard(range(*map(int, text.split(":"))) if self.queue.has_ranges else text, np.zeros(3, np.int64))

    def acknowledge(self, shard: LeasedShard) -> bool:
        """Says that a shard is done; returns whether that counts (see `WorkQueue.acknowledge`)."""
        return bool(self._acknowledge(shard.ticket))

    def renew(self, shard: LeasedShard) -> bool:
        """Begins the lease of a shard anew; returns whether this process still has it."""
        return bool(self._renew(shard.ticket))

    def add(self, works: Sequence[str] | Sequence[range]) -> None:
        """Adds works to the epoch that is handed out and to all later ones."""
        texts = [f"{each.start}:{each.stop}" if isinstance(each, range) else each for each in works]
        self._add(np.array(texts, object))

    def left(self) -> int:
        """How many shards of all epochs are not acknowledged; -1 without an end."""
        return int(self._size())

    def __iter__(self) -> Iterator[Any]:
        while (shard := self.take()) is not None:
            with self._leaving.finishing():
                yield shard.work
            self.acknowledge(shard)
