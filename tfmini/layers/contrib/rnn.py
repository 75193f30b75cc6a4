"""``tf.contrib.rnn``: block cells, layer-normalised LSTM and NAS, wrappers of cells, stacked bidirectional networks.

The cells of other papers are in `paper_cells`. Inputs are floats, ``[batch, width]``, with a static width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops, name_scope
from tfmini.layers.contrib.layers import layer_norm
from tfmini.layers.rnn_cells import GRUCell, LSTMCell, LSTMStateTuple, RNNCell, _Wrapper
from tfmini.layers.rnn_unrolling import bidirectional_dynamic_rnn, check_cell, static_bidirectional_rnn
from tfmini.ops.array.joining import concat, split
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.slicing import slice as slice_tensor
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.unary import sigmoid, tanh
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.nn.convolution import conv2d
from tfmini.ops.nn.cross_entropy import softmax
from tfmini.ops.nn.embedding import embedding_lookup
from tfmini.ops.nn.normalization import dropout
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.initializers import Constant, RandomUniform, Zeros
from tfmini.ops.variables.scope import VariableScope
from tfmini.ops.variables.store import ReuseLike
from tfmini.shapes import TensorShape


def width_of(inputs: Tensor) -> int:
    """The size of the last axis; ValueError where it is not known."""
    width = inputs.shape.as_list()[-1]
    if width is None:
        raise ValueError("Could not infer input size from inputs.get_shape()[-1]")
    return int(width)


def linear(parts: Sequence[Any], units: int, bias: bool = True) -> Any:
    """``concat(parts) @ kernel + bias``, [batch, units], with the variables of the current scope."""
    parts = [convert_to_tensor(part) for part in parts]
    dtype = parts[0].dtype
    kernel = vs.get_variable("kernel", [sum(map(width_of, parts)), units], dtype)
    offset = vs.get_variable("bias", [units], dtype, Zeros()) if bias else None
    product = matmul(parts[0] if len(parts) == 1 else concat(parts, 1), kernel)
    return product if offset is None else bias_add(product, offset)


def additive_attention(query: Any, states: Tensor, features: Tensor, vector: Tensor) -> Any:
    """The mean of states, weighted by how they fit a query (additive attention; Bahdanau et al., 2014).

    Args:
      query: tensors, [batch, width], or a structure of some; projected with the variables of the current scope.
      states: [batch, length, size].
      features: what the query is compared with, [batch, length, 1, hidden].
      vector: [hidden].

    Returns:
      [batch, size].
    """
    hidden = width_of(features)
    asked = reshape(linear(nest.flatten(query), hidden), [-1, 1, 1, hidden])
    weights = softmax(reduce_sum(vector * tanh(features + asked), [2, 3]))
    return reduce_sum(expand_dims(weights, -1) * states, 1)


@export("tf.contrib.rnn.LSTMBlockCell")
class LSTMBlockCell(LSTMCell):
    """An LSTM with the name ``lstm_cell``, made of single ops (``tf.contrib.rnn.LSTMBlockCell``).

    Args:
      num_units, forget_bias, cell_clip: as in `LSTMCell`; no clipping if ``cell_clip`` is None or not positive.
      use_peephole: whether the gates read the cell state.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: DTypeLike | None = None,
        reuse: ReuseLike = None,
        name: str | None = "lstm_cell",
    ) -> None:
        clip = cell_clip if cell_clip is not None and cell_clip > 0 else None
        super().__init__(num_units, use_peephole, clip, forget_bias=forget_bias, reuse=reuse, name=name, dtype=dtype)

    def call(self, inputs: TensorLike, state: Any) -> Any:
        result = super().call(inputs, state)
        count_ops(-16 - 7 * self._use_peepholes - 4 * (self._cell_clip is not None))  # one op in TensorFlow
        return result


@export(
    "tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell",
    "tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops.CudnnCompatibleLSTMCell",
)
class CudnnCompatibleLSTMCell(LSTMBlockCell):
    """An LSTM with the weights of cuDNN's (``tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell``): no forget bias.

    Args:
      num_units, reuse: as in `LSTMBlockCell`.
    """

    def __init__(self, num_units: int, reuse: ReuseLike = None) -> None:
        super().__init__(num_units, 0.0, None, False, None, reuse, "cudnn_compatible_lstm_cell")


@export(
    "tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell",
    "tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops.CudnnCompatibleGRUCell",
)
class CudnnCompatibleGRUCell(GRUCell):
    """A GRU with the weights of cuDNN's (``tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell``).

    The reset gate applies after the projection of the state, which has a bias of its own.

    Args:
      num_units, reuse, kernel_initializer: as in `GRUCell`.
    """

    def __init__(self, num_units: int, reuse: ReuseLike = None, kernel_initializer: Any = None) -> None:
        super().__init__(num_units, reuse=reuse, kernel_initializer=kernel_initializer)

    def build(self, input_shape: ShapeLike) -> None:
        units, start, zeros = self._num_units, self._kernel_initializer, Zeros(self._dtype)
        width = self._width(input_shape)
        self._gate_kernel = self.add_weight("gates/kernel", [width + units, 2 * units], initializer=start)
        self._gate_bias = self.add_weight("gates/bias", [2 * units], initializer=Constant(1.0, self._dtype))
        projections = (("input", width), ("hidden", units))
        self._kernels = [
            self.add_weight(f"candidate/{name}_projection/kernel", [rows, units], initializer=start)
            for name, rows in projections
        ]
        self._biases = [
            self.add_weight(f"candidate/{name}_projection/bias", [units], initializer=zeros) for name, _ in projections
        ]

    def call(self, inputs: TensorLike, state: TensorLike) -> Any:
        gates = sigmoid(bias_add(matmul(concat([inputs, state], 1), self._gate_kernel), self._gate_bias))
        r, u = split(value=gates, num_or_size_splits=2, axis=1)
        read, kept = (
            bias_add(matmul(values, kernel), bias)
            for values, kernel, bias in zip((inputs, state), self._kernels, self._biases)
        )
        new = (1 - u) * self._activation(read + r * kept) + u * state
        return new, new


@export("tf.contrib.rnn.GRUBlockCell")
class GRUBlockCell(GRUCell):
    """A GRU with the name ``gru_cell``, made of single ops (``tf.contrib.rnn.GRUBlockCell``).

    Its variables have names of their own: ``w_ru`` and ``b_ru`` of the gates, ``w_c`` and ``b_c`` of the candidate.

    Args:
      num_units, cell_size: two names of the width; exactly one is given.
      reuse, name: as in `GRUCell`.

    Raises:
      ValueError: when both names of the width are given, or none.
    """

    _weight_names = ("w_ru", "b_ru", "w_c", "b_c")

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: ReuseLike = None,
        name: str | None = "gru_cell",
    ) -> None:
        if (num_units is None) == (cell_size is None):
            raise ValueError("Exactly one of num_units or cell_size must be provided.")
        super().__init__(num_units or cell_size or 0, reuse=reuse, name=name)

    def call(self, inputs: TensorLike, state: TensorLike) -> Any:
        result = super().call(inputs, state)
        count_ops(-18)  # one op in TensorFlow
        return result


@export("tf.contrib.rnn.GRUBlockCellV2")
class GRUBlockCellV2(GRUBlockCell):
    """A `GRUBlockCell` whose variables have the names of those of `GRUCell` (``tf.contrib.rnn.GRUBlockCellV2``)."""

    _weight_names = GRUCell._weight_names


@export("tf.contrib.rnn.LayerNormBasicLSTMCell")
class LayerNormBasicLSTMCell(RNNCell):
    """An LSTM with layer normalization of its gates (``tf.contrib.rnn.LayerNormBasicLSTMCell``).

    Args:
      num_units: the width of the output.
      forget_bias: added to the forget gate.
      input_size: ignored.
      layer_norm: normalize the gates and the cell state; otherwise add a bias to the gates.
      norm_gain, norm_shift: initial values of gamma and beta.
      dropout_keep_prob, dropout_prob_seed: dropout of the values written into the cell state.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: object = None,
        activation: Any = tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: TensorLike = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: ReuseLike = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> Any:
        return self._num_units

    def _normalised(self, value: Tensor, scope: str) -> Any:
        if not self._layer_norm:
            return value
        with vs.variable_scope(scope):
            width = value.shape.as_list()[-1:]
            vs.get_variable("gamma", width, value.dtype, Constant(self._gain))
            vs.get_variable("beta", width, value.dtype, Constant(self._shift))
        return layer_norm(value, reuse=True, scope=scope)

    def call(self, inputs: TensorLike, state: Any) -> Any:
        c, h = state
        joined = concat([inputs, h], 1)
        units = 4 * self._num_units
        gates = matmul(joined, vs.get_variable("kernel", [joined.shape.as_list()[-1], units], joined.dtype))
        if not self._layer_norm:
            gates = bias_add(gates, vs.get_variable("bias", [units], joined.dtype))
        parts = split(value=gates, num_or_size_splits=4, axis=1)
        scopes = ("input", "transform", "forget", "output")
        i, j, f, o = (self._normalised(part, scope) for part, scope in zip(parts, scopes, strict=True))
        written = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            written = dropout(written, self._keep_prob, seed=self._seed)
        new_c = self._normalised(c * sigmoid(f + self._forget_bias) + sigmoid(i) * written, "state")
        new_h = self._activation(new_c) * sigmoid(o)
        return new_h, LSTMStateTuple(new_c, new_h)


class _Around(RNNCell):
    """Base class of wrappers with variables; the state is the inner cell's."""

    def __init__(self, cell: RNNCell, reuse: ReuseLike) -> None:
        super().__init__(_reuse=reuse)
        check_cell(cell)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            return self._cell.zero_state(batch_size, dtype)


@export("tf.contrib.rnn.OutputProjectionWrapper")
class OutputProjectionWrapper(_Around):
    """Projects a cell's output (``tf.contrib.rnn.OutputProjectionWrapper``).

    Args:
      output_size: the width of the projection.
      activation: activation of the projection; default none.
    """

    def __init__(self, cell: RNNCell, output_size: int, activation: Any = None, reuse: ReuseLike = None) -> None:
        super().__init__(cell, reuse)
        if output_size < 1:
            raise ValueError(f"Parameter output_size must be > 0: {output_size}.")
        self._output_size, self._activation = output_size, activation

    @property
    def output_size(self) -> Any:
        return self._output_size

    def call(self, inputs: TensorLike, state: object) -> Any:
        output, state = self._cell(inputs, state)
        projected = linear([output], self._output_size)
        return projected if self._activation is None else self._activation(projected), state


@export("tf.contrib.rnn.InputProjectionWrapper")
class InputProjectionWrapper(_Around):
    """Projects a cell's inputs (``tf.contrib.rnn.InputProjectionWrapper``).

    Args:
      num_proj: the width of the projection.
      activation: activation of the projection; default none.
      input_size: ignored.
    """

    def __init__(
        self, cell: RNNCell, num_proj: int, activation: Any = None, input_size: object = None, reuse: ReuseLike = None
    ) -> None:
        super().__init__(cell, reuse)
        self._num_proj, self._activation = num_proj, activation

    def call(self, inputs: Tensor, state: object) -> Any:
        projected = linear([inputs], self._num_proj)
        return self._cell(projected if self._activation is None else self._activation(projected), state)


@export("tf.contrib.rnn.EmbeddingWrapper")
class EmbeddingWrapper(_Around):
    """Feeds a cell with the embeddings of ids (``tf.contrib.rnn.EmbeddingWrapper``).

    Args:
      embedding_classes: number of ids.
      embedding_size: the width of the embeddings.
      initializer: initializer of the embeddings; default: the scope's, else uniform in [-sqrt(3), sqrt(3)].
    """

    def __init__(
        self,
        cell: RNNCell,
        embedding_classes: int,
        embedding_size: int,
        initializer: Callable[..., Any] | None = None,
        reuse: ReuseLike = None,
    ) -> None:
        super().__init__(cell, reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(
                f"Both embedding_classes and embedding_size must be > 0: {embedding_classes}, {embedding_size}."
            )
        self._table, self._initializer = [embedding_classes, embedding_size], initializer

    def call(self, inputs: TensorLike, state: Any) -> Any:
        part = state[0] if isinstance(state, tuple) else state
        table = vs.get_variable("embedding", self._table, part.dtype, self._start())
        return self._cell(embedding_lookup(table, reshape(inputs, [-1])), state)

    def _start(self) -> Any:
        return self._initializer or vs.get_variable_scope().initializer or RandomUniform(-(3**0.5), 3**0.5)


@export("tf.contrib.rnn.HighwayWrapper")
class HighwayWrapper(_Wrapper):
    """Mixes a cell's inputs into its outputs, by a gate (``tf.contrib.rnn.HighwayWrapper``; Srivastava et al., 2015).

    Args:
      couple_carry_transform_gates: whether the gate of the outputs is one minus that of the inputs.
      carry_bias_init: the initial bias of the gate of the inputs.
    """

    def __init__(self, cell: RNNCell, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0) -> None:
        super().__init__(cell)
        self._couples, self._bias = couple_carry_transform_gates, carry_bias_init

    def _gate(self, name: str, bias: float, inputs: Tensor) -> Any:
        width = width_of(inputs)
        kernel = vs.get_variable(f"{name}_w", [width, width])
        return sigmoid(bias_add(matmul(inputs, kernel), vs.get_variable(f"{name}_b", [width], None, Constant(bias))))

    def call(self, inputs: object, state: object, scope: str | VariableScope | None = None) -> Any:
        outputs, new_state = self._cell(inputs, state, scope=scope)
        nest.assert_same_structure(inputs, outputs)

        def mixed(one: Any, other: Any) -> Any:
            one.shape.assert_is_compatible_with(other.shape)
            carry = self._gate("carry", self._bias, one)
            return one * carry + other * (1 - carry if self._couples else self._gate("transform", -self._bias, one))

        return nest.map_structure(mixed, inputs, outputs), new_state


@export("tf.contrib.rnn.CompiledWrapper")
class CompiledWrapper(_Wrapper):
    """A cell as it is: on the CPU, tfmini compiles no single cell (``tf.contrib.rnn.CompiledWrapper``)."""

    def __init__(self, cell: RNNCell, compile_stateful: bool = False) -> None:
        super().__init__(cell)


@export("tf.contrib.rnn.AttentionCellWrapper")
class AttentionCellWrapper(RNNCell):
    """Attention of a cell to its last outputs (``tf.contrib.rnn.AttentionCellWrapper``; Bahdanau et al., 2014).

    Args:
      attn_length: how many outputs it sees.
      attn_size: the width of the outputs; default: the cell's.
      attn_vec_size: the width of the attention's hidden layer; default ``attn_size``.
      input_size: the width of the projected inputs; default: their own.
      state_is_tuple: whether the state is a tuple (the cell's, attention, outputs) rather than their concatenation.
    """

    def __init__(
        self, cell: RNNCell, attn_length: int, attn_size: int | None = None, attn_vec_size: int | None = None,
        input_size: int | None = None, state_is_tuple: bool = True, reuse: ReuseLike = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        check_cell(cell)
        if nest.is_nested(cell.state_size) and not state_is_tuple:
            raise ValueError(f"Cell returns tuple of states, but the flag state_is_tuple is not set: {cell.state_size}")
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        self._cell, self._length, self._is_tuple = cell, attn_length, state_is_tuple
        self._attn_size = attn_size or cell.output_size
        self._hidden, self._input_size = attn_vec_size or self._attn_size, input_size

    @property
    def state_size(self) -> Any:
        sizes = (self._cell.state_size, self._attn_size, self._attn_size * self._length)
        return sizes if self._is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        return int(self._attn_size)

    def call(self, inputs: Tensor, state: Any) -> Any:
        size, length = self._attn_size, self._length
        inner, attended, past = state if self._is_tuple else split(
            state, [self._cell.state_size, size, size * length], axis=1
        )  # fmt: skip
        past = reshape(past, [-1, length, size])
        inputs = convert_to_tensor(inputs)
        output, inner = self._cell(linear([inputs, attended], self._input_size or width_of(inputs)), inner)
        attended = self._attention(concat(nest.flatten(inner), 1), past)
        count_ops(2)  # TensorFlow reshapes what is attended
        past = slice_tensor(past, [0, 1, 0], [-1, -1, -1])
        with vs.variable_scope("attn_output_projection"):
            output = linear([output, attended], size)
        past = reshape(concat([past, expand_dims(output, 1)], 1), [-1, length * size])
        found = (inner, attended, past)
        return output, found if self._is_tuple else concat(list(found), 1)

    def _attention(self, query: Any, past: Tensor) -> Any:
        with vs.variable_scope("attention"):
            kernel = vs.get_variable("attn_w", [1, 1, self._attn_size, self._hidden])
            vector = vs.get_variable("attn_v", [self._hidden])
            return additive_attention(query, past, conv2d(expand_dims(past, 2), kernel, [1, 1, 1, 1], "SAME"), vector)


@export("tf.contrib.rnn.stack_bidirectional_dynamic_rnn")
def stack_bidirectional_dynamic_rnn(
    cells_fw: list[Any],
    cells_bw: list[Any],
    inputs: TensorLike,
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: str | VariableScope | None = None,
    swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Stacked bidirectional networks (``tf.contrib.rnn.stack_bidirectional_dynamic_rnn``).

    The concatenated outputs of a layer are the inputs of the next one.

    Args:
      cells_fw, cells_bw: a cell per layer.
      initial_states_fw, initial_states_bw: a state per layer; None for zeros.
      The others are those of `bidirectional_dynamic_rnn`.

    Returns:
      (outputs, last states of the forward cells, last states of the backward cells).

    Raises:
      ValueError: when a list is empty or the lists have different lengths.
    """
    _check_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    none = [None] * len(cells_fw)
    layers = zip(cells_fw, cells_bw, initial_states_fw or none, initial_states_bw or none, strict=True)
    states: list[tuple[Any, Any]] = []
    with vs.variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (forward, backward, first_fw, first_bw) in enumerate(layers):
            with vs.variable_scope(f"cell_{i}"):
                outputs, last = bidirectional_dynamic_rnn(
                    forward, backward, inputs, sequence_length, first_fw, first_bw, dtype, parallel_iterations,
                    swap_memory, time_major,
                )  # fmt: skip
                inputs = concat(outputs, 2)
                states.append(last)
    return inputs, tuple(fw for fw, _ in states), tuple(bw for _, bw in states)


@export("tf.contrib.rnn.stack_bidirectional_rnn")
def stack_bidirectional_rnn(
    cells_fw: list[Any], cells_bw: list[Any], inputs: Any, initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None, dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None, scope: str | VariableScope | None = None,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """Stacked bidirectional networks over a list of steps (``tf.contrib.rnn.stack_bidirectional_rnn``).

    Args:
      inputs: a list of tensors, [batch, width], one per step.
      The others are those of `stack_bidirectional_dynamic_rnn`.

    Returns:
      (a list of outputs, last states of the forward cells, last states of the backward cells).
    """
    _check_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    none = [None] * len(cells_fw)
    states: list[tuple[Any, Any]] = []
    with vs.variable_scope(scope or "stack_bidirectional_rnn"):
        for i, cells in enumerate(zip(cells_fw, cells_bw, initial_states_fw or none, initial_states_bw or none)):
            with vs.variable_scope(f"cell_{i}") as opened:
                inputs, *last = static_bidirectional_rnn(*cells[:2], inputs, *cells[2:], dtype, sequence_length, opened)
                states.append((last[0], last[1]))
    return inputs, tuple(fw for fw, _ in states), tuple(bw for _, bw in states)


def _check_stacks(
    cells_fw: Sequence[RNNCell], cells_bw: Sequence[RNNCell], states_fw: object, states_bw: object
) -> None:
    for name, cells in (("fw", cells_fw), ("bw", cells_bw)):
        if not cells:
            raise ValueError(f"Must specify at least one {name} cell for BidirectionalRNN.")
        if not isinstance(cells, list):
            raise ValueError(f"cells_{name} must be a list of RNNCells (one per layer).")
    if len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth.")
    for name, states in (("fw", states_fw), ("bw", states_bw)):
        if states is not None and (not isinstance(states, list) or len(states) != len(cells_fw)):
            raise ValueError(f"initial_states_{name} must be a list of state tensors (one per layer).")


# ---- The recurrent cell that a neural architecture search has found (Zoph and Le, 2017) ----------------------------

_PARTS = 8


@export("tf.contrib.rnn.NASCell")
class NASCell(RNNCell):
    """The cell of "Neural Architecture Search with Reinforcement Learning" (``tf.contrib.rnn.NASCell``).

    Args:
      num_units: the width of the cell state.
      num_proj: the width of the output, by a projection; None: ``num_units``.
      use_bias: whether the cell has a bias.
    """

    def __init__(
        self, num_units: int, num_proj: int | None = None, use_bias: bool = False, reuse: ReuseLike = None,
        name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse, name=name, **kwargs)
        self._num_units, self._num_proj, self._use_bias = num_units, num_proj, use_bias

    @property
    def state_size(self) -> LSTMStateTuple:
        return LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def build(self, input_shape: ShapeLike) -> None:
        width = TensorShape(input_shape).as_list()[1]
        if width is None:
            raise ValueError("Could not infer input size from inputs.get_shape()[-1]")
        columns = _PARTS * self._num_units
        self._recurrent_kernel = self.add_weight("recurrent_kernel", [self.output_size, columns])
        self._kernel = self.add_weight("kernel", [width, columns])
        self._bias = self._projection = None
        if self._use_bias:
            self._bias = self.add_weight("bias", [columns], initializer=Zeros())
        if self._num_proj is not None:
            self._projection = self.add_weight("projection_weights", [self._num_units, self._num_proj])
        self.built = True

    def call(self, inputs: TensorLike, state: Any) -> tuple[Any, LSTMStateTuple]:
        cell, output = state
        recurrent = matmul(output, self._recurrent_kernel)
        if self._bias is not None:
            recurrent = bias_add(recurrent, self._bias)
        m = split(recurrent, _PARTS, axis=1)
        x = split(matmul(inputs, self._kernel), _PARTS, axis=1)
        left = tanh(sigmoid(x[0] + m[0]) * relu(x[1] + m[1]))
        right = tanh(sigmoid(x[2] + m[2]) + relu(x[3] * m[3]))
        cell = tanh(left + cell) * right
        gate = tanh(tanh(tanh(x[4] + m[4]) * sigmoid(x[5] + m[5])) + sigmoid(tanh(x[6] + m[6]) + sigmoid(x[7] + m[7])))
        output = tanh(cell * gate)
        if self._projection is not None:
            output = matmul(output, self._projection)
        return output, LSTMStateTuple(cell, output)


# ---- The constants of cuDNN's layers, which are absent: models name them where they choose between these and cells --

CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION = "unidirectional", "bidirectional"
CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_RELU, CUDNN_RNN_TANH = "lstm", "gru", "rnn_relu", "rnn_tanh"
CUDNN_INPUT_LINEAR_MODE, CUDNN_INPUT_SKIP_MODE, CUDNN_INPUT_AUTO_MODE = "linear_input", "skip_input", "auto_select"
export_names(
    "tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops tensorflow.contrib.cudnn_rnn.python.layers.cudnn_rnn",
    "CUDNN_GRU CUDNN_INPUT_AUTO_MODE CUDNN_INPUT_LINEAR_MODE CUDNN_INPUT_SKIP_MODE CUDNN_LSTM CUDNN_RNN_BIDIRECTION "
    "CUDNN_RNN_RELU CUDNN_RNN_TANH CUDNN_RNN_UNIDIRECTION",
)
