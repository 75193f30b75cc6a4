"""Objects of checkpoints that hold arrays or names, and pictures of their object graphs (``tf.contrib.checkpoint``)."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from tfmini.core_types import PathLike
from tfmini.export import export
from tfmini.train.checkpointing.graph_files import CheckpointReader
from tfmini.train.checkpointing.object_graph import PythonState, Trackable, is_trackable, object_graph_of


class _ArrayState(PythonState):
    """An array as a state that checkpoints have; the attribute of a `NumpyState`."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def serialize(self) -> bytes:
        """The array in numpy's format."""
        written = io.BytesIO()
        np.save(written, self.array, allow_pickle=False)
        return written.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Takes over an array in numpy's format."""
        self.array = np.load(io.BytesIO(string_value), allow_pickle=False)


@export("tf.contrib.checkpoint.NumpyState")
class NumpyState(Trackable):
    """An object whose attributes are arrays that checkpoints have (``tf.contrib.checkpoint.NumpyState``).

    `tf.train.Checkpoint.restore` sets them at once, also those that it does not have yet.

    Raises:
      NotImplementedError: when an attribute gets a value that is no array and no number of numpy.
    """

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found.array if isinstance(found, _ArrayState) else found

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, (np.ndarray, np.generic)):
            raise NotImplementedError(
                f"Assigned {value} to the {name} property of {self}, which is not a NumPy array. Other attributes need"
                " an object beside it."
            )
        self._lookup_dependency(name).array = value

    def _lookup_dependency(self, name: str) -> Any:
        """The state of an attribute; restoring a checkpoint that has more of them makes them."""
        return vars(self).setdefault(name, _ArrayState(np.array([])))


@export("tf.contrib.checkpoint.UniqueNameTracker")
class UniqueNameTracker(Trackable):
    """Objects that checkpoints have under names which are made unique (``tf.contrib.checkpoint.UniqueNameTracker``)."""

    def track(self, trackable: Any, base_name: str) -> Any:
        """Adds an object under ``base_name``, or that with ``_1``, ``_2``, …; returns the object.

        Raises:
          ValueError: when checkpoints cannot have it.
        """
        if not is_trackable(trackable, inside=True):
            raise ValueError(
                f"Expected a trackable value, got {trackable} which does not inherit from tf.track.Trackable."
            )
        name, count = base_name, 0
        while name in self._unconditional_dependency_names:
            count += 1
            name = f"{base_name}_{count}"
        return self._track_trackable(trackable, name)


@export("tf.contrib.checkpoint.object_metadata")
def object_metadata(save_path: PathLike) -> Any:
    """The object graph of a checkpoint, a message (``tf.contrib.checkpoint.object_metadata``).

    Args:
      save_path: what `tf.train.Checkpoint.save` returned.

    Raises:
      NotFoundError: when there is no such checkpoint.
      ValueError: when it has no object graph, since a `tf.train.Saver` wrote it.
    """
    found = object_graph_of(CheckpointReader(os.fsdecode(save_path)))
    if found is None:
        raise ValueError(
            f'The specified checkpoint "{save_path!r}" does not appear to be object-based (it was not written by '
            "tf.train.Checkpoint), so it has no metadata of objects."
        )
    return found


@export("tf.contrib.checkpoint.dot_graph_from_checkpoint")
def dot_graph_from_checkpoint(save_path: PathLike) -> str:
    """The object graph of a checkpoint as a text of Graphviz (``tf.contrib.checkpoint.dot_graph_from_checkpoint``).

    Args:
      save_path: what `tf.train.Checkpoint.save` returned.

    Raises:
      NotFoundError, ValueError: as `object_metadata`.
    """
    graph, reader = object_metadata(save_path), CheckpointReader(os.fsdecode(save_path))
    slots = {slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables}
    lines = []
    for number, node in enumerate(graph.nodes):
        lines.append(f'N_{number} [shape=point label=""{_look(node, number in slots, reader)}]')
        lines += [f'N_{number} -> N_{child.node_id} [label="{child.local_name}"]' for child in node.children]
        for slot in node.slot_variables:
            lines.append(f'N_{number} -> N_{slot.slot_variable_node_id} [label="{slot.slot_name}" style=dotted]')
            lines.append(f"N_{slot.original_variable_node_id} -> N_{slot.slot_variable_node_id} [style=dotted]")
    return "\n".join(["digraph {", *lines, "}"]) + "\n"


def _look(node: Any, is_slot: bool, reader: CheckpointReader) -> str:
    """How a node is drawn: variables, slots and what has slots in colours, with what they are."""
    if node.slot_variables:
        return ' width=.25 color=red,tooltip="Optimizer"'
    if not any(attribute.name == "VARIABLE_VALUE" for attribute in node.attributes):
        return " width=.25"
    attribute = node.attributes[0]
    sizes = reader.get_variable_to_shape_map()[attribute.checkpoint_key]
    kind = reader.get_variable_to_dtype_map()[attribute.checkpoint_key].name
    what, colour = ("Slot variable", "orange") if is_slot else ("Variable", "blue")
    return f' color={colour} width=.25 tooltip="{what} {attribute.full_name} shape={sizes} {kind}"'
