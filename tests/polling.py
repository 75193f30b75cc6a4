"""Waits for a state of which nobody tells, such as that of a task as its status shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_PAUSE_S = 0.02
_LIMIT_S = 200.0  # less than a test may take


def poll(condition: Callable[[], Any], what: str) -> Any:
    """Asks again and again until the answer is true, and returns it. For what a callback tells, wait for that."""
    end = time.monotonic() + _LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} never happened"
        time.sleep(_PAUSE_S)
    return found
