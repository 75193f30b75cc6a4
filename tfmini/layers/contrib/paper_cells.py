"""``tf.contrib.rnn``: the cells of papers.

The block cells, the layer-normalised LSTM, NAS and the wrappers of cells are in `rnn`.

Inputs are floats, ``[batch, width]`` where nothing else is said, of the dtype of the state; outputs are
``[batch, output_size]``, and states have the sizes of ``state_size``. The weights are made in the first step, which
raises ValueError where the width of the inputs is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops
from tfmini.layers.contrib.rnn import LayerNormBasicLSTMCell, linear, width_of
from tfmini.layers.rnn_cells import LSTMStateTuple, RNNCell, _Gated, _TwoPartState
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import cast, stop_gradient
from tfmini.ops.array.joining import concat, split
from tfmini.ops.array.layout import tile
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.elementwise import mod
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import exp, sigmoid, tanh
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.nn.dilated import convolution
from tfmini.ops.random_functions import random_uniform
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.initializers import Constant, RandomUniform, Zeros
from tfmini.ops.variables.scope import VariableScope
from tfmini.ops.variables.store import ReuseLike
from tfmini.shapes import TensorShape

_Function = Callable[..., Any]


def _sharded(name: str, rows: int, columns: int, dtype: DTypeLike, shards: int) -> Any:
    """A matrix whose rows are in variables ``name_0``, ``name_1`` …, of sizes that differ by one at most."""
    sizes = [rows // shards + (i < rows % shards) for i in range(shards)]
    parts = [vs.get_variable(f"{name}_{i}", [size, columns], dtype) for i, size in enumerate(sizes)]
    return parts[0] if shards == 1 else concat(parts, 0)


# ---- cells that compute their gates from inputs and output -----------------------------------------------------------


@export("tf.contrib.rnn.UGRNNCell")
class UGRNNCell(_Gated):
    """An update gate RNN (``tf.contrib.rnn.UGRNNCell``; Collins, Sohl-Dickstein and Sussillo, 2017).

    Args:
      initializer: of the kernel.
      forget_bias: added to the gate, which keeps the state.
    """

    def __init__(
        self, num_units: int, initializer: _Function | None = None, forget_bias: float = 1.0,
        activation: _Function = tanh,
        reuse: ReuseLike = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, activation, reuse)
        self._initializer, self._forget_bias = initializer, forget_bias

    def call(self, inputs: TensorLike, state: Any) -> Any:
        with vs.variable_scope(vs.get_variable_scope(), initializer=self._initializer):
            gate, candidate = split(linear([concat([inputs, state], 1)], 2 * self._num_units), 2, axis=1)
        keep = sigmoid(gate + self._forget_bias)
        new = keep * state + (1.0 - keep) * self._activation(candidate)
        return new, new


@export("tf.contrib.rnn.IntersectionRNNCell")
class IntersectionRNNCell(_Gated):
    """The "+RNN", with gates along time and depth (``tf.contrib.rnn.IntersectionRNNCell``; Collins et al., 2017).

    Args:
      num_in_proj: project inputs of another width than ``num_units``; None: they must have that width.
      initializer: of the kernels.
      forget_bias: added to both gates.
      y_activation: of the output; default relu.

    Raises:
      ValueError: in the first step when the inputs have another width and there is no ``num_in_proj``.
    """

    def __init__(
        self, num_units: int, num_in_proj: int | None = None, initializer: _Function | None = None,
        forget_bias: float = 1.0, y_activation: _Function = relu, reuse: ReuseLike = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, tanh, reuse)
        self._projects, self._initializer = num_in_proj, initializer
        self._forget_bias, self._y_activation = forget_bias, y_activation

    def call(self, inputs: Tensor, state: Any) -> Any:
        with vs.variable_scope(vs.get_variable_scope(), initializer=self._initializer):
            if width_of(inputs) != self._num_units:
                if not self._projects:
                    raise ValueError(
                        "Must have input size == output size for Intersection RNN. To fix, num_in_proj should be set"
                        " to num_units at cell init."
                    )
                with vs.variable_scope("in_projection"):
                    inputs = linear([inputs], self._num_units)
            gate_h, h, gate_y, y = split(linear([concat([inputs, state], 1)], 4 * self._num_units), 4, axis=1)
            count_ops(13)  # slices
        keep_h, keep_y = sigmoid(gate_h + self._forget_bias), sigmoid(gate_y + self._forget_bias)
        output = keep_y * inputs + (1.0 - keep_y) * self._y_activation(y)
        return output, keep_h * state + (1.0 - keep_h) * self._activation(h)


@export("tf.contrib.rnn.CoupledInputForgetGateLSTMCell")
class CoupledInputForgetGateLSTMCell(LayerNormBasicLSTMCell):
    """An LSTM whose input gate is one minus the forget gate (``tf.contrib.rnn.CoupledInputForgetGateLSTMCell``).

    Args:
      use_peepholes, initializer, num_proj, proj_clip, num_unit_shards, num_proj_shards, forget_bias, state_is_tuple,
        activation: as in `LSTMCell`.
      layer_norm, norm_gain, norm_shift: as in `LayerNormBasicLSTMCell`.
    """

    def __init__(
        self, num_units: int, use_peepholes: bool = False, initializer: _Function | None = None,
        num_proj: int | None = None, proj_clip: float | None = None, num_unit_shards: int = 1,
        num_proj_shards: int = 1, forget_bias: float = 1.0, state_is_tuple: bool = True, activation: _Function = tanh,
        reuse: ReuseLike = None, layer_norm: bool = False, norm_gain: float = 1.0, norm_shift: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(num_units, forget_bias, None, activation, layer_norm, norm_gain, norm_shift,
                         reuse=reuse)  # fmt: skip
        self._peepholes, self._initializer, self._is_tuple = use_peepholes, initializer, state_is_tuple
        self._num_proj, self._proj_clip = num_proj, proj_clip
        self._shards = num_unit_shards, num_proj_shards

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    @property
    def state_size(self) -> Any:
        sizes = LSTMStateTuple(self._num_units, self.output_size)
        return sizes if self._is_tuple else sum(sizes)

    def call(self, inputs: TensorLike, state: Any) -> Any:
        units = self._num_units
        c, m = state if self._is_tuple else split(state, [units, self.output_size], axis=1)
        rows = width_of(convert_to_tensor(inputs)) + self.output_size
        with vs.variable_scope(vs.get_variable_scope(), initializer=self._initializer):
            kernel = _sharded("W", rows, 3 * units, m.dtype, self._shards[0])
            bias = vs.get_variable("B", [3 * units], m.dtype, Zeros())
            gates = matmul(concat([inputs, m], 1), kernel)
            parts = split(gates if self._layer_norm else bias_add(gates, bias), 3, axis=1)
            j, f, o = (self._normalised(part, scope) for part, scope in zip(parts, ("transform", "forget", "output")))
            names = ("W_F_diag", "W_O_diag") if self._peepholes else ()
            peepholes = [vs.get_variable(name, [units], c.dtype) for name in names]
            f = f + self._forget_bias
            keep = sigmoid(f + peepholes[0] * c if peepholes else f)
            c = self._normalised(keep * c + (1 - keep) * self._activation(j), "state")
            m = sigmoid(o + peepholes[1] * c if peepholes else o) * self._activation(c)
            if self._num_proj is not None:
                m = matmul(m, _sharded("W_P", units, self._num_proj, m.dtype, self._shards[1]))
                m = m if self._proj_clip is None else clip_by_value(m, -self._proj_clip, self._proj_clip)
        return m, LSTMStateTuple(c, m) if self._is_tuple else concat([c, m], 1)


@export("tf.contrib.rnn.TimeFreqLSTMCell")
class TimeFreqLSTMCell(_Gated):
    """An LSTM along time and along the frequencies of a step (``tf.contrib.rnn.TimeFreqLSTMCell``; Li et al., 2015).

    Args:
      use_peepholes, cell_clip, initializer, num_unit_shards, forget_bias: as in `LSTMCell`.
      feature_size: how many inputs a frequency's step reads.
      frequency_skip: how many inputs later the next one begins.

    The state is one tensor, [batch, 2 * num_units * frequencies]; the output is [batch, num_units * frequencies].

    Raises:
      TypeError: in the first step when there is no ``feature_size``.
    """

    def __init__(
        self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None,
        initializer: _Function | None = None, num_unit_shards: int = 1, forget_bias: float = 1.0,
        feature_size: int | None = None, frequency_skip: int = 1, reuse: ReuseLike = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, tanh, reuse)
        self._peepholes, self._clip, self._initializer = use_peepholes, cell_clip, initializer
        self._shards, self._forget_bias = num_unit_shards, forget_bias
        self._feature_size, self._skip = feature_size, frequency_skip

    @property
    def state_size(self) -> Any:
        return 2 * self._num_units

    def call(self, inputs: Tensor, state: Any) -> Any:
        if self._feature_size is None:
            raise TypeError("TimeFreqLSTMCell needs feature_size: how many inputs a frequency's step reads.")
        units, size = self._num_units, self._feature_size
        steps = [inputs[:, i : i + size] for i in range(0, width_of(inputs) - size + 1, self._skip)]
        kept = split(state, 2 * len(steps), axis=1)
        below, found = zeros([inputs.shape.as_list()[0] or shape_of(inputs)[0], units], inputs.dtype), []
        with vs.variable_scope(vs.get_variable_scope(), initializer=self._initializer):
            kernel = _sharded("W", size + 2 * units, 4 * units, inputs.dtype, self._shards)
            bias = vs.get_variable("B", [4 * units], inputs.dtype, Zeros())
            names = ("W_F_diag", "W_I_diag", "W_O_diag")
            see_f, see_i, see_o = (
                vs.get_variable(name, [units], inputs.dtype) if self._peepholes else 0.0 for name in names
            )
        for k, part in enumerate(steps):
            c = kept[2 * k]
            gates = bias_add(matmul(concat([part, kept[2 * k + 1], below], 1), kernel), bias)
            i, j, f, o = split(gates, 4, axis=1)
            c = sigmoid(f + self._forget_bias + see_f * c) * c + sigmoid(i + see_i * c) * tanh(j)
            c = c if self._clip is None else clip_by_value(c, -self._clip, self._clip)
            below = sigmoid(o + see_o * c) * tanh(c)
            found += [c, below]
        return concat(found[1::2], 1), concat(found, 1)


@export("tf.contrib.rnn.PhasedLSTMCell")
class PhasedLSTMCell(_Gated):
    """An LSTM whose units change in a part of their period only (``tf.contrib.rnn.PhasedLSTMCell``; Neil et al., 2016).

    The inputs are a pair: the times, [batch, 1], and the values.

    Args:
      use_peepholes: whether the gates read the cell state.
      leak: how much a closed unit changes.
      ratio_on: the part of the period in which a unit is open.
      trainable_ratio_on: whether optimizers change it.
      period_init_min, period_init_max: the bounds of the initial periods.
    """

    def __init__(
        self, num_units: int, use_peepholes: bool = False, leak: float = 0.001, ratio_on: float = 0.1,
        trainable_ratio_on: bool = True, period_init_min: float = 1.0, period_init_max: float = 1000.0,
        reuse: ReuseLike = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, tanh, reuse)
        self.input_spec: Any = None
        self._peepholes, self._leak, self._ratio, self._trains = use_peepholes, leak, ratio_on, trainable_ratio_on
        self._bounds = math.log(period_init_min), math.log(period_init_max)

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    def __call__(
        self, inputs: Any, state: Any, scope: str | VariableScope | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        return RNNCell.__call__(self, inputs, state, scope, *args, **kwargs)

    def _openness(self, time: Tensor) -> Any:
        """How far each unit is open at the times."""
        units = [self._num_units]
        period = vs.get_variable(
            "period", units, initializer=lambda shape, dtype=dtypes.float32, **_: exp(
                random_uniform(shape, *self._bounds, dtype)
            ),
        )  # fmt: skip
        phase = vs.get_variable("phase", units, initializer=RandomUniform(0.0, period.initial_value))
        ratio = vs.get_variable("ratio_on", units, initializer=Constant(self._ratio), trainable=self._trains)
        shifted = time - cast(phase, time.dtype)
        length = cast(period, time.dtype)
        cycle = cast((stop_gradient(mod(shifted, length) - shifted) + shifted) / length, dtypes.float32)
        up = 2 * cycle / ratio
        return where(cycle < 0.5 * ratio, up, where(cycle < ratio, 2 - up, self._leak * cycle))

    def call(self, inputs: Tensor, state: Any) -> Any:
        c, h = state
        time, x = inputs
        with vs.variable_scope("mask_gates"):
            seen = [x, h, c] if self._peepholes else [x, h]
            write, keep = split(sigmoid(linear(seen, 2 * self._num_units)), 2, axis=1)
        with vs.variable_scope("new_input"):
            new_c = c * keep + write * tanh(linear([x, h], self._num_units))
        with vs.variable_scope("output_gate"):
            seen = [x, h, new_c] if self._peepholes else [x, h]
            new_h = tanh(new_c) * sigmoid(linear(seen, self._num_units))
        k = self._openness(time)
        state = LSTMStateTuple(k * new_c + (1 - k) * c, k * new_h + (1 - k) * h)
        return state.h, state


@export("tf.contrib.rnn.GLSTMCell")
class GLSTMCell(_TwoPartState):
    """An LSTM in groups that do not see each other (``tf.contrib.rnn.GLSTMCell``; Kuchaiev and Ginsburg, 2017).

    Args:
      initializer: of the kernels.
      num_proj: the width of the output, by a projection; None: ``num_units``.
      number_of_groups: how many; they divide the widths.
      forget_bias: added to the forget gate.

    Raises:
      ValueError: when the groups do not divide a width.
    """

    def __init__(
        self, num_units: int, initializer: _Function | None = None, num_proj: int | None = None,
        number_of_groups: int = 1,
        forget_bias: float = 1.0, activation: _Function = tanh, reuse: ReuseLike = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, True, activation, reuse)
        self._initializer, self._num_proj, self._groups = initializer, num_proj, number_of_groups
        self._forget_bias = forget_bias
        for name, width in (("num_units", num_units), ("num_proj", num_proj or 0)):
            if width % number_of_groups:
                raise ValueError(f"{name} must be divisible by number_of_groups")

    @property
    def _output_width(self) -> int:
        return self._num_proj or self._num_units

    def call(self, inputs: Tensor, state: Any) -> Any:
        c, m = state
        units, groups = self._num_units, self._groups
        if width_of(inputs) % groups:
            raise ValueError(f"input size ({width_of(inputs)}) must be divisible by number_of_groups ({groups})")
        parts = []
        with vs.variable_scope(vs.get_variable_scope(), initializer=self._initializer):
            for k, pair in enumerate(zip(split(inputs, groups, axis=1), split(m, groups, axis=1))):
                with vs.variable_scope(f"group{k}"):
                    parts.append(split(linear([concat(pair, 1)], 4 * units // groups, bias=False), 4, axis=1))
            i, j, f, o = (
                bias_add(concat(same, 1), vs.get_variable(f"bias_{name}", [units], m.dtype, Constant(0.0)))
                for name, same in zip("ijfo", zip(*parts))
            )
        c = sigmoid(f + self._forget_bias) * c + sigmoid(i) * tanh(j)
        m = sigmoid(o) * self._activation(c)
        if self._num_proj is not None:
            with vs.variable_scope("projection"):
                m = linear([m], self._num_proj, bias=False)
        return m, self._joined(c, m)


@export("tf.contrib.rnn.SRUCell")
class SRUCell(_Gated):
    """A simple recurrent unit (``tf.contrib.rnn.SRUCell``; Lei, Zhang and Artzi, 2017)."""

    def build(self, input_shape: ShapeLike) -> None:
        self._kernel = self.add_weight("kernel", [self._width(input_shape), 4 * self._num_units])
        self._bias = self.add_weight("bias", [2 * self._num_units], initializer=Zeros())

    def call(self, inputs: TensorLike, state: Any) -> Any:
        written, forget, highway, skipped = split(matmul(inputs, self._kernel), 4, axis=1)
        keep, mix = split(sigmoid(bias_add(concat([forget, highway], 1), self._bias)), 2, axis=1)
        c = keep * state + (1.0 - keep) * written
        return mix * self._activation(c) + (1.0 - mix) * skipped, c


# ---- cells whose units see of the state their own part only (Li et al., 2018) ----------------------------------------


class _Independent(_Gated):
    """Base class of these cells: ``inputs @ w + state * u + bias``, once or more."""

    def __init__(
        self, num_units: int, activation: _Function | None = None, reuse: ReuseLike = None,
        kernel_initializer: _Function | None = None,
        bias_initializer: _Function | None = None, name: str | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, activation, reuse, name, dtype)
        self._starts = kernel_initializer, bias_initializer

    def _gates(self, input_shape: ShapeLike, number: int, prefix: str = "", bias: float = 0.0, w: str = "_w") -> Any:
        """The weights of ``number`` gates."""
        units, (kernel, start) = number * self._num_units, self._starts
        return number, (
            self.add_weight(f"{prefix}kernel{w}", [self._width(input_shape), units], initializer=kernel),
            self.add_weight(f"{prefix}kernel_u", [1, units], initializer=RandomUniform(-1, 1)),
            self.add_weight(f"{prefix}bias", [units], initializer=start or Constant(bias)),
        )

    def _seen(self, gates: Any, inputs: TensorLike, state: Any) -> Any:
        number, (w, u, bias) = gates
        return bias_add(matmul(inputs, w) + (tile(state, [1, number]) if number > 1 else state) * u, bias)


@export("tf.contrib.rnn.IndRNNCell")
class IndRNNCell(_Independent):
    """A recurrent network of independent units (``tf.contrib.rnn.IndRNNCell``)."""

    def __init__(
        self, num_units: int, activation: _Function | None = None, reuse: ReuseLike = None, name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, activation, reuse, name=name, dtype=dtype)

    def build(self, input_shape: ShapeLike) -> None:
        self._weights = self._gates(input_shape, 1)

    def call(self, inputs: TensorLike, state: Any) -> Any:
        output = self._activation(self._seen(self._weights, inputs, state))
        return output, output


@export("tf.contrib.rnn.IndyGRUCell")
class IndyGRUCell(_Independent):
    """A GRU of independent units (``tf.contrib.rnn.IndyGRUCell``)."""

    def build(self, input_shape: ShapeLike) -> None:
        self._both = self._gates(input_shape, 2, "gates/", 1.0)
        self._candidate = self._gates(input_shape, 1, "candidate/", w="")

    def call(self, inputs: TensorLike, state: Any) -> Any:
        reset, keep = split(sigmoid(self._seen(self._both, inputs, state)), 2, axis=1)
        new = keep * state + (1 - keep) * self._activation(self._seen(self._candidate, inputs, reset * state))
        return new, new


@export("tf.contrib.rnn.IndyLSTMCell")
class IndyLSTMCell(_Independent):
    """An LSTM of independent units (``tf.contrib.rnn.IndyLSTMCell``)."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_units, *args, **kwargs)
        self._forget_bias = forget_bias

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    def build(self, input_shape: ShapeLike) -> None:
        self._weights = self._gates(input_shape, 4)

    def call(self, inputs: TensorLike, state: Any) -> Any:
        c, h = state
        i, j, f, o = split(self._seen(self._weights, inputs, h), 4, axis=1)
        c = c * sigmoid(f + self._forget_bias) + sigmoid(i) * self._activation(j)
        h = self._activation(c) * sigmoid(o)
        return h, LSTMStateTuple(c, h)


# ---- convolutional LSTMs (Shi et al., 2015) --------------------------------------------------------------------------


@export("tf.contrib.rnn.ConvLSTMCell")
class ConvLSTMCell(RNNCell):
    """An LSTM of images, by convolutions (``tf.contrib.rnn.ConvLSTMCell``).

    Args:
      conv_ndims: 1, 2 or 3 spatial axes.
      input_shape: of the inputs without the batch: the spatial sizes and the channels.
      output_channels: the channels of state and output.
      kernel_shape: the sizes of the kernel.
      use_bias: whether the gates have a bias.
      skip_connection: whether the output has the inputs' channels, too.
      forget_bias: added to the forget gate.
      initializers: ignored, as in TensorFlow.

    Raises:
      ValueError: when ``input_shape`` has another number of axes; in the first step for other than 1, 2 or 3 of them.
    """

    def __init__(
        self, conv_ndims: int, input_shape: ShapeLike, output_channels: int, kernel_shape: Sequence[int],
        use_bias: bool = True, skip_connection: bool = False, forget_bias: float = 1.0, initializers: object = None,
        name: str = "conv_lstm_cell",
    ) -> None:  # fmt: skip
        super().__init__(name=name)
        self._sizes: list[Any] = TensorShape(input_shape).as_list()
        if conv_ndims != len(self._sizes) - 1:
            raise ValueError(f"Invalid input_shape {input_shape} for conv_ndims={conv_ndims}.")
        self._channels, self._kernel_shape, self._use_bias = output_channels, list(kernel_shape), use_bias
        self._skip, self._forget_bias = skip_connection, forget_bias

    @property
    def output_size(self) -> Any:
        return TensorShape([*self._sizes[:-1], self._channels + (self._sizes[-1] if self._skip else 0)])

    @property
    def state_size(self) -> Any:
        size = TensorShape([*self._sizes[:-1], self._channels])
        return LSTMStateTuple(size, size)

    def call(self, inputs: Any, state: Any, scope: object = None) -> Any:
        c, h = state
        joined = concat([inputs, h], -1)
        shape = [*self._kernel_shape, width_of(joined), 4 * self._channels]
        gates = convolution(joined, vs.get_variable("kernel", shape, joined.dtype), "SAME")
        if self._use_bias:
            gates = gates + vs.get_variable("biases", shape[-1:], joined.dtype, Constant(0.0))
        i, j, f, o = split(gates, 4, axis=-1)
        c = sigmoid(f + self._forget_bias) * c + sigmoid(i) * tanh(j)
        h = tanh(c) * sigmoid(o)
        # TensorFlow keeps the inputs in the state, too, which then does not fit the next step.
        return concat([h, inputs], -1) if self._skip else h, LSTMStateTuple(c, h)


def _of_dimensions(ndims: int) -> type[ConvLSTMCell]:
    def make(self: Any, name: str = f"conv_{ndims}d_lstm_cell", **kwargs: Any) -> None:
        ConvLSTMCell.__init__(self, ndims, name=name, **kwargs)

    doc = f"A `ConvLSTMCell` with {ndims} spatial axes (``tf.contrib.rnn.Conv{ndims}DLSTMCell``)."
    return type(f"Conv{ndims}DLSTMCell", (ConvLSTMCell,), {"__init__": make, "__doc__": doc, "__module__": __name__})


Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell = map(_of_dimensions, (1, 2, 3))
export_names("tf.contrib.rnn", "Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell")
