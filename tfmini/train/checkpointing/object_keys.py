"""Restoring a `Checkpoint`'s file with a `Saver`: maps the names of variables to object-based keys."""

from __future__ import annotations

from typing import Any

from tfmini import errors
from tfmini.train.checkpointing.object_graph import object_graph_of
from tfmini.train.checkpointing.reader import CheckpointReader
from tfmini.train.checkpointing.saveables import SaveableObject, all_saveables, validated_saveables


def keys_by_name(prefix: str) -> dict[str, str] | None:
    """Name of a variable -> its key in an object-based checkpoint; None for a name-based checkpoint."""
    graph = object_graph_of(CheckpointReader(prefix))
    if graph is None:
        return None
    return {a.full_name: a.checkpoint_key for node in graph.nodes for a in node.attributes}


def renamed_saveables(var_list: Any, keys: dict[str, str]) -> list[SaveableObject]:
    """The saveables of a Saver's ``var_list`` (default: of the graph), named by their object-based keys.

    Raises:
      NotFoundError: when saveables have no key in the checkpoint.
    """
    saveables = validated_saveables(all_saveables() if var_list is None else var_list)
    specs = [spec for saveable in saveables for spec in saveable.specs]
    names = {spec.name for spec in specs}
    missing = sorted(names - set(keys))
    if missing:
        raise errors.NotFoundError.of(
            f"Existing variables not in the checkpoint: {', '.join(missing)}. Variables names when this checkpoint was"
            f" written which don't exist now: {', '.join(sorted(set(keys) - names))}. The checkpoint was saved using"
            " tf.train.Checkpoint: restore it with one, or give the Saver a dictionary with the old names."
        )
    for spec in specs:
        spec.name = keys[spec.name]
    return saveables
