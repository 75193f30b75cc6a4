"""Decoders of ``tf.contrib.seq2seq``: a loop of the graph that feeds what a decoder samples to its next step."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.base import Layer
from tfmini.layers.rnn_cells import RNNCell
from tfmini.layers.rnn_unrolling import _batch_major, check_cell
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill, zeros, zeros_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import size as size_of
from tfmini.ops.flow.cond import cond
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import equal, greater_equal, less, logical_not, logical_or
from tfmini.ops.math.elementwise import add
from tfmini.ops.math.reductions import argmax, reduce_all
from tfmini.ops.nn.embedding import embedding_lookup
from tfmini.ops.random_functions import multinomial, random_uniform
from tfmini.ops.variables.scope import VariableScope, cache_outside_loops, variable_scope
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

    def step(self, time: Tensor, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """(outputs, next state, next inputs, which sequences are finished)."""
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Tensor) -> tuple[Any, Any]:
        """(final outputs, final state) from those of the loop."""
        raise NotImplementedError


def rnn_output_size(cell: RNNCell, layer: Layer | None) -> Any:
    """The size of a cell's outputs behind a layer, if there is one."""
    size = cell.output_size
    if layer is None:
        return size
    whole = TensorShape([None]).concatenate(TensorShape([size] if isinstance(size, (int, np.integer)) else size))
    return TensorShape(layer.compute_output_shape(whole))[1:]


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

    def __init__(self, cell: RNNCell, helper: Helper, initial_state: object, output_layer: Layer | None = None) -> None:
        check_cell(cell)
        if not isinstance(helper, Helper):
            raise TypeError(f"helper must be a Helper, received: {type(helper)}")
        self._cell, self._helper, self._initial_state, self._output_layer = cell, helper, initial_state, output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    def _rnn_output_size(self) -> Any:
        return rnn_output_size(self._cell, self._output_layer)

    @property
    def output_size(self) -> BasicDecoderOutput:
        return BasicDecoderOutput(self._rnn_output_size(), self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        return BasicDecoderOutput(nest.flatten(self._initial_state)[0].dtype, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Tensor, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
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
    maximum_iterations: TensorLike | None = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: str | VariableScope | None = None,
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
    with variable_scope(scope, "decoder") as opened:
        cache_outside_loops(opened)
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


def _sizes(size: ShapeLike) -> list[Any]:
    return [size] if isinstance(size, (int, np.integer)) else TensorShape(size).as_list()


def _array(size: ShapeLike, dtype: DTypeLike) -> TensorArray:
    return TensorArray(dtype, 0, dynamic_size=True, element_shape=TensorShape([None, *_sizes(size)]))


class _Loop:
    def __init__(self, decoder: Decoder, most: TensorLike | None, impute: bool) -> None:
        self._decoder, self._most, self._impute = decoder, most, impute
        sizes, kinds = decoder.output_size, decoder.output_dtype
        self._zeros = nest.map_structure(self._zero, sizes, kinds) if impute else None

    def _zero(self, size: ShapeLike, dtype: DTypeLike) -> Any:
        return zeros(concat([[self._decoder.batch_size], np.array(_sizes(size), np.int32)], 0), dtype)

    def body(
        self, time: Tensor, arrays: Sequence[Any], state: object, inputs: TensorLike, finished: Tensor, lengths: Tensor
    ) -> Any:
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


def _kept(finished: Tensor, old: Tensor, new: Tensor) -> Any:
    """The old state of finished sequences; what is no batch has none."""
    if isinstance(old, TensorArray) or old.shape.ndims == 0:
        return new
    new.set_shape(old.shape)
    return where(finished, old, new)


# ---- Helpers of ``tf.contrib.seq2seq``: they sample a decoder's outputs and choose its next inputs -----------------


@export("tf.contrib.seq2seq.Helper")
class Helper:
    """What a `BasicDecoder` asks of a helper (``tf.contrib.seq2seq.Helper``)."""

    sample_ids_shape: Any = TensorShape([])
    sample_ids_dtype: Any = dtypes.int32

    @property
    def batch_size(self) -> Any:
        """The number of sequences, a scalar tensor."""
        raise NotImplementedError

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """(which sequences are finished, the first inputs)."""
        raise NotImplementedError

    def sample(self, time: Tensor, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Samples of the outputs of a step."""
        raise NotImplementedError

    def next_inputs(
        self, time: Tensor, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """(which sequences are finished, the next inputs, the next state)."""
        raise NotImplementedError


@export("tf.contrib.seq2seq.CustomHelper")
class CustomHelper(Helper):
    """A helper of three functions (``tf.contrib.seq2seq.CustomHelper``)."""

    def __init__(
        self, initialize_fn: Callable[..., Any], sample_fn: Callable[..., Any], next_inputs_fn: Callable[..., Any],
        sample_ids_shape: ShapeLike = None, sample_ids_dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._initialize_fn, self._sample_fn, self._next_inputs_fn = initialize_fn, sample_fn, next_inputs_fn
        self._batch_size: Any = None
        self.sample_ids_shape = TensorShape(sample_ids_shape or [])
        self.sample_ids_dtype = sample_ids_dtype or dtypes.int32

    @property
    def batch_size(self) -> Any:
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        finished, inputs = self._initialize_fn()
        if self._batch_size is None:
            self._batch_size = size_of(finished)
        return finished, inputs

    def sample(self, time: Tensor, outputs: Any, state: Any, name: str | None = None) -> Any:
        return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(
        self, time: Tensor, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        return self._next_inputs_fn(  # type: ignore[no-any-return]
            time=time, outputs=outputs, state=state, sample_ids=sample_ids
        )


@export("tf.contrib.seq2seq.TrainingHelper")
class TrainingHelper(Helper):
    """Reads the next inputs from a batch of sequences (``tf.contrib.seq2seq.TrainingHelper``).

    Args:
      inputs: ``[batch, steps, …]``, or ``[steps, batch, …]`` with ``time_major``; may be a structure.
      sequence_length: int32 ``[batch]``.

    Raises:
      ValueError: ``sequence_length`` is no vector.
    """

    def __init__(
        self, inputs: TensorLike, sequence_length: TensorLike, time_major: bool = False, name: str | None = None
    ) -> None:
        with name_scope(name, "TrainingHelper", [sequence_length]):
            inputs = nest.map_structure(convert_to_tensor, inputs)
            if not time_major:
                inputs = nest.map_structure(_batch_major, inputs)
            self._sources = nest.map_structure(_unstacked, inputs)
            self._sequence_length = convert_to_tensor(sequence_length, name="sequence_length")
            if self._sequence_length.shape.ndims not in (1, None):
                raise ValueError(
                    f"Expected sequence_length to be a vector, but received shape: {self._sequence_length.shape}"
                )
            self._zero_inputs = nest.map_structure(lambda whole: zeros_like(whole[0, :]), inputs)
            self._batch_size = size_of(self._sequence_length)

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    @property
    def sequence_length(self) -> Any:
        """The lengths of the sequences."""
        return self._sequence_length

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        finished = equal(0, self._sequence_length)
        return finished, self._read(reduce_all(finished), 0)

    def _read(self, all_finished: Tensor, time: Tensor | int) -> Any:
        return cond(
            all_finished,
            lambda: self._zero_inputs,
            lambda: nest.map_structure(lambda source: source.read(time), self._sources),
        )

    def sample(self, time: Tensor, outputs: Any, state: Any = None, name: str | None = None) -> Any:
        return argmax(outputs, axis=-1, output_type=dtypes.int32)

    def next_inputs(
        self, time: Tensor, outputs: Any, state: Any, sample_ids: Any = None, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        finished = greater_equal(time + 1, self._sequence_length)
        return finished, self._read(reduce_all(finished), time + 1), state


def _unstacked(whole: Tensor) -> TensorArray:
    array = TensorArray(whole.dtype, shape_of(whole)[0], element_shape=whole.shape[1:])
    return array.unstack(whole)


@export("tf.contrib.seq2seq.ScheduledEmbeddingTrainingHelper")
class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """Now and then feeds the embedding of a sample instead of the input (scheduled sampling).

    Args:
      embedding: a function of ids, or a table of embeddings.
      sampling_probability: of feeding the sample, a scalar.
      seed, scheduling_seed: of the samples, and of their choice.
    """

    def __init__(
        self, inputs: TensorLike, sequence_length: TensorLike, embedding: TensorLike | Callable[..., Any],
        sampling_probability: TensorLike, time_major: bool = False, seed: int | None = None,
        scheduling_seed: int | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(inputs, sequence_length, time_major, name)
        self._embedding_fn = embedder(embedding)
        self._sampling_probability = convert_to_tensor(sampling_probability, name="sampling_probability")
        self._seed, self._scheduling_seed = seed, scheduling_seed

    def sample(self, time: Tensor, outputs: Any, state: Any = None, name: str | None = None) -> Any:
        """The sampled ids; -1 where the input is fed."""
        ids = reshape(multinomial(outputs, 1, seed=self._seed, output_dtype=dtypes.int32), [-1])
        chosen = less(random_uniform(shape_of(ids), seed=self._scheduling_seed), self._sampling_probability)
        return where(chosen, ids, fill(shape_of(ids), -1))

    def next_inputs(
        self, time: Tensor, outputs: Any, state: Any, sample_ids: Any = None, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        finished, inputs, state = super().next_inputs(time, outputs, state, sample_ids)
        chosen = greater_equal(sample_ids, 0)
        return (
            finished,
            where(chosen, self._embedding_fn(where(chosen, sample_ids, zeros_like(sample_ids))), inputs),
            state,
        )


@export("tf.contrib.seq2seq.ScheduledOutputTrainingHelper")
class ScheduledOutputTrainingHelper(TrainingHelper):
    """Now and then feeds the output of the last step instead of the input.

    Args:
      sampling_probability: of feeding the output, a scalar.
      next_inputs_fn: from outputs to inputs; default: the outputs themselves.

    Raises:
      ValueError: ``auxiliary_inputs`` are given; tfmini does not have them.
    """

    def __init__(
        self, inputs: TensorLike, sequence_length: TensorLike, sampling_probability: TensorLike,
        time_major: bool = False, seed: int | None = None, next_inputs_fn: Callable[..., Any] | None = None,
        auxiliary_inputs: TensorLike | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        if auxiliary_inputs is not None:
            raise ValueError("auxiliary_inputs are not supported; concatenate them to the inputs in next_inputs_fn.")
        super().__init__(inputs, sequence_length, time_major, name)
        self._sampling_probability, self._seed = convert_to_tensor(sampling_probability), seed
        self._next_inputs_fn = next_inputs_fn or (lambda outputs: outputs)

    def sample(self, time: Tensor, outputs: Any, state: Any = None, name: str | None = None) -> Any:
        """1 for the sequences that are fed their output, 0 for the others."""
        return cast(less(random_uniform([self.batch_size], seed=self._seed), self._sampling_probability), dtypes.int32)

    def next_inputs(
        self, time: Tensor, outputs: Any, state: Any, sample_ids: Any = None, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        finished, inputs, state = super().next_inputs(time, outputs, state, sample_ids)
        return finished, where(cast(sample_ids, dtypes.bool), self._next_inputs_fn(outputs), inputs), state


@export("tf.contrib.seq2seq.GreedyEmbeddingHelper")
class GreedyEmbeddingHelper(Helper):
    """Feeds the embedding of the most likely class (``tf.contrib.seq2seq.GreedyEmbeddingHelper``).

    Args:
      embedding: a function of ids, or a table of embeddings.
      start_tokens: int32 ``[batch]``.
      end_token: int32 scalar; a sequence ends with it.

    Raises:
      ValueError: ``start_tokens`` is no vector or ``end_token`` no scalar.
    """

    def __init__(
        self, embedding: TensorLike | Callable[..., Any], start_tokens: TensorLike, end_token: TensorLike
    ) -> None:
        self._embedding_fn = embedder(embedding)
        self._start_tokens = convert_to_tensor(start_tokens, dtypes.int32, name="start_tokens")
        self._end_token = convert_to_tensor(end_token, dtypes.int32, name="end_token")
        if self._start_tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = size_of(self._start_tokens)

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        return fill([self._batch_size], False), self._embedding_fn(self._start_tokens)

    def sample(self, time: Tensor, outputs: Any, state: Any, name: str | None = None) -> Any:
        return argmax(outputs, axis=-1, output_type=dtypes.int32)

    def next_inputs(
        self, time: Tensor, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        finished = equal(sample_ids, self._end_token)
        inputs = cond(
            reduce_all(finished), lambda: self._embedding_fn(self._start_tokens), lambda: self._embedding_fn(sample_ids)
        )
        return finished, inputs, state


@export("tf.contrib.seq2seq.SampleEmbeddingHelper")
class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds the embedding of a class drawn by the logits (``tf.contrib.seq2seq.SampleEmbeddingHelper``)."""

    def __init__(
        self, embedding: TensorLike | Callable[..., Any], start_tokens: TensorLike, end_token: TensorLike,
        softmax_temperature: TensorLike | None = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(embedding, start_tokens, end_token)
        self._softmax_temperature, self._seed = softmax_temperature, seed

    def sample(self, time: Tensor, outputs: Any, state: Any, name: str | None = None) -> Any:
        logits = outputs if self._softmax_temperature is None else outputs / self._softmax_temperature
        return reshape(multinomial(logits, 1, seed=self._seed, output_dtype=dtypes.int32), [-1])


@export("tf.contrib.seq2seq.InferenceHelper")
class InferenceHelper(Helper):
    """A helper of functions for inference (``tf.contrib.seq2seq.InferenceHelper``).

    Args:
      sample_fn: from outputs to samples; ``end_fn``: from samples to which sequences are finished.
      sample_shape, sample_dtype: of a sample, without the batch.
      start_inputs: the first inputs.
      next_inputs_fn: from samples to inputs; default: the samples themselves.
    """

    def __init__(
        self, sample_fn: Callable[..., Any], sample_shape: ShapeLike, sample_dtype: DTypeLike, start_inputs: TensorLike,
        end_fn: Callable[..., Any], next_inputs_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self._sample_fn, self._end_fn, self._next_inputs_fn = sample_fn, end_fn, next_inputs_fn
        self.sample_ids_shape, self.sample_ids_dtype = TensorShape(sample_shape), sample_dtype
        self._start_inputs = convert_to_tensor(start_inputs, name="start_inputs")
        self._batch_size = shape_of(self._start_inputs)[0]

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        return fill([self._batch_size], False), self._start_inputs

    def sample(self, time: Tensor, outputs: Any, state: Any, name: str | None = None) -> Any:
        return self._sample_fn(outputs)

    def next_inputs(
        self, time: Tensor, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state


def embedder(embedding: TensorLike | Callable[..., Any]) -> Callable[[Any], Any]:
    return embedding if callable(embedding) else lambda ids: embedding_lookup(embedding, ids)
