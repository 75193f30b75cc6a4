"""Is the model ready? What a ready op says, and what it means in words."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.graph.graph import Graph

_log = logging.getLogger("tfmini")
_PREFIX = "Variables not initialized: "
_NAMES_SHOWN = 10


def ready(op: Any, sess: Any, msg: str) -> tuple[bool, str | None]:
    """Asks a ready op.

    Args:
      op: None (always ready), or a 1-D string tensor of what is not initialised. Anything without
        a value, of type int32, or empty also means ready.
      sess: the session.
      msg: what to log before an error that says nothing about readiness.

    Returns:
      (ready, None or the reason why not).

    Raises:
      FailedPreconditionError: other than for an uninitialised variable.
    """
    if op is None:
        return True, None
    try:
        value = sess.run(op)
    except errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            _log.warning("%s : error [%s]", msg, error)
            raise
        return False, str(error)
    if value is None or value.dtype == np.int32 or value.size == 0:
        return True, None
    return False, _PREFIX + ", ".join(name.decode() for name in value)


def name_of(obj: Any) -> str:
    """The name of an op for a message, also when it is None or has no name."""
    if obj is None:
        return "None"
    return getattr(obj, "name", None) or f"<no name for {type(obj)}>"


def with_places(reason: str | None, graph: Graph) -> str:
    """A reason of `ready` with the device of each variable that it names; of many, the first ones."""
    if reason is None:
        return "nothing"
    if not reason.startswith(_PREFIX):
        return reason
    names = reason[len(_PREFIX) :].split(", ")
    text = ", ".join(_placed(names[:_NAMES_SHOWN], graph))
    more = len(names) - _NAMES_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def _placed(names: Iterable[str], graph: Graph) -> Iterable[str]:
    for name in names:
        try:
            device = graph.get_operation_by_name(name.partition(":")[0]).device
        except (KeyError, ValueError):  # an own ready op may name what it likes
            device = ""
        yield f"{name} ({device})" if device else name
