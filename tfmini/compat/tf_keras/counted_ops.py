"""How many ops TensorFlow's layers make where those of the copy make others: a graph's seed counts them.

With ``tf.set_random_seed``, the number of ops so far is the seed of the next random op (decision 6). The numbers are
those of 1.15.5 less those of tfmini, for the common arguments of a layer; with others its successors get other numbers.
"""

from __future__ import annotations

import re
from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops

_ALWAYS = {
    "Masking": -3, "SpatialDropout1D": -2, "SpatialDropout2D": -2, "SpatialDropout3D": -2, "Conv2DTranspose": 4,
    "LocallyConnected1D": 1, "LocallyConnected2D": 1,
}  # fmt: skip
_CONVOLUTION = re.compile(r"(Separable)?Conv\dD")
# Cell -> in each call: without dropout, with it, and what a mask, one product, no bias and a stateful layer add.
_RECURRENT = {
    "LSTM": (44, 49, -11, -68, -12, -15), "GRU": (34, 82, -5, -36, -32, -8), "SimpleRNN": (-2, -2, -5, 0, 0, -11),
}  # fmt: skip
_GATES = {"LSTMCell": 4, "GRUCell": 3, "ConvLSTM2DCell": 4}
# (center, scale) of a layer normalisation, training of a batch normalisation that is not fused
_NORMS = {(True, True): -2, (True, False): 0, (False, True): 1, (False, False): 3, None: 2, True: -2, False: 0}

# Function or class -> for a loss of examples with one axis, and for a metric.
_LOSSES = {
    "mean_squared_error": 7, "mean_absolute_error": 8, "mean_absolute_percentage_error": 8,
    "mean_squared_logarithmic_error": 7, "hinge": 1, "squared_hinge": 1, "categorical_hinge": 8, "logcosh": 8,
    "categorical_crossentropy": 9, "sparse_categorical_crossentropy": 14, "binary_crossentropy": 9,
    "kullback_leibler_divergence": 8, "poisson": 8, "cosine_proximity": 8, "huber_loss": 1,
}  # fmt: skip
_OF_STEPS = {"sparse_categorical_crossentropy": 7, "categorical_crossentropy": 3, "binary_crossentropy": 3}
_METRICS = {
    "mean_squared_error": -2, "hinge": -8, "AUC": 6, "Precision": 28, "Recall": 28,
    "TruePositives": 41, "MeanIoU": 0, "MeanRelativeError": -9, "SensitivityAtSpecificity": -7,
    "categorical_crossentropy": 0,
}  # fmt: skip


def count_compile(model: Any) -> None:
    """Counts what TensorFlow makes beyond the ops of `compile`, of losses and metrics."""
    losses = [(output, _name(loss)) for output, loss in zip(model.outputs, model.loss_functions) if loss]
    number = sum(_of_loss(output.shape.ndims, name) for output, name in losses)
    number += sum(_METRICS.get(_name(metric), -1) for metric in model._compile_metric_functions)
    masked = [x for x, _ in losses if x.shape.ndims == 3 and getattr(x, "_keras_mask", None) is not None]
    of_weights = [x for x in model.losses if getattr(x, "_unconditional_loss", False)]
    count_ops(number + 61 * len(masked) + 16 * len(of_weights) + max(0, len(losses) - 2))


def _of_loss(rank: int | None, name: str) -> int:
    if rank == 2:
        return _LOSSES.get(name, 8)
    return _OF_STEPS.get(name, 0) if rank == 3 else 3 if rank == 4 else 0


def _name(counted: Any) -> str:
    function = getattr(counted, "fn", None) or getattr(counted, "_fn", None)
    return str(getattr(function, "__name__", type(counted).__name__))


def count_call(layer: Any, inputs: object, training: object = None) -> None:
    """Counts what TensorFlow's layer would make in a call beyond the ops of this one."""
    kind = next(base.__name__ for base in type(layer).__mro__ if base.__module__.startswith("tfmini."))
    if kind in _RECURRENT or kind == "RNN":
        number = _of_recurrent(layer, inputs)
    elif _CONVOLUTION.fullmatch(kind):
        number = (0 if "2" in kind or not layer.use_bias else -2) + (10 if max(layer.dilation_rate) > 1 else 0)
    elif kind == "BatchNormalization":
        number = 0 if layer.fused else _NORMS[training if isinstance(training, bool) else None]
    elif kind == "Dense" and isinstance(inputs, Tensor):
        number = _of_dense(inputs.raw_shape, layer.use_bias)
    elif kind == "LayerNormalization":
        number = _NORMS[bool(layer.center), bool(layer.scale)]
    elif kind == "ConvLSTM2D":
        number = 9 if layer.use_bias else 4
    elif kind == "Dot" and isinstance(inputs, list):
        number = -2 if inputs[0].shape.ndims == 2 else -3
    else:
        number = _ALWAYS.get(kind, 0)
    if number:
        count_ops(number)


def _of_dense(shape: tuple[int | None, ...] | None, has_bias: bool) -> int:
    if shape is None or len(shape) < 3:
        return 0
    return (7 if len(shape) == 3 and None not in shape[1:] else 8) + (0 if has_bias or len(shape) > 3 else 2)


def count_build(cell: Any) -> None:
    """Counts that TensorFlow's cells have no slices of their weights, which it makes in each call."""
    kind = type(cell).__name__
    slices = _GATES[kind] * (3 if cell.use_bias else 2)
    has_two = kind == "GRUCell" and cell.use_bias and cell.reset_after  # biases, of the inputs and of the states
    count_ops(-68 if has_two else -5 * slices)


def _of_recurrent(layer: Any, inputs: object) -> int:
    first, *states = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    cells = getattr(layer.cell, "cells", [layer.cell])
    number = sum(_of_cell(cell) for cell in cells) + 6 * (len(cells) - 1) - 4 * len(states)
    *_, masked, _, _, stateful = _RECURRENT.get(_kind(cells[0]), _RECURRENT["SimpleRNN"])
    if getattr(first, "_keras_mask", None) is not None:
        number += masked + (1 if layer.zero_output_for_mask else 0)
    number += stateful if layer.stateful else 0
    shape = getattr(first, "raw_shape", None)  # a variable has none
    steps = None if shape is None else shape[0 if getattr(layer, "time_major", False) else 1]
    return number - (0 if steps is None else 13)


def _kind(cell: Any) -> str:
    return type(cell).__name__.replace("Cell", "")


def _of_cell(cell: Any) -> int:
    plain, dropping, _, one_product, without_bias, _ = _RECURRENT.get(_kind(cell), _RECURRENT["SimpleRNN"])
    number = plain if getattr(cell, "dropout", 0) == getattr(cell, "recurrent_dropout", 0) == 0 else dropping
    number += 0 if getattr(cell, "use_bias", True) else without_bias
    number += 39 if getattr(cell, "reset_after", False) else 0
    return number + (one_product if getattr(cell, "implementation", 1) == 2 else 0)
