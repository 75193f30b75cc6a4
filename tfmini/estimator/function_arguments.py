"""The names of the arguments that a user's function takes: it is called with those that it knows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments, without ``self`` and without those that a partial has bound."""
    if isinstance(function, functools.partial):
        names = argument_names(function.func)
        return tuple(name for name in names[len(function.args) :] if name not in function.keywords)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind in named)


def known_arguments(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the offered arguments that the function names."""
    names = argument_names(function)
    return {name: value for name, value in offered.items() if name in names}
