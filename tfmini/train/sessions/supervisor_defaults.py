"""What a `Supervisor` finds in a graph's collections, or adds to them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.ops.control import group
from tfmini.ops.scoping import add_to_collection, get_collection
from tfmini.ops.summaries import merge_all
from tfmini.ops.tables import tables_initializer
from tfmini.ops.variables import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from tfmini.train.saver import Saver

_log = logging.getLogger("tfmini")

# "The usual one", where None means "none".
USE_DEFAULT = 0


def is_default(value: Any) -> bool:
    """Whether an argument was left to the supervisor."""
    return value is USE_DEFAULT


def first_of(key: str) -> Any:
    """The first member of a collection, or None."""
    found = get_collection(key)
    if len(found) > 1:
        _log.info("Found %d %s operations. Returning the first one.", len(found), key)
    return found[0] if found else None


def choose(value: Any, key: str, make: Callable[[], Any]) -> Any:
    """The given value; by default the collection's, or else a new one, which is put there."""
    if not is_default(value):
        return value
    found = first_of(key)
    if found is None:
        found = make()
        if found is not None:
            add_to_collection(key, found)
    return found


def choose_ready_op(value: Any) -> Any:
    """By default: reports the variables without a value."""
    return choose(value, GraphKeys.READY_OP, report_uninitialized_variables)


def choose_ready_for_local_init_op(value: Any) -> Any:
    """By default: the collection's, or None."""
    return choose(value, GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: None)


def choose_init_op(value: Any) -> Any:
    """By default: initialises the global variables."""
    return choose(value, GraphKeys.INIT_OP, global_variables_initializer)


def choose_local_init_op(value: Any) -> Any:
    """By default: initialises local variables and tables."""
    return choose(value, GraphKeys.LOCAL_INIT_OP, _local_init_op)


def _local_init_op() -> Operation:
    return group(local_variables_initializer(), tables_initializer())


def choose_saver(value: Any) -> Any:
    """By default: a Saver of all variables; None when there are none."""
    return choose(value, GraphKeys.SAVERS, lambda: Saver() if global_variables() else None)


def choose_summary_op(value: Any) -> Any:
    """By default: merges all summaries; None when there are none."""
    return choose(value, GraphKeys.SUMMARY_OP, merge_all)


def choose_global_step(value: Any) -> Any:
    """By default: the graph's global step, or None."""
    return choose(value, GraphKeys.GLOBAL_STEP, _global_step_tensor)


def _global_step_tensor() -> Any:
    try:
        found = get_default_graph().get_tensor_by_name("global_step:0")
    except KeyError:
        return None
    if found.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
        _log.warning("Found 'global_step' is not an int type: %s", found.dtype)
        return None
    return found
