"""Evaluation of ready ops, and readable reasons why a model is not ready."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.devices import intersects, parse
from tfmini.graph.graph import Graph

_log = logging.getLogger("tensorflow")
_PREFIX = "Variables not initialized: "
_NAMES_SHOWN = 10


def ready(op: Any, sess: Any, msg: str) -> tuple[bool, str | None]:
    """Runs a ready op.

    Args:
      op: a 1-D string tensor with the names of uninitialized variables. The model is ready if ``op`` or its value
        is None, or the value is empty or of type int32.
      sess: the session.
      msg: the text to log with an error that is not about readiness.

    Returns:
      (whether the model is ready, the reason if not).

    Raises:
      FailedPreconditionError: when the op fails for a reason other than an uninitialized variable.
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
    """The name of an op for messages; the op may be None or have no name."""
    if obj is None:
        return "None"
    return getattr(obj, "name", None) or f"<no name for {type(obj)}>"


def with_places(reason: str | None, graph: Graph) -> str:
    """Adds the devices of the variables to a reason of `ready`; of many variables it names only the first ones."""
    if reason is None:
        return "nothing"
    if not reason.startswith(_PREFIX):
        return reason
    names = reason[len(_PREFIX) :].split(", ")
    text = ", ".join(_placed(names[:_NAMES_SHOWN], graph))
    more = len(names) - _NAMES_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def advice(reason: str | None, graph: Graph, task: str) -> str:
    """What to do about uninitialised variables that lie on this task, a worker's; "" without any."""
    if reason is None or not reason.startswith(_PREFIX) or not task:
        return ""
    names = [name for name in reason[len(_PREFIX) :].split(", ") if _lies_on(name, graph, task)]
    if not names:
        return ""
    return (
        f". The variable {names[0]} lies on this task, {task}, so the chief's graph probably has no such variable, and"
        " nobody initialises it: make it with collections=[tf.GraphKeys.LOCAL_VARIABLES], which each worker initialises"
        " itself"
    )


def _lies_on(name: str, graph: Graph, task: str) -> bool:
    try:
        device = parse(graph.get_operation_by_name(name.partition(":")[0]).device)
    except (KeyError, ValueError):  # a user's ready op may return any string
        return False
    return device.job is not None and device.task is not None and intersects(device, parse(task))


def _placed(names: Iterable[str], graph: Graph) -> Iterable[str]:
    for name in names:
        try:
            device = graph.get_operation_by_name(name.partition(":")[0]).device
        except (KeyError, ValueError):  # a user's ready op may return any string
            device = ""
        yield f"{name} ({device})" if device else name
