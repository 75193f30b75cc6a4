"""Variables in the memory of a device: an immutable buffer that updates replace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tfmini.errors import FailedPreconditionError
from tfmini.ops.variables.state import VariableState

_HOLDERS = 3
"""The references to a buffer that nothing else holds: the state's, a local name's, and getrefcount's argument."""


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
        return ((), 0) if value is None else (value.shape, value.nbytes)

    def read(self) -> Any:
        if self._value is None:
            raise FailedPreconditionError.of(self.uninitialized_message)
        return self._value

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

    def take(self) -> Any:
        """The buffer, or a copy if somebody else has it, for an update that donates it. The caller has the lock."""
        value = self._value
        if value is not None and sys.getrefcount(value) > _HOLDERS:
            value = value.copy()
        return value

    def put(self, value: Any) -> None:
        """Sets the buffer that an update has made. The caller has the lock."""
        self._value = value


def locked(states: Sequence[Any]) -> Any:
    """The locks of states, in the order in which they must be taken (as `state.update_together`)."""
    return [state.lock for state in sorted(set(states), key=id)]
