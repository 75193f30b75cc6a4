"""``horovod.tensorflow.util``: helpers that scripts import from Horovod."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_has_eager = False  # of Horovod 0.19; scripts of the time ask it


def _executing_eagerly() -> bool:
    """False: there are only graphs."""
    return False


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function: it adds its ops to the graph."""
    return f


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Remembers the results of a function by its positional arguments."""
    return functools.cache(f)


def vars_to_refs(vars: Any) -> Any:
    """References to a variable or to nested lists of them, which can be keys of dictionaries."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.experimental_ref()


def refs_to_vars(refs: Any) -> Any:
    """The inverse of `vars_to_refs`."""
    return [refs_to_vars(ref) for ref in refs] if isinstance(refs, tuple) else refs.deref()
