"""Wrappers of cells (``tf.nn.rnn_cell``): dropout, residual connections, devices."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import device
from tfmini.layers.rnn.cells import LSTMStateTuple, RNNCell
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.math.elementwise import add, div, multiply
from tfmini.ops.math.unary import floor
from tfmini.ops.nn.normalization import dropout
from tfmini.ops.random.functions import random_uniform
from tfmini.shapes import TensorShape


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

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return self._cell.zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self.call(inputs, state, scope)

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
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
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell)
        self._keep = {"input": input_keep_prob, "state": state_keep_prob, "output": output_keep_prob}
        for name, keep in self._keep.items():
            if isinstance(keep, (int, float)) and not 0 < keep <= 1:
                raise ValueError(f"Parameter {name}_keep_prob must be between 0 and 1: {keep}")
        self._seed = seed
        self._visitor = dropout_state_filter_visitor or _all_but_the_cell
        # "input", "state", "output" -> nested structure of random numbers in [0, 1), from which all masks derive.
        self._noise = self._variational_noise(input_size, dtype) if variational_recurrent else {}

    def _variational_noise(self, input_size: Any, dtype: Any) -> dict[str, Any]:
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

            def noise(size: Any) -> Tensor:
                shape = [1, *TensorShape(size).as_list()]  # the examples of a batch share it
                return random_uniform(shape, seed=self._seed_of(salt, next(numbers)), dtype=dtype)

            return nest.map_structure(noise, sizes[salt])

        return {salt: noise_of(salt) for salt in sizes}

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
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

    def _drop(self, salt: str, number: int, value: Any, noise: Any) -> Any:
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


def _drops(keep: Any) -> bool:
    return not isinstance(keep, (int, float)) or keep < 1


def _everything(values: Any) -> Any:
    return nest.map_structure(lambda _: True, values)


def _all_but_the_cell(state: Any) -> Any:
    if isinstance(state, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return not isinstance(state, TensorArray)


def _chosen(visitor: Any, state: Any) -> Any:
    """The visitor's answers for a state and, where it returns True, for its parts: a structure of bools."""
    answer = visitor(state)
    if not nest.is_nested(state) or answer is False:
        return answer
    answers = [True] * len(state) if answer is True else answer
    return [_chosen(visitor, part) if wanted else False for part, wanted in zip(state, answers)]


@export("tf.contrib.rnn.ResidualWrapper", "tf.nn.rnn_cell.ResidualWrapper")
class ResidualWrapper(_Wrapper):
    """Adds a cell's inputs to its outputs (``tf.nn.rnn_cell.ResidualWrapper``)."""

    def __init__(self, cell: RNNCell, residual_fn: Any = None, **kwargs: Any) -> None:
        super().__init__(cell)
        self._residual = residual_fn or (lambda i, o: nest.map_structure(add, i, o))

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        outputs, new_state = self._cell(inputs, state, scope=scope)
        return self._residual(inputs, outputs), new_state


@export("tf.contrib.rnn.DeviceWrapper", "tf.nn.rnn_cell.DeviceWrapper")
class DeviceWrapper(_Wrapper):
    """Places the ops of a cell on a device (``tf.nn.rnn_cell.DeviceWrapper``)."""

    def __init__(self, cell: RNNCell, device: Any, **kwargs: Any) -> None:
        super().__init__(cell)
        self._device = device

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        with device(self._device):
            return self._cell.zero_state(batch_size, dtype)

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        with device(self._device):
            return self._cell(inputs, state, scope=scope)
