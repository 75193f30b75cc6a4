"""Conditional accumulators: collect gradients until an op takes their mean.

A gradient is accepted only if it was computed at or after the accumulator's global step; a stale
one is dropped. Taking the mean waits for the required number of gradients and increases the global
step by one.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.core_types import Array
from tfmini.dtypes import DType
from tfmini.graph.op_types import DeviceResources, Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, Users, WaitingState, outdated_error, own
from tfmini.shapes import RawShape, compatible_raw, format_raw

# ---- The ledger of an accumulator: per step and contributor, how many gradients were accepted and dropped ----------
# It records only gradients with a contributor, such as those of synchronous training.

_STEPS_KEPT = 10_000


class _Entry:
    __slots__ = ("step", "accepted", "stale", "taken")

    def __init__(self, step: int) -> None:
        self.step = step
        self.accepted: Counter[str] = Counter()
        self.stale: Counter[str] = Counter()
        self.taken = False


class AccumulatorLedger:
    """The entries of one accumulator, one per global step, oldest first; the caller holds the accumulator's lock.

    Entries beyond a bound are removed; their counts are added to ``forgotten``.
    """

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._latest: list[_Entry] = []  # those of the latest mean
        self.forgotten = Counter[str]()

    def note(self, step: int, who: str, fresh: bool) -> None:
        """Records a gradient that arrived at global step ``step``; it was accepted if ``fresh``, else dropped."""
        entry = self._entry(step)
        (entry.accepted if fresh else entry.stale)[who] += 1

    def taken(self, step: int) -> None:
        """Records that the mean of all accepted gradients was taken at ``step``."""
        self._entry(step)
        self._latest = []
        for entry in reversed(self._entries):
            if entry.taken:
                break
            entry.taken = True
            self._latest.append(entry)

    def reopen(self) -> None:
        """Takes the latest `taken` back."""
        for entry in self._latest:
            entry.taken = False

    def waiting(self) -> set[str]:
        """Those whose accepted gradients no mean has taken yet."""
        found: set[str] = set()
        for entry in reversed(self._entries):
            if entry.taken:
                break
            found.update(entry.accepted)
        return found

    def discard(self) -> None:
        """Records that all gradients since the last mean were dropped."""
        for entry in reversed(self._entries):
            if entry.taken:
                break
            entry.stale += entry.accepted
            entry.accepted = Counter()

    def _entry(self, step: int) -> _Entry:
        if not self._entries or self._entries[-1].step != step:
            self._entries.append(_Entry(step))
            if len(self._entries) > _STEPS_KEPT:
                self._forget(self._entries.popleft())
        return self._entries[-1]

    def _forget(self, entry: _Entry) -> None:
        self.forgotten["applied" if entry.taken else "waiting"] += entry.accepted.total()
        self.forgotten["stale"] += entry.stale.total()

    def as_plain(self) -> dict[str, Any]:
        """The ledger as numbers, strings, lists and dictionaries."""
        return {
            "forgotten": dict(self.forgotten),
            "entries": [
                {"step": e.step, "accepted": dict(e.accepted), "stale": dict(e.stale), "taken": e.taken}
                for e in self._entries
            ],
        }


# ---- The states of accumulators, for dense and for sparse gradients ------------------------------------------------

_log = logging.getLogger("tfmini.ops")


class TakeGradient(Attempt):
    """Waits for enough gradients and takes their reduction.

    A reduction whose step ends before the answer goes back, unless gradients of the next step are here by then.
    """

    __slots__ = ("state", "required", "taken")
    kind = "gradient"

    def __init__(self, wait: Wait, state: AccumulatorState, required: int) -> None:
        super().__init__(wait)
        self.state = state
        self.required = required
        self.taken: tuple[int, int, Any] | None = None  # of what was taken: the step, the number, the gradients

    def cause(self) -> str:
        state = self.state
        return f'{self.required} gradients in accumulator "{state.name}" ({state.count} so far, step {state.step})'

    def advance(self) -> int:
        if self.state.count < self.required:
            return STUCK
        state = self.state
        before = state.step, state.count, state.gradients()
        self.result, self.taken = state.take(), before
        return OVER

    def give_back(self) -> None:
        taken, self.taken = self.taken, None
        if taken is not None:
            self.state.restore(*taken, self.result)


class AccumulatorState(WaitingState):
    """Base of dense and sparse accumulators.

    Attributes:
      step: gradients of earlier local steps are stale.
      count: gradients accumulated since the last take.
      applied, stale, taken: the numbers of accepted gradients, dropped gradients and taken means since
        the accumulator was made.
      applied_by, stale_by: the same per contributor, for gradients that have one.
      ledger: the same for each step.
      users: the sessions whose gradients it accepts.
    """

    def __init__(self, name: str, dtype: DType, shape: RawShape, reduction: str) -> None:
        super().__init__(1)
        (self.takers,) = self.lines
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.reduction = reduction
        self.step = 0
        self.count = 0
        self.applied = self.stale = self.taken = 0
        self.applied_by: Counter[str] = Counter()
        self.stale_by: Counter[str] = Counter()
        self.ledger = AccumulatorLedger()
        self.users = Users()

    def renew(self, step: int) -> None:
        """Drops all gradients, and refuses those that the sessions which have used it so far still send.

        Args:
          step: the global step of the model's new values.
        """
        with self.lock:
            self.users.renew()
            self.count, self.step = 0, step
            self.ledger.discard()
        self.fail_all(outdated_error(self.name))

    def set_step(self, step: int) -> None:
        """Sets the global step."""
        with self.lock:
            if step < self.step:
                _log.warning("accumulator %s: its global step goes back from %d to %d", self.name, self.step, step)
            self.step = step

    def apply(self, local_step: int, gradient: Any, who: str = "", session: DeviceResources | None = None) -> bool:
        """Adds a gradient; returns False when it is stale and was dropped.

        Raises:
          InvalidArgumentError: when it has the wrong shape.
          AbortedError: when its session has used the accumulator before `renew`.
        """
        with self.lock:
            self.users.check(session, self.name)
            fresh = local_step >= self.step
            if fresh:
                self._check(gradient)
                self._add(gradient)
                self.count += 1
                self.applied += 1
                self.applied_by[who] += bool(who)
            else:
                self.stale += 1
                self.stale_by[who] += bool(who)
            if who:
                self.ledger.note(self.step, who, fresh)
        self.changed()
        return fresh

    def take_when(self, wait: Wait, required: int, session: DeviceResources | None = None) -> None:
        """Answers with the reduction of the gradients once there are ``required``."""
        self.users.check(session, self.name)
        if required <= 0:
            refuse(f"Argument num_required must be positive, but was {required}")
        self.submit(self.takers, TakeGradient(wait, self, required))

    def take(self) -> Any:
        """Returns the reduction of all gradients so far and removes them; called under the lock."""
        result = self._reduced()  # first, because it may lack memory
        self._drop()
        if self.applied_by:
            self.ledger.taken(self.step)
        self.step += 1
        self.count = 0
        self.taken += 1
        return result

    def restore(self, step: int, count: int, gradients: Any, result: Any) -> None:
        """Takes a reduction back which nobody has got; called under the lock. See `gradients` and `take`."""
        if self.step == step + 1 and not self.count:
            self._put_back(gradients, result, count)
            self.step, self.count = step, count
            self.taken -= 1
            self.ledger.reopen()

    def statistics(self) -> dict[str, Any]:
        """The counters, for reports."""
        with self.lock:
            return {
                "step": self.step,
                "count": self.count,
                "applied": self.applied,
                "stale": self.stale,
                "taken": self.taken,
                "applied_by": dict(+self.applied_by),
                "stale_by": dict(+self.stale_by),
            }

    def clear(self) -> None:
        """Called when the task removes the accumulator; fails all waiting ops."""
        text = f"Accumulator '{self.name}' was deleted by a reset of its container."
        self.fail_all(errors.CancelledError.of(text))

    def _check(self, gradient: Any) -> None:
        raise NotImplementedError

    def _add(self, gradient: Any) -> None:
        raise NotImplementedError

    def _reduced(self) -> Any:
        raise NotImplementedError

    def _drop(self) -> None:
        """Forgets the gradients."""
        raise NotImplementedError

    def gradients(self) -> Any:
        """What it has gathered, as far as the reduction does not tell it."""

    def _put_back(self, gradients: Any, result: Any, count: int) -> None:
        """The inverse of `_reduced` and `_drop`."""
        raise NotImplementedError


def _mismatch(text: str) -> errors.OpError:
    return errors.InvalidArgumentError.of(f"Shape mismatch: {text}")


class DenseAccumulatorState(AccumulatorState):
    """Accumulates arrays of one shape."""

    def __init__(self, name: str, dtype: DType, shape: RawShape, reduction: str) -> None:
        super().__init__(name, dtype, shape, reduction)
        self._sum: Any = None
        self._is_own = False  # Other ops may share the first gradient's array, so sums go to a copy.

    def _check(self, gradient: Any) -> None:
        got = np.shape(gradient)
        if self.count and np.shape(self._sum) != got:
            raise _mismatch(f"expected {format_raw(np.shape(self._sum))}, got {format_raw(got)}")
        if not compatible_raw(self.shape, got):
            raise _mismatch(f"expected {format_raw(self.shape)}, got {format_raw(got)}")

    def _add(self, gradient: Any) -> None:
        if not self.count:
            self._sum = own(gradient)
            self._is_own = self._sum is not gradient
        elif self._is_own:
            np.add(self._sum, gradient, out=self._sum)
        else:
            self._sum = np.add(self._sum, gradient)
            self._is_own = isinstance(self._sum, np.ndarray)

    def _reduced(self) -> Any:
        total = self._sum
        if self.reduction == "SUM" or self.count == 1:
            return total
        return np.divide(total, self.dtype.numpy.type(self.count), out=total if self._is_own else None)

    def _drop(self) -> None:
        self._sum = None

    def _put_back(self, gradients: Any, result: Any, count: int) -> None:
        if self.reduction != "SUM" and count > 1:
            result = np.multiply(result, self.dtype.numpy.type(count))
        self._sum, self._is_own = result, False


class SparseAccumulatorState(AccumulatorState):
    """Accumulates indexed slices; each row is averaged over the gradients that have it."""

    def __init__(self, name: str, dtype: DType, shape: RawShape, reduction: str) -> None:
        super().__init__(name, dtype, shape, reduction)
        self._indices: Any = None
        self._values: Any = None
        self._counts: Any = None

    def _check(self, gradient: Any) -> None:
        indices, values, shape = gradient
        if np.ndim(indices) != 1:
            refuse(f"Input indices should be vector but received shape: {format_raw(np.shape(indices))}")
        if not np.ndim(values):
            refuse("Values cannot be 0-dimensional.")
        if len(values) != len(indices):
            refuse(f"Expected {len(indices)} non-empty input values, got {len(values)}")
        if shape is not None:
            self._check_dense_shape(shape)
        self._check_rows(indices)
        self._check_values(values)

    def _check_dense_shape(self, shape: Any) -> None:
        declared = self.shape or ()
        if len(declared) > len(shape):
            raise _mismatch(f"expected shape rank at least {len(declared)}, got {len(shape)}")
        for i, size in enumerate(declared):
            if size is not None and size != shape[i]:
                raise _mismatch(f"expected shape dim {i} to be {size}, got {shape[i]}")

    def _check_rows(self, indices: Any) -> None:
        limit = self.shape[0] if self.shape else None
        if limit is None:
            return
        for slot in np.flatnonzero(indices >= limit)[:1]:
            raise _mismatch(
                f"index of slice {slot} exceeded limits of shape; index is {indices[slot]} exceeded {limit}"
            )

    def _check_values(self, values: Any) -> None:
        expected = self.shape or ()
        if self.count:
            expected = self._values.shape
            if len(expected) != values.ndim:
                raise _mismatch(f"expected values rank {len(expected)}, got {values.ndim}")
        elif len(expected) > values.ndim:
            raise _mismatch(f"expected values rank at least {len(expected)}, got {values.ndim}")
        for i, size in enumerate(expected[1:], 1):
            if size is not None and size != values.shape[i]:
                raise _mismatch(f"expected values dim {i} to be {size}, got {values.shape[i]}")

    def _add(self, gradient: Any) -> None:
        indices, values, _ = gradient
        if not self.count:
            self._indices, self._values = own(indices), own(values)
            self._counts = np.ones(len(indices), np.int64)
            return
        merged, old, new = _merge(self._indices, indices)
        total = np.zeros((len(merged), *values.shape[1:]), self.dtype.numpy)
        counts = np.zeros(len(merged), np.int64)
        total[old] = self._values
        total[new] += values
        counts[old] = self._counts
        counts[new] += 1
        self._indices, self._values, self._counts = merged, total, counts

    def _reduced(self) -> Any:
        values = self._values
        if self.reduction != "SUM":
            counts = self._counts.astype(self.dtype.numpy).reshape(-1, *[1] * (values.ndim - 1))
            values = values / counts
        first = self.shape[0] if self.shape else None
        shape = np.array([-1 if first is None else first, *values.shape[1:]], np.int64)
        return self._indices, values, shape

    def _drop(self) -> None:
        self._indices = self._values = self._counts = None

    def gradients(self) -> Any:
        return self._indices, self._values, self._counts

    def _put_back(self, gradients: Any, result: object, count: int) -> None:
        self._indices, self._values, self._counts = gradients


def _merge(a: Array, b: Array) -> tuple[Any, Any, Any]:
    """The merged rows of two lists of rows, and the positions of each list's rows in it."""
    if (np.diff(a) > 0).all() and (np.diff(b) > 0).all():
        merged = np.union1d(a, b)
        return merged, np.searchsorted(merged, a), np.searchsorted(merged, b)
    return _merge_unsorted(a, b)


def _merge_unsorted(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Merges element by element, which gives TensorFlow's result also for lists that are not sorted."""
    merged: list[int] = []
    old: list[int] = []
    new: list[int] = []
    i = j = 0
    while i < len(a) or j < len(b):
        take_a = j == len(b) or (i < len(a) and a[i] <= b[j])
        take_b = i == len(a) or (j < len(b) and b[j] <= a[i])
        merged.append(int(a[i] if take_a else b[j]))
        if take_a:
            old.append(len(merged) - 1)
            i += 1
        if take_b:
            new.append(len(merged) - 1)
            j += 1
    return np.array(merged, np.int64), old, new
