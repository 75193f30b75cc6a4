"""Attention of ``tf.contrib.seq2seq``: mechanisms that score a memory, and a cell that attends to it."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.base import Layer
from tfmini.layers.core import Dense
from tfmini.layers.rnn_cells import RNNCell, zero_rows
from tfmini.ops.array.filling import fill, ones_like, zeros, zeros_like
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.layout import tile, transpose
from tfmini.ops.array.partition import one_hot, sequence_mask, where
from tfmini.ops.array.shape import expand_dims, reshape, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.functional import scan
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.math.comparison import greater
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import argmax, cumprod, cumsum, reduce_sum
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import exp, log, rsqrt, sigmoid, square, tanh
from tfmini.ops.nn.cross_entropy import softmax
from tfmini.ops.random_functions import random_normal
from tfmini.ops.variables.initializers import Constant, Zeros
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.shapes import TensorShape


@export("tf.contrib.seq2seq.AttentionMechanism")
class AttentionMechanism:
    """Base of the mechanisms (``tf.contrib.seq2seq.AttentionMechanism``)."""


class _BaseAttentionMechanism(AttentionMechanism):
    """Scores every step of a memory for a query. Libraries derive from it, under TensorFlow's private name.

    Args:
      query_layer, memory_layer: layers, or None.
      memory: ``[batch, steps, width]``; ``memory_sequence_length``: of its sequences, or None.
      probability_fn: from scores, whose steps beyond the length are masked, and the last state to alignments.
      check_inner_dims_defined: whether the width must be known.
      score_mask_value: the score of steps beyond the length; None: minus infinity.
      custom_key_value_fn: from (keys, values) to others, or None.

    Raises:
      ValueError: the width of the memory is unknown.
    """

    def __init__(
        self, query_layer: Layer | None, memory: TensorLike, probability_fn: Callable[[Any, Any], Any],
        memory_sequence_length: TensorLike | None = None, memory_layer: Layer | None = None,
        check_inner_dims_defined: bool = True, score_mask_value: TensorLike | None = None,
        custom_key_value_fn: Callable[..., Any] | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        with name_scope(name, "BaseAttentionMechanismInit"):
            memory = convert_to_tensor(memory, name="memory")
            if check_inner_dims_defined and not memory.shape[2:].is_fully_defined():
                raise ValueError(f"Expected memory to have fully defined inner dims, but saw shape: {memory.shape}")
            self._mask_value = -math.inf if score_mask_value is None else score_mask_value
            self._inside = None
            if memory_sequence_length is not None:
                self._inside = sequence_mask(memory_sequence_length, maxlen=shape_of(memory)[1])
                memory = memory * expand_dims(cast(self._inside, memory.dtype), -1)
            self._query_layer, self._memory_layer = query_layer, memory_layer
            self._unmasked_probability_fn = probability_fn
            self._values = memory
            self._keys = memory if memory_layer is None else memory_layer(memory)
            if custom_key_value_fn is not None:
                self._keys, self._values = custom_key_value_fn(self._keys, self._values)
            static = self._keys.shape.as_list()
            self.batch_size = static[0] if static[0] is not None else shape_of(self._keys)[0]
            self._alignments_size = static[1] if static[1] is not None else shape_of(self._keys)[1]

    @property
    def query_layer(self) -> Any:
        """The layer of queries, or None."""
        return self._query_layer

    @property
    def memory_layer(self) -> Any:
        """The layer that makes the keys, or None."""
        return self._memory_layer

    @property
    def values(self) -> Any:
        """The memory, with zeros beyond the lengths."""
        return self._values

    @property
    def keys(self) -> Any:
        """The memory as the memory layer maps it."""
        return self._keys

    @property
    def alignments_size(self) -> Any:
        """The number of steps of the memory."""
        return self._alignments_size

    @property
    def state_size(self) -> Any:
        """As `alignments_size`: the state is the last alignment."""
        return self._alignments_size

    def initial_alignments(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        """Alignments of zeros."""
        return zeros([batch_size, self._alignments_size], dtype)

    def initial_state(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        """The first state."""
        return self.initial_alignments(batch_size, dtype)

    def __call__(self, query: TensorLike, state: object) -> tuple[Any, Any]:
        """(alignments ``[batch, steps]``, next state)."""
        alignments = self._probability_fn(self._score(query), state)
        return alignments, alignments

    def _probability_fn(self, score: Tensor, state: object) -> Any:
        if self._inside is not None:
            score = where(self._inside, score, fill(shape_of(score), cast(self._mask_value, score.dtype)))
        return self._unmasked_probability_fn(score, state)

    def _score(self, query: TensorLike) -> Any:
        raise NotImplementedError

    _scope = ""

    def _scored(self, query: TensorLike) -> Any:
        """The score, inside the mechanism's variable scope."""
        raise NotImplementedError


def _of_score(probability_fn: Callable[..., Any] | None) -> Callable[[Any, Any], Any]:
    return lambda score, _: (probability_fn or softmax)(score)


@export("tf.contrib.seq2seq.LuongAttention")
class LuongAttention(_BaseAttentionMechanism):
    """Multiplicative attention (``tf.contrib.seq2seq.LuongAttention``).

    Args:
      num_units: the width of query and keys.
      scale: whether to multiply the scores by a variable.
    """

    def __init__(
        self, num_units: int, memory: TensorLike, memory_sequence_length: TensorLike | None = None, scale: bool = False,
        probability_fn: Callable[..., Any] | None = None, score_mask_value: TensorLike | None = None,
        dtype: DTypeLike | None = None, custom_key_value_fn: Callable[..., Any] | None = None,
        name: str = "LuongAttention",
    ) -> None:  # fmt: skip
        layer = Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype or dtypes.float32)
        super().__init__(
            None, memory, _of_score(probability_fn), memory_sequence_length, layer, score_mask_value=score_mask_value,
            custom_key_value_fn=custom_key_value_fn, name=name,
        )  # fmt: skip
        self._num_units, self._scale = num_units, scale

    _scope = "luong_attention"

    def _score(self, query: Any) -> Any:
        with variable_scope(None, self._scope, [query]):
            return self._scored(query)

    def _scored(self, query: Any) -> Any:
        if query.shape.as_list()[-1] != self._keys.shape.as_list()[-1]:
            raise ValueError(
                "Incompatible or unknown inner dimensions between query and keys. Query has units:"
                f" {query.shape[-1]}. Keys have units: {self._keys.shape[-1]}. Perhaps you need to set num_units"
                " to the keys' dimension."
            )
        score = squeeze(matmul(expand_dims(query, 1), self._keys, transpose_b=True), [1])
        if self._scale:
            score = get_variable("attention_g", [], query.dtype, initializer=Constant(1.0)) * score
        return score


@export("tf.contrib.seq2seq.BahdanauAttention")
class BahdanauAttention(_BaseAttentionMechanism):
    """Additive attention (``tf.contrib.seq2seq.BahdanauAttention``).

    Args:
      num_units: the width to which query and memory are mapped.
      normalize: whether to normalize the vector of the scores.
    """

    def __init__(
        self, num_units: int, memory: TensorLike, memory_sequence_length: TensorLike | None = None,
        normalize: bool = False, probability_fn: Callable[..., Any] | None = None,
        score_mask_value: TensorLike | None = None, dtype: DTypeLike | None = None,
        custom_key_value_fn: Callable[..., Any] | None = None, name: str = "BahdanauAttention",
    ) -> None:  # fmt: skip
        dtype = dtype or dtypes.float32
        query_layer = Dense(num_units, name="query_layer", use_bias=False, dtype=dtype)
        layer = Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype)
        super().__init__(
            query_layer, memory, _of_score(probability_fn), memory_sequence_length, layer,
            score_mask_value=score_mask_value, custom_key_value_fn=custom_key_value_fn, name=name,
        )  # fmt: skip
        self._num_units, self._normalize = num_units, normalize

    _scope = "bahdanau_attention"

    def _score(self, query: TensorLike) -> Any:
        with variable_scope(None, self._scope, [query]):
            return self._scored(query)

    def _scored(self, query: TensorLike) -> Any:
        query = expand_dims(self.query_layer(query), 1)
        v = get_variable("attention_v", [self._num_units], query.dtype)
        if not self._normalize:
            return reduce_sum(v * tanh(self._keys + query), [2])
        g = get_variable("attention_g", [], query.dtype, initializer=Constant(math.sqrt(1.0 / self._num_units)))
        b = get_variable("attention_b", [self._num_units], query.dtype, initializer=Zeros())
        return reduce_sum(g * v * rsqrt(reduce_sum(square(v))) * tanh(self._keys + query + b), [2])


# ---- Monotonic attention ---------------------------------------------------------------------------------------------


@export("tf.contrib.seq2seq.safe_cumprod")
def safe_cumprod(x: TensorLike, *args: Any, **kwargs: Any) -> Any:
    """The cumulative product of numbers in [0, 1], by sums of logarithms (``tf.contrib.seq2seq.safe_cumprod``).

    Args:
      args, kwargs: those of ``tf.cumsum``.
    """
    with name_scope(None, "SafeCumprod", [x]):
        x = convert_to_tensor(x, name="x")
        least = float(np.finfo(x.dtype.as_numpy_dtype).tiny)
        return exp(cumsum(log(clip_by_value(x, least, 1)), *args, **kwargs))


@export("tf.contrib.seq2seq.monotonic_attention")
def monotonic_attention(p_choose_i: TensorLike, previous_attention: TensorLike, mode: str) -> Any:
    """Attention that only moves forward in the memory (``tf.contrib.seq2seq.monotonic_attention``).

    Args:
      p_choose_i: ``[batch, steps]``, the probability of stopping at each step of the memory.
      previous_attention: ``[batch, steps]``, the last step's attention.
      mode: "recursive" (exact, one step after the other), "parallel" (fast, less exact where probabilities are near
        0 or 1) or "hard" (``p_choose_i`` is 0 or 1).

    Returns:
      the attention, ``[batch, steps]``.

    Raises:
      ValueError: ``mode`` is another.
    """
    p_choose_i = convert_to_tensor(p_choose_i, name="p_choose_i")
    previous_attention = convert_to_tensor(previous_attention, name="previous_attention")
    if mode == "parallel":
        passing = safe_cumprod(1 - p_choose_i, axis=1, exclusive=True)
        return p_choose_i * passing * cumsum(previous_attention / clip_by_value(passing, 1e-10, 1.0), axis=1)
    if mode == "hard":
        p_choose_i *= cumsum(previous_attention, axis=1)
        return p_choose_i * cumprod(1 - p_choose_i, axis=1, exclusive=True)
    if mode != "recursive":
        raise ValueError("mode must be 'recursive', 'parallel', or 'hard'.")
    passed = concat([ones_like(p_choose_i[:, :1]), 1 - p_choose_i[:, :-1]], 1)
    arriving = scan(
        lambda before, step: step[0] * before + step[1], (transpose(passed), transpose(previous_attention)),
        zeros_like(p_choose_i[:, 0]),
    )  # fmt: skip
    return p_choose_i * transpose(arriving)


class _Monotonic(_BaseAttentionMechanism):
    """Mixed into a mechanism: its score, with a bias, is the probability of stopping at a step of the memory."""

    def _make_monotonic(self, noise: float, seed: int | None, bias: float, mode: str) -> None:
        self._bias = bias

        def alignments(score: Tensor, previous: Any) -> Any:
            if noise > 0:
                score += noise * random_normal(shape_of(score), dtype=score.dtype, seed=seed)
            chosen = cast(greater(score, 0), score.dtype) if mode == "hard" else sigmoid(score)
            return monotonic_attention(chosen, previous, mode)

        self._unmasked_probability_fn = alignments

    def _score(self, query: Any) -> Any:
        with variable_scope(None, self._scope, [query]):
            score = self._scored(query)
            return score + get_variable("attention_score_bias", [], score.dtype, initializer=Constant(self._bias))

    def initial_alignments(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        """All attention at the first step of the memory."""
        return one_hot(zeros([batch_size], dtypes.int32), self._alignments_size, dtype=dtype)


@export("tf.contrib.seq2seq.LuongMonotonicAttention")
class LuongMonotonicAttention(_Monotonic, LuongAttention):
    """Monotonic attention with multiplicative scores (``tf.contrib.seq2seq.LuongMonotonicAttention``).

    Args:
      sigmoid_noise, sigmoid_noise_seed: the deviation of noise on the scores, which makes training choose; its seed.
      score_bias_init: the first value of the scores' bias.
      mode: see `monotonic_attention`.
    """

    _scope = "luong_monotonic_attention"

    def __init__(
        self, num_units: int, memory: TensorLike, memory_sequence_length: TensorLike | None = None, scale: bool = False,
        score_mask_value: TensorLike | None = None, sigmoid_noise: float = 0.0, sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0, mode: str = "parallel", dtype: DTypeLike | None = None,
        name: str = "LuongMonotonicAttention",
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, memory, memory_sequence_length, scale, score_mask_value=score_mask_value, dtype=dtype, name=name
        )
        self._make_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)


@export("tf.contrib.seq2seq.BahdanauMonotonicAttention")
class BahdanauMonotonicAttention(_Monotonic, BahdanauAttention):
    """Monotonic attention with additive scores (``tf.contrib.seq2seq.BahdanauMonotonicAttention``).

    Args:
      normalize: as of `BahdanauAttention`; the others are those of `LuongMonotonicAttention`.
    """

    _scope = "bahdanau_monotonic_attention"

    def __init__(
        self, num_units: int, memory: TensorLike, memory_sequence_length: TensorLike | None = None,
        normalize: bool = False, score_mask_value: TensorLike | None = None, sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None, score_bias_init: float = 0.0, mode: str = "parallel",
        dtype: DTypeLike | None = None, name: str = "BahdanauMonotonicAttention",
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, memory, memory_sequence_length, normalize, score_mask_value=score_mask_value, dtype=dtype,
            name=name,
        )  # fmt: skip
        self._make_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)


# ---- The cell that attends -------------------------------------------------------------------------------------------


@export("tf.contrib.seq2seq.AttentionWrapperState")
class AttentionWrapperState(
    namedtuple(
        "AttentionWrapperState",
        ("cell_state", "attention", "time", "alignments", "alignment_history", "attention_state"),
    )
):
    """The state of an `AttentionWrapper`."""

    def clone(self, **kwargs: object) -> AttentionWrapperState:
        """A copy with other parts."""
        return self._replace(**kwargs)


@export("tf.contrib.seq2seq.AttentionWrapper")
class AttentionWrapper(RNNCell):
    """A cell that attends to a memory (``tf.contrib.seq2seq.AttentionWrapper``).

    Args:
      attention_mechanism: one, or a list of them.
      attention_layer_size: the width of the attention, one or a list; None: the context is the attention.
      alignment_history: whether the state keeps the alignments of all steps.
      cell_input_fn: from (inputs, attention) to the cell's inputs; default: both, concatenated.
      output_attention: whether the output is the attention, or the cell's output.
      initial_cell_state: replaces the zeros in `zero_state`.
      attention_layer: a layer or a list of them, instead of ``attention_layer_size``.
      attention_fn: from (mechanism, the cell's output, the mechanism's state, layer) to (attention, alignments, state).
    """

    def __init__(
        self, cell: RNNCell, attention_mechanism: Any, attention_layer_size: int | Sequence[int] | None = None,
        alignment_history: bool = False, cell_input_fn: Callable[..., Any] | None = None, output_attention: bool = True,
        initial_cell_state: object = None, name: str | None = None, attention_layer: Layer | None = None,
        attention_fn: Callable[..., tuple[Any, Any, Any]] | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype)
        self._cell = cell
        self._is_multi = isinstance(attention_mechanism, (list, tuple))
        self._attention_mechanisms = list(attention_mechanism) if self._is_multi else [attention_mechanism]
        for mechanism in self._attention_mechanisms:
            if not isinstance(mechanism, AttentionMechanism):
                raise TypeError(f"attention_mechanism must contain only instances of AttentionMechanism: {mechanism}")
        self._attention_layers = self._layers_of(attention_layer_size, attention_layer)
        self._alignment_history, self._output_attention = alignment_history, output_attention
        self._cell_input_fn = cell_input_fn or (lambda inputs, attention: concat([inputs, attention], -1))
        self._attention_fn = attention_fn or _attend
        self._initial_cell_state = initial_cell_state
        if initial_cell_state is not None:
            self._initial_cell_state = nest.map_structure(identity, initial_cell_state)

    def _layers_of(self, sizes: Any, layers: Any) -> list[Any]:
        if sizes is not None and layers is not None:
            raise ValueError("Only one of attention_layer_size and attention_layer should be set")
        if sizes is not None:
            several = sizes if isinstance(sizes, (list, tuple)) else [sizes]
            layers = [None if size is None else Dense(size, name="attention_layer", use_bias=False) for size in several]
        found = list(layers) if isinstance(layers, (list, tuple)) else [layers]
        if len(found) != len(self._attention_mechanisms) and layers is not None:
            raise ValueError(
                "If provided, attention_layer_size must contain exactly one integer per attention_mechanism, saw:"
                f" {len(found)} vs {len(self._attention_mechanisms)}"
            )
        return found if layers is not None else [None] * len(self._attention_mechanisms)

    def _item_or_tuple(self, items: list[Any]) -> Any:
        return tuple(items) if self._is_multi else items[0]

    @property
    def _attention_layer_size(self) -> int:
        def width(mechanism: Any, layer: Layer) -> int:
            found = mechanism.values.shape.as_list()[-1]
            if layer is None:
                return int(found)
            shape = [None, self._cell.output_size + found]
            return int(TensorShape(layer.compute_output_shape(shape)).as_list()[-1] or 0)

        return sum(
            width(mechanism, layer) for mechanism, layer in zip(self._attention_mechanisms, self._attention_layers)
        )

    @property
    def output_size(self) -> Any:
        return self._attention_layer_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        sizes = self._item_or_tuple([mechanism.alignments_size for mechanism in self._attention_mechanisms])
        return AttentionWrapperState(
            self._cell.state_size, self._attention_layer_size, TensorShape([]), sizes,
            sizes if self._alignment_history else (), sizes,
        )  # fmt: skip

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> AttentionWrapperState:
        """The first state: zeros, or the given state of the cell."""
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            cell_state = self._initial_cell_state
            if cell_state is None:
                cell_state = self._cell.zero_state(batch_size, dtype)
            alignments = [mechanism.initial_alignments(batch_size, dtype) for mechanism in self._attention_mechanisms]
            states = [mechanism.initial_state(batch_size, dtype) for mechanism in self._attention_mechanisms]
            history = [TensorArray(dtype, 0, dynamic_size=True, element_shape=one.shape) for one in alignments]
            return AttentionWrapperState(
                cell_state, zero_rows(batch_size, self._attention_layer_size, dtype), zeros([], dtypes.int32),
                self._item_or_tuple(alignments), self._item_or_tuple(history) if self._alignment_history else (),
                self._item_or_tuple(states),
            )  # fmt: skip

    def call(self, inputs: TensorLike, state: object) -> tuple[Any, AttentionWrapperState]:
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(f"Expected state to be instance of AttentionWrapperState. Received type {type(state)}.")
        output, cell_state = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        before = list(state.attention_state) if self._is_multi else [state.attention_state]
        history = list(state.alignment_history) if self._is_multi else [state.alignment_history]
        attentions, alignments, states = [], [], []
        for mechanism, layer, previous in zip(self._attention_mechanisms, self._attention_layers, before):
            attention, found, after = self._attention_fn(mechanism, output, previous, layer)
            attentions.append(attention)
            alignments.append(found)
            states.append(after)
        if self._alignment_history:
            history = [array.write(state.time, found) for array, found in zip(history, alignments)]
        attention = concat(attentions, 1)
        after_all = AttentionWrapperState(
            cell_state, attention, state.time + 1, self._item_or_tuple(alignments),
            self._item_or_tuple(history) if self._alignment_history else (), self._item_or_tuple(states),
        )  # fmt: skip
        return attention if self._output_attention else output, after_all


def _attend(mechanism: Any, output: Tensor, state: object, layer: Layer | None) -> tuple[Any, Any, Any]:
    """(attention, alignments, next state) of a mechanism."""
    alignments, after = mechanism(output, state=state)
    context = squeeze(matmul(expand_dims(alignments, 1), mechanism.values), [1])
    return context if layer is None else layer(concat([output, context], 1)), alignments, after


@export("tf.contrib.seq2seq.hardmax")
def hardmax(logits: TensorLike, name: str | None = None) -> Any:
    """1 at the largest logit, else 0 (``tf.contrib.seq2seq.hardmax``)."""
    with name_scope(name, "Hardmax", [logits]):
        logits = convert_to_tensor(logits)
        depth = logits.shape.as_list()[-1]
        return one_hot(argmax(logits, -1), shape_of(logits)[-1] if depth is None else depth, dtype=logits.dtype)


@export("tf.contrib.seq2seq.tile_batch")
def tile_batch(t: TensorLike, multiplier: int, name: str | None = None) -> Any:
    """Repeats each entry of a batch ``multiplier`` times, in a structure (``tf.contrib.seq2seq.tile_batch``)."""

    def repeated(one: TensorLike) -> Any:
        one = convert_to_tensor(one, name="t")
        sizes = one.shape.as_list()
        whole = tile(expand_dims(one, 1), [1, multiplier] + [1] * (len(sizes) - 1))
        found = reshape(whole, concat([shape_of(one)[:1] * multiplier, shape_of(one)[1:]], 0))
        found.set_shape([None if sizes[0] is None else sizes[0] * multiplier, *sizes[1:]])
        return found

    with name_scope(name, "tile_batch"):
        return nest.map_structure(repeated, t)
