"""Normalization of each example, per channel or group of channels (``tf.contrib.layers``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib.arg_scope import add_arg_scope
from tfmini.layers.contrib.layers import collected, weights_of
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.nn.normalization import batch_normalization, moments
from tfmini.ops.variables.initializers import Ones, Zeros
from tfmini.ops.variables.scope import variable_scope


def _offset_and_scale(
    inputs: Tensor, channels: int, shape: Any, center: bool, scale: bool, initializers: Any, trainable: bool,
    collections: Any,
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
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
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
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
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
