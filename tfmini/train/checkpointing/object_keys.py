"""For a `Saver` that meets a checkpoint of a `Checkpoint`: from the names of variables to the keys of objects."""

from __future__ import annotations

from typing import Any

from tfmini import errors
from tfmini.train.checkpoint_reader import CheckpointReader
from tfmini.train.object_graph import object_graph_of
from tfmini.train.saveables import SaveableObject, all_saveables, validated_saveables


def keys_by_name(prefix: str) -> dict[str, str] | None:
    """Name of a variable -> its key in a checkpoint of objects; None for a checkpoint of names."""
    graph = object_graph_of(CheckpointReader(prefix))
    if graph is None:
        return None
    return {a.full_name: a.checkpoint_key for node in graph.nodes for a in node.attributes}


def renamed_saveables(var_list: Any, keys: dict[str, str]) -> list[SaveableObject]:
    """The saveables of a Saver's ``var_list`` (default: of the graph) under their keys.

    Raises:
      NotFoundError: when some have none.
    """
    saveables = validated_saveables(all_saveables() if var_list is None else var_list)
    specs = [spec for saveable in saveables for spec in saveable.specs]
    names = {spec.name for spec in specs}
    missing = sorted(names - set(keys))
    if missing:
        raise errors.NotFoundError(
            None,
            None,
            f"Existing variables not in the checkpoint: {', '.join(missing)}. Variables names when this checkpoint was"
            f" written which don't exist now: {', '.join(sorted(set(keys) - names))}. The checkpoint was saved using"
            " tf.train.Checkpoint: restore it with one, or give the Saver a dictionary with the old names.",
        )
    for spec in specs:
        spec.name = keys[spec.name]
    return saveables
