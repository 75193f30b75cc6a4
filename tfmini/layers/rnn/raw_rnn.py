"""``tf.nn.raw_rnn``: a cell in a loop; a user function computes its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.layers.rnn.unrolling import check_cell
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.joining import concat
from tfmini.ops.array.masking import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import logical_not, logical_or
from tfmini.ops.math.reduce_functions import reduce_all
from tfmini.ops.variables.scope import variable_scope
from tfmini.shapes import TensorShape


@export("tf.nn.raw_rnn")
def raw_rnn(
    cell: Any,
    loop_fn: Callable[..., Any],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """Runs a cell until ``loop_fn`` says that all sequences are finished (``tf.nn.raw_rnn``).

    Args:
      cell: an `RNNCell`.
      loop_fn: ``(time, cell_output, cell_state, loop_state) -> (finished, next_input, next_state,
        emit_output, next_loop_state)``. At time 0 the last three arguments are None; the function then
        returns the initial values, and its ``emit_output`` gives the structure of the emitted outputs
        (None: that of the cell's output). ``finished`` is a bool vector ``[batch]``.

    Returns:
      (nested structure of `TensorArray`s with the emitted outputs; the last state; the last loop state).

    Raises:
      TypeError: when ``cell`` is no `RNNCell` or ``loop_fn`` is not callable.
    """
    check_cell(cell)
    if not callable(loop_fn):
        raise TypeError("loop_fn must be a callable")
    with variable_scope(scope or "rnn"):
        time = constant(0, dtype=dtypes.int32)
        finished, inputs, state, emitted, loop_state = loop_fn(time, None, None, None)
        nest.assert_same_structure(state, cell.state_size)
        state = nest.map_structure(convert_to_tensor, state)
        arrays, blanks = _emission(cell, inputs, state, emitted)
        start = constant(0, dtype=dtypes.int32) if loop_state is None else loop_state
        *_, arrays, state, last = while_loop(
            lambda _, done, *__: logical_not(reduce_all(done)),
            _body(cell, loop_fn, blanks),
            [time, finished, inputs, arrays, state, start],
            parallel_iterations=parallel_iterations or 32,
            swap_memory=swap_memory,
        )
        return arrays, state, None if loop_state is None else last


def _emission(cell: Any, inputs: Any, state: Any, emitted: Any) -> tuple[Any, Any]:
    """The arrays for the outputs and the zeros that a finished row emits, in the structure of the output."""
    first = nest.flatten(inputs)[0]
    known = TensorShape(None)
    for one in nest.flatten(inputs):
        known = known.merge_with(one.shape[:1])
    batch = known.as_list()[0] if known.ndims else None
    rows = shape_of(first)[0] if batch is None else batch
    if emitted is None:
        emitted, kinds = cell.output_size, None
        sizes = [TensorShape([s] if isinstance(s, int) else s) for s in nest.flatten(emitted)]
    else:
        kinds = [one.dtype for one in nest.flatten(emitted)]
        sizes = [one if one.shape.ndims is None or None in one.shape.as_list() else one.shape
                 for one in nest.flatten(emitted)]  # fmt: skip
    kinds = kinds or [nest.flatten(state)[0].dtype] * len(sizes)
    arrays, blanks = [], []
    for i, (kind, size) in enumerate(zip(kinds, sizes)):
        shape = size if isinstance(size, TensorShape) else size.shape
        arrays.append(
            TensorArray(kind, 0, dynamic_size=True, element_shape=TensorShape([batch]).concatenate(shape),
                        name=f"rnn_output_{i}")
        )  # fmt: skip
        tail = constant(shape.as_list(), dtypes.int32) if isinstance(size, TensorShape) else shape_of(size)
        blanks.append(zeros(concat([[rows], tail], 0), kind))
    return nest.pack_sequence_as(emitted, arrays), nest.pack_sequence_as(emitted, blanks)


def _body(cell: Any, loop_fn: Callable[..., Any], blanks: Any) -> Callable[..., Any]:
    def body(time: Any, done: Any, current: Any, arrays: Any, state: Any, loop_state: Any) -> Any:
        def kept(old: Any, new: Any) -> Any:
            if isinstance(old, TensorArray) or old.shape.ndims == 0:
                return new
            return where(done, old, new)

        output, after = cell(current, state)
        nest.assert_same_structure(state, after)
        nest.assert_same_structure(cell.output_size, output)
        finished, following, after, emitted, next_loop_state = loop_fn(time + 1, output, after, loop_state)
        nest.assert_same_structure(state, after)
        nest.assert_same_structure(current, following)
        nest.assert_same_structure(arrays, emitted)
        emitted = nest.map_structure(kept, blanks, emitted)
        after = nest.map_structure(kept, state, after)
        arrays = nest.map_structure(lambda array, one: array.write(time, one), arrays, emitted)
        loop_state = loop_state if next_loop_state is None else next_loop_state
        return time + 1, logical_or(done, finished), following, arrays, after, loop_state

    return body
