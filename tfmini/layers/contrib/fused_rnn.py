"""RNNs that take a whole sequence at once, time first: ``tf.contrib.rnn.LSTMBlockFusedCell`` and its wrappers."""

from __future__ import annotations

import abc
from typing import Any

from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.layers.base import Layer
from tfmini.layers.rnn_cells import LSTMStateTuple, RNNCell
from tfmini.layers.rnn_unrolling import dynamic_rnn, static_rnn
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.joining import concat, split, stack, unstack
from tfmini.ops.array.layout import reverse, reverse_sequence
from tfmini.ops.array.shape import shape
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.unary import sigmoid, tanh
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.scope import VariableScope


@export("tf.contrib.rnn.FusedRNNCell")
class FusedRNNCell(abc.ABC):
    """Base class: calls take ``[time, batch, width]`` and give all outputs and the last state."""

    @abc.abstractmethod
    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Runs the RNN over a sequence.

        Args:
          inputs: ``[time, batch, width]``, or a list of tensors ``[batch, width]``.
          initial_state: default: zeros.
          dtype: of the initial state, where that is not given.
          sequence_length: ``[batch]``; outputs beyond it are zeros, the state is that of the last step before.
          scope: of the variables.

        Returns:
          (outputs in the form of the inputs, the last state).
        """


@export("tf.contrib.rnn.FusedRNNCellAdaptor")
class FusedRNNCellAdaptor(FusedRNNCell):
    """An `RNNCell` as a `FusedRNNCell` (``tf.contrib.rnn.FusedRNNCellAdaptor``).

    Args:
      cell: the cell.
      use_dynamic_rnn: run it by `dynamic_rnn`, else by `static_rnn`.
    """

    def __init__(self, cell: RNNCell, use_dynamic_rnn: bool = False) -> None:
        self._cell, self._use_dynamic_rnn = cell, use_dynamic_rnn

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
        scope: str | VariableScope | None = None,
    ) -> tuple[Any, Any]:
        is_list = isinstance(inputs, list)
        settings: Any = {"sequence_length": sequence_length, "initial_state": initial_state, "dtype": dtype}
        if self._use_dynamic_rnn:
            whole = stack(inputs) if is_list else inputs
            outputs, state = dynamic_rnn(self._cell, whole, time_major=True, scope=scope, **settings)
            return (unstack(outputs) if is_list else outputs), state
        outputs, state = static_rnn(self._cell, inputs if is_list else unstack(inputs), scope=scope, **settings)
        return (outputs if is_list else stack(outputs)), state


@export("tf.contrib.rnn.TimeReversedFusedRNN")
class TimeReversedFusedRNN(FusedRNNCell):
    """A `FusedRNNCell` that reads the sequences from their ends (``tf.contrib.rnn.TimeReversedFusedRNN``)."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def _reversed(self, tensor: Any, lengths: TensorLike | None) -> Any:
        if isinstance(tensor, list):
            return unstack(self._reversed(stack(tensor), lengths))
        if lengths is None:
            return reverse(tensor, [0])
        return reverse_sequence(tensor, lengths, seq_axis=0, batch_axis=1)

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        turned = self._reversed(inputs, sequence_length)
        scopes = {} if scope is None else {"scope": scope}
        outputs, state = self._cell(
            turned, initial_state=initial_state, dtype=dtype, sequence_length=sequence_length, **scopes
        )
        return self._reversed(outputs, sequence_length), state


@export("tf.contrib.rnn.LSTMBlockWrapper")
class LSTMBlockWrapper(Layer, abc.ABC):
    """Base class of LSTMs over a whole sequence: a layer with `num_units` (``tf.contrib.rnn.LSTMBlockWrapper``)."""

    @property
    @abc.abstractmethod
    def num_units(self) -> int:
        """The width of the output."""


@export("tf.contrib.rnn.LSTMBlockFusedCell")
class LSTMBlockFusedCell(LSTMBlockWrapper):
    """An LSTM over a whole sequence (``tf.contrib.rnn.LSTMBlockFusedCell``).

    Args:
      num_units: the width of the output.
      forget_bias: added to the forget gate.
      cell_clip: limit of the cell state; None, or not positive: none.
      use_peephole: whether the gates read the cell state.
      reuse, dtype, name: of the layer.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: DTypeLike | None = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        super().__init__(name=name, _reuse=reuse, dtype=dtype)
        self._num_units, self._forget_bias, self._use_peephole = num_units, forget_bias, use_peephole
        self._cell_clip = cell_clip if cell_clip is not None and cell_clip > 0 else None
        self._step: _Step | None = None

    @property
    def num_units(self) -> int:
        """The width of the output."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Makes the variables; raises ValueError for inputs of unknown width."""
        width = input_shape[2]
        width = getattr(width, "value", width)
        if width is None:
            raise ValueError(f"The width of the inputs must be known, but their shape is {input_shape}.")
        kernel = self.add_variable("kernel", [width + self._num_units, 4 * self._num_units])
        bias = self.add_variable("bias", [4 * self._num_units], initializer=Zeros())
        names = ("w_i_diag", "w_f_diag", "w_o_diag") if self._use_peephole else ()
        diagonals = [self.add_variable(name, [self._num_units]) for name in names]
        self._step = _Step(self, kernel, bias, diagonals)
        self.built = True

    def call(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
    ) -> tuple[Any, Any]:
        """Runs the LSTM; see `FusedRNNCell`. The state is an `LSTMStateTuple`.

        Raises:
          ValueError: without an initial state and a dtype.
        """
        is_list = isinstance(inputs, list)
        whole = stack(inputs) if is_list else convert_to_tensor(inputs)
        assert self._step is not None
        if initial_state is None:
            if dtype is None:
                raise ValueError("Either initial_state or dtype needs to be specified")
            empty = zeros(stack([shape(whole)[1], self._num_units]), dtype)
            initial_state = (empty, empty)
        c, h = initial_state
        with name_scope(None, "fused_lstm", [whole]):
            outputs, state = dynamic_rnn(self._step, whole, sequence_length, LSTMStateTuple(c, h), time_major=True)
        outputs.set_shape([*whole.shape.as_list()[:2], self._num_units])
        return (unstack(outputs) if is_list else outputs), state


class _Step(RNNCell):
    """One step of a `LSTMBlockFusedCell`, with its variables."""

    def __init__(self, owner: LSTMBlockFusedCell, kernel: Any, bias: Any, diagonals: list[Any]) -> None:
        super().__init__()
        self._owner, self._kernel, self._bias, self._diagonals = owner, kernel, bias, diagonals
        self.built = True

    @property
    def state_size(self) -> LSTMStateTuple:
        return LSTMStateTuple(self._owner.num_units, self._owner.num_units)

    @property
    def output_size(self) -> int:
        return self._owner.num_units

    def call(self, inputs: Tensor, state: Any) -> tuple[Tensor, LSTMStateTuple]:
        c, h = state
        gates = bias_add(matmul(concat([inputs, h], 1), self._kernel), self._bias)
        i, new, f, o = split(gates, 4, 1)
        if self._diagonals:
            i, f = i + c * self._diagonals[0], f + c * self._diagonals[1]
        c = sigmoid(f + self._owner._forget_bias) * c + sigmoid(i) * tanh(new)
        limit = self._owner._cell_clip
        if limit is not None:
            c = maximum(minimum(c, limit), -limit)
        if self._diagonals:
            o = o + c * self._diagonals[2]
        h = sigmoid(o) * tanh(c)
        return h, LSTMStateTuple(c, h)
