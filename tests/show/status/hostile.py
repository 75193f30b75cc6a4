"""The answer of a task that writes what it likes into every field."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from tfmini.runtime import snapshot as s

EVIL = "[/x][link=u]\x1b]0;OWNED\x07\x1b[2J\nFORGED\u202e"
NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e300, -1e300)


def hostile_task(name: str, number: float = NUMBERS[0]) -> s.TaskSnapshot:
    """As it arrives, of that name."""
    data = {**_value(s.TaskSnapshot, number), "task": name, "state": s.OK}
    return s.from_json(s.TaskSnapshot, data, outside=True)


def _value(hint: Any, number: float) -> Any:
    if isinstance(hint, types.GenericAlias):
        if hint.__origin__ is tuple:
            return [_value(hint.__args__[0], number)] * 2
        return {EVIL: 2**62}
    if dataclasses.is_dataclass(hint):
        return {name: _value(one, number) for name, one in typing.get_type_hints(hint).items()}
    return {str: EVIL, int: 2**62, float: number, bool: True}[hint]
