"""Cells of recurrent networks (``tf.nn.rnn_cell``): one step (inputs, state) -> (output, new state)."""

from __future__ import annotations

import hashlib
import itertools
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
from tfmini.graph.scoping import count_ops, counted_as, device, name_scope
from tfmini.layers.base import InputSpec, Layer, activation_of
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.joining import concat, split, stack
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.slicing import slice as slice_tensor
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.math.elementwise import add, div, multiply
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import floor, sigmoid, tanh
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.nn.normalization import dropout
from tfmini.ops.random_functions import random_uniform
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.initializers import Constant, Zeros
from tfmini.ops.variables.partitioners import Partitioner, fixed_size_partitioner
from tfmini.ops.variables.scope import VariableScope
from tfmini.ops.variables.store import ReuseLike
from tfmini.shapes import TensorShape

_KERNEL, _BIAS = "kernel", "bias"


@export("tf.contrib.rnn.LSTMStateTuple", "tf.nn.rnn_cell.LSTMStateTuple")
class LSTMStateTuple(namedtuple("LSTMStateTuple", ("c", "h"))):
    """The state of an LSTM: cell state and output, ``[batch, units]`` each (``tf.nn.rnn_cell.LSTMStateTuple``)."""

    __slots__ = ()

    @property
    def dtype(self) -> Any:
        """The type of both parts; raises TypeError if they differ."""
        if self.c.dtype != self.h.dtype:
            raise TypeError(f"Inconsistent internal state: {self.c.dtype} vs {self.h.dtype}")
        return self.c.dtype


@export("tf.contrib.rnn.RNNCell", "tf.nn.rnn_cell.RNNCell")
class RNNCell(Layer):
    """Base class of all cells (``tf.nn.rnn_cell.RNNCell``).

    A subclass defines ``state_size`` and ``output_size`` (ints, shapes, or structures of those) and
    ``call(inputs, state)``.
    """

    @property
    def state_size(self) -> Any:
        raise NotImplementedError("Abstract method")

    @property
    def output_size(self) -> Any:
        raise NotImplementedError("Abstract method")

    def __call__(
        self, inputs: Any, state: Any, scope: str | VariableScope | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Runs one step for inputs ``[batch, width]``: (output, new state)."""
        if scope is None:
            return super().__call__(inputs, state, *args, **kwargs)
        with vs.variable_scope(scope) as opened:
            return super().__call__(inputs, state, *args, scope=opened, **kwargs)

    def build(self, input_shape: ShapeLike) -> None:
        self.built = True

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        """A state of zeros."""
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            return nest.map_structure(lambda size: zero_rows(batch_size, size, dtype), self.state_size)

    def get_initial_state(self, inputs: TensorLike | None = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """`zero_state` with the batch size and type of ``inputs``, or those given."""
        if inputs is not None:
            inputs = convert_to_tensor(inputs)
            if batch_size is not None:
                _check_batch(inputs, batch_size)
            if dtype is not None and dtypes.as_dtype(dtype) != inputs.dtype:
                raise ValueError(
                    f"dtype from input tensor is different from dtype, got input dtype={inputs.dtype}, dtype={dtype}"
                )
            batch_size, dtype = shape_of(inputs)[0], inputs.dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                "batch_size and dtype cannot be None while constructing initial state:"
                f" batch_size={batch_size}, dtype={dtype}"
            )
        return self.zero_state(batch_size, dtype)


def _check_batch(inputs: Tensor, batch_size: TensorLike) -> None:
    given = constant_value(batch_size) if isinstance(batch_size, Tensor) else batch_size
    if given != inputs.shape.as_list()[0]:
        raise ValueError(
            "batch size from input tensor is different from the input param."
            f" Input tensor batch: {inputs.shape.as_list()[0]}, batch_size: {given}"
        )


def zero_rows(batch_size: TensorLike, size: ShapeLike, dtype: DTypeLike) -> Any:
    """Return zeros of a size of a cell, for each row of a batch."""
    sizes = TensorShape(size).as_list() if not isinstance(size, (int, np.integer)) else [size]
    if isinstance(batch_size, (int, np.integer)):
        with counted_as(8):
            return zeros([batch_size, *sizes], dtype=dtype)
    with counted_as(10):
        result = zeros(stack([batch_size, *sizes]), dtype=dtype)
    result.set_shape(TensorShape([None, *sizes]))
    return result


class _Gated(RNNCell):
    """Base class of the cells that compute ``[inputs, state] @ kernel + bias``, once or more."""

    def __init__(
        self,
        num_units: int,
        activation: Callable[..., Any] | None = None,
        reuse: ReuseLike = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse, **kwargs)
        self._num_units = num_units
        self._activation = activation_of(activation) or tanh
        self.input_spec = InputSpec(ndim=2)

    @property
    def state_size(self) -> Any:
        return self._num_units

    @property
    def output_size(self) -> Any:
        return self._num_units

    def __call__(
        self, inputs: TensorLike, state: object, scope: str | VariableScope | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        inputs = convert_to_tensor(inputs)
        if not inputs.dtype.is_floating and not inputs.dtype.is_complex:
            raise ValueError(f"RNN cell only supports floating point inputs, but saw dtype: {inputs.dtype.name}")
        return super().__call__(inputs, state, scope, *args, **kwargs)

    def _width(self, input_shape: ShapeLike) -> int:
        width = TensorShape(input_shape).as_list()[-1]
        if width is None:
            raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {input_shape}")
        return int(width)


@export("tf.contrib.rnn.BasicRNNCell", "tf.nn.rnn_cell.BasicRNNCell")
class BasicRNNCell(_Gated):
    """``output = state = activation(W [inputs, state] + b)`` (``tf.nn.rnn_cell.BasicRNNCell``)."""

    def build(self, input_shape: ShapeLike) -> None:
        rows = self._width(input_shape) + self._num_units
        self._kernel = self.add_weight(_KERNEL, [rows, self._num_units])
        self._bias = self.add_weight(_BIAS, [self._num_units], initializer=Zeros(dtype=self._dtype))

    def call(self, inputs: TensorLike, state: TensorLike) -> Any:
        output = self._activation(bias_add(matmul(concat([inputs, state], 1), self._kernel), self._bias))
        return output, output


@export("tf.contrib.rnn.GRUCell", "tf.nn.rnn_cell.GRUCell")
class GRUCell(_Gated):
    """A gated recurrent unit (``tf.nn.rnn_cell.GRUCell``)."""

    _weight_names = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")

    def __init__(
        self,
        num_units: int,
        activation: Callable[..., Any] | None = None,
        reuse: ReuseLike = None,
        kernel_initializer: Callable[..., Any] | None = None,
        bias_initializer: Callable[..., Any] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype, **kwargs)
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    def build(self, input_shape: ShapeLike) -> None:
        units = self._num_units
        rows = self._width(input_shape) + units
        start, bias = self._kernel_initializer, self._bias_initializer
        w_gates, b_gates, w_candidate, b_candidate = self._weight_names
        self._gate_kernel = self.add_weight(w_gates, [rows, 2 * units], initializer=start)
        self._gate_bias = self.add_weight(b_gates, [2 * units], initializer=bias or Constant(1.0, self._dtype))
        self._candidate_kernel = self.add_weight(w_candidate, [rows, units], initializer=start)
        self._candidate_bias = self.add_weight(b_candidate, [units], initializer=bias or Zeros(self._dtype))

    def call(self, inputs: TensorLike, state: TensorLike) -> Any:
        gates = sigmoid(bias_add(matmul(concat([inputs, state], 1), self._gate_kernel), self._gate_bias))
        r, u = split(value=gates, num_or_size_splits=2, axis=1)
        kept = concat([inputs, multiply(r, state)], 1)
        candidate = self._activation(bias_add(matmul(kept, self._candidate_kernel), self._candidate_bias))
        new = u * state + (1 - u) * candidate
        return new, new


class _TwoPartState(_Gated):
    """Base class of the LSTM cells: the state is a tuple of two parts, or both concatenated in one tensor."""

    def __init__(self, num_units: int, state_is_tuple: bool, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_units, *args, **kwargs)
        self._state_is_tuple = state_is_tuple

    @property
    def _output_width(self) -> int:
        return self._num_units

    @property
    def state_size(self) -> Any:
        if self._state_is_tuple:
            return LSTMStateTuple(self._num_units, self._output_width)
        return self._num_units + self._output_width

    @property
    def output_size(self) -> Any:
        return self._output_width

    def _parts(self, state: Any) -> Any:
        if self._state_is_tuple:
            return state
        with counted_as(6):
            return split(value=state, num_or_size_splits=[self._num_units, self._output_width], axis=1)

    def _joined(self, c: TensorLike, h: TensorLike) -> Any:
        return LSTMStateTuple(c, h) if self._state_is_tuple else concat([c, h], 1)


@export("tf.contrib.rnn.BasicLSTMCell", "tf.nn.rnn_cell.BasicLSTMCell")
class BasicLSTMCell(_TwoPartState):
    """An LSTM without peepholes or projection (``tf.nn.rnn_cell.BasicLSTMCell``).

    Args:
      num_units: the width of the output.
      forget_bias: added to the forget gate.
      state_is_tuple: whether the state is an `LSTMStateTuple`.
      activation: default tanh.
      reuse: whether to reuse existing variables.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Callable[..., Any] | None = None,
        reuse: ReuseLike = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, state_is_tuple, activation, reuse, name, dtype, **kwargs)
        self._forget_bias = forget_bias

    def build(self, input_shape: ShapeLike) -> None:
        rows = self._width(input_shape) + self._num_units
        self._kernel = self.add_weight(_KERNEL, [rows, 4 * self._num_units])
        self._bias = self.add_weight(_BIAS, [4 * self._num_units], initializer=Zeros(dtype=self._dtype))

    def call(self, inputs: TensorLike, state: Any) -> Any:
        one = constant(1, dtype=dtypes.int32)
        c, h = state if self._state_is_tuple else split(value=state, num_or_size_splits=2, axis=one)
        gates = bias_add(matmul(concat([inputs, h], 1), self._kernel), self._bias)
        i, j, f, o = split(value=gates, num_or_size_splits=4, axis=one)
        forget = constant(self._forget_bias, dtype=f.dtype)
        new_c = add(multiply(c, sigmoid(add(f, forget))), multiply(sigmoid(i), self._activation(j)))
        new_h = multiply(self._activation(new_c), sigmoid(o))
        return new_h, self._joined(new_c, new_h)


def _partitioner(shards: int | None) -> Partitioner | None:
    return None if shards is None else fixed_size_partitioner(shards)


@export("tf.contrib.rnn.LSTMCell", "tf.nn.rnn_cell.LSTMCell")
class LSTMCell(_TwoPartState):
    """An LSTM with optional peepholes, clipping and projection (``tf.nn.rnn_cell.LSTMCell``).

    Args:
      use_peepholes: whether the gates read the cell state.
      cell_clip: bound of the cell state's absolute value.
      initializer: initializer of the weights.
      num_proj: the width of the output after a projection.
      proj_clip: bound of the projected output's absolute value.
      num_unit_shards, num_proj_shards: number of partitions of the kernels; None for no partitioning.
        (TensorFlow deprecates them; it recommends the partitioner of a variable scope.)
      The others are those of `BasicLSTMCell`.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Callable[..., Any] | None = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int | None = None,
        num_proj_shards: int | None = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Callable[..., Any] | None = None,
        reuse: ReuseLike = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, state_is_tuple, activation, reuse, name, dtype, **kwargs)
        self._use_peepholes, self._cell_clip, self._initializer = use_peepholes, cell_clip, initializer
        self._num_proj, self._proj_clip, self._forget_bias = num_proj, proj_clip, forget_bias
        self._unit_partitioner, self._proj_partitioner = _partitioner(num_unit_shards), _partitioner(num_proj_shards)

    @property
    def _output_width(self) -> int:
        return self._num_proj or self._num_units

    def build(self, input_shape: ShapeLike) -> None:
        units, start, unit_parts = self._num_units, self._initializer, self._unit_partitioner
        rows = self._width(input_shape) + self._output_width
        self._kernel = self.add_weight(_KERNEL, [rows, 4 * units], initializer=start, partitioner=unit_parts)
        self._bias = self.add_weight(_BIAS, [4 * units], initializer=Zeros(dtype=self._dtype))
        if self._use_peepholes:
            names = ("w_f_diag", "w_i_diag", "w_o_diag")
            self._peepholes = [self.add_weight(name, [units], initializer=start) for name in names]
        if self._num_proj is not None:
            self._projection = self.add_weight(
                "projection/kernel", [units, self._num_proj], initializer=start, partitioner=self._proj_partitioner
            )

    def call(self, inputs: TensorLike, state: Any) -> Any:
        c, h = self._parts(state)
        gates = bias_add(matmul(concat([inputs, h], 1), self._kernel), self._bias)
        i, j, f, o = split(value=gates, num_or_size_splits=4, axis=1)
        f = f + self._forget_bias
        if self._use_peepholes:
            f, i = f + self._peepholes[0] * c, i + self._peepholes[1] * c
        new_c = sigmoid(f) * c + sigmoid(i) * self._activation(j)
        if self._cell_clip is not None:
            new_c = clip_by_value(new_c, -self._cell_clip, self._cell_clip)
        if self._use_peepholes:
            o = o + self._peepholes[2] * new_c
        new_h = sigmoid(o) * self._activation(new_c)
        if self._num_proj is not None:
            new_h = matmul(new_h, self._projection)
            if self._proj_clip is not None:
                new_h = clip_by_value(new_h, -self._proj_clip, self._proj_clip)
        return new_h, self._joined(new_c, new_h)


@export("tf.contrib.rnn.MultiRNNCell", "tf.nn.rnn_cell.MultiRNNCell")
class MultiRNNCell(RNNCell):
    """A stack of cells (``tf.nn.rnn_cell.MultiRNNCell``).

    Args:
      cells: the cells, beginning with the one that reads the inputs.
      state_is_tuple: whether the state is a tuple of the cells' states rather than their concatenation.
    """

    def __init__(self, cells: Sequence[RNNCell], state_is_tuple: bool = True) -> None:
        super().__init__()
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        if not isinstance(cells, (list, tuple)):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells}.")
        self._cells, self._state_is_tuple = list(cells), state_is_tuple
        if not state_is_tuple and any(isinstance(cell.state_size, tuple) for cell in cells):
            raise ValueError("Some cells return tuples of states, but the flag state_is_tuple is not set.")

    @property
    def state_size(self) -> Any:
        sizes = tuple(cell.state_size for cell in self._cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        return self._cells[-1].output_size

    @property
    def trainable_weights(self) -> list[Any]:
        return [w for cell in self._cells for w in cell.trainable_weights] if self.trainable else []

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        if not self._state_is_tuple:
            return super().zero_state(batch_size, dtype)
        with name_scope("MultiRNNCellZeroState", values=[batch_size]):
            return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)

    def call(self, inputs: object, state: Any) -> Any:
        if self._state_is_tuple:
            states = list(state) if nest.is_nested(state) else []
            if len(states) != len(self._cells):
                raise ValueError(f"Expected state to be a tuple of length {len(self._cells)}, but received: {state}")
        else:
            starts = itertools.accumulate((cell.state_size for cell in self._cells), initial=0)
            states = [([0, start], [-1, cell.state_size]) for start, cell in zip(starts, self._cells)]
        new = []
        for i, cell in enumerate(self._cells):
            with vs.variable_scope(f"cell_{i}"):
                inputs, after = cell(inputs, states[i] if self._state_is_tuple else slice_tensor(state, *states[i]))
                new.append(after)
        return inputs, tuple(new) if self._state_is_tuple else concat(new, 1)


# ---- Wrappers of cells (``tf.nn.rnn_cell``): dropout, residual connections, devices --------------------------------


class _Wrapper(RNNCell):
    """Base class of wrappers; state, output, variables and scope are the inner cell's."""

    def __init__(self, cell: RNNCell) -> None:
        super().__init__()
        self._cell = cell

    @property
    def wrapped_cell(self) -> RNNCell:
        """The inner cell."""
        return self._cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    @property
    def trainable_weights(self) -> list[Any]:
        return self._cell.trainable_weights

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        return self._cell.zero_state(batch_size, dtype)

    def __call__(
        self, inputs: object, state: object, scope: str | VariableScope | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        return self.call(inputs, state, scope)

    def call(self, inputs: object, state: object, scope: str | VariableScope | None = None) -> Any:
        return self._cell(inputs, state, scope=scope)


@export("tf.contrib.rnn.DropoutWrapper", "tf.nn.rnn_cell.DropoutWrapper")
class DropoutWrapper(_Wrapper):
    """Dropout of a cell's inputs, outputs and states (``tf.nn.rnn_cell.DropoutWrapper``).

    Args:
      input_keep_prob, output_keep_prob, state_keep_prob: the probabilities to keep an element.
      variational_recurrent: whether all steps and examples of a run use the same dropout mask.
      input_size: the input's sizes without batch, for variational dropout of inputs.
      dtype: type of inputs, states and outputs, for variational dropout.
      seed: seed of the masks.
      dropout_state_filter_visitor: a function that selects the parts of a state to drop; default: all but ``c``.

    Raises:
      ValueError: when a probability is not in (0, 1], or a size or dtype is missing.
    """

    def __init__(
        self,
        cell: RNNCell,
        input_keep_prob: TensorLike = 1.0,
        output_keep_prob: TensorLike = 1.0,
        state_keep_prob: TensorLike = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: DTypeLike | None = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell)
        self._keep = {"input": input_keep_prob, "state": state_keep_prob, "output": output_keep_prob}
        count_ops(sum(not hasattr(keep, "op") for keep in self._keep.values()))  # numbers as tensors
        for name, keep in self._keep.items():
            if isinstance(keep, (int, float)) and not 0 < keep <= 1:
                raise ValueError(f"Parameter {name}_keep_prob must be between 0 and 1: {keep}")
        self._seed = seed
        self._visitor = dropout_state_filter_visitor or _all_but_the_cell
        # "input", "state", "output" -> nested structure of random numbers in [0, 1), from which all masks derive.
        self._noise = self._variational_noise(input_size, dtype) if variational_recurrent else {}

    def _variational_noise(self, input_size: Any, dtype: DTypeLike | None) -> dict[str, Any]:
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")
        sizes = {"state": self._cell.state_size, "output": self._cell.output_size}
        if _drops(self._keep["input"]):
            if input_size is None:
                raise ValueError(
                    "When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, input_size must be"
                    " provided"
                )
            sizes = {"input": input_size, **sizes}

        def noise_of(salt: str) -> Any:
            numbers = itertools.count()

            def noise(size: ShapeLike) -> Tensor:
                shape = [1, *TensorShape(size).as_list()]  # the examples of a batch share it
                count_ops(3)  # TensorFlow joins the shape
                return random_uniform(shape, seed=self._seed_of(salt, next(numbers)), dtype=dtype)

            return nest.map_structure(noise, sizes[salt])

        return {salt: noise_of(salt) for salt in sizes}

    def call(self, inputs: object, state: object, scope: str | VariableScope | None = None) -> Any:
        inputs = self._dropped("input", inputs, _everything(inputs))
        output, new_state = self._cell(inputs, state, scope=scope)
        if _drops(self._keep["state"]):
            new_state = self._dropped("state", new_state, _chosen(self._visitor, new_state))
        return self._dropped("output", output, _everything(output)), new_state

    def _dropped(self, salt: str, values: Any, chosen: Any) -> Any:
        """Applies dropout to the parts of ``values`` for which ``chosen`` is True."""
        if not _drops(self._keep[salt]):
            return values
        numbers = itertools.count()

        def dropped(chosen: Any, value: Any, noise: Any) -> Any:
            if isinstance(chosen, bool):
                number = next(numbers)
                return self._drop(salt, number, value, noise) if chosen else value
            parts = zip(chosen, value, [None] * len(value) if noise is None else noise)
            items = [dropped(*part) for part in parts]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)

        return dropped(chosen, values, self._noise.get(salt))

    def _drop(self, salt: str, number: int, value: Tensor, noise: TensorLike) -> Any:
        keep = self._keep[salt]
        if noise is None:
            return dropout(value, keep_prob=keep, seed=self._seed_of(salt, number))
        result = multiply(div(value, keep), floor(add(noise, keep)))
        result.set_shape(value.shape)
        return result

    def _seed_of(self, salt: str, number: int) -> int | None:
        if self._seed is None:
            return None
        digest = hashlib.md5(f"{self._seed}{salt}_{number}".encode(), usedforsecurity=False).hexdigest()
        return int(digest[:8], 16) & 0x7FFFFFFF


def _drops(keep: TensorLike) -> bool:
    return not isinstance(keep, (int, float)) or keep < 1


def _everything(values: object) -> Any:
    return nest.map_structure(lambda _: True, values)


def _all_but_the_cell(state: object) -> Any:
    if isinstance(state, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return not isinstance(state, TensorArray)


def _chosen(visitor: Callable[..., Any], state: Any) -> Any:
    """The visitor's answers for a state and, where it returns True, for its parts: a structure of bools."""
    answer = visitor(state)
    if not nest.is_nested(state) or answer is False:
        return answer
    answers = [True] * len(state) if answer is True else answer
    return [_chosen(visitor, part) if wanted else False for part, wanted in zip(state, answers)]


@export("tf.contrib.rnn.ResidualWrapper", "tf.nn.rnn_cell.ResidualWrapper")
class ResidualWrapper(_Wrapper):
    """Adds a cell's inputs to its outputs (``tf.nn.rnn_cell.ResidualWrapper``)."""

    def __init__(self, cell: RNNCell, residual_fn: Callable[..., Any] | None = None, **kwargs: Any) -> None:
        super().__init__(cell)
        self._residual = residual_fn or (lambda i, o: nest.map_structure(add, i, o))

    def call(self, inputs: object, state: object, scope: str | VariableScope | None = None) -> Any:
        outputs, new_state = self._cell(inputs, state, scope=scope)
        return self._residual(inputs, outputs), new_state


@export("tf.contrib.rnn.DeviceWrapper", "tf.nn.rnn_cell.DeviceWrapper")
class DeviceWrapper(_Wrapper):
    """Places the ops of a cell on a device (``tf.nn.rnn_cell.DeviceWrapper``)."""

    def __init__(self, cell: RNNCell, device: str | Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(cell)
        self._device = device

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        with device(self._device):
            return self._cell.zero_state(batch_size, dtype)

    def call(self, inputs: object, state: object, scope: str | VariableScope | None = None) -> Any:
        with device(self._device):
            return self._cell(inputs, state, scope=scope)
