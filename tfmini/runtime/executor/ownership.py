"""Copies of fetched arrays that the runtime may still use.

A client may write into an array that ``run`` has returned. The graph does not show whether the runtime still holds
the array (in a variable, a queue, a constant, a message that is being sent), since many kernels return an input.
The array's reference count shows it, as for the copy-on-write of variables.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from numpy import ndarray, zeros

from tfmini.errors import of_exception

_values: list[Any] = [zeros(1)]
_SOLE = getrefcount(_values[0])
"""The count for an array that only a list refers to."""


def make_private(values: list[Any]) -> list[Any]:
    """Replaces, in place, every array that has another reference, or is a part of another array, by a copy.

    The caller must have let go of its own references (a step's slots).

    Raises:
      ResourceExhaustedError: there is no memory for a copy, as of a small array that has been broadcast.
    """
    for i in range(len(values)):
        if isinstance(values[i], ndarray) and (
            getrefcount(values[i]) > _SOLE or values[i].base is not None or not values[i].flags.writeable
        ):
            try:
                values[i] = values[i].copy()
            except MemoryError as error:
                raise of_exception(error) from None
    return values
