"""``tf.contrib.framework.assign_from_…``: assigns values from Python or a checkpoint to variables, with feeds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.operation import Operation
from tfmini.layers.contrib.model_variables import get_variable_full_name, get_variables
from tfmini.ops.array.identity import placeholder
from tfmini.ops.control import group, no_op
from tfmini.train.checkpointing.reader import load_checkpoint

_log = logging.getLogger("tensorflow")
Feeds = dict[Any, Any]


def _assigned(variable: Any, value: Any, feeds: Feeds) -> Operation:
    """An assignment from a new placeholder; adds the placeholder's value to ``feeds``."""
    source = placeholder(variable.dtype.base_dtype, variable.shape, name=f"placeholder/{variable.op.name}")
    feeds[source] = value
    return variable.assign(source)  # type: ignore[no-any-return]


@export("tf.contrib.framework.assign_from_values", "tf.contrib.slim.assign_from_values")
def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Operation, Feeds]:
    """(an op that assigns all values, its feeds) (``tf.contrib.framework.assign_from_values``).

    Args:
      var_names_to_values: name of a variable's op -> array with the same number of elements.

    Raises:
      ValueError: when a name does not identify exactly one variable.
    """
    feeds: Feeds = {}
    assigned = []
    for name, value in var_names_to_values.items():
        variable = _named(name)
        assigned.append(_assigned(variable, np.reshape(value, variable.shape.as_list()), feeds))
    return group(*assigned), feeds


def _named(name: str) -> Any:
    candidates = get_variables(name)
    if not candidates:
        raise ValueError(f"Variable {name} wasn't found")
    if len(candidates) == 1:
        return candidates[0]
    exact = [variable for variable in candidates if variable.op.name == name]
    if not exact:
        raise ValueError(f"Variable {name} doesn't uniquely identify a variable")
    return exact[0]


@export("tf.contrib.framework.assign_from_values_fn", "tf.contrib.slim.assign_from_values_fn")
def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A function of a session that runs `assign_from_values`."""
    op, feeds = assign_from_values(var_names_to_values)
    return lambda session: session.run(op, feeds)


def _grouped(var_list: Any) -> dict[str, list[Any]]:
    """Name in the checkpoint -> the variable, or the parts of a partitioned one."""
    if isinstance(var_list, Mapping):
        return {name: list(v) if isinstance(v, (list, tuple)) else [v] for name, v in var_list.items()}
    grouped: dict[str, list[Any]] = {}
    for variable in var_list:
        grouped.setdefault(get_variable_full_name(variable), []).append(variable)
    return grouped


def _restored(variable: Any, value: Any, name: str, feeds: Feeds, reshape: bool = False) -> Operation:
    """Assigns a tensor of the checkpoint: all of it, or the slice of a partition."""
    lengths = variable.shape.as_list()
    info = getattr(variable, "_save_slice_info", None)
    if info is not None:
        spans = zip(info.var_offset, info.var_shape, strict=True)
        value = np.reshape(value[tuple(slice(o, o + n) for o, n in spans)], lengths)
    elif reshape:
        value = np.reshape(value, lengths)
    elif tuple(lengths) != value.shape:
        raise ValueError(
            f"Total size of new array must be unchanged for {name} lh_shape: [{value.shape}],"
            f" rh_shape: [{variable.shape}]"
        )
    return _assigned(variable, value, feeds)


@export("tf.contrib.framework.assign_from_checkpoint", "tf.contrib.slim.assign_from_checkpoint")
def assign_from_checkpoint(
    model_path: Any, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Operation, Feeds]:
    """(an op that restores variables, its feeds) (``tf.contrib.framework.assign_from_checkpoint``).

    Args:
      model_path: the checkpoint's prefix, or a directory.
      var_list: a list of variables, or name in the checkpoint -> variable or list of its parts.
      ignore_missing_vars: log a warning, rather than raise, for variables that are not in the checkpoint.

    Raises:
      ValueError: when the checkpoint has no value for a variable, or one of another shape.
    """
    reader = load_checkpoint(model_path)
    feeds: Feeds = {}
    assigned = []
    for name, variables in _grouped(var_list).items():
        if not reader.has_tensor(name):
            missing = f"Checkpoint is missing variable [{name}]"
            if not ignore_missing_vars:
                raise ValueError(missing)
            _log.warning(missing)
            continue
        value = reader.get_tensor(name)
        assigned += [_restored(variable, value, name, feeds) for variable in variables]
    return group(*assigned) if assigned else no_op(), feeds


@export("tf.contrib.framework.assign_from_checkpoint_fn", "tf.contrib.slim.assign_from_checkpoint_fn")
def assign_from_checkpoint_fn(
    model_path: Any, var_list: Any, ignore_missing_vars: bool = False, reshape_variables: bool = False
) -> Callable[[Any], Any] | None:
    """A function of a session that restores variables; None if the checkpoint has none of them.

    TF name: ``tf.contrib.framework.assign_from_checkpoint_fn``.

    Args:
      reshape_variables: reshape values of another shape with the same number of elements.
      The others are those of `assign_from_checkpoint`.

    Raises:
      ValueError: when ``var_list`` is empty.
    """
    if not var_list:
        raise ValueError("var_list cannot be empty")
    reader = load_checkpoint(model_path)
    grouped = _grouped(var_list)
    missing = [name for name in grouped if not reader.has_tensor(name)]
    if missing and ignore_missing_vars:
        for name in missing:
            _log.warning("Variable %s missing in checkpoint %s", name, model_path)
        grouped = {name: parts for name, parts in grouped.items() if name not in missing}
    if not grouped:
        _log.warning("No Variables to restore")
        return None
    feeds: Feeds = {}
    assigned = []
    for name, variables in grouped.items():
        value = reader.get_tensor(name)
        assigned += [_restored(variable, value, name, feeds, reshape_variables) for variable in variables]
    op = group(*assigned)
    return lambda session: session.run(op, feeds)
