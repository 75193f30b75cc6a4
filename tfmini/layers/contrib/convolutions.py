"""Convolutions and pooling over any number of spatial axes (``tf.contrib.layers``)."""

from __future__ import annotations

from typing import Any

from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib.arg_scope import add_arg_scope
from tfmini.layers.contrib.layers import channels_of, finished, fully_connected, weights_of
from tfmini.layers.contrib.named_outputs import collect_named_outputs
from tfmini.layers.contrib.regularizers import xavier_initializer
from tfmini.layers.spatial_arguments import normalized_tuple
from tfmini.ops.nn.activation import elu as elu_of
from tfmini.ops.nn.activation import relu as relu_of
from tfmini.ops.nn.activation import relu6 as relu6_of
from tfmini.ops.nn.dilated import convolution as convolve
from tfmini.ops.nn.dilated import pool as pool_of
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.scope import variable_scope

_ZEROS, _XAVIER = Zeros(), xavier_initializer()


@export("tf.contrib.layers.convolution", "tf.contrib.slim.convolution", "tf.contrib.slim.layers.convolution")
@add_arg_scope
def convolution(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Any = relu_of,
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
    conv_dims: int | None = None,
) -> Any:
    """A convolution over 1, 2 or 3 spatial axes (``tf.contrib.layers.convolution``).

    Args:
      conv_dims: required number of spatial axes; None allows any number.
      The others are those of `convolution2d`.

    Raises:
      ValueError: when the rank is not ``conv_dims + 2``.
    """
    settings = dict(locals())
    if data_format not in (None, "NWC", "NCW", "NHWC", "NCHW", "NDHWC", "NCDHW"):
        raise ValueError(f"Invalid data_format: {data_format!r}")
    with variable_scope(scope, "Conv", [inputs], reuse=reuse) as opened:
        inputs = convert_to_tensor(inputs)
        axes = _spatial_axes(inputs, conv_dims)
        channels_first = data_format is not None and data_format.startswith("NC")
        layout = "NCHW" if channels_first else "NHWC"
        weights = weights_of(
            "weights",
            [*normalized_tuple(kernel_size, axes, "kernel_size"), channels_of(inputs, layout), num_outputs],
            inputs.dtype.base_dtype, weights_initializer, weights_regularizer, trainable, variables_collections,
        )  # fmt: skip
        outputs = convolve(
            inputs, weights, padding.upper(), strides=list(normalized_tuple(stride, axes, "stride")),
            dilation_rate=list(normalized_tuple(rate, axes, "rate")), data_format=data_format,
        )  # fmt: skip
        return finished(outputs, num_outputs, settings, opened, layout)


def _spatial_axes(inputs: Tensor, wanted: int | None) -> int:
    rank = inputs.shape.ndims
    if rank is None:
        raise ValueError("The rank of the inputs must be known")
    if wanted is not None and wanted + 2 != rank:
        raise ValueError(f"Convolution expects input with rank {wanted + 2}, got {rank}")
    return int(rank) - 2


@export("tf.contrib.layers.convolution1d", "tf.contrib.slim.convolution1d", "tf.contrib.slim.layers.convolution1d")
@add_arg_scope
def convolution1d(inputs: Any, num_outputs: int, kernel_size: Any, *args: Any, **kwargs: Any) -> Any:
    """`convolution` of ``[batch, length, channels]`` (``tf.contrib.layers.conv1d``)."""
    return convolution(inputs, num_outputs, kernel_size, *args, **{"conv_dims": 1, **kwargs})


@export("tf.contrib.layers.convolution3d", "tf.contrib.slim.convolution3d", "tf.contrib.slim.layers.convolution3d")
@add_arg_scope
def convolution3d(inputs: Any, num_outputs: int, kernel_size: Any, *args: Any, **kwargs: Any) -> Any:
    """`convolution` of ``[batch, depth, height, width, channels]`` (``tf.contrib.layers.conv3d``)."""
    return convolution(inputs, num_outputs, kernel_size, *args, **{"conv_dims": 3, **kwargs})


@export("tf.contrib.layers.pool", "tf.contrib.slim.pool", "tf.contrib.slim.layers.pool")
@add_arg_scope
def pool(
    inputs: Any,
    kernel_size: Any,
    pooling_type: str,
    padding: str = "VALID",
    data_format: str | None = None,
    dilation_rate: Any = 1,
    stride: Any = 1,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The maximum or mean ("MAX", "AVG") of windows over all spatial axes (``tf.contrib.layers.pool``)."""
    with variable_scope(scope, f"{pooling_type.lower()}_pool", [inputs]) as opened:
        inputs = convert_to_tensor(inputs)
        axes = _spatial_axes(inputs, None)
        outputs = pool_of(
            inputs,
            list(normalized_tuple(kernel_size, axes, "kernel_size")),
            pooling_type,
            padding.upper(),
            list(normalized_tuple(dilation_rate, axes, "dilation_rate")),
            list(normalized_tuple(stride, axes, "stride")),
            data_format=data_format,
        )
        return collect_named_outputs(outputs_collections, opened.name, outputs)


def _pool3d(kind: str, default_name: str) -> Any:
    @add_arg_scope
    def pool3d(
        inputs: Any,
        kernel_size: Any,
        stride: Any = 2,
        padding: str = "VALID",
        data_format: str = "NDHWC",
        outputs_collections: Any = None,
        scope: Any = None,
    ) -> Any:
        with variable_scope(scope, default_name, [inputs]) as opened:
            outputs = pool_of(
                convert_to_tensor(inputs),
                list(normalized_tuple(kernel_size, 3, "kernel_size")),
                kind,
                padding.upper(),
                strides=list(normalized_tuple(stride, 3, "stride")),
                data_format=data_format,
            )
            return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)

    pool3d.__doc__ = f"The {'maximum' if kind == 'MAX' else 'mean'} of each window of a volume."
    return pool3d


max_pool3d, avg_pool3d = _pool3d("MAX", "MaxPool3D"), _pool3d("AVG", "AvgPool3D")


@export("tf.contrib.layers.elu", "tf.contrib.slim.layers.elu")
def elu(*args: Any, **kwargs: Any) -> Any:
    """`fully_connected` with an elu (``tf.contrib.layers.elu``)."""
    return fully_connected(*args, **{"activation_fn": elu_of, **kwargs})


@export("tf.contrib.layers.relu6", "tf.contrib.slim.layers.relu6")
def relu6(*args: Any, **kwargs: Any) -> Any:
    """`fully_connected` with a relu6 (``tf.contrib.layers.relu6``)."""
    return fully_connected(*args, **{"activation_fn": relu6_of, **kwargs})


conv1d, conv3d = convolution1d, convolution3d

export_names("tf.contrib.layers tf.contrib.slim tf.contrib.slim.layers", "avg_pool3d conv1d conv3d max_pool3d")
