"""The state of one table, or of one part of a table, on its task: rows by id, with the slots of the optimizers.

One lock guards all of it, so a lookup sees whole updates only. A lookup copies rows, and nothing else holds memory of
the table. A row and its slots stand at the same place of several columns (`tfmini.numerics.id_rows`).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array
from tfmini.errors import FailedPreconditionError
from tfmini.numerics.id_rows import IdRows
from tfmini.numerics.philox import rows_of_ids
from tfmini.numerics.update_rules import Rule, rounds_without_repeats, run_blockwise
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.growing.admission import Admission

VALUES, FREQS, VERSIONS, EPOCHS, SLOT = "values", "freqs", "versions", "epochs", "slot "
UNMARKED = np.full(2, -1, np.int64)
NOTHING = np.empty(0, np.int64), np.empty(0, np.int64)
PIECE = 1 << 15  # rows that are copied at once while all others wait
_LAST_EPOCH = 255  # of a column of uint8
_MOST = np.iinfo(np.int32).max  # lookups that are counted of a row
_SLACK = 16  # a table at its capacity loses one row of so many at once, since each removal chains all rows anew


# A new field also goes into `_SETTINGS` of `ops.py`, as an attr of handles, and into the defaults of `options.py`.
class Settings(NamedTuple):
    """How a table behaves; the attrs of its handle have the same names.

    Attributes:
      seed: of the initial values and of random admission.
      distribution: of the initial values: ``uniform`` in [low, high), ``normal`` or ``truncated_normal`` with mean
        ``low`` and standard deviation ``high``; "": row ``id % n`` of the n default values.
      filter_freq: how often an id must come before it is admitted.
      filter_size, false_positives: of a Bloom filter that counts; 0: the counts are exact.
      admit_probability: the chance of an unknown id, each time that it comes.
      steps_to_live: the age in steps at which a row is evicted; 0: never.
      l2_weight_threshold: rows of a smaller norm are evicted.
      capacity: the number of rows at most; 0: any.
    """

    seed: int
    distribution: str
    low: float
    high: float
    filter_freq: int
    filter_size: int
    false_positives: float
    admit_probability: float
    steps_to_live: int
    l2_weight_threshold: float
    capacity: int


class Content(NamedTuple):
    """Rows of a table, or changes since an earlier dump, as a checkpoint holds them; n is the number of rows.

    Attributes:
      keys: int64 [n].
      values: [n, width].
      freqs, versions: int64 [n], or [0] where the table does not keep them.
      slots: [n, slots, width].
      slot_names: the names of the slots.
      slot_fills: float32, what each slot has in a new row.
      removed: int64, ids that have gone since the base.
      filtered, filtered_freqs: int64, what the admission has counted.
      step: int64, the latest of an update, for the ages of rows.
      mark: int64 [2], which state this is, for the dump of what changes from here on; [-1, -1]: the table does not
        track changes.
      is_change: whether it is to be added to the content of the base.
    """

    keys: Array
    values: Array
    freqs: Array
    versions: Array
    slots: Array
    slot_names: list[str]
    slot_fills: Array
    removed: Array
    filtered: Array
    filtered_freqs: Array
    step: Any
    mark: Array
    is_change: bool


class Chosen(NamedTuple):
    """What a dump is of: places (None: all), ids that have gone, the mark, and whether it is a change of a base."""

    places: Array | None
    removed: Array
    mark: Array
    is_change: bool


class RowCopies:
    """Copies of rows, made few at a time, so that lookups and updates wait for few.

    Args:
      rows: of the table; the caller has its lock here and in `go_on`.
      places: of the rows to copy; None: all.
      width: the numbers in a row.
    """

    def __init__(self, rows: IdRows, places: Array | None, width: int) -> None:
        self.rows, self._places = rows, places
        self._keys = rows.index.ids() if places is None else rows.index.ids()[places - 1]
        count, columns = len(self._keys), rows.columns
        self._slots = [name for name in columns if name.startswith(SLOT)]
        self._fills = np.array([rows.fills[name] for name in self._slots], np.float32)
        self._values = np.empty((count, width), columns[VALUES].dtype)
        self._of_slots = np.empty((count, len(self._slots), width), columns[VALUES].dtype)
        self._counts = {name: np.empty(count, np.int64) for name in (FREQS, VERSIONS) if name in columns}
        self._done = self._kept = 0

    @property
    def are_complete(self) -> bool:
        """Whether all rows are copied that are still there."""
        return self._done == len(self._keys)

    def go_on(self, have_moved: bool) -> None:
        """Copies some more rows; those that have gone meanwhile are left out.

        Args:
          have_moved: whether rows were removed since the beginning, so that others are at other places.
        """
        first, end = self._done, min(self._done + PIECE, len(self._keys))
        ids, chosen = self._keys[first:end], self._chosen(first, end)
        if have_moved:
            chosen = self.rows.index.find(ids)
            ids, chosen = ids[chosen != 0], chosen[chosen != 0]
        to, columns = slice(self._kept, self._kept + len(ids)), self.rows.columns
        self._keys[to] = ids
        self._values[to] = columns[VALUES][chosen]
        for number, name in enumerate(self._slots):
            self._of_slots[to, number] = columns[name][chosen]
        for name, counts in self._counts.items():
            counts[to] = columns[name][chosen]
        self._done, self._kept = end, to.stop

    def _chosen(self, first: int, end: int) -> Any:
        return slice(first + 1, end + 1) if self._places is None else self._places[first:end]

    def content(self, chosen: Chosen, filtered: tuple[Array, Array], step: int) -> Content:
        """All that was copied."""
        found = slice(0, self._kept)
        freqs, versions = (self._counts[n][found] if n in self._counts else NOTHING[0] for n in (FREQS, VERSIONS))
        return Content(
            keys=self._keys[found], values=self._values[found], freqs=freqs, versions=versions,
            slots=self._of_slots[found], slot_names=[name.removeprefix(SLOT) for name in self._slots],
            slot_fills=self._fills, removed=chosen.removed, filtered=filtered[0], filtered_freqs=filtered[1],
            step=np.int64(step), mark=chosen.mark, is_change=chosen.is_change,
        )  # fmt: skip


class TurnLock:
    """A lock that whoever waits for it gets before the one that has just released it."""

    def __init__(self) -> None:
        self._turn, self._lock = threading.Lock(), threading.Lock()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._turn.locked()

    def __enter__(self) -> None:
        with self._turn:  # held while waiting, so that the one before cannot come back in between
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class GrowingTableState:
    """See the module.

    Args:
      name: of the table, for messages.
      container: its container.
      dtype: of the numbers.
      width: how many a row has.
      settings: see `Settings`.
    """

    # What changes between dumps; see `dump`.
    _removed: list[tuple[int, Array]]
    _removals: int
    _complete_since: int

    def __init__(self, name: str, container: str, dtype: dtypes.DType, width: int, settings: Settings) -> None:
        self.name, self.container, self.dtype, self.width = name, container, dtype, width
        self.settings = settings
        self.lock = TurnLock()  # for a dump takes it again and again
        self._counts = settings.filter_freq > 0 or settings.capacity > 0
        self._defaults: Array | None = None
        self._reset()

    def _reset(self) -> None:
        self._rows = IdRows()
        self._rows.add_column(VALUES, (self.width,), self.dtype.numpy)
        if self._counts:
            self._rows.add_column(FREQS, (), np.int32)
        if self.settings.steps_to_live:
            self._rows.add_column(VERSIONS, (), np.int64)
        self._admission = Admission.of(self.settings)
        self._step = 0  # the latest of an update
        self._moves = 0  # how often rows have been removed
        self._forget_marks()

    # ---- life -----------------------------------------------------------------------------------

    @property
    def is_initialized(self) -> bool:
        return self._defaults is not None

    def initialize(self, defaults: Array, unadmitted: Array, only_once: bool = False) -> None:
        """Empties the table.

        Args:
          only_once: leave one alone that is initialised.
          defaults: [n, width], the initial values of tables without a distribution.
          unadmitted: a scalar, the numbers of the row that an id gets which is not admitted.
        """
        self._check_defaults(defaults)
        with self.lock:
            if not only_once or self._defaults is None:
                self._begin(defaults, unadmitted)

    def _check_defaults(self, defaults: Array) -> None:
        if defaults.ndim != 2 or defaults.shape[1] != self.width or not len(defaults):
            refuse(f"default values of shape {list(defaults.shape)} do not fit rows of {self.width} in {self.name}")

    def _begin(self, defaults: Array, unadmitted: Array) -> None:
        self._reset()
        self._rows.columns[VALUES][0] = unadmitted
        self._defaults = defaults.copy()

    def clear(self) -> None:
        """Called when the task removes the table."""
        with self.lock:
            self._defaults = None
            self._reset()

    def check_dtype(self, dtype: dtypes.DType) -> None:
        """Refuses an op whose numbers have another type.

        Raises:
          InvalidArgumentError: they do.
        """
        if dtype is not self.dtype:
            refuse(f"the rows of table {self.name} are {self.dtype.name}, not {dtype.name}")

    def _check(self) -> None:
        if self._defaults is None:
            raise FailedPreconditionError.of(
                f"Attempting to use uninitialized table {self.name}. Run tf.global_variables_initializer(), or restore"
                " a checkpoint."
            )

    def extent(self) -> tuple[tuple[int, ...], int]:
        """(shape, bytes) of the table, without waiting for an update."""
        return (len(self._rows), self.width), self._rows.nbytes

    def __len__(self) -> int:
        return len(self._rows)

    # ---- lookups --------------------------------------------------------------------------------

    def lookup(self, ids: Array, insert: bool) -> Array:
        """The rows of ids of any shape: that shape and the width.

        Args:
          insert: whether unknown ids are counted, and get a row if they are admitted. Otherwise they have the row that
            they would get (with a filter, the row of ids that are not admitted), and nothing changes.
        """
        flat = np.ascontiguousarray(ids, np.int64).ravel()
        with self.lock:
            self._check()
            places = self._rows.index.find(flat)
            if insert and not places.all():
                self._admit(flat[places == 0], places)
                places = self._rows.index.find(flat)
            if insert and self._counts:
                self._count(places)
            found: Array = self._rows.columns[VALUES].take(places, axis=0, mode="clip")
            if not insert and self._admission is None and not places.all():
                unknown = np.flatnonzero(places == 0)
                found[unknown] = self._initial(flat[unknown])
        return found.reshape(*np.shape(ids), self.width)

    def _count(self, places: Array) -> None:
        freqs = self._rows.columns[FREQS]
        np.add.at(freqs, places, 1)
        if freqs.take(places, mode="clip").min(initial=0) < 0:  # it has wrapped
            freqs[places[freqs[places] < 0]] = _MOST
        self._touch(places)

    def _admit(self, unknown: Array, found: Array) -> None:
        """Makes rows for those of the unknown ids that are admitted.

        Args:
          unknown: ids, which may repeat.
          found: the places that the same lookup has found, which must stay, and zeros.
        """
        ids, times = np.unique(unknown, return_counts=True)
        before: Array | None = None
        if self._admission is not None:
            allowed, before = self._admission.admit(ids, times)
            ids, before = ids[allowed], before[allowed]
        if capacity := self.settings.capacity:
            room = self._make_room(len(ids), capacity, found)
            ids, before = ids[:room], before if before is None else before[:room]
        rows = self._initial(ids)  # first, for memory may end
        places = self._rows.add(ids)
        self._rows.columns[VALUES][places] = rows
        if self._counts and before is not None:
            self._rows.columns[FREQS][places] = np.minimum(before, _MOST)
        if VERSIONS in self._rows.columns:
            self._rows.columns[VERSIONS][places] = self._step
        self._touch(places)

    def _initial(self, ids: Array) -> Array:
        assert self._defaults is not None
        settings = self.settings
        if not settings.distribution:
            # As unsigned numbers, so that a remainder is never negative.
            rows = (ids.view(np.uint64) % np.uint64(len(self._defaults))).view(np.int64)
            found: Array = self._defaults[rows]
            return found
        rows = rows_of_ids(settings.seed, ids, self.width, settings.distribution)
        scale = settings.high - settings.low if settings.distribution == "uniform" else settings.high
        return (rows * np.float32(scale) + np.float32(settings.low)).astype(self.dtype.numpy, copy=False)

    # ---- updates --------------------------------------------------------------------------------

    def update(
        self, rule: Rule, slots: Mapping[str, float], ids: Array, grad: Array, hyper: Sequence[Any], step: int
    ) -> None:
        """Runs a rule on rows and their slots as one update. The gradients of ids without a row are dropped.

        Args:
          rule: of `tfmini.numerics.update_rules`.
          slots: name -> what a new row has there, in the rule's order.
          ids: int64 [n]; one that repeats is updated as often.
          grad: [n, width].
          hyper: the rule's other arguments.
          step: the global step, for the ages of rows.

        Raises:
          InvalidArgumentError: shapes do not fit.
        """
        if ids.ndim != 1 or grad.shape != (len(ids), self.width):
            shapes = f"{list(grad.shape)} for {list(ids.shape)} ids"
            refuse(f"the gradient of table {self.name}, whose rows have {self.width} numbers, has shape {shapes}")
        with self.lock:
            self._check()
            for name, fill in slots.items():
                self._rows.set_column(SLOT + name, (self.width,), self.dtype.numpy, fill)
            columns = [self._rows.columns[name] for name in (VALUES, *(SLOT + slot for slot in slots))]
            places = self._rows.index.find(np.ascontiguousarray(ids, np.int64))
            if not places.all():
                known = places != 0
                places, grad = places[known], grad[known]
            for chosen in rounds_without_repeats(places, len(self._rows) + 1):
                _run(rule, columns, grad[chosen], places[chosen], hyper)
            self._step = max(self._step, step)
            if VERSIONS in self._rows.columns:
                self._rows.columns[VERSIONS][places] = step
            self._touch(places)

    # ---- eviction -------------------------------------------------------------------------------

    def _make_room(self, wanted: int, capacity: int, found: Array) -> int:
        """Removes the rows that were looked up least, the oldest of equals first; returns how many may come.

        Args:
          found: places that must stay.
        """
        excess = len(self._rows) + wanted - capacity
        if excess <= 0:
            return wanted
        freqs = self._rows.columns[FREQS][1 : len(self._rows) + 1]
        may_go = np.ones(len(freqs), np.bool_)
        may_go[found[found != 0] - 1] = False
        candidates = np.flatnonzero(may_go)
        order = candidates[np.argsort(freqs[candidates], kind="stable")]
        stays = np.ones(len(freqs), np.bool_)
        stays[order[: max(excess, capacity // _SLACK)]] = False
        del freqs  # a view, and the columns change
        self._keep(stays)
        return min(wanted, capacity - len(self._rows))

    def evict(self, step: int | None = None) -> int:
        """Removes the rows that are too old or too small; returns how many.

        Args:
          step: the present global step; None: that of the latest update.
        """
        with self.lock:
            self._check()
            return self._evict(self._step if step is None else max(step, self._step))

    def _evict(self, step: int) -> int:
        size = len(self._rows)
        stays = np.ones(size, np.bool_)
        if self.settings.steps_to_live:
            stays &= step - self._rows.columns[VERSIONS][1 : size + 1] <= self.settings.steps_to_live
        if self.settings.l2_weight_threshold > 0:
            values = self._rows.columns[VALUES][1 : size + 1]
            norms = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
            del values
            stays &= norms >= self.settings.l2_weight_threshold
        if not stays.all():
            self._keep(stays)
        return size - len(self._rows)

    def _keep(self, stays: Array) -> None:
        """Removes rows; ``stays`` has a bool for each, in the order of places."""
        if self._incarnation:
            gone = self._rows.index.ids()[~stays]
            self._removed.append((self._epoch, gone))
            self._removals += len(gone)
        self._moves += 1
        self._rows.keep(np.flatnonzero(stays) + 1)
        if self._removals > max(1024, len(self._rows)):  # a whole dump is smaller
            self._removed, self._removals, self._complete_since = [], 0, self._epoch

    # ---- dumps and what changes between them ----------------------------------------------------
    # Each dump for an incremental checkpoint ends an epoch. A row has the epoch of its latest change. A dump gives its
    # mark (incarnation, epoch) to the checkpoint; who has completed that one gives the mark back to get what changed
    # since. Nothing is forgotten when a dump was not completed, because its mark never comes back.

    def _forget_marks(self) -> None:
        """From now on no mark is valid, so the next dump is a whole one."""
        self._rows.columns.pop(EPOCHS, None)
        self._incarnation = self._epoch = 0
        self._removed = []
        self._removals, self._complete_since = 0, 0

    def _touch(self, places: Array) -> None:
        if self._incarnation:
            self._rows.columns[EPOCHS][places] = self._epoch

    def dump(self, since: Array) -> Content:
        """The content, after the eviction of rows that are too old or too small.

        Rows are copied few at a time, and updates go on between: each row is as it was at some time during the call.
        One that changed meanwhile is also in the dump of what changes from here on.

        Args:
          since: the mark of a completed dump: only what changed since, if the table still knows that. [0, 0]: all, and
            the table tracks changes from now on. [-1, -1]: all.
        """
        return self._copied(lambda: self._begin_dump(since))

    def _begin_dump(self, since: Array) -> Chosen:
        self._evict(self._step)
        is_change = bool(self._incarnation and since[0] == self._incarnation and since[1] >= self._complete_since)
        places: Array | None = None
        removed: Array = np.empty(0, np.int64)
        if is_change:
            places = np.flatnonzero(self._rows.columns[EPOCHS][: len(self._rows) + 1] > since[1])
            places = places[places != 0]
            removed = self._removed_after(int(since[1]))
        mark = self._next_mark() if since[0] >= 0 else UNMARKED
        return Chosen(places, removed, mark, is_change)

    def content(self) -> Content:
        """All that the table holds, copied as by `dump`."""
        return self._copied(lambda: Chosen(None, np.empty(0, np.int64), UNMARKED, False))

    def _copied(self, choose: Callable[[], Chosen]) -> Content:
        while True:  # once more when the content is replaced meanwhile
            with self.lock:
                self._check()
                chosen = choose()
                copies, moves = RowCopies(self._rows, chosen.places, self.width), self._moves
            while not copies.are_complete:
                with self.lock:
                    if self._rows is not copies.rows:
                        break
                    copies.go_on(self._moves != moves)
            else:
                with self.lock:
                    filtered = NOTHING if self._admission is None else self._admission.export()
                    return copies.content(chosen, filtered, self._step)

    def _removed_after(self, epoch: int) -> Array:
        gone = np.concatenate([np.empty(0, np.int64), *(ids for at, ids in self._removed if at > epoch)])
        still_gone: Array = gone[self._rows.index.find(gone) == 0]  # others have come back
        return still_gone

    def _next_mark(self) -> Array:
        if self._epoch == _LAST_EPOCH:
            self._forget_marks()
        if not self._incarnation:
            self._rows.add_column(EPOCHS, (), np.uint8)
            self._incarnation = secrets.randbits(62) + 1
        mark = np.array([self._incarnation, self._epoch], np.int64)
        self._epoch += 1
        return mark

    def load(
        self, contents: Sequence[Content], filtered: Array, filtered_freqs: Array, defaults: Array, unadmitted: Array
    ) -> None:
        """Replaces the content.

        Args:
          defaults, unadmitted: as for `initialize`.
          contents: whole ones, each followed by its changes.
          filtered, filtered_freqs: what the admission has counted.

        Raises:
          InvalidArgumentError: rows have another width; nothing has changed then.
        """
        for content in contents:
            if content.values.shape[1:] != (self.width,):
                shape = list(content.values.shape[1:])
                refuse(f"rows of shape {shape} do not fit table {self.name}, whose rows have {self.width} numbers")
        self._check_defaults(defaults)
        with self.lock:
            self._begin(defaults, unadmitted)
            for content in contents:
                self._add(content)
            if self._admission is not None:
                self._admission.load(filtered, filtered_freqs)
            self._forget_marks()

    def _add(self, content: Content) -> None:
        if len(content.removed):
            gone = self._rows.index.find(content.removed)
            stays = np.ones(len(self._rows) + 1, np.bool_)
            stays[gone] = False
            self._rows.keep(np.flatnonzero(stays[1:]) + 1)
        for name, fill in zip(content.slot_names, content.slot_fills.tolist()):
            self._rows.set_column(SLOT + name, (self.width,), self.dtype.numpy, fill)
        places = self._rows.index.find(content.keys)
        places[places == 0] = self._rows.add(content.keys[places == 0])
        columns = self._rows.columns
        columns[VALUES][places] = content.values
        for number, name in enumerate(content.slot_names):
            columns[SLOT + name][places] = content.slots[:, number]
        for name, numbers in ((FREQS, np.minimum(content.freqs, _MOST)), (VERSIONS, content.versions)):
            if name in columns and len(numbers):
                columns[name][places] = numbers
        self._step = max(self._step, int(content.step))


def _run(rule: Rule, columns: Sequence[Array], grad: Array, places: Array, hyper: Sequence[Any]) -> None:
    rows = [column.take(places, 0, mode="clip") for column in columns]
    run_blockwise(rule, rows, grad, hyper)
    for column, changed in zip(columns, rows):
        column[places] = changed
