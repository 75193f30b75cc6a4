"""Unrolling of cells over sequences: ``tf.nn.dynamic_rnn``, ``tf.nn.static_rnn`` and their bidirectional forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, count_ops, counted_as
from tfmini.layers.rnn_cells import RNNCell, zero_rows
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat, stack, unstack
from tfmini.ops.array.layout import reverse, reverse_sequence, transpose
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import cond
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import greater, greater_equal, less, logical_not, logical_or
from tfmini.ops.math.elementwise import add
from tfmini.ops.math.reductions import reduce_all, reduce_max, reduce_min
from tfmini.ops.variables.scope import VariableScope, cache_outside_loops, variable_scope
from tfmini.shapes import TensorShape


def check_cell(cell: RNNCell, name: str = "cell") -> None:
    """Raises TypeError unless ``cell`` has the interface of an `RNNCell`."""
    first = "get_initial_state" if hasattr(cell, "get_initial_state") else "zero_state"  # the former: Keras
    missing = [a for a in ("output_size", "state_size", first) if not hasattr(cell, a)]
    if missing or not callable(cell):
        raise TypeError(f"The argument {name!r} ({cell}) is not an RNNCell: {missing or 'is not callable'}.")


def _stepped(cell: RNNCell, inputs: Any, state: Any) -> tuple[Any, Any]:
    """The output of a cell and its next state; cells of Keras take a list of states, also of one."""
    if hasattr(cell, "zero_state") or nest.is_nested(state):
        output, after = cell(inputs, state)
        return output, after
    output, after = cell(inputs, [state])
    return output, after[0]


def _held(finished: Tensor, old: Any, new: Any) -> Any:
    """Selects per row ``old`` if the sequence is finished, else ``new``."""

    def chosen(before: Any, after: Any) -> Any:
        if isinstance(after, TensorArray) or after.shape.ndims == 0:
            return after
        result = where(finished, before, after)
        result.set_shape(after.shape)
        return result

    return nest.map_structure(chosen, old, new)


def _lengths(sequence_length: TensorLike) -> Any:
    """The lengths as an int32 vector; raises ValueError for another rank."""
    lengths = cast(sequence_length, dtypes.int32, name="sequence_length")
    if lengths.shape.ndims not in (None, 1):
        raise ValueError(f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}")
    return lengths


def _batch_major(value: Any) -> Any:
    """Swaps the first two axes."""
    rank = value.shape.ndims
    with counted_as(8):
        return transpose(value, [1, 0, *range(2, rank)])


@export("tf.nn.dynamic_rnn")
def dynamic_rnn(
    cell: RNNCell,
    inputs: TensorLike | Mapping[str, Any],
    sequence_length: TensorLike | None = None,
    initial_state: object = None,
    dtype: DTypeLike | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | VariableScope | None = None,
) -> tuple[Any, Any]:
    """Runs a cell over all steps in a loop of the graph (``tf.nn.dynamic_rnn``).

    Args:
      cell: an `RNNCell`.
      inputs: ``[batch, steps, …]``, or ``[steps, batch, …]`` when ``time_major``.
      sequence_length: ``[batch]``; beyond it outputs are zero and the state does not change.
      initial_state: default: zeros of type ``dtype``.
      scope: scope of the variables, default "rnn".

    Returns:
      (outputs in the layout of the inputs, the last state).

    Raises:
      ValueError: when both initial state and dtype are missing, or the rank of the inputs is unknown.
    """
    check_cell(cell)
    with variable_scope(scope or "rnn") as opened:
        cache_outside_loops(opened)
        steps_first = [convert_to_tensor(t) for t in nest.flatten(inputs)]
        if not time_major:
            steps_first = [_batch_major(t) for t in steps_first]
        if sequence_length is not None:
            sequence_length = _lengths(sequence_length)
            count_ops(12)  # a name for them, and a check of their number in the step
        state = _first_state(cell, _batch(steps_first[0], 1), initial_state, dtype)
        outputs, state = _loop(
            cell, nest.pack_sequence_as(inputs, steps_first), state, sequence_length, parallel_iterations, swap_memory,
            dtype,
        )  # fmt: skip
        if not time_major:
            outputs = nest.map_structure(_batch_major, outputs)
        return outputs, state


def _batch(value: Any, axis: int) -> Any:
    """The size of the batch: a number if it is known."""
    known = value.shape.as_list()[axis] if value.shape.ndims and value.shape.ndims > axis else None
    return shape_of(value)[axis] if known is None else known


def _first_state(cell: RNNCell, batch: TensorLike, initial_state: object, dtype: DTypeLike | None) -> Any:
    if initial_state is not None:
        return nest.map_structure(convert_to_tensor, initial_state)
    if not dtype:
        raise ValueError("If there is no initial_state, you must give a dtype.")
    if not hasattr(cell, "zero_state"):
        return cell.get_initial_state(inputs=None, batch_size=batch, dtype=dtype)
    return cell.zero_state(batch, dtype)


def _output_type(dtype: DTypeLike | None, state: object) -> Any:
    """The type of the outputs: ``dtype``, or the type of all states.

    Raises:
      ValueError: when ``dtype`` is None and the states have several types.
    """
    if dtype is not None:
        return dtype
    kinds = {part.dtype for part in nest.flatten(state)}
    if not kinds:
        raise ValueError("Unable to infer dtype from empty state.")
    if len(kinds) > 1:
        raise ValueError(
            "State has tensors of different inferred_dtypes. Unable to infer a single representative dtype."
        )
    return kinds.pop()


def _loop(
    cell: RNNCell, inputs: object, state: object, lengths: TensorLike | None, parallel_iterations: int | None,
    swap_memory: bool, dtype: DTypeLike | None,
) -> tuple[Any, Any]:  # fmt: skip
    flat = nest.flatten(inputs)
    steps = shape_of(flat[0])[0]
    sources = [TensorArray(t.dtype, steps, name=f"dynamic_rnn/input_{i}").unstack(t) for i, t in enumerate(flat)]
    sizes = nest.flatten(cell.output_size)
    kinds = _output_type(dtype, state)
    results = [TensorArray(kinds, steps, name=f"dynamic_rnn/output_{i}") for i in range(len(sizes))]

    def body(time: Tensor, arrays: Sequence[Any], before: Any) -> Any:
        values = [source.read(time) for source in sources]
        for value, whole in zip(values, flat):
            value.set_shape(whole.shape[1:])
        over = None if lengths is None else greater_equal(time, lengths)
        output, after = _stepped(cell, nest.pack_sequence_as(inputs, values), before)
        if over is not None:
            output = _held(over, nest.map_structure(zeros_like, output), output)
            after = _held(over, before, after)
        written = [array.write(time, one) for array, one in zip(arrays, nest.flatten(output))]
        return add(time, 1), written, after

    known = [size is not None for size in flat[0].shape.as_list()[:2]]
    # Zeros for each output, bounds of the lengths and of the loop, and the loop's own counter.
    count_ops((6 * len(sizes) if known[1] else 7 * len(sizes) + 5) + 13 + 4 * (lengths is not None))
    _, results, state = while_loop(
        lambda time, *_: less(time, steps),
        body,
        (constant(0, dtype=dtypes.int32, name="time"), results, state),
        parallel_iterations=parallel_iterations or 32,
        swap_memory=swap_memory,
    )
    count_ops(2 + len(sizes) * (1 + all(known)))  # the counter, and the shapes of the outputs
    outputs = [array.stack() for array in results]
    for output, size in zip(outputs, sizes):
        width = [size] if isinstance(size, (int, np.integer)) else TensorShape(size).as_list()
        output.set_shape(TensorShape([*flat[0].shape.as_list()[:2], *width]))
    return nest.pack_sequence_as(cell.output_size, outputs), state


@export("tf.nn.bidirectional_dynamic_rnn")
def bidirectional_dynamic_rnn(
    cell_fw: RNNCell,
    cell_bw: RNNCell,
    inputs: TensorLike | Mapping[str, Any],
    sequence_length: TensorLike | None = None,
    initial_state_fw: object = None,
    initial_state_bw: object = None,
    dtype: DTypeLike | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | VariableScope | None = None,
) -> tuple[Any, Any]:
    """Runs one cell forward and one backward (``tf.nn.bidirectional_dynamic_rnn``): (output pair, state pair)."""
    check_cell(cell_fw, "cell_fw")
    check_cell(cell_bw, "cell_bw")
    steps, batch = (0, 1) if time_major else (1, 0)

    def turned(value: TensorLike) -> Any:
        if sequence_length is None:
            return reverse(value, [steps])
        return reverse_sequence(value, sequence_length, seq_axis=steps, batch_axis=batch)

    common = (parallel_iterations, swap_memory, time_major)
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as fw:
            forward = dynamic_rnn(cell_fw, inputs, sequence_length, initial_state_fw, dtype, *common, scope=fw)
        with variable_scope("bw") as bw:
            backward = dynamic_rnn(
                cell_bw, nest.map_structure(turned, inputs), sequence_length, initial_state_bw, dtype, *common,
                scope=bw,
            )  # fmt: skip
    return (forward[0], nest.map_structure(turned, backward[0])), (forward[1], backward[1])


@export("tf.nn.static_rnn", "tf.contrib.rnn.static_rnn")
def static_rnn(
    cell: RNNCell,
    inputs: list[Any],
    initial_state: object = None,
    dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Any], Any]:
    """Runs a cell over a list of steps; the graph gets the cell's ops once per step (``tf.nn.static_rnn``).

    Returns:
      (the list of outputs, the last state); see `dynamic_rnn` for the arguments.

    Raises:
      TypeError: when ``inputs`` is no list.
      ValueError: when ``inputs`` is empty, or both initial state and dtype are missing.
    """
    check_cell(cell)
    if not isinstance(inputs, (list, tuple)):
        raise TypeError("inputs must be a sequence")
    if not inputs:
        raise ValueError("inputs must not be empty")
    outputs = []
    with variable_scope(scope or "rnn") as opened:
        cache_outside_loops(opened)
        batch = _batch(convert_to_tensor(nest.flatten(inputs[0])[0]), 0)
        state = _first_state(cell, batch, initial_state, dtype)
        run = cell if sequence_length is None else _Ending(cell, batch, _output_type(dtype, state), sequence_length)
        for time, step in enumerate(inputs):
            if time > 0:
                opened.reuse_variables()
            output, state = run(step, state)
            outputs.append(output)
    return outputs, state


class _Ending:
    """The steps of a cell on sequences that end: those behind all ends do not run."""

    def __init__(self, cell: RNNCell, batch: TensorLike, dtype: DTypeLike, lengths: TensorLike) -> None:
        self._cell, self._time = cell, -1
        self._lengths = _lengths(lengths)
        sizes = nest.flatten(cell.output_size)
        with counted_as(8 * len(sizes)):
            self._zeros = nest.pack_sequence_as(cell.output_size, [zero_rows(batch, size, dtype) for size in sizes])
        self._shortest, self._longest = reduce_min(self._lengths), reduce_max(self._lengths)

    def __call__(self, step: Any, state: Any) -> tuple[Any, Any]:
        self._time += 1
        over, kept = greater_equal(self._time, self._lengths), (self._zeros, state)

        def run() -> Any:
            new = self._cell(step, state)
            ended = greater(self._shortest, self._time)
            return cond(ended, lambda: nest.flatten(new), lambda: nest.flatten(_held(over, kept, new)))

        done = cond(greater_equal(self._time, self._longest), lambda: nest.flatten(kept), run)
        output, last = nest.pack_sequence_as(kept, done)
        return output, last


@export("tf.nn.static_bidirectional_rnn", "tf.contrib.rnn.static_bidirectional_rnn")
def static_bidirectional_rnn(
    cell_fw: RNNCell,
    cell_bw: RNNCell,
    inputs: list[Any],
    initial_state_fw: object = None,
    initial_state_bw: object = None,
    dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Any], Any, Any]:
    """Runs one cell forward and one backward over a list (``tf.nn.static_bidirectional_rnn``).

    Returns:
      (list of the concatenated outputs of each step, the forward state, the backward state).
    """

    def turned(steps: list[Any]) -> list[Any]:
        if sequence_length is None:
            return list(reversed(steps))
        whole = reverse_sequence(stack(steps), sequence_length, seq_axis=0, batch_axis=1)
        return unstack(whole, num=len(steps))

    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as fw:
            forward, state_fw = static_rnn(cell_fw, inputs, initial_state_fw, dtype, sequence_length, scope=fw)
        with variable_scope("bw") as bw:
            backward, state_bw = static_rnn(
                cell_bw, turned(list(inputs)), initial_state_bw, dtype, sequence_length, scope=bw
            )
    outputs = [concat([f, b], 1) for f, b in zip(forward, turned(backward))]
    return outputs, state_fw, state_bw


# ---- ``tf.nn.raw_rnn``: a cell in a loop; a user function computes its inputs and outputs --------------------------


@export("tf.nn.raw_rnn")
def raw_rnn(
    cell: RNNCell,
    loop_fn: Callable[..., Any],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: str | VariableScope | None = None,
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
    with variable_scope(scope or "rnn") as opened:
        cache_outside_loops(opened)
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


def _emission(cell: RNNCell, inputs: TensorLike, state: object, emitted: object) -> tuple[Any, Any]:
    """The arrays for the outputs and the zeros that a finished row emits, in the structure of the output."""
    first = nest.flatten(inputs)[0]
    known = TensorShape(None)
    for one in nest.flatten(inputs):
        known = known.merge_with(one.shape[:1])
    batch = known.as_list()[0] if known.ndims else None
    rows = shape_of(first)[0] if batch is None else batch
    if emitted is None:
        emitted, kinds = cell.output_size, None
        sizes = [TensorShape([s] if isinstance(s, (int, np.integer)) else s) for s in nest.flatten(emitted)]
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


def _body(cell: RNNCell, loop_fn: Callable[..., Any], blanks: object) -> Callable[..., Any]:
    def body(
        time: Tensor, done: Tensor, current: Tensor, arrays: Sequence[Any], state: object, loop_state: object
    ) -> Any:
        def kept(old: Tensor, new: Tensor) -> Any:
            if isinstance(old, TensorArray) or old.shape.ndims == 0:
                return new
            return where(done, old, new)

        output, after = cell(current, state)
        following_time = time + 1
        nest.assert_same_structure(state, after)
        nest.assert_same_structure(cell.output_size, output)
        finished, following, after, emitted, next_loop_state = loop_fn(following_time, output, after, loop_state)
        nest.assert_same_structure(state, after)
        nest.assert_same_structure(current, following)
        nest.assert_same_structure(arrays, emitted)
        emitted = nest.map_structure(kept, blanks, emitted)
        after = nest.map_structure(kept, state, after)
        arrays = nest.map_structure(lambda array, one: array.write(time, one), arrays, emitted)
        loop_state = loop_state if next_loop_state is None else next_loop_state
        return following_time, logical_or(done, finished), following, arrays, after, loop_state

    return body


# ---- ``tf.nn.static_state_saving_rnn``: an unrolled cell whose state a saver keeps between steps -------------------


@export("tf.contrib.rnn.static_state_saving_rnn", "tf.nn.static_state_saving_rnn")
def static_state_saving_rnn(
    cell: RNNCell,
    inputs: list[Any],
    state_saver: Any,
    state_name: str | Sequence[str],
    sequence_length: TensorLike | None = None,
    scope: str | VariableScope | None = None,
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
