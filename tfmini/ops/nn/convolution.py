"""The convolution functions of ``tf.nn``, on the ops of `conv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import PaddingLike, SizesLike, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.nn import conv as nn_conv
from tfmini.ops.nn.windows import padding_attrs, spatial_sequence

_ONES = (1, 1, 1, 1)


@export("tf.nn.conv2d")
def conv2d(
    input: TensorLike, filter: TensorLike | None = None, strides: int | Sequence[int] | None = None,
    padding: PaddingLike | None = None, use_cudnn_on_gpu: bool = True, data_format: str = "NHWC",
    dilations: int | Sequence[int] = _ONES, name: str | None = None, filters: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """Convolves images with filters (``tf.nn.conv2d``).

    Args:
      input: images, floats, [batch, rows, columns, channels], or channels second for NCHW.
      filter: [rows, columns, channels in, channels out].
      strides: one int, two, or four in the layout of ``data_format``.
      padding: "SAME", "VALID", or four (before, after) pairs.
      use_cudnn_on_gpu: ignored.
      data_format: "NHWC" or "NCHW".
      dilations: as ``strides``, the distance between the elements of a filter.
      name: of the op.
      filters: another name for ``filter``.

    Returns:
      [batch, rows out, columns out, channels out], of the dtype of ``input``, or channels second for NCHW.

    Raises:
      ValueError: for shapes that do not fit.
    """
    channels = 1 if data_format == "NCHW" else 3
    return nn_conv.conv2d_op(
        input,
        either("filters", filters, "filter", filter),
        strides=spatial_sequence(strides, 2, channels, "strides"),
        use_cudnn_on_gpu=use_cudnn_on_gpu,
        data_format=data_format,
        dilations=spatial_sequence(dilations, 2, channels, "dilations"),
        name=name,
        **padding_attrs(padding),
    )


@export("tf.nn.conv2d_backprop_filter")
def conv2d_backprop_filter(
    input: TensorLike, filter_sizes: SizesLike, out_backprop: TensorLike, strides: Sequence[int], padding: PaddingLike,
    use_cudnn_on_gpu: bool = True, data_format: str = "NHWC", dilations: Sequence[int] = _ONES, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` for its filter, of shape ``filter_sizes`` (``tf.nn.conv2d_backprop_filter``)."""
    return nn_conv.backprop_filter_op(
        input, filter_sizes, out_backprop, strides=list(strides), use_cudnn_on_gpu=use_cudnn_on_gpu,
        data_format=data_format, dilations=list(dilations), name=name, **padding_attrs(padding),
    )  # fmt: skip


@export("tf.nn.conv2d_backprop_input")
def conv2d_backprop_input(
    input_sizes: SizesLike, filter: TensorLike | None = None, out_backprop: TensorLike | None = None,
    strides: Any = None, padding: PaddingLike | None = None, use_cudnn_on_gpu: bool = True, data_format: str = "NHWC",
    dilations: Sequence[int] = _ONES, name: str | None = None, filters: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` for its input, of shape ``input_sizes`` (``tf.nn.conv2d_backprop_input``)."""
    return nn_conv.backprop_input_op(
        input_sizes, either("filters", filters, "filter", filter), out_backprop, strides=list(strides),
        use_cudnn_on_gpu=use_cudnn_on_gpu, data_format=data_format, dilations=list(dilations), name=name,
        **padding_attrs(padding),
    )  # fmt: skip


@export("tf.nn.conv2d_transpose")
def conv2d_transpose(
    value: TensorLike | None = None, filter: TensorLike | None = None, output_shape: SizesLike | None = None,
    strides: int | Sequence[int] | None = None, padding: PaddingLike = "SAME", data_format: str = "NHWC",
    name: str | None = None, input: TensorLike | None = None, filters: TensorLike | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The transpose ("deconvolution") of `conv2d` (``tf.nn.conv2d_transpose``).

    Args:
      value: [batch, rows, columns, channels in].
      filter: [rows, columns, channels out, channels in].
      output_shape: the shape of the result, a list or an int32 vector.
    """
    value = either("input", input, "value", value)
    filters = either("filters", filters, "filter", filter)
    channels = 1 if data_format.startswith("NC") else 3
    with name_scope(name, "conv2d_transpose", [value, filters, output_shape]) as scope:
        return nn_conv.backprop_input_op(
            output_shape, filters, value, strides=spatial_sequence(strides, 2, channels, "strides"),
            data_format=data_format, dilations=spatial_sequence(dilations, 2, channels, "dilations"), name=scope,
            **padding_attrs(padding),
        )  # fmt: skip


@export("tf.nn.atrous_conv2d")
def atrous_conv2d(value: TensorLike, filters: TensorLike, rate: int, padding: str, name: str | None = None) -> Tensor:
    """`conv2d` with holes of ``rate - 1`` elements between those of the filter (``tf.nn.atrous_conv2d``)."""
    return conv2d(value, filters, _ONES, padding, dilations=[1, rate, rate, 1], name=name)


@export("tf.nn.conv1d")
def conv1d(
    value: TensorLike | None = None, filters: Any = None, stride: int | Sequence[int] | None = None,
    padding: PaddingLike | None = None, use_cudnn_on_gpu: bool | None = None, data_format: str | None = None,
    name: str | None = None, input: TensorLike | None = None, dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Convolves [batch, width, channels] with [width, channels in, channels out] (``tf.nn.conv1d``).

    Raises:
      ValueError: for an unknown ``data_format``.
    """
    value = either("input", input, "value", value)
    with name_scope(name, "conv1d", [value, filters]) as scope:
        first = data_format is None or data_format in ("NHWC", "NWC")
        if not first and data_format not in ("NCHW", "NCW"):
            raise ValueError("data_format must be NWC or NCW")
        axis, channels = (1, 2) if first else (2, 1)
        steps = [1, *spatial_sequence(stride, 1, channels, "stride")]
        holes = [1, *spatial_sequence(dilations, 1, channels, "dilations")]
        result = nn_conv.conv2d_op(
            expand_dims(value, axis),
            expand_dims(filters, 0),
            strides=steps,
            use_cudnn_on_gpu=True if use_cudnn_on_gpu is None else use_cudnn_on_gpu,
            padding=padding,
            data_format="NHWC" if first else "NCHW",
            dilations=holes,
            name=scope,
        )
        return squeeze(result, [axis])


@export("tf.nn.depthwise_conv2d_native")
def depthwise_conv2d_native(
    input: TensorLike, filter: TensorLike, strides: Sequence[int], padding: PaddingLike, data_format: str = "NHWC",
    dilations: Sequence[int] = _ONES, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolves each channel with its own filters (``tf.nn.depthwise_conv2d_native``).

    Args:
      filter: [rows, columns, channels in, multiplier]; the result has channels in * multiplier channels.
    """
    return nn_conv.depthwise_op(
        input, filter, strides=list(strides), data_format=data_format, dilations=list(dilations), name=name,
        **padding_attrs(padding),
    )  # fmt: skip


@export("tf.nn.depthwise_conv2d_backprop_input", "tf.nn.depthwise_conv2d_native_backprop_input")
def depthwise_conv2d_backprop_input(
    input_sizes: SizesLike, filter: TensorLike, out_backprop: TensorLike, strides: Sequence[int], padding: PaddingLike,
    data_format: str = "NHWC", dilations: Sequence[int] = _ONES, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `depthwise_conv2d_native` for its input (``tf.nn.depthwise_conv2d_backprop_input``)."""
    return nn_conv.depthwise_backprop_input_op(
        input_sizes, filter, out_backprop, strides=list(strides), data_format=data_format,
        dilations=list(dilations), name=name, **padding_attrs(padding),
    )  # fmt: skip


@export("tf.nn.depthwise_conv2d_backprop_filter", "tf.nn.depthwise_conv2d_native_backprop_filter")
def depthwise_conv2d_backprop_filter(
    input: TensorLike, filter_sizes: SizesLike, out_backprop: TensorLike, strides: Sequence[int], padding: PaddingLike,
    data_format: str = "NHWC", dilations: Sequence[int] = _ONES, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `depthwise_conv2d_native` for its filter (``tf.nn.depthwise_conv2d_backprop_filter``)."""
    return nn_conv.depthwise_backprop_filter_op(
        input, filter_sizes, out_backprop, strides=list(strides), data_format=data_format,
        dilations=list(dilations), name=name, **padding_attrs(padding),
    )  # fmt: skip


def note_dilation(rate: Sequence[int], filter: Tensor | None = None) -> None:
    """Make the constants in which TensorFlow notes a dilation rate and the shape of a filter.

    Nothing reads them. But a graph's seed and the number of its ops make the seed of the next random op.
    """
    if filter is not None:
        shape_of(filter)
    constant(list(rate), dtypes.int32, name="dilation_rate")


@export("tf.nn.depthwise_conv2d")
def depthwise_conv2d(
    input: TensorLike, filter: TensorLike, strides: Sequence[int], padding: PaddingLike,
    rate: int | Sequence[int] | None = None, name: str | None = None, data_format: str | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """`depthwise_conv2d_native` with holes given by ``rate``, two ints (``tf.nn.depthwise_conv2d``)."""
    rate = either("dilations", dilations, "rate", rate)
    channels = 1 if data_format == "NCHW" else 3
    with name_scope(name, "depthwise", [input, filter]) as scope:
        filter = convert_to_tensor(filter, name="filter_in")
        note_dilation(spatial_sequence(rate, 2, channels, "dilations"), filter)
        return depthwise_conv2d_native(
            convert_to_tensor(input, name="tensor_in"),
            filter,
            strides,
            padding,
            data_format or "NHWC",
            spatial_sequence(rate, 2, channels, "dilations"),
            scope,
        )


@export("tf.nn.separable_conv2d")
def separable_conv2d(
    input: TensorLike, depthwise_filter: TensorLike, pointwise_filter: TensorLike, strides: Sequence[int],
    padding: PaddingLike, rate: int | Sequence[int] | None = None, name: str | None = None,
    data_format: str | None = None, dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """A depthwise convolution followed by a 1x1 one (``tf.nn.separable_conv2d``).

    Args:
      depthwise_filter: [rows, columns, channels in, multiplier].
      pointwise_filter: [1, 1, channels in * multiplier, channels out].

    Raises:
      ValueError: when the pointwise filter is not 1x1.
    """
    rate = either("dilations", dilations, "rate", rate)
    with name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        pointwise_filter = convert_to_tensor(pointwise_filter, name="pointwise_filter")
        sizes = pointwise_filter.raw_shape
        if sizes is not None and (len(sizes) != 4 or any(d not in (1, None) for d in sizes[:2])):
            raise ValueError(f"The pointwise filter must be [1, 1, channels in, channels out], got {sizes}")
        rates = spatial_sequence(rate, 2, 1 if data_format == "NCHW" else 3, "dilations")
        depthwise_filter = convert_to_tensor(depthwise_filter, name="depthwise_filter")
        note_dilation(rates, depthwise_filter)
        deep = depthwise_conv2d_native(
            input, depthwise_filter, strides, padding, data_format or "NHWC", rates, "depthwise"
        )
        return conv2d(deep, pointwise_filter, _ONES, "VALID", data_format=data_format or "NHWC", name=scope)


# ---- three spatial dimensions -----------------------------------------------------------------------


@export("tf.nn.conv3d")
def conv3d(
    input: TensorLike, filter: TensorLike | None = None, strides: Any = None, padding: PaddingLike | None = None,
    data_format: str = "NDHWC", dilations: Sequence[int] = (1, 1, 1, 1, 1), name: str | None = None,
    filters: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """Convolves volumes [batch, depth, rows, columns, channels] (``tf.nn.conv3d``).

    Args:
      filter: [depth, rows, columns, channels in, channels out].
      strides: five ints in the layout of ``data_format``.
      dilations: five ints.
    """
    return nn_conv.conv3d_op(
        input, either("filters", filters, "filter", filter), strides=list(strides), padding=padding,
        data_format=data_format, dilations=list(dilations), name=name,
    )  # fmt: skip


@export("tf.nn.conv3d_backprop_filter", "tf.nn.conv3d_backprop_filter_v2")
def conv3d_backprop_filter(
    input: TensorLike, filter_sizes: SizesLike, out_backprop: TensorLike, strides: Sequence[int], padding: PaddingLike,
    data_format: str = "NDHWC", dilations: Sequence[int] = (1, 1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` for its filter (``tf.nn.conv3d_backprop_filter``)."""
    return nn_conv.conv3d_filter_op(
        input, filter_sizes, out_backprop, strides=list(strides), padding=padding, data_format=data_format,
        dilations=list(dilations), name=name,
    )  # fmt: skip


@export("tf.nn.conv3d_transpose")
def conv3d_transpose(
    value: TensorLike, filter: TensorLike | None = None, output_shape: SizesLike | None = None,
    strides: int | Sequence[int] | None = None, padding: str = "SAME", data_format: str = "NDHWC",
    name: str | None = None, input: TensorLike | None = None, filters: TensorLike | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv3d` (``tf.nn.conv3d_transpose``).

    Args:
      value: [batch, depth, rows, columns, channels in].
      filter: [depth, rows, columns, channels out, channels in].
      output_shape: of the result.
    """
    filter = either("filters", filters, "filter", filter)
    value = either("input", input, "value", value)
    channels = 1 if data_format == "NCDHW" else 4
    with name_scope(name, "conv3d_transpose", [value, filter, output_shape]) as scope:
        return nn_conv.conv3d_input_op(
            output_shape, filter, value, strides=spatial_sequence(strides, 3, channels, "strides"), padding=padding,
            data_format=data_format, dilations=spatial_sequence(dilations, 3, channels, "dilations"), name=scope,
        )  # fmt: skip
