"""The recurrent cell that a neural architecture search has found (Zoph and Le, 2017)."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.layers.rnn.cells import LSTMStateTuple, RNNCell
from tfmini.ops.array.splitting import split
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.unary import sigmoid, tanh
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.bias import bias_add
from tfmini.ops.variables.initializers import Zeros
from tfmini.shapes import TensorShape

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
        self, num_units: int, num_proj: int | None = None, use_bias: bool = False, reuse: Any = None,
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

    def build(self, input_shape: Any) -> None:
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

    def call(self, inputs: Any, state: Any) -> tuple[Any, LSTMStateTuple]:
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
