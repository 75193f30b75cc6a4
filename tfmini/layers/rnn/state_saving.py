"""``tf.nn.static_state_saving_rnn``: an unrolled cell whose state a saver keeps between steps."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.scoping import control_dependencies
from tfmini.layers.rnn.unrolling import static_rnn
from tfmini.ops.array.identity import identity


@export("tf.nn.static_state_saving_rnn")
def static_state_saving_rnn(
    cell: Any, inputs: list[Any], state_saver: Any, state_name: Any, sequence_length: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """`static_rnn` that reads its first state from a saver and saves its last (``tf.nn.static_state_saving_rnn``).

    Args:
      state_saver: an object with ``state(name)``, which returns a tensor, and ``save_state(name, value)``, an op.
      state_name: a name, or names in the structure of the cell's state.

    Raises:
      ValueError: when the structures of names and state differ.
    """
    sizes = cell.state_size
    nested = nest.is_nested(sizes)
    if nested != nest.is_nested(state_name):
        raise ValueError(
            "state_name should be the same type as cell.state_size.  "
            f"state_name: {state_name}, cell.state_size: {sizes}"
        )
    names = nest.flatten(state_name)
    if len(names) != len(nest.flatten(sizes)):
        raise ValueError(f"#elems(state_name) != #elems(state_size): {len(names)} vs. {len(nest.flatten(sizes))}")
    first = nest.pack_sequence_as(sizes, [state_saver.state(name) for name in names])
    outputs, state = static_rnn(cell, inputs, first, sequence_length=sequence_length, scope=scope)
    saved = [state_saver.save_state(name, part) for name, part in zip(names, nest.flatten(state))]
    with control_dependencies(saved):
        outputs[-1] = nest.map_structure(identity, outputs[-1])
        return outputs, nest.map_structure(identity, state)
