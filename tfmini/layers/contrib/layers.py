"""Layers with weights as functions, for use with `arg_scope` (``tf.contrib.layers`` and ``tf.contrib.slim``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collections, control_dependencies, count_ops, get_collection, name_scope
from tfmini.layers.contrib.model_variables import (
    add_arg_scope,
    add_model_variable,
    collect_named_outputs,
    model_variable,
)
from tfmini.layers.contrib.regularizers import xavier_initializer
from tfmini.layers.convolutional import around, deconvolved_length, normalized_tuple, within
from tfmini.layers.core import sharing
from tfmini.layers.normalization import BatchNormalization
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import stack as stack_of
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import smart_constant_value
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.matmul import matmul
from tfmini.ops.nn import activation
from tfmini.ops.nn.batch_norm import bias_add as add_bias
from tfmini.ops.nn.convolution import conv2d as convolve2d
from tfmini.ops.nn.convolution import conv2d_transpose as deconvolve
from tfmini.ops.nn.convolution import depthwise_conv2d, note_dilation, separable_conv2d
from tfmini.ops.nn.dilated import check_steps
from tfmini.ops.nn.dilated import convolution as convolve
from tfmini.ops.nn.normalization import batch_normalization, moments
from tfmini.ops.variables.initializers import Ones, Zeros
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.scope import VariableScope, get_variable_scope, variable_scope
from tfmini.ops.variables.store import ReuseLike
from tfmini.shapes import TensorShape

_ZEROS, _ONES, _XAVIER = Zeros(), Ones(), xavier_initializer()
_NHWC = "NHWC"


def _collections(variables_collections: str | Sequence[str] | Mapping[str, Any] | None, name: str) -> Any:
    """The collections of a variable; they are given for all variables or by name."""
    if isinstance(variables_collections, dict):
        return variables_collections.get("weights" if name.endswith("_weights") else name)
    return variables_collections


def weights_of(
    name: str,
    shape: ShapeLike,
    dtype: DTypeLike,
    initializer: Callable[..., Any] | None,
    regularizer: Callable[..., Any] | None,
    trainable: bool,
    variables_collections: str | Sequence[str] | Mapping[str, Any] | None,
) -> Any:
    """Makes a variable of a layer and adds it to its collections."""
    return model_variable(
        name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=trainable,
        collections=_collections(variables_collections, name),
    )  # fmt: skip


def _core_weights(
    name: str, shape: ShapeLike, dtype: DTypeLike, initializer: Any, regularizer: Any, trainable: bool, collections: Any
) -> Any:
    """`weights_of` as a core layer makes them: what its getter gave is in the collections."""
    made = weights_of(name, shape, dtype, initializer, regularizer, trainable, None)
    for part in made if isinstance(made, PartitionedVariable) else [made]:
        _add_once(_collections(collections, name), part)
    return made


def _add_once(collections: str | Sequence[str] | None, value: Any) -> None:
    for collection in [collections] if isinstance(collections, str) else collections or ():
        if not any(known is value for known in get_collection(collection)):
            add_to_collections([collection], value)


# In TensorFlow these layers are around core layers, after whose names for weights their losses are called.
_OF_CORE = {"weights": "kernel", "biases": "bias", "depthwise_weights": "depthwise_kernel",
            "pointwise_weights": "pointwise_kernel"}  # fmt: skip


def _as_core(name: str, regularizer: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The regularizer of a variable, with its ops in the name scope that a core layer has for it."""

    def regularized(variable: Any) -> Any:
        with name_scope(f"{get_variable_scope().original_name_scope}{_OF_CORE[name]}/Regularizer/"):
            return regularizer(variable)  # type: ignore[misc]

    return regularized if regularizer is not None and name in _OF_CORE else regularizer


def collected(
    outputs: Tensor, activation_fn: Callable[..., Any] | None, collections: str | Sequence[str] | None, name: str
) -> Any:
    """Applies the activation, and adds the result to its collections under a scope's name."""
    outputs = outputs if activation_fn is None else activation_fn(outputs)
    return collect_named_outputs(collections, name, outputs)


@dataclass
class Weighted:
    """The arguments that the layers with weights share.

    Attributes:
      activation_fn: a function of a tensor, default relu; None for no activation.
      normalizer_fn: a function of a tensor, in place of adding biases, such as `batch_norm`.
      normalizer_params: a dictionary of its other arguments.
      weights_initializer, biases_initializer: initializers; None for the biases: no biases.
      weights_regularizer, biases_regularizer: functions from a variable to a loss, or None.
      reuse: whether to share the variables of an earlier layer of that ``scope``.
      trainable: whether optimizers update the variables.
      variables_collections: a list of collections for all variables, or a dictionary of lists by variable name.
      outputs_collections: the collections for the result, under its scope's name.
      scope: scope of the variables, by default named after the layer.
    """

    activation_fn: Any = activation.relu
    normalizer_fn: Any = None
    normalizer_params: Any = None
    weights_initializer: Any = _XAVIER
    weights_regularizer: Any = None
    biases_initializer: Any = _ZEROS
    biases_regularizer: Any = None
    reuse: Any = None
    variables_collections: Any = None
    outputs_collections: Any = None
    trainable: bool = True
    scope: Any = None

    def opened(self, default_name: str, inputs: TensorLike) -> variable_scope:
        """The scope of the layer's variables."""
        return variable_scope(self.scope, default_name, [inputs], reuse=self.reuse)

    def weights(
        self, inputs: Tensor, shape: ShapeLike, name: str = "weights", initializer: Callable[..., Any] | None = None
    ) -> Any:
        """Makes a kernel for these inputs."""
        return _core_weights(
            name, shape, inputs.dtype.base_dtype, initializer or self.weights_initializer,
            _as_core(name, self.weights_regularizer), self.trainable, self.variables_collections,
        )  # fmt: skip

    def finished(
        self, outputs: Tensor, channels: int, scope: VariableScope, data_format: str = _NHWC, is_core: bool = True
    ) -> Any:
        """Applies normalization or bias and the activation, and adds the result to its collections."""
        if self.normalizer_fn is not None:
            outputs = self.normalizer_fn(outputs, **(self.normalizer_params or {}))
        elif self.biases_initializer is not None:
            biases = (_core_weights if is_core else weights_of)(
                "biases", [channels], outputs.dtype.base_dtype, self.biases_initializer,
                _as_core("biases", self.biases_regularizer), self.trainable, self.variables_collections,
            )  # fmt: skip
            outputs = add_bias(outputs, biases, data_format, name="BiasAdd")
        return collected(outputs, self.activation_fn, self.outputs_collections, scope.original_name_scope[:-1])


@export(
    "tf.contrib.layers.fully_connected", "tf.contrib.layers.relu", "tf.contrib.slim.fully_connected",
    "tf.contrib.slim.layers.fully_connected"
)  # fmt: skip
@add_arg_scope
@sharing(Weighted)
def fully_connected(given: Weighted, inputs: Any, num_outputs: int) -> Any:
    """``activation_fn(inputs @ weights + biases)`` over the last axis (``tf.contrib.layers.fully_connected``).

    The other arguments are those of `Weighted`.

    Args:
      inputs: a float tensor with at least two axes; the last one is static.
      num_outputs: the length of the last axis of the result.
    """
    with given.opened("fully_connected", inputs) as opened:
        inputs = convert_to_tensor(inputs)
        width = inputs.shape.as_list()[-1]
        if width is None:
            raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
        weights = given.weights(inputs, [width, num_outputs])
        rank = inputs.shape.ndims
        outputs = matmul(inputs, weights) if rank == 2 else tensordot(inputs, weights, [[rank - 1], [0]])
        outputs.set_shape(TensorShape([*inputs.shape.as_list()[:-1], num_outputs]))
        return given.finished(outputs, num_outputs, opened)


def _with_activation(name: str, activation_fn: Callable[..., Any] | None) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return fully_connected(*args, **{"activation_fn": activation_fn, **kwargs})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`fully_connected` with another activation (``tf.contrib.layers.{name}``)."
    return function


linear = _with_activation("linear", None)
elu, relu6 = _with_activation("elu", activation.elu), _with_activation("relu6", activation.relu6)


def known_format(data_format: str | None) -> str:
    """The format, NHWC if None; raises ValueError unless it is NHWC or NCHW."""
    if data_format not in (None, "NHWC", "NCHW"):
        raise ValueError(f"Invalid data_format: {data_format!r}")
    return data_format or _NHWC


def channels_of(inputs: Tensor, data_format: str) -> int:
    """The number of channels of ``inputs``; raises ValueError if it is not known."""
    found = inputs.shape.as_list()[1 if data_format == "NCHW" else -1]
    if found is None:
        raise ValueError("The channel dimension of the inputs should be defined. Found `None`.")
    return int(found)


@export("tf.contrib.layers.convolution2d", "tf.contrib.slim.convolution2d", "tf.contrib.slim.layers.convolution2d")
@add_arg_scope
@sharing(Weighted)
def convolution2d(
    given: Weighted, inputs: TensorLike, num_outputs: int, kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1, padding: str = "SAME", data_format: str | None = None,
    rate: int | Sequence[int] = 1,
) -> Any:  # fmt: skip
    """A convolution of images (``tf.contrib.layers.conv2d``); the other arguments are those of `Weighted`.

    Args:
      inputs: images, [batch, rows, columns, channels], or channels second for NCHW.
      num_outputs: the number of output channels.
      kernel_size, stride, rate: one int, or one per spatial axis.
      padding: SAME or VALID.
      data_format: NHWC (default) or NCHW.
    """
    with given.opened("Conv", inputs) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        kernel = [*normalized_tuple(kernel_size, 2, "kernel_size"), channels_of(inputs, layout), num_outputs]
        weights, gaps = given.weights(inputs, kernel), normalized_tuple(rate, 2, "rate")
        note_dilation(gaps)
        check_steps(normalized_tuple(stride, 2, "stride"), gaps)
        steps = around(normalized_tuple(stride, 2, "stride"), layout)
        outputs = convolve2d(
            inputs, weights, steps, padding.upper(), data_format=layout, dilations=around(gaps, layout)
        )
        return given.finished(outputs, num_outputs, opened, layout)


@export(
    "tf.contrib.layers.convolution2d_transpose", "tf.contrib.slim.convolution2d_transpose",
    "tf.contrib.slim.layers.convolution2d_transpose"
)  # fmt: skip
@add_arg_scope
@sharing(Weighted)
def convolution2d_transpose(
    given: Weighted, inputs: TensorLike, num_outputs: int, kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1, padding: str = "SAME", data_format: str | None = _NHWC,
) -> Any:  # fmt: skip
    """A transposed convolution of images (``tf.contrib.layers.conv2d_transpose``).

    Args:
      inputs: images, [batch, rows, columns, channels], or channels second for NCHW.
      num_outputs: the number of output channels.
      padding: SAME or VALID.
      data_format: NHWC (default) or NCHW.
      kernel_size, stride: one int, or one per spatial axis.
    """
    with given.opened("Conv2d_transpose", inputs) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        window, steps = normalized_tuple(kernel_size, 2, "kernel_size"), normalized_tuple(stride, 2, "stride")
        weights = given.weights(inputs, [*window, num_outputs, channels_of(inputs, layout)])
        shape = stack_of(_deconvolved_shape(shape_of(inputs), num_outputs, window, steps, padding, layout))
        shape[0]  # for an op that 1.15 makes here: the default seeds of later ops count it
        outputs = deconvolve(inputs, weights, shape, around(steps, layout), padding.upper(), data_format=layout)
        outputs.set_shape(_deconvolved_shape(inputs.shape.as_list(), num_outputs, window, steps, padding, layout))
        return given.finished(outputs, num_outputs, opened, layout)


def _deconvolved_shape(
    sizes: Any, channels: int, window: Sequence[int], steps: Sequence[int], padding: str, layout: str
) -> list[Any]:
    """The sizes of the result, of the sizes of the images: a tensor or a list."""
    batch, *space = (sizes[i] for i in (0, *within(range(4), layout)))
    lengths = [deconvolved_length(*each, padding.lower()) for each in zip(space, window, steps)]
    return around(lengths, layout, batch, channels)


@export(
    "tf.contrib.layers.separable_conv2d", "tf.contrib.layers.separable_convolution2d",
    "tf.contrib.slim.separable_conv2d", "tf.contrib.slim.separable_convolution2d",
    "tf.contrib.slim.layers.separable_conv2d", "tf.contrib.slim.layers.separable_convolution2d"
)  # fmt: skip
@add_arg_scope
@sharing(Weighted, before={"pointwise_initializer": "weights_regularizer"})
def separable_convolution2d(
    given: Weighted, inputs: TensorLike, num_outputs: int | None, kernel_size: int | Sequence[int],
    depth_multiplier: int = 1, stride: int | Sequence[int] = 1, padding: str = "SAME", data_format: str | None = _NHWC,
    rate: int | Sequence[int] = 1, *, pointwise_initializer: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """A depthwise and then a pointwise convolution (``tf.contrib.layers.separable_conv2d``).

    If ``num_outputs`` is None, the pointwise convolution is left out.
    """
    with given.opened("SeparableConv2d", inputs) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        channels = channels_of(inputs, layout)
        kernel = [*normalized_tuple(kernel_size, 2, "kernel_size"), channels, depth_multiplier]
        if num_outputs is None:  # then TensorFlow makes the variable without a core layer
            depthwise = weights_of(
                "depthwise_weights", kernel, inputs.dtype.base_dtype, given.weights_initializer,
                given.weights_regularizer, given.trainable, given.variables_collections,
            )  # fmt: skip
        else:
            depthwise = given.weights(inputs, kernel, "depthwise_weights")
        steps = around(normalized_tuple(stride, 2, "stride"), layout)
        gaps = list(normalized_tuple(rate, 2, "rate"))
        if num_outputs is None:
            outputs = depthwise_conv2d(inputs, depthwise, steps, padding.upper(), rate=gaps, data_format=layout)
            return given.finished(outputs, channels * depth_multiplier, opened, layout, is_core=False)
        shape = [1, 1, channels * depth_multiplier, num_outputs]
        pointwise = given.weights(inputs, shape, "pointwise_weights", pointwise_initializer)
        outputs = separable_conv2d(inputs, depthwise, pointwise, steps, padding.upper(), rate=gaps, data_format=layout)
        return given.finished(outputs, num_outputs, opened, layout)


@export("tf.contrib.layers.convolution", "tf.contrib.slim.convolution", "tf.contrib.slim.layers.convolution")
@add_arg_scope
@sharing(Weighted)
def convolution(
    given: Weighted, inputs: TensorLike, num_outputs: int, kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1, padding: str = "SAME", data_format: str | None = None,
    rate: int | Sequence[int] = 1, *, conv_dims: int | None = None,
) -> Any:  # fmt: skip
    """A convolution over 1, 2 or 3 spatial axes (``tf.contrib.layers.convolution``).

    Args:
      conv_dims: required number of spatial axes; None allows any number.
      The others are those of `convolution2d`.

    Raises:
      ValueError: when the rank is not ``conv_dims + 2``.
    """
    if data_format not in (None, "NWC", "NCW", "NHWC", "NCHW", "NDHWC", "NCDHW"):
        raise ValueError(f"Invalid data_format: {data_format!r}")
    with given.opened("Conv", inputs) as opened:
        inputs = convert_to_tensor(inputs)
        axes = spatial_axes(inputs, conv_dims)
        layout = "NCHW" if data_format is not None and data_format.startswith("NC") else _NHWC
        kernel = [*normalized_tuple(kernel_size, axes, "kernel_size"), channels_of(inputs, layout), num_outputs]
        weights, gaps = given.weights(inputs, kernel), list(normalized_tuple(rate, axes, "rate"))
        note_dilation(gaps)
        outputs = convolve(
            inputs, weights, padding.upper(), strides=list(normalized_tuple(stride, axes, "stride")),
            dilation_rate=gaps, data_format=data_format,
        )  # fmt: skip
        return given.finished(outputs, num_outputs, opened, layout)


def spatial_axes(inputs: Tensor, wanted: int | None) -> int:
    """The number of spatial axes; raises ValueError if it is unknown or not ``wanted``."""
    rank = inputs.shape.ndims
    if rank is None:
        raise ValueError("The rank of the inputs must be known")
    if wanted is not None and wanted + 2 != rank:
        raise ValueError(f"Convolution expects input with rank {wanted + 2}, got {rank}")
    return int(rank) - 2


@export("tf.contrib.layers.convolution1d", "tf.contrib.slim.convolution1d", "tf.contrib.slim.layers.convolution1d")
@add_arg_scope
def convolution1d(
    inputs: TensorLike, num_outputs: int, kernel_size: int | Sequence[int], *args: Any, **kwargs: Any
) -> Any:
    """`convolution` of ``[batch, length, channels]`` (``tf.contrib.layers.conv1d``)."""
    return convolution(inputs, num_outputs, kernel_size, *args, **{"conv_dims": 1, **kwargs})


@export("tf.contrib.layers.convolution3d", "tf.contrib.slim.convolution3d", "tf.contrib.slim.layers.convolution3d")
@add_arg_scope
def convolution3d(
    inputs: TensorLike, num_outputs: int, kernel_size: int | Sequence[int], *args: Any, **kwargs: Any
) -> Any:
    """`convolution` of ``[batch, depth, height, width, channels]`` (``tf.contrib.layers.conv3d``)."""
    return convolution(inputs, num_outputs, kernel_size, *args, **{"conv_dims": 3, **kwargs})


conv1d, conv3d = convolution1d, convolution3d
conv2d, conv2d_transpose = convolution2d, convolution2d_transpose


@export("tf.contrib.layers.bias_add", "tf.contrib.slim.bias_add", "tf.contrib.slim.layers.bias_add")
@add_arg_scope
def bias_add(
    inputs: TensorLike,
    activation_fn: Callable[..., Any] | None = None,
    initializer: Callable[..., Any] | None = _ZEROS,
    regularizer: Callable[..., Any] | None = None,
    reuse: ReuseLike = None,
    variables_collections: str | Sequence[str] | Mapping[str, Any] | None = None,
    outputs_collections: str | Sequence[str] | None = None,
    trainable: bool = True,
    data_format: str | None = _NHWC,
    scope: str | VariableScope | None = None,
) -> Any:
    """Adds biases and applies an activation (``tf.contrib.layers.bias_add``)."""
    with variable_scope(scope, "BiasAdd", [inputs], reuse=reuse) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        channels = inputs.shape.as_list()[1 if layout == "NCHW" else -1]
        biases = weights_of(
            "biases", [channels], inputs.dtype.base_dtype, initializer, regularizer, trainable, variables_collections
        )
        outputs = add_bias(inputs, biases, layout)
        return collected(outputs, activation_fn, outputs_collections, opened.original_name_scope[:-1])


@export("tf.contrib.layers.layer_norm", "tf.contrib.slim.layer_norm", "tf.contrib.slim.layers.layer_norm")
@add_arg_scope
def layer_norm(
    inputs: TensorLike,
    center: bool = True,
    scale: bool = True,
    activation_fn: Callable[..., Any] | None = None,
    reuse: ReuseLike = None,
    variables_collections: str | Sequence[str] | Mapping[str, Any] | None = None,
    outputs_collections: str | Sequence[str] | None = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: str | VariableScope | None = None,
) -> Any:
    """Normalizes each example over its axes from ``begin_norm_axis`` on (``tf.contrib.layers.layer_norm``)."""
    with variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as opened:
        inputs = convert_to_tensor(inputs)
        sizes = inputs.shape.as_list()
        dtype = inputs.dtype.base_dtype
        parameters = sizes[begin_params_axis:]
        beta = gamma = None
        if center:
            beta = weights_of("beta", parameters, dtype, _ZEROS, None, trainable, variables_collections)
        if scale:
            gamma = weights_of("gamma", parameters, dtype, _ONES, None, trainable, variables_collections)
        start = begin_norm_axis % len(sizes)
        mean, variance = moments(inputs, list(range(start, len(sizes))), keep_dims=True)
        outputs = batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)
        outputs.set_shape(inputs.shape)
        return collected(outputs, activation_fn, outputs_collections, opened.original_name_scope[:-1])


export_names("tf.contrib.layers tf.contrib.slim tf.contrib.slim.layers", "conv1d conv2d conv2d_transpose conv3d linear")
export_names("tf.contrib.layers tf.contrib.slim.layers", "elu relu6")


# ---- ``tf.contrib.layers.batch_norm``: `BatchNormalization` as a function for use with `arg_scope` -----------------


@export("tf.contrib.layers.batch_norm", "tf.contrib.slim.batch_norm", "tf.contrib.slim.layers.batch_norm")
@add_arg_scope
def batch_norm(
    inputs: TensorLike,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Callable[..., Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: str | Sequence[str] | None = GraphKeys.UPDATE_OPS,
    is_training: TensorLike = True,
    reuse: ReuseLike = None,
    variables_collections: str | Sequence[str] | Mapping[str, Any] | None = None,
    outputs_collections: str | Sequence[str] | None = None,
    trainable: bool = True,
    batch_weights: TensorLike | None = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: str | VariableScope | None = None,
    renorm: bool = False,
    renorm_clipping: Mapping[str, Any] | None = None,
    renorm_decay: float = 0.99,
    adjustment: Callable[..., Any] | None = None,
) -> Any:
    """Batch normalization (``tf.contrib.layers.batch_norm``).

    Args:
      updates_collections: collections for the updates of the averages; None runs them with the layer.
      param_initializers, param_regularizers: dictionaries by name: beta, gamma, moving_mean, moving_variance.
      batch_weights, zero_debias_moving_mean: not supported.
      The others are those of ``tf.layers.batch_normalization``, which calls ``renorm_decay`` renorm_momentum.

    Raises:
      NotImplementedError: when an unsupported argument is given.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise NotImplementedError("tfmini has neither `batch_weights` nor `zero_debias_moving_mean`; leave them out.")
    with variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as opened:
        inputs = convert_to_tensor(inputs)
        layer = BatchNormalization(
            axis=1 if data_format == "NCHW" else -1, momentum=decay, epsilon=epsilon, center=center, scale=scale,
            trainable=trainable, renorm=renorm, renorm_clipping=renorm_clipping, renorm_momentum=renorm_decay,
            adjustment=adjustment, fused=fused, name=opened.name, _scope=opened, _reuse=reuse,
            **_parameters(param_initializers, param_regularizers),
        )  # fmt: skip
        layer.updates_collection = None
        outputs = layer(inputs, training=is_training)
        is_core = updates_collections is GraphKeys.UPDATE_OPS and (inputs.shape.ndims != 2 or fused is False or renorm)
        _collect(layer, variables_collections, is_core)
        if inputs.shape.ndims == 2 and fused is not False and smart_constant_value(is_training) is None:
            count_ops(-9)  # TensorFlow's fused op, on images of one pixel
        if smart_constant_value(is_training) is not False:
            if updates_collections is None:
                with control_dependencies(layer.updates):
                    outputs = identity(outputs)
            else:
                for update in layer.updates:
                    add_to_collections(updates_collections, update)
        return collected(outputs, activation_fn, outputs_collections, opened.original_name_scope[:-1])


def _parameters(initializers: Mapping[str, Any] | None, regularizers: Mapping[str, Any] | None) -> dict[str, Any]:
    first, second = initializers or {}, regularizers or {}
    return {
        "beta_initializer": first.get("beta", Zeros()),
        "gamma_initializer": first.get("gamma", Ones()),
        "moving_mean_initializer": first.get("moving_mean", Zeros()),
        "moving_variance_initializer": first.get("moving_variance", Ones()),
        "beta_regularizer": second.get("beta"),
        "gamma_regularizer": second.get("gamma"),
    }


def _collect(layer: BatchNormalization, variables_collections: Any, is_core: bool) -> None:
    """Adds the variables to their collections; where TensorFlow has a core layer, its averages come first."""
    averages, trained = ("moving_mean", "moving_variance"), ("beta", "gamma")
    for name in (*reversed(trained), *averages) if is_core else (*trained, *averages):  # as the layer makes them
        if getattr(layer, name) is not None:
            add_model_variable(getattr(layer, name))
    for name in (*averages, *trained) if is_core else (*trained, *averages):
        variable = getattr(layer, name)
        if variable is None:
            continue
        _add_once(_collections(variables_collections, name), variable)


# ---- Normalization of each example, per channel or group of channels (``tf.contrib.layers``) -----------------------


def _offset_and_scale(
    inputs: Tensor, channels: int, shape: ShapeLike, center: bool, scale: bool, initializers: Mapping[str, Any] | None,
    trainable: bool, collections: str | Sequence[str] | Mapping[str, Any] | None,
) -> tuple[Any, Any]:  # fmt: skip
    """(beta, gamma) of all channels, reshaped to broadcast; None for one that is not wanted."""
    made: dict[str, Any] = {"beta": None, "gamma": None}
    for name, wanted, default in (("beta", center, Zeros()), ("gamma", scale, Ones())):
        if wanted:
            start = (initializers or {}).get(name, default)
            made[name] = weights_of(name, [channels], inputs.dtype.base_dtype, start, None, trainable, collections)
            made[name] = made[name] if shape is None else reshape(made[name], shape)
    return made["beta"], made["gamma"]


@export("tf.contrib.layers.instance_norm", "tf.contrib.slim.instance_norm", "tf.contrib.slim.layers.instance_norm")
@add_arg_scope
def instance_norm(
    inputs: TensorLike,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Callable[..., Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: ReuseLike = None,
    variables_collections: str | Sequence[str] | Mapping[str, Any] | None = None,
    outputs_collections: str | Sequence[str] | None = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: str | VariableScope | None = None,
) -> Any:
    """Normalizes each channel of each example (``tf.contrib.layers.instance_norm``).

    Args:
      inputs: a tensor of rank 2 or more; the channels are the last axis, or the second with NCHW.
      center, scale: whether to add ``beta`` and multiply by ``gamma``.
      param_initializers: ``{"beta": …, "gamma": …}``.

    Raises:
      ValueError: when rank or number of channels are unknown, or ``data_format`` is invalid.
    """
    inputs = convert_to_tensor(inputs)
    rank = inputs.shape.ndims
    if rank is None:
        raise ValueError(f"Inputs {inputs.name} has undefined rank.")
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError("data_format has to be either NCHW or NHWC.")
    axis = 1 if data_format == "NCHW" else rank - 1
    channels = inputs.shape.as_list()[axis]
    if channels is None:
        raise ValueError(f"Inputs {inputs.name} has undefined channels dimension {inputs.shape[axis : axis + 1]}.")
    with variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse) as opened:
        shape = [1, channels, *[1] * (rank - 2)] if axis == 1 else None
        beta, gamma = _offset_and_scale(
            inputs, channels, shape, center, scale, param_initializers, trainable, variables_collections
        )
        mean, variance = moments(inputs, [i for i in range(1, rank) if i != axis], keep_dims=True)
        outputs = batch_normalization(inputs, mean, variance, beta, gamma, epsilon, name="instancenorm")
        return collected(outputs, activation_fn, outputs_collections, opened.name)


@export("tf.contrib.layers.group_norm", "tf.contrib.slim.group_norm", "tf.contrib.slim.layers.group_norm")
@add_arg_scope
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Callable[..., Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: ReuseLike = None,
    variables_collections: str | Sequence[str] | Mapping[str, Any] | None = None,
    outputs_collections: str | Sequence[str] | None = None,
    trainable: bool = True,
    scope: str | VariableScope | None = None,
    mean_close_to_zero: bool = False,
) -> Any:
    """Normalizes groups of channels of each example (``tf.contrib.layers.group_norm``).

    Args:
      groups: number of groups of channels.
      channels_axis, reduction_axes: the axes to normalize over; all but the batch must be known statically.
      center, scale, param_initializers: as in `instance_norm`.
      mean_close_to_zero: accepted and ignored; the variance is always taken around the mean.

    Raises:
      ValueError: when axes or groups do not match the inputs.
    """
    inputs = convert_to_tensor(inputs)
    channel, axes = _axes(inputs, groups, channels_axis, reduction_axes)
    known, sizes = inputs.shape.as_list(), shape_of(inputs)
    lengths = [sizes[i] if size is None else size for i, size in enumerate(known)]
    split = [groups, known[channel] // groups]
    grouped = reshape(inputs, [*lengths[:channel], *split, *lengths[channel + 1 :]])
    with variable_scope(scope, "GroupNorm", [grouped], reuse=reuse) as opened:
        shape = [*[1] * channel, *split, *[1] * (len(known) - channel - 1)]
        beta, gamma = _offset_and_scale(
            inputs, known[channel], shape, center, scale, param_initializers, trainable, variables_collections
        )
        over = [channel + 1, *(a + 1 if a > channel else a for a in axes)]
        mean, variance = moments(grouped, over, keep_dims=True)
        outputs = reshape(batch_normalization(grouped, mean, variance, beta, gamma, epsilon), lengths)
        outputs.set_shape(inputs.shape)
        return collected(outputs, activation_fn, outputs_collections, opened.name)


def _axes(inputs: Tensor, groups: int, channels_axis: int, reduction_axes: Sequence[int]) -> tuple[int, list[int]]:
    """Checks the arguments of `group_norm`; returns the channel axis and the others, not negative."""
    rank = inputs.shape.ndims
    if rank is None:
        raise ValueError(f"Inputs {inputs.name} has undefined rank.")
    if max(channels_axis, *reduction_axes) > rank - 1:
        raise ValueError("Axis is out of bounds.")
    channel, axes = channels_axis % rank, [axis % rank for axis in reduction_axes]
    known = inputs.shape.as_list()
    channels = known[channel]
    if channels is None:
        raise ValueError(f"Inputs {inputs.name} has undefined channel dimension: {channel}.")
    for axis in axes:
        if known[axis] is None:
            raise ValueError(f"Inputs {inputs.name} has undefined dimensions {axis}.")
        if axis == channel:
            raise ValueError("reduction_axis must be mutually exclusive with channels_axis")
    if groups > channels:
        raise ValueError(f"Invalid groups {groups} for {channels} channels.")
    if channels % groups:
        raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")
    return channel, axes
