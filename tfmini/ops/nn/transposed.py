"""Transposed convolution in one to three dimensions (``tf.nn.conv_transpose``…)."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.joining import concat
from tfmini.ops.array.slicing import getitem
from tfmini.ops.nn import convolution as nn_convolution
from tfmini.ops.nn.dilated import with_axis


@export("tf.nn.conv1d_transpose")
def conv1d_transpose(
    input: Any, filters: Any, output_shape: Any, strides: Any, padding: str = "SAME", data_format: str = "NWC",
    dilations: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv1d` (``tf.nn.conv1d_transpose``).

    Args:
      input: [batch, width, channels in].
      filters: [width, channels out, channels in].
      output_shape: the shape of the result.
    """
    with name_scope(name, "conv1d_transpose", [input, filters, output_shape]) as scope:
        if data_format not in ("NWC", "NCW"):
            raise ValueError(f"`data_format` must be 'NWC' or 'NCW'. Received: data_format={data_format}")
        first = data_format == "NCW"
        axis = 2 if first else 1
        sizes = convert_to_tensor(output_shape, dtypes.int32)
        before, after = getitem(sizes, slice(None, axis)), getitem(sizes, slice(axis, None))
        lifted = concat([before, constant([1], dtypes.int32), after], 0)
        found = nn_convolution.conv2d_transpose(
            array_shape.expand_dims(input, axis), array_shape.expand_dims(filters, 0), lifted,
            with_axis(strides, first), padding, "NCHW" if first else "NHWC",
            dilations=with_axis(1 if dilations is None else dilations, first),
        )  # fmt: skip
        return array_shape.squeeze(found, [axis], name=scope)


@export("tf.nn.conv_transpose")
def conv_transpose(
    input: Any, filters: Any, output_shape: Any, strides: Any, padding: str = "SAME", data_format: str | None = None,
    dilations: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `convolution`; the length of ``output_shape`` gives the rank (``tf.nn.conv_transpose``)."""
    with name_scope(name, "conv_transpose", [input, filters, output_shape]) as scope:
        rank = convert_to_tensor(output_shape).shape.as_list()[0]
        if rank not in (3, 4, 5):
            raise ValueError(f"output_shape must have 3, 4 or 5 values, got {rank}")
        layout = data_format or ("NWC", "NHWC", "NDHWC")[rank - 3]
        if rank == 3:
            return conv1d_transpose(input, filters, output_shape, strides, padding, layout, dilations, scope)
        function: Any = nn_convolution.conv2d_transpose if rank == 4 else nn_convolution.conv3d_transpose
        return function(  # type: ignore[no-any-return]
            input, filters, output_shape, strides, padding, layout, name=scope, dilations=dilations
        )


@export("tf.nn.atrous_conv2d_transpose")
def atrous_conv2d_transpose(
    value: Any, filters: Any, output_shape: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """The transpose of `atrous_conv2d` (``tf.nn.atrous_conv2d_transpose``)."""
    return nn_convolution.conv2d_transpose(
        value, filters, output_shape, [1, 1, 1, 1], padding, name=name or "atrous_conv2d_transpose",
        dilations=[1, rate, rate, 1],
    )  # fmt: skip
