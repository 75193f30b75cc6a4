"""``tf.contrib.model_pruning``: weights under masks, and the layers and cells that have such weights."""

from __future__ import annotations

import inspect
from typing import Any

from tfmini import dtypes
from tfmini.core_types import ShapeLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, get_collection, get_collection_ref
from tfmini.layers.contrib import layers
from tfmini.layers.contrib.layers import Weighted, channels_of, known_format, spatial_axes
from tfmini.layers.contrib.model_variables import add_arg_scope, model_variable
from tfmini.layers.convolutional import normalized_tuple
from tfmini.layers.core import sharing
from tfmini.layers.rnn_cells import BasicLSTMCell, LSTMCell
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.nn.dilated import convolution as convolve
from tfmini.ops.nn.normalization import zero_fraction
from tfmini.ops.variables.initializers import Ones, Zeros
from tfmini.ops.variables.scope import VariableScope, get_variable, get_variable_scope, variable_scope

_MASKS, _THRESHOLDS, _WEIGHTS, _MASKED = "masks", "thresholds", "kernel", "masked_weights"
MASKED_NAME = "weights/masked_weight"


def _collected(mask: Any, threshold: Any, weights: Any) -> Tensor:
    """The weights under a mask; all of them are in the collections, once for each mask."""
    masked = multiply(mask, weights, MASKED_NAME)
    if not any(mask is known for known in get_collection_ref(_MASKS)):
        for name, value in ((_THRESHOLDS, threshold), (_MASKS, mask), (_MASKED, masked), (_WEIGHTS, weights)):
            add_to_collection(name, value)
    return masked


@export("tf.contrib.model_pruning.apply_mask")
def apply_mask(x: Any, scope: str | VariableScope = "") -> Tensor:
    """Weights times a mask, a variable of ones that `Pruning` changes (``tf.contrib.model_pruning.apply_mask``).

    Args:
      x: weights, a variable or a floating tensor of a known shape.
      scope: of the variables ``mask`` and ``threshold``.
    """
    shape, dtype = x.get_shape(), x.dtype.base_dtype
    with variable_scope(scope):
        mask = get_variable("mask", shape, dtype, initializer=Ones(), trainable=False)
        threshold = get_variable("threshold", [], dtype, initializer=Zeros(), trainable=False)
    return _collected(mask, threshold, x)


@export("tf.contrib.model_pruning.get_masked_weights")
def get_masked_weights() -> list[Any]:
    """The weights under masks, tensors, of the default graph (``tf.contrib.model_pruning.get_masked_weights``)."""
    return get_collection(_MASKED)


@export("tf.contrib.model_pruning.get_masks")
def get_masks() -> list[Any]:
    """The masks of the default graph (``tf.contrib.model_pruning.get_masks``)."""
    return get_collection(_MASKS)


@export("tf.contrib.model_pruning.get_thresholds")
def get_thresholds() -> list[Any]:
    """The least sizes of weights in the default graph (``tf.contrib.model_pruning.get_thresholds``)."""
    return get_collection(_THRESHOLDS)


@export("tf.contrib.model_pruning.get_weights")
def get_weights() -> list[Any]:
    """The weights that masks apply to of the default graph (``tf.contrib.model_pruning.get_weights``)."""
    return get_collection(_WEIGHTS)


@export("tf.contrib.model_pruning.get_weight_sparsity")
def get_weight_sparsity() -> list[Tensor]:
    """The part of zeros in each mask (``tf.contrib.model_pruning.get_weight_sparsity``)."""
    return [zero_fraction(mask) for mask in get_masks()]


# ---- layers ------------------------------------------------------------------------------------


class _Masked(Weighted):
    """`Weighted` with weights under a mask."""

    def _mask(self, shape: ShapeLike, dtype: dtypes.DType) -> Any:
        return model_variable("mask", shape, dtype, initializer=Ones(), trainable=False)

    def _masked(self, mask: Any, weights: Any) -> Tensor:
        threshold = model_variable("threshold", [], weights.dtype.base_dtype, initializer=Zeros(), trainable=False)
        return _collected(mask, threshold, weights)

    def weights(self, inputs: Tensor, shape: ShapeLike, *args: Any, **kwargs: Any) -> Tensor:
        weights = super().weights(inputs, shape, *args, **kwargs)
        return self._masked(self._mask(shape, inputs.dtype.base_dtype), weights)


class _MaskedKernel(_Masked):
    """That of convolutions, whose mask is made first."""

    def weights(self, inputs: Tensor, shape: ShapeLike, *args: Any, **kwargs: Any) -> Tensor:
        mask = self._mask(shape, inputs.dtype.base_dtype)
        return self._masked(mask, Weighted.weights(self, inputs, shape, *args, **kwargs))


_fully_connected = inspect.unwrap(layers.fully_connected)


@export("tf.contrib.model_pruning.masked_conv2d", "tf.contrib.model_pruning.masked_convolution")
@add_arg_scope
@sharing(_MaskedKernel)
def masked_convolution(
    given: _MaskedKernel, inputs: Any, num_outputs: int, kernel_size: Any, stride: Any = 1, padding: str = "SAME",
    data_format: str | None = None, rate: Any = 1,
) -> Any:  # fmt: skip
    """`tf.contrib.layers.conv2d` of weights under a mask (``tf.contrib.model_pruning.masked_conv2d``)."""
    layout = known_format(data_format)
    with given.opened("Conv", inputs) as opened:
        inputs = convert_to_tensor(inputs)
        axes = spatial_axes(inputs, 2)
        kernel = [*normalized_tuple(kernel_size, axes, "kernel_size"), channels_of(inputs, layout), num_outputs]
        outputs = convolve(
            inputs, given.weights(inputs, kernel), padding.upper(), data_format=layout,
            strides=list(normalized_tuple(stride, axes, "stride")),
            dilation_rate=list(normalized_tuple(rate, axes, "rate")),
        )  # fmt: skip
        return given.finished(outputs, num_outputs, opened, layout)


@export("tf.contrib.model_pruning.masked_fully_connected")
@add_arg_scope
@sharing(_Masked)
def masked_fully_connected(given: _Masked, inputs: Any, num_outputs: int) -> Any:
    """`tf.contrib.layers.fully_connected` of weights under a mask (``….model_pruning.masked_fully_connected``)."""
    return _fully_connected(given, inputs, num_outputs)


# ---- cells -------------------------------------------------------------------------------------


@export("tf.contrib.model_pruning.MaskedBasicLSTMCell")
class MaskedBasicLSTMCell(BasicLSTMCell):
    """A `BasicLSTMCell` whose kernel has a mask (``tf.contrib.model_pruning.MaskedBasicLSTMCell``)."""

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, state_is_tuple: bool = True, activation: Any = None,
        reuse: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, forget_bias, state_is_tuple, activation, reuse, name)

    def build(self, input_shape: ShapeLike) -> None:
        super().build(input_shape)
        self._kernel = apply_mask(self._kernel, get_variable_scope())


@export("tf.contrib.model_pruning.MaskedLSTMCell")
class MaskedLSTMCell(LSTMCell):
    """An `LSTMCell` whose kernel has a mask (``tf.contrib.model_pruning.MaskedLSTMCell``)."""

    def __init__(
        self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None, initializer: Any = None,
        num_proj: int | None = None, proj_clip: float | None = None, num_unit_shards: int | None = None,
        num_proj_shards: int | None = None, forget_bias: float = 1.0, state_is_tuple: bool = True,
        activation: Any = None, reuse: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, num_unit_shards, num_proj_shards,
            forget_bias, state_is_tuple, activation, reuse,
        )  # fmt: skip

    def build(self, input_shape: ShapeLike) -> None:
        super().build(input_shape)
        self._kernel = apply_mask(self._kernel, get_variable_scope())
