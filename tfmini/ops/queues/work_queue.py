"""The state of a work queue on its task, and the ops on it: leases, acknowledgements, epochs.

`tf.WorkQueue`, which users see, is in `tfmini.train.store.work_queue`. Not in TensorFlow; DeepRec has a class of this
name. A `WorkQueueState` on one task has the works of all epochs. Who
takes a work has it on lease. The queue hands it to another taker when the lease has run out or the session of its
taker has ended, unless it was acknowledged before: an acknowledged work is never handed out again. So every work is
handed out at least once, and acknowledged exactly once.
"""

from __future__ import annotations

import itertools
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini import errors
from tfmini.core_types import Array
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState, find_or_create, state_op

work_queue = state_op(
    """_WorkQueue() -> handle: resource
    works: list(string) >= 0
    num_epochs: int
    shuffle: bool
    seed: int
    lease_ms: int
    container: string = ''
    shared_name: string = ''""",
    [(2,)], on_ps=True,
)  # fmt: skip
work_taker = state_op("_WorkTaker() -> handle: resource; container: string = ''; shared_name: string = ''", [(2,)])
work_take = state_op(
    """_WorkTake(handle: resource, taker: resource) -> work: string, ticket: int64
    acknowledges: bool = true""",
    [(), (3,)],
)
work_acknowledge = state_op("_WorkAcknowledge(handle: resource, ticket: int64) -> counts: bool", [()])
work_renew = state_op("_WorkRenew(handle: resource, ticket: int64) -> holds: bool", [()])
work_add = state_op("_WorkAdd(handle: resource, works: string)", [])
work_size = state_op("_WorkQueueSize(handle: resource) -> left: int64", [()])
work_begin = state_op("_WorkQueueBegin(handle: resource)", [])
work_is_begun = state_op("_WorkQueueIsBegun(handle: resource) -> is_begun: bool", [()])
work_save = state_op("_WorkQueueSave(handle: resource) -> left: int64, added: string", [(None, 2), (None,)])
work_restore = state_op("_WorkQueueRestore(handle: resource, left: int64, added: string)", [])

Key = tuple[int, int]  # the epoch, and the number of the work in it


class Ticket(NamedTuple):
    """What a taker gets with a work."""

    epoch: int
    number: int
    lease: int

    @property
    def key(self) -> Key:
        return self.epoch, self.number


class ShardSettings(NamedTuple):
    """What all who use a queue must agree about."""

    works: tuple[bytes, ...]
    num_epochs: int  # 0: no end
    shuffle: bool
    seed: int
    lease_ms: int  # 0: for ever


class _Lease:
    __slots__ = ("number", "taker", "until")

    def __init__(self, number: int, taker: WorkTaker, until: float) -> None:
        self.number, self.taker, self.until = number, taker, until


class WorkTaker:
    """One taker of one session; a session that ends gives back what its takers have on lease."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[WorkQueueState] = []

    def clear(self) -> None:
        """Called when its session has ended."""
        for queue in self.queues:
            queue.give_up(self)


class WorkQueueState(WaitingState):
    """The works that are left.

    Args:
      name: of the object.
      settings: see `ShardSettings`.
      clock: tells the seconds; for tests.

    Attributes:
      is_begun: whether somebody has begun or restored it, or taken a work.
    """

    def __init__(self, name: str, settings: ShardSettings, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(1)
        (self.takers,) = self.lines
        self.name, self.settings, self._clock = name, settings, clock
        self.is_begun = False
        self._numbers = itertools.count(time.time_ns())  # of leases; other ones than before a restart of this task
        self._timer: threading.Timer | None = None
        self._added: list[bytes] = []
        self._reset()

    def _reset(self) -> None:
        self._added = []
        self._epochs = 0  # those whose works have been queued
        self._queued: deque[Key] = deque()
        self._leased: dict[Key, _Lease] = {}
        self._since = next(self._numbers)  # earlier tickets are of works that are open again

    # ---- works ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Makes all works of all epochs open again."""
        with self.lock:
            self._reset()
            self.is_begun = True
        self.changed()

    def add(self, works: Sequence[bytes]) -> None:
        """Adds works to the epoch that is handed out, or to the last one, and to all later ones."""
        with self.lock:
            first = len(self.settings.works) + len(self._added)
            self._added += works
            if self._epochs:
                self._queued.extend((self._epochs - 1, first + i) for i in range(len(works)))
        self.changed()

    def work(self, key: Key) -> bytes:
        """The text of a work."""
        works = self.settings.works
        return works[key[1]] if key[1] < len(works) else self._added[key[1] - len(works)]

    def _fill(self) -> None:
        """Queues the works of the next epoch, if there are none."""
        count = len(self.settings.works) + len(self._added)
        if self._queued or not count or 0 < self.settings.num_epochs <= self._epochs:  # a checkpoint may be further
            return
        order = np.arange(count)
        if self.settings.shuffle:
            np.random.default_rng([self.settings.seed, self._epochs]).shuffle(order)
        self._queued.extend((self._epochs, number) for number in order.tolist())
        self._epochs += 1

    @property
    def left(self) -> int:
        """How many works of the epochs that have begun, and of those to come, are not acknowledged; endless: -1."""
        if not self.settings.num_epochs:
            return -1
        count = len(self.settings.works) + len(self._added)
        to_come = max(0, self.settings.num_epochs - self._epochs) * count
        return len(self._queued) + len(self._leased) + to_come

    # ---- leases ---------------------------------------------------------------------------------

    def take(self, wait: Wait, taker: WorkTaker, acknowledges: bool) -> None:
        """Answers with a work and its ticket, as soon as there is one.

        Args:
          acknowledges: whether that acknowledges what the same taker has taken before.

        Raises:
          OutOfRangeError: all works are acknowledged.
        """
        with self.lock:
            self.is_begun = True
            if self not in taker.queues:
                taker.queues.append(self)
            for key in [key for key, lease in self._leased.items() if acknowledges and lease.taker is taker]:
                del self._leased[key]
        self.submit(self.takers, _Take(wait, self, taker))
        self.changed()  # others may wait for what has been acknowledged
        self._watch()

    def hand_out(self, taker: WorkTaker) -> Ticket | None:
        """Leases the next work; None: all are on lease."""
        self._take_back(lambda lease: lease.until <= self._clock())
        self._fill()
        if not self._queued:
            if not self._leased:
                raise errors.OutOfRangeError.of(f'All works of the queue "{self.name}" are done.')
            return None
        key = self._queued.popleft()
        lease = self._leased[key] = _Lease(next(self._numbers), taker, self._deadline())
        return Ticket(*key, lease.number)

    def _deadline(self) -> float:
        return self._clock() + self.settings.lease_ms / 1e3 if self.settings.lease_ms else float("inf")

    def _take_back(self, is_over: Callable[[_Lease], bool]) -> None:
        keys = [key for key, lease in self._leased.items() if is_over(lease)]
        for key in keys:
            del self._leased[key]
        self._queued.extendleft(reversed(keys))

    def give_up(self, taker: WorkTaker) -> None:
        """The session of a taker has ended: what it has on lease is for others."""
        with self.lock:
            self._take_back(lambda lease: lease.taker is taker)
        self.changed()

    def hand_back(self, ticket: Ticket) -> None:
        """The step of a taker has ended before it got its work. The caller has the lock."""
        if self._holds(ticket):
            self._take_back(lambda lease: lease.number == ticket.lease)

    def _holds(self, ticket: Ticket) -> bool:
        lease = self._leased.get(ticket.key)
        return lease is not None and lease.number == ticket.lease

    def acknowledge(self, ticket: Ticket) -> bool:
        """A work is done, and is never handed out again.

        Returns:
          whether this counts: False if the lease has ended and the work has gone to another taker, or was acknowledged.
        """
        with self.lock:
            counts = self._holds(ticket)
            if counts:
                del self._leased[ticket.key]
            elif counts := ticket.lease > self._since and ticket.key in self._queued:  # nobody else has it yet
                self._queued.remove(ticket.key)
        self.changed()
        return counts

    def renew(self, ticket: Ticket) -> bool:
        """Begins a lease anew; returns whether the taker still has it."""
        with self.lock:
            holds = self._holds(ticket)
            if holds:
                self._leased[ticket.key].until = self._deadline()
            return holds

    def _watch(self) -> None:
        """Sees to it that waiting takers get the works of the leases that run out."""
        with self.lock:
            until = min((lease.until for lease in self._leased.values()), default=float("inf"))
            if not self.takers or until == float("inf") or self._timer is not None:
                return
            self._timer = threading.Timer(max(0.0, until - self._clock()), self._look)
            self._timer.name, self._timer.daemon = "tfmini-leases", True
            self._timer.start()

    def _look(self) -> None:
        with self.lock:
            self._timer = None
        self.changed()
        self._watch()

    def clear(self) -> None:
        """Called when the task removes the queue; fails all waiting ops."""
        self.fail_all(errors.CancelledError.of(f'The work queue "{self.name}" was deleted by a reset.'))

    # ---- checkpoints ----------------------------------------------------------------------------

    def _digest(self) -> int:
        settings = self.settings
        return zlib.crc32(repr((settings.works, settings.shuffle, settings.seed)).encode())

    def save(self) -> tuple[Array, Array]:
        """What is not acknowledged: [n, 2] of (epoch, number), after a row of (epochs that have begun, digest)."""
        with self.lock:
            rows = [(self._epochs, self._digest()), *self._leased, *self._queued]
            added = np.array(self._added, object)
        return np.array(rows, np.int64), added

    def restore(self, left: Array, added: Array) -> None:
        """Makes the works open that were so when the checkpoint was written. Leases of now end.

        Raises:
          FailedPreconditionError: the checkpoint is of other works, or of another order.
        """
        if left.ndim != 2 or left.shape[1] != 2 or not len(left):
            refuse(f"the state of a work queue has two columns and a row at least, not shape {list(left.shape)}")
        (epochs, digest), *keys = [(int(first), int(second)) for first, second in left.tolist()]
        count = len(self.settings.works) + added.size
        if digest != self._digest() or any(not (0 <= e < epochs and 0 <= n < count) for e, n in keys):
            raise errors.FailedPreconditionError.of(
                f'The checkpoint has another work queue "{self.name}": other works, shuffle or seed. Give the same ones'
                " and add the new works, or give the queue another name."
            )
        with self.lock:
            self._reset()
            self._added, self._epochs, self._queued = list(added.ravel()), epochs, deque(keys)
            self.is_begun = True
        self.changed()


class _Take(Attempt):
    """Waits for a work."""

    __slots__ = ("state", "taker", "ticket")

    def __init__(self, wait: Wait, state: WorkQueueState, taker: WorkTaker) -> None:
        super().__init__(wait)
        self.state, self.taker = state, taker
        self.ticket: Ticket | None = None

    def cause(self) -> str:
        return f'a work of "{self.state.name}": all that are left are on lease'

    def advance(self) -> int:
        self.ticket = self.state.hand_out(self.taker)
        if self.ticket is None:
            return STUCK
        self.result = np.array(self.state.work(self.ticket.key), object), np.array(self.ticket, np.int64)
        return OVER

    def give_back(self) -> None:
        if self.ticket is not None:
            self.state.hand_back(self.ticket)


def _text(settings: ShardSettings) -> str:
    works = f"{len(settings.works)} works (checksum {zlib.crc32(repr(settings.works).encode()):08x})"
    return ", ".join([works, *(f"{name}={value}" for name, value in settings._asdict().items() if name != "works")])


@work_queue.state_kernel("CPU")
def _find(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, works: list[bytes],
    num_epochs: int, shuffle: bool, seed: int, lease_ms: int,
) -> WorkQueueState:  # fmt: skip
    settings = ShardSettings(tuple(works), num_epochs, shuffle, seed, lease_ms)
    found = find_or_create(
        resources, container, shared_name, node, "work queue", lambda name: WorkQueueState(name, settings)
    )
    if found.settings != settings:
        refuse(f'the work queue "{found.name}" was made with {_text(found.settings)}, not with {_text(settings)}')
    return found


@work_taker.state_kernel("CPU")
def _taker(resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node) -> WorkTaker:
    return find_or_create(resources, container, shared_name, node, "work taker", WorkTaker)


def _ticket(value: Array) -> Ticket:
    if value.shape != (3,):
        refuse(f"a ticket has three numbers, not shape {list(value.shape)}")
    return Ticket(*value.tolist())


@work_take.async_kernel("CPU")
def _take(wait: Wait, state: WorkQueueState, taker: WorkTaker, *, acknowledges: bool) -> None:
    state.take(wait, taker, acknowledges)


@work_acknowledge.kernel("CPU")
def _acknowledge(state: WorkQueueState, ticket: Array) -> Any:
    return np.bool_(state.acknowledge(_ticket(ticket)))


@work_renew.kernel("CPU")
def _renew(state: WorkQueueState, ticket: Array) -> Any:
    return np.bool_(state.renew(_ticket(ticket)))


@work_add.kernel("CPU")
def _add(state: WorkQueueState, works: Array) -> tuple[()]:
    state.add(list(np.ravel(works)))
    return ()


@work_size.kernel("CPU")
def _size(state: WorkQueueState) -> Any:
    return np.int64(state.left)


@work_begin.kernel("CPU")
def _begin(state: WorkQueueState) -> tuple[()]:
    state.begin()
    return ()


@work_is_begun.kernel("CPU")
def _is_begun(state: WorkQueueState) -> Any:
    return np.bool_(state.is_begun)


@work_save.kernel("CPU")
def _save(state: WorkQueueState) -> Any:
    return state.save()


@work_restore.kernel("CPU")
def _restore(state: WorkQueueState, left: Array, added: Array) -> tuple[()]:
    state.restore(left, added)
    return ()
