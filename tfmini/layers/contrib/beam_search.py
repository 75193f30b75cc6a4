"""Beam search of ``tf.contrib.seq2seq``: a decoder that keeps the best sequences so far of each entry of a batch."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.base import Layer
from tfmini.layers.contrib.attention import AttentionWrapperState
from tfmini.layers.contrib.decoders import Decoder, embedder, rnn_output_size
from tfmini.layers.rnn_cells import RNNCell
from tfmini.layers.rnn_unrolling import check_cell
from tfmini.ops.array.filling import range as number_range
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.gather import batch_gather, gather_tree
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import tile, transpose
from tfmini.ops.array.partition import one_hot, sequence_mask, where
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import size as size_of
from tfmini.ops.flow.cond import cond
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.math.comparison import equal, logical_not, logical_or
from tfmini.ops.math.elementwise import floordiv, floormod, minimum
from tfmini.ops.math.reductions import reduce_all, reduce_max, reduce_mean, reduce_sum
from tfmini.ops.math.search import top_k
from tfmini.ops.math.unary import log
from tfmini.ops.nn.cross_entropy import log_softmax
from tfmini.shapes import TensorShape


@export("tf.contrib.seq2seq.BeamSearchDecoderState")
class BeamSearchDecoderState(
    namedtuple(
        "BeamSearchDecoderState", ("cell_state", "log_probs", "finished", "lengths", "accumulated_attention_probs")
    )
):
    """The state of a beam search: each part is ``[batch, beams, …]``."""

    __slots__ = ()


@export("tf.contrib.seq2seq.BeamSearchDecoderOutput")
class BeamSearchDecoderOutput(namedtuple("BeamSearchDecoderOutput", ("scores", "predicted_ids", "parent_ids"))):
    """One step's, or all steps', outputs of a `BeamSearchDecoder`."""

    __slots__ = ()


@export("tf.contrib.seq2seq.FinalBeamSearchDecoderOutput")
class FinalBeamSearchDecoderOutput(
    namedtuple("FinalBeamSearchDecoderOutput", ("predicted_ids", "beam_search_decoder_output"))
):
    """What ``dynamic_decode`` returns: the ids ``[batch, steps, beams]``, best beam first, and the steps' outputs."""

    __slots__ = ()


@export("tf.contrib.seq2seq.BeamSearchDecoder")
class BeamSearchDecoder(Decoder):
    """Decodes the most likely sequences by beam search (``tf.contrib.seq2seq.BeamSearchDecoder``).

    Args:
      cell: an `RNNCell`. The memory of an `AttentionWrapper` is repeated by `tile_batch`.
      embedding: a function of ids, or a table of embeddings.
      start_tokens: int32 ``[batch]``; ``end_token``: int32 scalar.
      initial_state: of the cell, ``[batch * beam_width, …]``, as `tile_batch` makes it.
      beam_width: how many sequences are kept, an int.
      output_layer: a layer for the cell's outputs, or None.
      length_penalty_weight: scores are divided by ``((5 + length) / 6) ** weight``.
      coverage_penalty_weight: the weight of attention that some steps of the memory still lack.
      reorder_tensor_arrays: whether arrays of steps in the state (the history of alignments) follow the final beams.

    Raises:
      ValueError: ``start_tokens`` is no vector or ``end_token`` no scalar.
    """

    tracks_own_finished = True

    def __init__(
        self, cell: RNNCell, embedding: TensorLike | Callable[..., Any], start_tokens: TensorLike,
        end_token: TensorLike, initial_state: object, beam_width: int, output_layer: Layer | None = None,
        length_penalty_weight: TensorLike = 0.0, coverage_penalty_weight: float = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:  # fmt: skip
        check_cell(cell)
        if output_layer is not None and not callable(output_layer):
            raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}")
        self._cell, self._embedding_fn, self._output_layer = cell, embedder(embedding), output_layer
        self._length_penalty_weight, self._coverage_penalty_weight = length_penalty_weight, coverage_penalty_weight
        self._reorder_tensor_arrays, self._beam_width = reorder_tensor_arrays, beam_width
        start = convert_to_tensor(start_tokens, dtypes.int32, name="start_tokens")
        if start.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        self._end_token = convert_to_tensor(end_token, dtypes.int32, name="end_token")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = size_of(start)
        self._initial_cell_state = nest.map_structure(self._split_state, initial_state)
        self._start_inputs = self._embedding_fn(tile(expand_dims(start, 1), [1, beam_width]))

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    def _rnn_output_size(self) -> Any:
        return rnn_output_size(self._cell, self._output_layer)

    @property
    def output_size(self) -> BeamSearchDecoderOutput:
        width = TensorShape([self._beam_width])
        return BeamSearchDecoderOutput(scores=width, predicted_ids=width, parent_ids=width)

    @property
    def output_dtype(self) -> BeamSearchDecoderOutput:
        return BeamSearchDecoderOutput(nest.flatten(self._initial_cell_state)[0].dtype, dtypes.int32, dtypes.int32)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, BeamSearchDecoderState]:
        first = zeros([self._batch_size], dtypes.int32)  # of the beams, which are all the same, only one counts
        dtype = nest.flatten(self._initial_cell_state)[0].dtype
        finished = one_hot(first, self._beam_width, on_value=False, off_value=True, dtype=dtypes.bool)
        attention = _attention(self._initial_cell_state, self._coverage_penalty_weight)
        state = BeamSearchDecoderState(
            self._initial_cell_state,
            one_hot(first, self._beam_width, on_value=0.0, off_value=-float("inf"), dtype=dtype),
            finished,
            zeros([self._batch_size, self._beam_width], dtypes.int64),
            () if attention is None else attention,
        )
        return finished, self._start_inputs, state

    def finalize(
        self, outputs: BeamSearchDecoderOutput, final_state: BeamSearchDecoderState, sequence_lengths: Tensor
    ) -> tuple[FinalBeamSearchDecoderOutput, BeamSearchDecoderState]:
        """(the ids of the final beams, the state with its arrays in their order)."""
        longest = cast(reduce_max(final_state.lengths, axis=1), dtypes.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorder_tensor_arrays:
            cell_state = nest.map_structure(
                lambda part: self._sorted(part, outputs.parent_ids, final_state.lengths), final_state.cell_state
            )
            final_state = final_state._replace(cell_state=cell_state)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def step(
        self, time: Tensor, inputs: Any, state: BeamSearchDecoderState, name: str | None = None
    ) -> tuple[BeamSearchDecoderOutput, BeamSearchDecoderState, Any, Any]:
        with name_scope(name, "BeamSearchDecoderStep", (time, inputs, state)):
            outputs, cell_state = self._cell(
                nest.map_structure(self._merged, inputs), nest.map_structure(self._merge_state, state.cell_state)
            )
            outputs = nest.map_structure(self._split, outputs)
            cell_state = nest.map_structure(self._split_state, cell_state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            found, after = self._search(outputs, cell_state, state)
            next_inputs = cond(
                reduce_all(after.finished), lambda: self._start_inputs, lambda: self._embedding_fn(found.predicted_ids)
            )
        return found, after, next_inputs, after.finished

    # ---- shapes: the cell sees [batch * beams, …], the search [batch, beams, …] ---------------------

    def _merged(self, one: Tensor) -> Tensor:
        sizes = one.shape.as_list()
        whole = reshape(one, concat([[self._batch_size * self._beam_width], shape_of(one)[2:]], 0))
        whole.set_shape([None if sizes[0] is None else sizes[0] * self._beam_width, *sizes[2:]])
        return whole

    def _split(self, one: Tensor) -> Tensor:
        sizes = one.shape.as_list()
        if sizes[0] is not None and sizes[0] % self._beam_width:
            raise ValueError(
                f"The tensor {one.name} of a beam search is [batch * beams, …], but {sizes[0]} is no multiple of the"
                f" {self._beam_width} beams. Repeat the initial state, and the memory that a cell attends to, by"
                " tile_batch."
            )
        whole = reshape(one, concat([[self._batch_size, self._beam_width], shape_of(one)[1:]], 0))
        whole.set_shape([None if sizes[0] is None else sizes[0] // self._beam_width, self._beam_width, *sizes[1:]])
        return whole

    def _split_state(self, part: Any) -> Any:
        if isinstance(part, TensorArray):
            return part
        part = convert_to_tensor(part)
        if part.shape.ndims is None:
            raise ValueError(f"Expected tensor ({part}) to have known rank, but ndims == None.")
        return self._split(part) if part.shape.ndims else part

    def _merge_state(self, part: Any) -> Any:
        return part if isinstance(part, TensorArray) or not part.shape.ndims else self._merged(part)

    # ---- the search -----------------------------------------------------------------------------

    def _search(
        self, logits: Tensor, cell_state: Any, state: BeamSearchDecoderState
    ) -> tuple[BeamSearchDecoderOutput, BeamSearchDecoderState]:
        """The outputs of a step and the next state, from the logits ``[batch, beams, classes]``."""
        known = logits.shape.as_list()[-1]
        classes: Any = shape_of(logits)[-1] if known is None else known
        totals = expand_dims(state.log_probs, 2) + self._log_probs(logits, state.finished, classes)
        growing = cast(logical_not(state.finished), dtypes.int64)
        ends = one_hot(self._end_token, classes, on_value=0, off_value=1, dtype=dtypes.int64)
        lengths = expand_dims(state.lengths, 2) + expand_dims(growing, 2) * ends
        attention = self._covered(cell_state, state)
        scores = self._scores(totals, lengths, attention, state.finished)
        best, places = top_k(reshape(scores, [self._batch_size, -1]), k=self._beam_width)
        for one in (best, places):
            one.set_shape([logits.shape.as_list()[0], self._beam_width])
        ids, parents = floormod(places, classes), floordiv(places, classes)
        finished = batch_gather(state.finished, parents)
        after = BeamSearchDecoderState(
            nest.map_structure(lambda part: self._of_parents(part, parents), cell_state),
            batch_gather(reshape(totals, [self._batch_size, -1]), places),
            logical_or(finished, equal(ids, self._end_token)),
            batch_gather(state.lengths, parents) + cast(logical_not(finished), dtypes.int64),
            () if attention is None else batch_gather(attention, parents),
        )
        return BeamSearchDecoderOutput(best, ids, parents), after

    def _log_probs(self, logits: Tensor, finished: Tensor, classes: Any) -> Tensor:
        """The logarithms of the probabilities; a finished sequence can only end again."""
        found = log_softmax(logits)
        lowest = float(found.dtype.min)
        ending = one_hot(self._end_token, classes, on_value=0.0, off_value=lowest, dtype=found.dtype)
        over = tile(expand_dims(finished, 2), [1, 1, classes])
        return where(over, tile(reshape(ending, [1, 1, -1]), [*self._sizes, 1]), found)

    @property
    def _sizes(self) -> list[Any]:
        return [self._batch_size, self._beam_width]

    def _covered(self, cell_state: Any, state: BeamSearchDecoderState) -> Any:
        """All attention so far, or None."""
        attention = _attention(cell_state, self._coverage_penalty_weight)
        if attention is None:
            return None
        growing = cast(logical_not(state.finished), attention.dtype)
        return state.accumulated_attention_probs + attention * expand_dims(growing, 2)

    def _scores(self, totals: Tensor, lengths: Tensor, attention: Tensor | None, finished: Tensor) -> Tensor:
        """The scores ``[batch, beams, classes]``; what attention lacks counts when a sequence has ended."""
        weight = convert_to_tensor(self._length_penalty_weight, totals.dtype, name="length_penalty_weight")
        scores = totals / ((5.0 + cast(lengths, totals.dtype)) / 6.0) ** weight
        if attention is None:
            return scores
        lacking = cast(reduce_sum(log(minimum(attention, 1.0)), 2), totals.dtype)
        lacking = where(finished, lacking, zeros_like(lacking))
        return scores + self._coverage_penalty_weight * expand_dims(lacking, 2)

    def _of_parents(self, part: Any, parents: Tensor) -> Any:
        """The beams that go on; scalars and arrays of steps stay as they are."""
        if isinstance(part, TensorArray) or part.shape.ndims < 2:
            return part
        chosen = batch_gather(part, parents)
        chosen.set_shape(part.shape)
        return chosen

    def _sorted(self, part: Any, parents: Tensor, lengths: Tensor) -> Any:
        """An array of steps as a tensor whose beams are the final ones."""
        if not isinstance(part, TensorArray):
            return part
        steps = part.stack()
        sizes, batch = steps.shape.as_list()[1:3], parents.shape.as_list()[1]
        if None not in (batch, *sizes) and sizes != [batch, self._beam_width]:
            return part  # TensorFlow reorders arrays whose sizes are not known, and programs expect either
        count = shape_of(parents)[0]
        own = tile(reshape(number_range(self._beam_width), [1, 1, -1]), [count, self._batch_size, 1])
        longest = cast(reduce_max(lengths, axis=1), dtypes.int32)
        beams = gather_tree(own, parents, longest, self._beam_width + 1)
        beams = where(transpose(sequence_mask(lengths, maxlen=count), [2, 0, 1]), beams, own)
        split = reshape(steps, concat([[count, self._batch_size, self._beam_width], [-1]], 0))
        found = reshape(batch_gather(split, beams), shape_of(steps))
        found.set_shape(steps.shape)
        return found


def _attention(cell_state: Any, coverage_weight: float) -> Any:
    """The mean attention ``[batch, beams, steps]`` of the cells that attend; None if no penalty asks for it.

    Raises:
      ValueError: no cell attends.
    """
    if coverage_weight == 0.0:
        return None
    several = cell_state if type(cell_state) is tuple else (cell_state,)
    states = [state for state in several if isinstance(state, AttentionWrapperState)]
    if not states:
        raise ValueError("coverage_penalty_weight must be 0.0 if no cell is attentional.")
    means = [_mean(nest.flatten(state.alignments)) for state in states]
    return _mean(means)


def _mean(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else reduce_mean(stack(tensors, -1), -1)
