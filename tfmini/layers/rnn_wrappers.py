"""``tf.nn.rnn_cell``: cells around a cell: dropout, residual connections, devices."""

from __future__ import annotations

import hashlib
from typing import Any

from tfmini.graph import nest
from tfmini.layers.rnn_cells import LSTMStateTuple, RNNCell
from tfmini.ops.math_elementwise import add, divide, multiply
from tfmini.ops.math_unary import floor
from tfmini.ops.nn_norm import dropout
from tfmini.ops.random_values import random_uniform
from tfmini.ops.scoping import device
from tfmini.shapes import TensorShape

__all__ = ["DeviceWrapper", "DropoutWrapper", "ResidualWrapper"]


class _Wrapper(RNNCell):
    """The base: state and output are the inner cell's, as are the variables and their scope."""

    def __init__(self, cell: RNNCell) -> None:
        super().__init__()
        self._cell = cell

    @property
    def wrapped_cell(self) -> RNNCell:
        """The cell inside."""
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


class DropoutWrapper(_Wrapper):
    """Dropout of a cell's inputs, outputs and states (``tf.nn.rnn_cell.DropoutWrapper``).

    Args:
      input_keep_prob, output_keep_prob, state_keep_prob: the shares to keep.
      dropout_state_filter_visitor: says which parts of a state are dropped; default: all but ``c``.
      variational_recurrent: the same elements are dropped in every step; needs ``dtype``, and ``input_size``
        where inputs are dropped.
      input_size: the shape of the inputs without the batch, or a structure of such shapes.
      dtype: of inputs, states and outputs.
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
        for name, keep in (("input", input_keep_prob), ("output", output_keep_prob), ("state", state_keep_prob)):
            if isinstance(keep, (int, float)) and not 0 < keep <= 1:
                raise ValueError(f"Parameter {name}_keep_prob must be between 0 and 1: {keep}")
        self._keep = (input_keep_prob, state_keep_prob, output_keep_prob)
        self._seed = seed
        self._visitor = dropout_state_filter_visitor or _all_but_the_cell
        self._noise: dict[str, Any] = {}
        if variational_recurrent:
            self._draw_noise(input_size, dtype)

    def _draw_noise(self, input_size: Any, dtype: Any) -> None:
        """Decides once, for all steps, what is dropped: random numbers of the shape of each part."""
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")
        if _drops(self._keep[0]) and input_size is None:
            raise ValueError(
                "When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, input_size must be provided"
            )
        sizes = {"input": input_size, "state": self._cell.state_size, "output": self._cell.output_size}
        for (what, structure), keep in zip(sizes.items(), (self._keep[0], self._keep[1], self._keep[2])):
            if _drops(keep):
                self._noise[what] = [
                    random_uniform([1, *_sides(size)], seed=self._seed_of(f"{what}{i}"), dtype=dtype)
                    for i, size in enumerate(nest.flatten(structure))
                ]

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        inputs = self._dropped(inputs, "input", self._keep[0])
        output, new_state = self._cell(inputs, state, scope=scope)
        if _drops(self._keep[1]):
            new_state = self._dropped_state(new_state)
        return self._dropped(output, "output", self._keep[2]), new_state

    def _dropped_state(self, state: Any) -> Any:
        chosen = self._visitor(state)
        flat = nest.flatten(state)
        wanted = [chosen] * len(flat) if isinstance(chosen, bool) else nest.flatten(chosen)
        parts = [
            self._drop_part(part, "state", self._keep[1], i) if drops else part
            for i, (part, drops) in enumerate(zip(flat, wanted))
        ]
        return nest.pack_sequence_as(state, parts)

    def _dropped(self, value: Any, what: str, keep: Any) -> Any:
        if not _drops(keep):
            return value
        parts = [self._drop_part(part, what, keep, i) for i, part in enumerate(nest.flatten(value))]
        return nest.pack_sequence_as(value, parts)

    def _drop_part(self, value: Any, what: str, keep: Any, index: int) -> Any:
        if what not in self._noise:
            return dropout(value, keep_prob=keep, seed=self._seed_of(what))
        kept = floor(add(keep, self._noise[what][index]))
        result = multiply(divide(value, keep), kept)
        result.set_shape(value.shape)
        return result

    def _seed_of(self, salt: str) -> int | None:
        if self._seed is None:
            return None
        digest = hashlib.md5(f"{self._seed}_{salt}".encode()).hexdigest()
        return int(digest[:8], 16) & 0x7FFFFFFF


def _sides(size: Any) -> list[Any]:
    return [size] if isinstance(size, int) else TensorShape(size).as_list()


def _drops(keep: Any) -> bool:
    return not isinstance(keep, (int, float)) or keep < 1


def _all_but_the_cell(state: Any) -> Any:
    if isinstance(state, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    if isinstance(state, tuple):
        return tuple(_all_but_the_cell(part) for part in state)
    return True


class ResidualWrapper(_Wrapper):
    """Adds a cell's inputs to its outputs (``tf.nn.rnn_cell.ResidualWrapper``)."""

    def __init__(self, cell: RNNCell, residual_fn: Any = None, **kwargs: Any) -> None:
        super().__init__(cell)
        self._residual = residual_fn or (lambda i, o: nest.map_structure(add, i, o))

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        outputs, new_state = self._cell(inputs, state, scope=scope)
        return self._residual(inputs, outputs), new_state


class DeviceWrapper(_Wrapper):
    """Puts a cell on a device (``tf.nn.rnn_cell.DeviceWrapper``)."""

    def __init__(self, cell: RNNCell, device: Any, **kwargs: Any) -> None:
        super().__init__(cell)
        self._device = device

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        with device(self._device):
            return self._cell.zero_state(batch_size, dtype)

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        with device(self._device):
            return self._cell(inputs, state, scope=scope)
