"""Functions for convolution and pooling in one to three dimensions, with dilation (``tf.nn.convolution``…)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, PaddingLike, SizesLike, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.blocks import batch_to_space_nd, space_to_batch_nd
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.slicing import getitem
from tfmini.ops.nn import convolution as nn_convolution
from tfmini.ops.nn import pooling as nn_pooling
from tfmini.shapes import RawShape, TensorShape


@export("tf.required_space_to_batch_paddings")
def required_space_to_batch_paddings(
    input_shape: SizesLike, block_shape: TensorLike, base_paddings: TensorLike | None = None, name: str | None = None
) -> tuple[Any, Any]:
    """Paddings that make blocks divide the sizes, and the crops after it (``tf.required_space_to_batch_paddings``).

    Args:
      input_shape: int32 [N], the spatial sizes.
      block_shape: int32 [N].
      base_paddings: int32 [N, 2], the least paddings; default 0.
      name: of the scope.

    Returns:
      (paddings, crops), each [N, 2]; constants where the arguments are.
    """
    with name_scope(name, "required_space_to_batch_paddings", [input_shape, block_shape]):
        sizes = convert_to_tensor(input_shape, dtypes.int32, name="input_shape")
        blocks = convert_to_tensor(block_shape, dtypes.int32, name="block_shape")
        blocks.shape.assert_is_fully_defined()
        blocks.shape.assert_has_rank(1)
        count = blocks.shape.as_list()[0]
        if count == 0:
            return zeros([0, 2], dtypes.int32), zeros([0, 2], dtypes.int32)
        sizes.shape.assert_is_compatible_with([count])
        base = zeros([count, 2], dtypes.int32) if base_paddings is None else \
            convert_to_tensor(base_paddings, dtypes.int32, name="base_paddings")  # fmt: skip
        base.shape.assert_is_compatible_with([count, 2])
        known: list[Any] = [constant_value(t) for t in (sizes, blocks, base)]
        if all(value is not None for value in known):
            paddings, crops = _paddings(*known, join=np.stack)
            return constant(paddings, dtypes.int32, name="paddings"), constant(crops, dtypes.int32, name="crops")
        return _paddings(sizes, blocks, base, join=stack)


def _paddings(sizes: Any, blocks: Any, base: Any, *, join: Callable[..., Any]) -> tuple[Any, Any]:
    """The arithmetic, for arrays as well as tensors."""
    start, end = (base[:, 0], base[:, 1]) if not isinstance(base, Tensor) else (
        getitem(base, (slice(None), 0)), getitem(base, (slice(None), 1)),
    )  # fmt: skip
    whole = sizes + start + end
    extra = (blocks - whole % blocks) % blocks
    return join([start, end + extra], axis=1), join([start * 0, extra], axis=1)


@export("tf.nn.with_space_to_batch")
def with_space_to_batch(
    input: TensorLike, dilation_rate: TensorLike, padding: str, op: Callable[..., Any], filter_shape: SizesLike = None,
    spatial_dims: Any = None, data_format: str | None = None,
) -> Tensor:  # fmt: skip
    """Runs ``op`` with dilation, as an op without dilation on a batch of blocks (``tf.nn.with_space_to_batch``).

    Args:
      input: [batch, …spatial sizes, …].
      dilation_rate: int32 [N], known.
      padding: "SAME" or "VALID".
      op: (input, num_spatial_dims, padding) -> output.
      filter_shape: the window, for "SAME".
      spatial_dims: the axes, ascending; default the first N after the batch.
      data_format: if it begins with "NC", the spatial axes begin at 2.

    Raises:
      ValueError: for rates, axes or ranks that do not fit.
    """
    input = convert_to_tensor(input, name="input")
    rates = constant_value(convert_to_tensor(dilation_rate, dtypes.int32, name="dilation_rate"))
    rate_shape = TensorShape(rates.shape) if rates is not None else convert_to_tensor(dilation_rate).shape
    if rate_shape.ndims is not None and rate_shape.ndims != 1:
        raise ValueError("rate must be rank 1")
    if not rate_shape.is_fully_defined():
        raise ValueError("rate must have known shape")
    count = int(rate_shape.as_list()[0] or 0)
    axes = _spatial_axes(spatial_dims, count, data_format)
    channels_first = data_format is not None and data_format.startswith("NC")
    needed = axes[-1] if channels_first else axes[-1] + 1
    if input.shape.ndims is not None and input.shape.ndims < needed:
        raise ValueError(f"input tensor must have rank {needed} at least")
    if rates is not None:
        if (rates < 1).any():
            raise ValueError("dilation_rate must be positive")
        if (rates == 1).all():
            return op(input, count, padding)  # type: ignore[no-any-return]
    return _blockwise(input, dilation_rate, rates, padding, op, filter_shape, axes)


def _spatial_axes(spatial_dims: Any, count: int, data_format: str | None) -> list[int]:
    if spatial_dims is None:
        first = 2 if data_format is not None and data_format.startswith("NC") else 1
        return list(range(first, first + count))
    given = list(spatial_dims)
    axes = sorted({int(x) for x in given})
    if axes != given or any(x < 1 for x in axes):
        raise ValueError("spatial_dims must be a montonically increasing sequence of positive integers")
    return axes


def _blockwise(
    input: Tensor, dilation_rate: TensorLike, rates: Array | None, padding: str, op: Callable[..., Any],
    filter_shape: SizesLike, axes: list[int],
) -> Tensor:  # fmt: skip
    rate = rates if rates is not None else convert_to_tensor(dilation_rate, dtypes.int32)
    if padding == "SAME":
        if filter_shape is None:
            raise ValueError("filter_shape must be specified for SAME padding")
        base = _same_paddings(filter_shape, len(axes), rate)
    elif padding == "VALID":
        base = np.zeros([len(axes), 2], np.int32)
    else:
        raise ValueError(f"Invalid padding method {padding!r}")
    static = input.raw_shape
    sizes: Any = None if static is None else [static[a] for a in axes]
    if sizes is None or None in sizes:
        dynamic = array_shape.shape(input)
        sizes = stack([getitem(dynamic, a) for a in axes])
    paddings, crops = required_space_to_batch_paddings(sizes, rate, base)
    whole_rate, paddings, crops = (_on_axes(v, fill, axes) for v, fill in ((rate, 1), (paddings, 0), (crops, 0)))
    blocks = space_to_batch_nd(input, whole_rate, paddings)
    return batch_to_space_nd(op(blocks, len(axes), "VALID"), whole_rate, crops)


def _same_paddings(filter_shape: SizesLike, count: int, rate: Any) -> Any:
    tensor = convert_to_tensor(filter_shape, dtypes.int32, name="filter_shape")
    known = constant_value(tensor)
    window = getitem(tensor, slice(0, count)) if known is None else known[:count]
    extra = (window - 1) * rate
    if isinstance(extra, Tensor):
        return stack([extra // 2, extra - extra // 2], axis=1)
    return np.stack([extra // 2, extra - extra // 2], axis=1)


def _on_axes(value: Any, fill: int, axes: list[int]) -> Any:
    """One row per axis 1, 2, …, the last of ``axes``; rows of other axes hold ``fill``."""
    known = constant_value(value) if isinstance(value, Tensor) else value
    if known is not None:
        found = np.full((axes[-1], *known.shape[1:]), fill, known.dtype)
        found[[a - 1 for a in axes]] = known
        return found
    rest = value.shape.as_list()[1:]
    rows = [
        getitem(value, slice(axes.index(a), axes.index(a) + 1)) if a in axes
        else constant(np.full([1, *rest], fill), value.dtype)
        for a in range(1, axes[-1] + 1)
    ]  # fmt: skip
    return concat(rows, 0)


def _steps(
    count: int, strides: int | Sequence[int] | None, dilation_rate: int | Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Strides and rates, one per spatial axis.

    Raises:
      ValueError: for a wrong number of values, for values below one, and if strides and rates both exceed one.
    """
    found = []
    for label, values in (("dilation_rate", dilation_rate), ("strides", strides)):
        values = [1] * count if values is None else [int(v) for v in np.ravel(values)]
        if len(values) == 1:
            values = values * count
        if len(values) != count:
            raise ValueError(f"len({label})={len(values)} but should be {count}")
        if min(values) < 1:
            raise ValueError(f"all values of {label} must be positive")
        found.append(values)
    rates, steps = found
    check_steps(steps, rates)
    return steps, rates


def check_steps(strides: Iterable[int], rates: Iterable[int]) -> None:
    """Raises ValueError where a convolution has both strides and gaps, as TensorFlow's layers do."""
    if max(strides) > 1 and max(rates) > 1:
        raise ValueError("strides > 1 not supported in conjunction with dilation_rate > 1")


def _is_channels_first(data_format: str | None) -> bool:
    return data_format is not None and data_format.startswith("NC")


def _whole(values: list[int], channels_first: bool) -> list[int]:
    return [1, 1, *values] if channels_first else [1, *values, 1]


@export("tf.nn.convolution")
def convolution(
    input: TensorLike, filter: TensorLike | None = None, padding: PaddingLike | None = None,
    strides: int | Sequence[int] | None = None, dilation_rate: int | Sequence[int] | None = None,
    name: str | None = None, data_format: str | None = None, filters: TensorLike | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Convolution over one, two or three spatial axes (``tf.nn.convolution``).

    Args:
      input: [batch, …spatial, channels], or channels second when ``data_format`` begins with "NC".
      filter: [….window, channels in, channels out].
      padding: "SAME" or "VALID".
      strides, dilation_rate: one int per spatial axis; one of the two must be all ones.

    Raises:
      ValueError: for ranks, sizes or rates that do not fit.
    """
    filter = either("filters", filters, "filter", filter)
    rate = either("dilations", dilations, "dilation_rate", dilation_rate)
    with name_scope(name, "convolution", [input, filter]) as scope:
        input, filter = convert_to_tensor(input, name="input"), convert_to_tensor(filter, name="filter")
        count = _conv_axes(input.raw_shape, filter.raw_shape)
        _check_channels(input.raw_shape, filter.raw_shape, data_format)
        steps, rates = _steps(count, strides, rate)
        return _convolve(count, input, filter, padding, steps, rates, data_format, scope)


@export("tensorflow.python.ops.nn_ops.Convolution")
class Convolution:
    """`convolution` of inputs and filters whose shapes are known before; what runs it are its calls."""

    def __init__(
        self, input_shape: TensorShape, filter_shape: TensorShape, padding: str, strides: Any = None,
        dilation_rate: Any = None, name: str | None = None, data_format: str | None = None, fused: bool = False,
    ) -> None:  # fmt: skip
        count = _conv_axes(input_shape.raw, filter_shape.raw)
        _check_channels(input_shape.raw, filter_shape.raw, data_format)
        self.input_shape, self.filter_shape, self.padding = input_shape, filter_shape, padding
        self.data_format, self.name = data_format, name
        steps, rates = _steps(count, strides, dilation_rate)
        self.strides, self.dilation_rate = np.array(steps, np.int32), np.array(rates, np.int32)
        self._rates = convert_to_tensor(self.dilation_rate, name="dilation_rate")

    def __call__(self, inp: TensorLike, filter: TensorLike) -> Tensor:
        """The convolution of an input and a filter."""
        inp, filter = convert_to_tensor(inp), convert_to_tensor(filter)
        steps = self.strides.tolist()

        def convolve(blocks: Tensor, count: int, padding: str) -> Tensor:
            return _convolve(count, blocks, filter, padding, steps, [1] * count, self.data_format, self.name)

        window = self.filter_shape.raw
        return with_space_to_batch(inp, self._rates, self.padding, convolve, window, data_format=self.data_format)


def _check_channels(input_shape: RawShape, filter_shape: RawShape, data_format: str | None) -> None:
    depth = None if input_shape is None else input_shape[1 if _is_channels_first(data_format) else -1]
    wanted = None if filter_shape is None else filter_shape[-2]
    if depth is not None and wanted and depth % wanted:
        raise ValueError(
            f"number of input channels does not match corresponding dimension of filter, {depth} != {wanted}"
        )


def _conv_axes(*shapes: RawShape) -> int:
    ranks = [len(shape) for shape in shapes if shape is not None]
    if not ranks:
        raise ValueError("rank of input and filter cannot both be unknown")
    if len(ranks) == 2 and ranks[0] != ranks[1]:
        raise ValueError(f"input tensor must have rank {ranks[1]}, as the filter has, not {ranks[0]}")
    if not 1 <= ranks[0] - 2 <= 3:
        raise ValueError(f"num_spatial_dims must be one of 1, 2, 3 but is {ranks[0] - 2}")
    return ranks[0] - 2


def _convolve(
    count: int, input: Tensor, filter: Tensor, padding: PaddingLike | None, steps: list[int], rates: list[int],
    data_format: str | None, scope: str | None,
) -> Tensor:  # fmt: skip
    first = _is_channels_first(data_format)
    if count == 1:
        return nn_convolution.conv1d(
            input, filter, steps, padding, data_format=data_format or "NWC", dilations=rates, name=scope
        )
    steps, rates = _whole(steps, first), _whole(rates, first)
    if count == 2:
        layout = "NCHW" if first else "NHWC"
        return nn_convolution.conv2d(input, filter, steps, padding, data_format=layout, dilations=rates, name=scope)
    layout = "NCDHW" if first else "NDHWC"
    return nn_convolution.conv3d(input, filter, steps, padding, layout, rates, scope)


# ---- pooling --------------------------------------------------------------------------------


@export("tf.nn.pool")
def pool(
    input: TensorLike, window_shape: Sequence[int], pooling_type: str, padding: str,
    dilation_rate: int | Sequence[int] | None = None, strides: int | Sequence[int] | None = None,
    name: str | None = None, data_format: str | None = None, dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Max or average pooling over one, two or three spatial axes, with dilation (``tf.nn.pool``).

    Args:
      input: [batch, …spatial, channels], or channels second when ``data_format`` begins with "NC".
      window_shape: one int per spatial axis.
      pooling_type: "MAX" or "AVG".
      padding: "SAME" or "VALID".
      dilation_rate, strides: one int per spatial axis.

    Raises:
      ValueError: for arguments that do not fit together.
    """
    rate = either("dilations", dilations, "dilation_rate", dilation_rate)
    window = [int(w) for w in window_shape]
    kind = pooling_type.lower()
    with name_scope(name, f"{kind}_pool", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        count = len(window)
        if not 1 <= count <= 3:
            raise ValueError(f"num_spatial_dims must be one of 1, 2, 3 but is {count}")
        if input.shape.ndims is not None:
            input.shape.assert_has_rank(count + 2)
        steps, rates = _steps(count, strides, rate)
        if padding == "SAME" and max(rates) > 1:
            raise ValueError("pooling with SAME padding is not implemented for dilation_rate > 1")
        if any(s > w for s, w in zip(steps, window)):
            raise ValueError("strides > window_shape not supported due to inconsistency between CPU and GPU kernels")
        if pooling_type not in ("MAX", "AVG"):
            raise ValueError(f"pooling_type must be MAX or AVG, got {pooling_type!r}")

        def one(value: Tensor, _: int, how: str) -> Tensor:
            return _pooled(kind, value, window, steps, how, data_format, scope)

        return with_space_to_batch(input, rates, padding, one, window, data_format=data_format)


def _pooled(
    kind: str, input: Tensor, window: list[int], steps: list[int], padding: str, data_format: str | None, scope: str
) -> Tensor:
    first, count = _is_channels_first(data_format), len(window)
    if count == 1:
        function = max_pool1d if kind == "max" else avg_pool1d
        return function(input, window, steps, padding, "NCW" if first else "NWC", scope)
    window, steps = _whole(window, first), _whole(steps, first)
    if count == 2:
        flat = nn_pooling.max_pool if kind == "max" else nn_pooling.avg_pool
        return flat(input, window, steps, padding, "NCHW" if first else "NHWC", scope)
    deep = nn_pooling.max_pool3d if kind == "max" else nn_pooling.avg_pool3d
    return deep(input, window, steps, padding, "NCDHW" if first else "NDHWC", scope)


def _of_rank(input: TensorLike, one: Any, two: Any, three: Any) -> Any:
    """The function for the number of spatial axes of ``input``."""
    rank = convert_to_tensor(input).shape.ndims
    if rank is None or not 3 <= rank <= 5:
        raise ValueError(f"Input tensor must be of rank 3, 4 or 5 but was {rank}.")
    return (one, two, three)[rank - 3]


@export("tf.nn.max_pool_v2")
def max_pool_v2(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Max pooling of 1-D, 2-D or 3-D data by the rank of ``input`` (``tf.nn.max_pool_v2``)."""
    function = _of_rank(input, max_pool1d, nn_pooling.max_pool, nn_pooling.max_pool3d)
    layout = data_format or _of_rank(input, "NWC", "NHWC", "NDHWC")
    return function(input, ksize, strides, padding, layout, name)  # type: ignore[no-any-return]


@export("tf.nn.avg_pool_v2")
def avg_pool_v2(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Mean pooling of 1-D, 2-D or 3-D data by the rank of ``input`` (``tf.nn.avg_pool_v2``)."""
    function = _of_rank(input, avg_pool1d, nn_pooling.avg_pool, nn_pooling.avg_pool3d)
    layout = data_format or _of_rank(input, "NWC", "NHWC", "NDHWC")
    return function(input, ksize, strides, padding, layout, name)  # type: ignore[no-any-return]


def _pool1d(
    function: Callable[..., Any], name: str, input: TensorLike, ksize: int | Sequence[int],
    strides: int | Sequence[int], padding: PaddingLike, data_format: str,
) -> Tensor:  # fmt: skip
    first = _is_channels_first(data_format)
    if data_format not in ("NWC", "NCW", None):
        raise ValueError(f"data_format must be NWC or NCW, got {data_format!r}")
    window, steps = (with_axis(v, first) for v in (ksize, strides))
    lifted = array_shape.expand_dims(input, 2 if first else 1)
    found = function(lifted, window, steps, padding, "NCHW" if first else "NHWC")
    return array_shape.squeeze(found, [2 if first else 1], name=name)


def with_axis(values: int | Sequence[int], first: bool) -> list[int]:
    """The four values of a 2-D op, from one value or from three in the layout of the data."""
    values = [int(v) for v in np.ravel(values)]
    if len(values) == 3:
        values = [values[2] if first else values[1]]
    if len(values) != 1:
        raise ValueError(f"expected 1 or 3 values, got {len(values)}")
    return [1, 1, 1, *values] if first else [1, 1, *values, 1]


@export("tf.nn.max_pool1d")
def max_pool1d(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str = "NWC", name: str | None = None,
) -> Tensor:  # fmt: skip
    """The maximum of each window of sequences [batch, width, channels] (``tf.nn.max_pool1d``)."""
    with name_scope(name, "MaxPool1d", [input]) as scope:
        return _pool1d(nn_pooling.max_pool, scope, input, ksize, strides, padding, data_format)


@export("tf.nn.avg_pool1d")
def avg_pool1d(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str = "NWC", name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of sequences [batch, width, channels] (``tf.nn.avg_pool1d``)."""
    with name_scope(name, "AvgPool1D", [input]) as scope:
        return _pool1d(nn_pooling.avg_pool, scope, input, ksize, strides, padding, data_format)


# ---- Transposed convolution in one to three dimensions (``tf.nn.conv_transpose``…) ---------------------------------


@export("tf.nn.conv1d_transpose", "tf.contrib.nn.conv1d_transpose")
def conv1d_transpose(
    input: TensorLike, filters: TensorLike, output_shape: SizesLike, strides: int | Sequence[int],
    padding: str = "SAME", data_format: str = "NWC", dilations: int | Sequence[int] | None = None,
    name: str | None = None,
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
    input: TensorLike, filters: TensorLike, output_shape: SizesLike, strides: int | Sequence[int],
    padding: str = "SAME", data_format: str | None = None, dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `convolution`; the length of ``output_shape`` gives the rank (``tf.nn.conv_transpose``)."""
    with name_scope(name, "conv_transpose", [input, filters, output_shape]) as scope:
        if not isinstance(output_shape, Tensor) and not hasattr(output_shape, "__len__"):
            raise ValueError("output_shape must be a tensor or sized collection.")
        rank = convert_to_tensor(output_shape).shape.as_list()[0]
        if rank not in (3, 4, 5):
            raise ValueError(f"output_shape must be of length 3, 4 or 5 but was {rank}.")
        layout = data_format or ("NWC", "NHWC", "NDHWC")[rank - 3]
        if rank == 3:
            return conv1d_transpose(input, filters, output_shape, strides, padding, layout, dilations, scope)
        function: Any = nn_convolution.conv2d_transpose if rank == 4 else nn_convolution.conv3d_transpose
        return function(  # type: ignore[no-any-return]
            input, filters, output_shape, strides, padding, layout, name=scope, dilations=dilations
        )


@export("tf.nn.atrous_conv2d_transpose")
def atrous_conv2d_transpose(
    value: TensorLike, filters: TensorLike, output_shape: SizesLike, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """The transpose of `atrous_conv2d` (``tf.nn.atrous_conv2d_transpose``)."""
    return nn_convolution.conv2d_transpose(
        value, filters, output_shape, [1, 1, 1, 1], padding, name=name or "atrous_conv2d_transpose",
        dilations=[1, rate, rate, 1],
    )  # fmt: skip
