"""Arguments of public functions that have a deprecated name beside the current one."""

from __future__ import annotations

from typing import Any


def either(new_name: str, new: Any, old_name: str, old: Any) -> Any:
    """Returns the value of an argument that also has a deprecated name.

    Raises:
      ValueError: when both names are used.
    """
    if old is None:
        return new
    if new is not None:
        raise ValueError(f"Cannot specify both '{old_name}' and '{new_name}'")
    return old
