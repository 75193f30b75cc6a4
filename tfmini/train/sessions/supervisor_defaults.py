"""The default ops of a `Supervisor`: those in the graph's collections, or new ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import add_to_collection, get_collection
from tfmini.ops.control import group
from tfmini.ops.summary.functions import merge_all
from tfmini.ops.tables.functions import tables_initializer
from tfmini.ops.variables.functions import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from tfmini.train.checkpointing.saver import Saver

_log = logging.getLogger("tensorflow")

# Default of arguments for which None means "none".
USE_DEFAULT = 0


def is_default(value: Any) -> bool:
    """Whether an argument was not given."""
    return value is USE_DEFAULT


def first_of(key: str) -> Any:
    """The first member of a collection, or None."""
    found = get_collection(key)
    if len(found) > 1:
        _log.info("Found %d %s operations. Returning the first one.", len(found), key)
    return found[0] if found else None


def choose(value: Any, key: str, make: Callable[[], Any]) -> Any:
    """The given value; by default the collection's first member, or a new one that is added to the collection."""
    if not is_default(value):
        return value
    found = first_of(key)
    if found is None:
        found = make()
        if found is not None:
            add_to_collection(key, found)
    return found


def choose_ready_op(value: Any) -> Any:
    """The ready op; the default returns the names of uninitialized variables."""
    return choose(value, GraphKeys.READY_OP, report_uninitialized_variables)


def choose_ready_for_local_init_op(value: Any) -> Any:
    """The ready op for local init; the default is the collection's, or None."""
    return choose(value, GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: None)


def choose_init_op(value: Any) -> Any:
    """The init op; the default initializes the global variables."""
    return choose(value, GraphKeys.INIT_OP, global_variables_initializer)


def choose_local_init_op(value: Any) -> Any:
    """The local init op; the default initializes local variables and tables."""
    return choose(value, GraphKeys.LOCAL_INIT_OP, _local_init_op)


def _local_init_op() -> Operation:
    return group(local_variables_initializer(), tables_initializer())


def choose_saver(value: Any) -> Any:
    """The Saver; the default saves all variables, or is None if there are none."""
    return choose(value, GraphKeys.SAVERS, lambda: Saver() if global_variables() else None)


def choose_summary_op(value: Any) -> Any:
    """The summary op; the default merges all summaries, or is None if there are none."""
    return choose(value, GraphKeys.SUMMARY_OP, merge_all)


def choose_global_step(value: Any) -> Any:
    """The global step; the default is the graph's, or None."""
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
