"""Variables in the memory of a device: an immutable buffer that updates replace."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from tfmini.ops.variables.state import ALONE, BUSY, VariableState

_HOLDERS = ALONE + 1
"""The count of a buffer that only an update has: in its list of old values, and by a local name."""


class DeviceVariable(VariableState):
    """The value of a variable on a device. A read is a snapshot, since no buffer changes.

    Attributes:
      device: JAX's device.
    """

    __slots__ = ("device",)

    def __init__(self, device: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.device = device

    def extent(self) -> tuple[tuple[int, ...], int]:
        value = self._value
        return (value.shape, value.nbytes) if isinstance(value, jax.Array) else super().extent()

    def read(self) -> Any:
        value = self._value
        if value is BUSY:  # a program has its buffer, which is deleted when it is donated
            with self.lock:
                value = self._value
        if value is None:
            raise self.absent()
        return value

    def assign(self, value: Any, validate_shape: bool = True) -> None:
        """Replaces the value by a copy on the device.

        Raises:
          InvalidArgumentError: when the shapes differ and ``validate_shape`` is set.
        """
        with self.lock:
            if validate_shape:
                self._check_shape(self.shape if self._value is None else self._value.shape, np.shape(value))
            self._value = self._put(np.asarray(value, self.dtype.numpy))

    def update(self, function: Callable[..., Any], *args: object) -> Any:
        """Runs ``function(array, *args)`` on a copy on the host: for ops without a lowering."""
        with self.lock:
            array = np.array(self.read())
            result = function(array, *args)
            self._value = self._put(array)
            return result

    def _put(self, array: Any) -> Any:
        with jax.enable_x64(True):
            return jax.device_put(array, self.device)


_get, _set = (getattr(vars(VariableState)["_value"], name) for name in ("__get__", "__set__"))
_acquire, _release = type(threading.Lock()).acquire, type(threading.Lock()).release


def exchange(states: Sequence[Any], call: Callable[[list[Any], list[Any]], None]) -> Any:
    """Runs ``call(values, box)``, which donates the values and puts (new values, results) into the box, exclusively.

    An exception, which may be Ctrl-C at any bytecode, leaves the new values if the box has them, else the old ones.
    What must not be torn is thus one call into C: Python looks for signals between its bytecodes only.

    Returns:
      The results.
    """
    if not states:
        return _exchange(states, call)
    if len(states) == 1:
        with states[0].lock:
            return _exchange(states, call)
    held: list[Any] = []
    release: Callable[[], Any] = partial(
        list, map(_release, held)
    )  # made now: nothing may come between `finally` and the release
    try:
        # One global order of locking, as `state.update_together`. Who is interrupted has in `held` what it has locked.
        held.extend(filter(_acquire, [state.lock for state in sorted(states, key=id)]))
        return _exchange(states, call)
    finally:
        release()


def _exchange(states: Sequence[Any], call: Callable[[list[Any], list[Any]], None]) -> Any:
    old = list(map(_get, states))
    box: list[Any] = []
    try:
        call(_taken(states, old), box)
        new, results = box[0]
        _store(states, new)
    except BaseException:
        _store(states, box[0][0] if box else [_left(value) for value in old])
        raise
    return results


def _taken(states: Sequence[Any], old: list[Any]) -> list[Any]:
    """The values to donate: of a buffer that somebody else has too, a copy."""
    _store(states, [None if value is None else BUSY for value in old])
    # A reader that got the buffer before is counted; later readers cannot get it.
    return [value.copy() if value is not None and sys.getrefcount(value) > _HOLDERS else value for value in old]


def _left(value: Any) -> Any:
    """A value that was to be donated, after an error: none if XLA had begun, which deletes it."""
    return None if value is None or value.is_deleted() else value


def _store(states: Iterable[Any], values: Iterable[Any]) -> None:
    list(map(_set, states, values))
