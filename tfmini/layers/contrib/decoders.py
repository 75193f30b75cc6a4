"""Decoders of ``tf.contrib.seq2seq``: a loop of the graph that feeds what a decoder samples to its next step."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.rnn.unrolling import _batch_major, check_cell
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill, zeros, zeros_like
from tfmini.ops.array.joining import concat
from tfmini.ops.array.masking import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import greater_equal, logical_not, logical_or
from tfmini.ops.math.elementwise import add
from tfmini.ops.math.reduce_functions import reduce_all
from tfmini.ops.variables.scope import variable_scope
from tfmini.shapes import TensorShape


@export("tf.contrib.seq2seq.Decoder")
class Decoder:
    """What `dynamic_decode` asks of a decoder (``tf.contrib.seq2seq.Decoder``)."""

    tracks_own_finished = False

    @property
    def batch_size(self) -> Any:
        """The number of sequences."""
        raise NotImplementedError

    @property
    def output_size(self) -> Any:
        """The shape of one step's output, without the batch: ints or shapes, in the structure of the outputs."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> Any:
        """The types of the outputs, in their structure."""
        raise NotImplementedError

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """(which sequences are finished, the first inputs, the first state)."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """(outputs, next state, next inputs, which sequences are finished)."""
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """(final outputs, final state) from those of the loop."""
        raise NotImplementedError


@export("tf.contrib.seq2seq.BasicDecoderOutput")
class BasicDecoderOutput(namedtuple("BasicDecoderOutput", ("rnn_output", "sample_id"))):
    """One step's, or all steps', outputs of a `BasicDecoder`."""

    __slots__ = ()


@export("tf.contrib.seq2seq.BasicDecoder")
class BasicDecoder(Decoder):
    """A cell whose outputs a helper samples (``tf.contrib.seq2seq.BasicDecoder``).

    Args:
      cell: an `RNNCell`; ``helper``: a `Helper`.
      initial_state: of the cell.
      output_layer: a layer for the cell's outputs, or None.
    """

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None) -> None:
        check_cell(cell)
        self._cell, self._helper, self._initial_state, self._output_layer = cell, helper, initial_state, output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    @property
    def output_size(self) -> BasicDecoderOutput:
        size = self._cell.output_size
        if self._output_layer is not None:
            whole = TensorShape([None]).concatenate(TensorShape([size] if isinstance(size, int) else size))
            size = TensorShape(self._output_layer.compute_output_shape(whole))[1:]
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        return BasicDecoderOutput(nest.flatten(self._initial_state)[0].dtype, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        with name_scope(name, "BasicDecoderStep", [time]):
            outputs, after = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=after)
            finished, inputs, after = self._helper.next_inputs(time=time, outputs=outputs, state=after, sample_ids=ids)
        return BasicDecoderOutput(outputs, ids), after, inputs, finished


@export("tf.contrib.seq2seq.dynamic_decode")
def dynamic_decode(
    decoder: Decoder,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """Runs a decoder until all sequences are finished (``tf.contrib.seq2seq.dynamic_decode``).

    Args:
      output_time_major: outputs as ``[steps, batch, …]`` instead of ``[batch, steps, …]``.
      impute_finished: zeros as outputs of finished sequences, whose state is kept.
      maximum_iterations: the most steps, an int or a scalar tensor; None: no limit.

    Returns:
      (outputs, the last state, the int32 lengths of the sequences).

    Raises:
      TypeError: ``decoder`` is no `Decoder`.
    """
    if not isinstance(decoder, Decoder):
        raise TypeError(f"Expected decoder to be type Decoder, but saw: {type(decoder)}")
    with variable_scope(scope, "decoder"):
        most = None if maximum_iterations is None else convert_to_tensor(maximum_iterations, dtypes.int32)
        finished, inputs, state = decoder.initialize()
        if most is not None:
            finished = logical_or(finished, greater_equal(0, most))
        loop = _Loop(decoder, most, impute_finished)
        arrays = nest.map_structure(_array, decoder.output_size, decoder.output_dtype)
        lengths = zeros_like(finished, dtype=dtypes.int32)
        found = while_loop(
            lambda time, arrays, state, inputs, finished, lengths: logical_not(reduce_all(finished)),
            loop.body,
            (constant(0, dtypes.int32, name="time"), arrays, state, inputs, finished, lengths),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
        )
        outputs, state, lengths = nest.map_structure(lambda array: array.stack(), found[1]), found[2], found[5]
        with contextlib.suppress(NotImplementedError):
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = nest.map_structure(_batch_major, outputs)
    return outputs, state, lengths


def _sizes(size: Any) -> list[int | None]:
    return [size] if isinstance(size, int) else TensorShape(size).as_list()


def _array(size: Any, dtype: Any) -> TensorArray:
    return TensorArray(dtype, 0, dynamic_size=True, element_shape=TensorShape([None, *_sizes(size)]))


class _Loop:
    def __init__(self, decoder: Decoder, most: Any, impute: bool) -> None:
        self._decoder, self._most, self._impute = decoder, most, impute
        sizes, kinds = decoder.output_size, decoder.output_dtype
        self._zeros = nest.map_structure(self._zero, sizes, kinds) if impute else None

    def _zero(self, size: Any, dtype: Any) -> Any:
        return zeros(concat([[self._decoder.batch_size], _sizes(size)], 0), dtype)

    def body(self, time: Any, arrays: Any, state: Any, inputs: Any, finished: Any, lengths: Any) -> Any:
        """One step of the loop."""
        outputs, after, inputs, over = self._decoder.step(time, inputs, state)
        if not self._decoder.tracks_own_finished:
            over = logical_or(over, finished)
        if self._most is not None:
            over = logical_or(over, greater_equal(time + 1, self._most))
        lengths = where(finished, lengths, fill(shape_of(lengths), time + 1))
        nest.assert_same_structure(state, after)
        if self._impute:
            outputs = nest.map_structure(lambda one, zero: where(finished, zero, one), outputs, self._zeros)
            after = nest.map_structure(lambda old, new: _kept(finished, old, new), state, after)
        arrays = nest.map_structure(lambda array, one: array.write(time, one), arrays, outputs)
        return add(time, 1), arrays, after, inputs, over, lengths


def _kept(finished: Any, old: Any, new: Any) -> Any:
    """The old state of finished sequences; what is no batch has none."""
    if isinstance(old, TensorArray) or old.shape.ndims == 0:
        return new
    new.set_shape(old.shape)
    return where(finished, old, new)
