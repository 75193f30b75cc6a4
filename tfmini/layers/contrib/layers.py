"""Layers with weights as functions, for use with `arg_scope` (``tf.contrib.layers`` and ``tf.contrib.slim``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib.arg_scope import add_arg_scope
from tfmini.layers.contrib.model_variables import model_variable
from tfmini.layers.contrib.named_outputs import collect_named_outputs
from tfmini.layers.contrib.regularizers import xavier_initializer
from tfmini.layers.spatial_arguments import around, normalized_tuple
from tfmini.ops.array.joining import stack as stack_of
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.matmul import matmul
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.bias import bias_add as add_bias
from tfmini.ops.nn.convolution import conv2d as convolve
from tfmini.ops.nn.convolution import conv2d_transpose as deconvolve
from tfmini.ops.nn.convolution import depthwise_conv2d, separable_conv2d
from tfmini.ops.nn.normalization import batch_normalization, moments
from tfmini.ops.variables.initializers import Ones, Zeros
from tfmini.ops.variables.scope import variable_scope
from tfmini.shapes import TensorShape

_ZEROS, _ONES, _XAVIER = Zeros(), Ones(), xavier_initializer()
_NHWC = "NHWC"


def _collections(variables_collections: Any, name: str) -> Any:
    """The collections of a variable; they are given for all variables or by name."""
    if isinstance(variables_collections, dict):
        return variables_collections.get(name)
    return variables_collections


def weights_of(
    name: str, shape: Any, dtype: Any, initializer: Any, regularizer: Any, trainable: bool, variables_collections: Any
) -> Any:
    """Makes a variable of a layer and adds it to its collections."""
    return model_variable(
        name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=trainable,
        collections=_collections(variables_collections, name),
    )  # fmt: skip


def finished(
    outputs: Tensor,
    channels: int,
    settings: dict[str, Any],
    scope: Any,
    data_format: str = _NHWC,
) -> Any:
    """Applies normalization or bias and the activation, and adds the result to its collections."""
    if settings["normalizer_fn"] is not None:
        outputs = settings["normalizer_fn"](outputs, **(settings["normalizer_params"] or {}))
    elif settings["biases_initializer"] is not None:
        biases = weights_of(
            "biases", [channels], outputs.dtype.base_dtype, settings["biases_initializer"],
            settings["biases_regularizer"], settings["trainable"], settings["variables_collections"],
        )  # fmt: skip
        outputs = add_bias(outputs, biases, data_format, name="BiasAdd")
    if settings["activation_fn"] is not None:
        outputs = settings["activation_fn"](outputs)
    return collect_named_outputs(settings["outputs_collections"], scope.original_name_scope[:-1], outputs)


@export(
    "tf.contrib.layers.fully_connected",
    "tf.contrib.layers.relu",
    "tf.contrib.slim.fully_connected",
    "tf.contrib.slim.layers.fully_connected",
)
@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Any = relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """``activation_fn(inputs @ weights + biases)`` over the last axis (``tf.contrib.layers.fully_connected``).

    Args:
      activation_fn: default relu; None for no activation.
      normalizer_fn: called with ``normalizer_params`` in place of adding biases.
      variables_collections: a list of collections for all variables, or a dictionary of lists by variable name.
      outputs_collections: the collections for the result, under its scope's name.
      scope: scope of the variables, default "fully_connected".
    """
    settings = dict(locals())
    with variable_scope(scope, "fully_connected", [inputs], reuse=reuse) as opened:
        inputs = convert_to_tensor(inputs)
        width = inputs.shape.as_list()[-1]
        if width is None:
            raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
        weights = weights_of(
            "weights", [width, num_outputs], inputs.dtype.base_dtype, weights_initializer, weights_regularizer,
            trainable, variables_collections,
        )  # fmt: skip
        rank = inputs.shape.ndims
        outputs = matmul(inputs, weights) if rank == 2 else tensordot(inputs, weights, [[rank - 1], [0]])
        outputs.set_shape(TensorShape([*inputs.shape.as_list()[:-1], num_outputs]))
        return finished(outputs, num_outputs, settings, opened)


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
def convolution2d(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Any = relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """A convolution of images (``tf.contrib.layers.conv2d``); see `fully_connected` for the other arguments."""
    settings = dict(locals())
    with variable_scope(scope, "Conv", [inputs], reuse=reuse) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        kernel = [*normalized_tuple(kernel_size, 2, "kernel_size"), channels_of(inputs, layout), num_outputs]
        weights = weights_of(
            "weights", kernel, inputs.dtype.base_dtype, weights_initializer, weights_regularizer, trainable,
            variables_collections,
        )  # fmt: skip
        outputs = convolve(
            inputs,
            weights,
            around(normalized_tuple(stride, 2, "stride"), layout),
            padding.upper(),
            data_format=layout,
            dilations=around(normalized_tuple(rate, 2, "rate"), layout),
        )
        return finished(outputs, num_outputs, settings, opened, layout)


@export(
    "tf.contrib.layers.convolution2d_transpose",
    "tf.contrib.slim.convolution2d_transpose",
    "tf.contrib.slim.layers.convolution2d_transpose",
)
@add_arg_scope
def convolution2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = _NHWC,
    activation_fn: Any = relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """A transposed convolution of images (``tf.contrib.layers.conv2d_transpose``)."""
    settings = dict(locals())
    with variable_scope(scope, "Conv2d_transpose", [inputs], reuse=reuse) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        window, steps = normalized_tuple(kernel_size, 2, "kernel_size"), normalized_tuple(stride, 2, "stride")
        weights = weights_of(
            "weights", [*window, num_outputs, channels_of(inputs, layout)], inputs.dtype.base_dtype,
            weights_initializer, weights_regularizer, trainable, variables_collections,
        )  # fmt: skip
        shape = _deconvolved_shape(inputs, num_outputs, window, steps, padding.upper(), layout)
        outputs = deconvolve(
            inputs, weights, stack_of(shape), around(steps, layout), padding.upper(), data_format=layout
        )
        outputs.set_shape([size if isinstance(size, int) else None for size in shape])
        return finished(outputs, num_outputs, settings, opened, layout)


def _deconvolved_shape(
    inputs: Tensor, channels: int, window: Sequence[int], steps: Sequence[int], padding: str, layout: str
) -> list[Any]:
    known, sizes = inputs.shape.as_list(), shape_of(inputs)
    lengths: Any = [sizes[i] if size is None else size for i, size in enumerate(known)]
    first = 2 if layout == "NCHW" else 1
    space = [
        lengths[first + i] * steps[i] + (max(window[i] - steps[i], 0) if padding == "VALID" else 0) for i in (0, 1)
    ]
    return [lengths[0], channels, *space] if layout == "NCHW" else [lengths[0], *space, channels]


@export(
    "tf.contrib.layers.separable_conv2d",
    "tf.contrib.layers.separable_convolution2d",
    "tf.contrib.slim.separable_conv2d",
    "tf.contrib.slim.separable_convolution2d",
    "tf.contrib.slim.layers.separable_conv2d",
    "tf.contrib.slim.layers.separable_convolution2d",
)
@add_arg_scope
def separable_convolution2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = _NHWC,
    rate: Any = 1,
    activation_fn: Any = relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    pointwise_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """A depthwise and then a pointwise convolution (``tf.contrib.layers.separable_conv2d``).

    If ``num_outputs`` is None, the pointwise convolution is left out.
    """
    settings = dict(locals())
    with variable_scope(scope, "SeparableConv2d", [inputs], reuse=reuse) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        channels = channels_of(inputs, layout)
        kernel = [*normalized_tuple(kernel_size, 2, "kernel_size"), channels, depth_multiplier]
        common = (inputs.dtype.base_dtype,)
        depthwise = weights_of(
            "depthwise_weights", kernel, *common, weights_initializer, weights_regularizer, trainable,
            variables_collections,
        )  # fmt: skip
        steps = around(normalized_tuple(stride, 2, "stride"), layout)
        gaps = list(normalized_tuple(rate, 2, "rate"))
        if num_outputs is None:
            outputs = depthwise_conv2d(inputs, depthwise, steps, padding.upper(), rate=gaps, data_format=layout)
            return finished(outputs, channels * depth_multiplier, settings, opened, layout)
        pointwise = weights_of(
            "pointwise_weights", [1, 1, channels * depth_multiplier, num_outputs], *common,
            pointwise_initializer or weights_initializer, weights_regularizer, trainable, variables_collections,
        )  # fmt: skip
        outputs = separable_conv2d(
            inputs, depthwise, pointwise, steps, padding.upper(), rate=gaps, data_format=layout
        )
        return finished(outputs, num_outputs, settings, opened, layout)


@export("tf.contrib.layers.bias_add", "tf.contrib.slim.bias_add", "tf.contrib.slim.layers.bias_add")
@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Any = None,
    initializer: Any = _ZEROS,
    regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str | None = _NHWC,
    scope: Any = None,
) -> Any:
    """Adds biases and applies an activation (``tf.contrib.layers.bias_add``)."""
    with variable_scope(scope, "BiasAdd", [inputs], reuse=reuse) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        channels = inputs.shape.as_list()[1 if layout == "NCHW" else -1]
        biases = weights_of(
            "biases", [channels], inputs.dtype.base_dtype, initializer, regularizer, trainable, variables_collections
        )
        outputs = add_bias(inputs, biases, layout)
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export("tf.contrib.layers.layer_norm", "tf.contrib.slim.layer_norm", "tf.contrib.slim.layers.layer_norm")
@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
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
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export("tf.contrib.layers.linear", "tf.contrib.slim.linear", "tf.contrib.slim.layers.linear")
def linear(*args: Any, **kwargs: Any) -> Any:
    """`fully_connected` without an activation (``tf.contrib.layers.linear``)."""
    return fully_connected(*args, **{"activation_fn": None, **kwargs})


conv2d, conv2d_transpose = convolution2d, convolution2d_transpose

export_names("tf.contrib.layers tf.contrib.slim tf.contrib.slim.layers", "conv2d conv2d_transpose")
