"""Whose memory a fetched array is.

A client may write into what `run` has returned. Whether the runtime still holds the array (in a
variable, a queue, a constant, a message that is being sent) is not visible from the graph: many
kernels hand their input on. So it is asked of the array itself, as copy-on-write does for variables.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np


def _holders(values: list[Any], index: int) -> int:
    value = values[index]
    return getrefcount(value)


_SOLE = _holders([np.zeros(1)], 0)
"""What `_holders` counts for an array that only the list refers to."""


def make_private(values: list[Any]) -> list[Any]:
    """Replaces, in place, every array that somebody else refers to, or that is a part of another, by a copy.

    The caller must have let go of its own references (a step's slots).
    """
    for i in range(len(values)):
        if isinstance(values[i], np.ndarray) and _is_held(values, i):
            values[i] = values[i].copy()
    return values


def _is_held(values: list[Any], index: int) -> bool:
    return _holders(values, index) > _SOLE or values[index].base is not None or not values[index].flags.writeable
