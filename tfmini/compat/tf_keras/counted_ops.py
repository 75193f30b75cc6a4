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
    "LocallyConnected1D": 1, "LocallyConnected2D": 1, "ConvLSTM2D": -51,
}  # fmt: skip
_CONVOLUTION = re.compile(r"(Separable)?Conv\dD")
# Recurrent layer -> in its first call, then in each: without dropout, with it, and what a mask and one product add.
_RECURRENT = {"LSTM": (-60, 44, 49, -11, -68), "GRU": (-45, 34, 82, -5, -36), "SimpleRNN": (0, -2, -2, -5, 0)}
# (center, scale) of a layer normalisation, training of a batch normalisation that is not fused
_NORMS = {(True, True): -2, (True, False): 0, (False, True): 1, (False, False): 3, None: 2, True: -2, False: 0}


def count_call(layer: Any, inputs: object, training: object = None) -> None:
    """Counts what TensorFlow's layer would make in a call beyond the ops of this one."""
    kind = next(base.__name__ for base in type(layer).__mro__ if base.__module__.startswith("tfmini."))
    if kind in _RECURRENT:
        number = _of_recurrent(layer, kind, inputs)
    elif _CONVOLUTION.fullmatch(kind):
        number = (0 if "2" in kind or not layer.use_bias else -2) + (10 if max(layer.dilation_rate) > 1 else 0)
    elif kind == "BatchNormalization":
        number = 0 if layer.fused else _NORMS[training if isinstance(training, bool) else None]
    elif kind == "Dense" and isinstance(inputs, Tensor):
        number = _of_dense(inputs.raw_shape, layer.use_bias)
    elif kind == "LayerNormalization":
        number = _NORMS[bool(layer.center), bool(layer.scale)]
    else:
        number = _ALWAYS.get(kind, 0)
    if number:
        count_ops(number)


def _of_dense(shape: tuple[int | None, ...] | None, has_bias: bool) -> int:
    if shape is None or len(shape) < 3:
        return 0
    return (7 if len(shape) == 3 and None not in shape[1:] else 8) + (0 if has_bias or len(shape) > 3 else 2)


def _of_recurrent(layer: Any, kind: str, inputs: object) -> int:
    first = inputs[0] if isinstance(inputs, (list, tuple)) else inputs
    first_call, plain, dropping, masked, one_product = _RECURRENT[kind]
    number = plain if layer.dropout == layer.recurrent_dropout == 0 else dropping
    if not vars(layer).get("_ops_counted"):
        vars(layer)["_ops_counted"] = True
        number += first_call
    if getattr(layer, "implementation", 1) == 2:
        number += one_product
    if getattr(first, "_keras_mask", None) is not None:
        number += masked
    shape = getattr(first, "raw_shape", None)  # a variable has none
    return number - (0 if shape is None or shape[1] is None else 13)
