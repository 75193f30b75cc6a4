"""Lowerings of convolution, pooling, normalisation, activations and losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.errors import UnimplementedError
from tfmini.graph.lowering import DeviceValue, jax, jnp, lax, lower, lower_as_kernel, lower_on_host
from tfmini.graph.node import Node
from tfmini.numerics.windows import layout_axes
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.nn.windows import Windows

_HALVES = ("float16", "bfloat16")

lower_as_kernel(
    "Relu Relu6 LeakyRelu LeakyReluGrad Elu Selu Softplus Softsign EluGrad SeluGrad SoftplusGrad SoftsignGrad"
)
lower("ReluGrad")(lambda gradients, features: jnp.where(features > 0, gradients, jnp.zeros((), gradients.dtype)))


@lower("Relu6Grad")
def _relu6_grad(gradients: DeviceValue, features: DeviceValue) -> Any:
    return jnp.where((features > 0) & (features < 6), gradients, jnp.zeros((), gradients.dtype))


def _wide(value: DeviceValue) -> Any:
    return value.astype(jnp.float32) if value.dtype.name in _HALVES else value


# ---- softmax and its losses ----------------------------------------------------------------------------------------

lower("Softmax")(lambda logits: jax.nn.softmax(_wide(logits)).astype(logits.dtype))
lower("LogSoftmax")(lambda logits: jax.nn.log_softmax(_wide(logits)).astype(logits.dtype))


@lower("SoftmaxCrossEntropyWithLogits")
def _cross_entropy(features: DeviceValue, labels: DeviceValue) -> Any:
    features, labels = jnp.broadcast_arrays(features, labels)
    if features.ndim != 2:
        refuse(f"logits and labels must be either 2-dimensional, or broadcast to 2-dimensional: {features.shape}")
    logs, wide = jax.nn.log_softmax(_wide(features)), _wide(labels)
    # A label of zero counts for nothing, also where the logarithm is infinite.
    loss = -jnp.sum(jnp.where(wide == 0, 0, wide * logs), 1)
    return loss.astype(features.dtype), (jnp.exp(logs) - wide).astype(features.dtype)


@lower("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_cross_entropy(features: DeviceValue, labels: DeviceValue) -> Any:
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        refuse(f"logits must be 2-D and labels have one number per row, got {features.shape} and {labels.shape}")
    logs = jax.nn.log_softmax(_wide(features))
    inside = (labels >= 0) & (labels < features.shape[1])
    nan = jnp.asarray(np.nan, logs.dtype)
    own = logs.at[jnp.arange(len(labels)), labels]
    loss = -own.get(mode="fill", fill_value=np.nan, wrap_negative_indices=False)
    hot = jnp.arange(features.shape[1], dtype=labels.dtype) == labels[:, None]
    back = jnp.where(inside[:, None], jnp.exp(logs) - hot.astype(logs.dtype), nan)
    return loss.astype(features.dtype), back.astype(features.dtype)


# ---- biases --------------------------------------------------------------------------------------------------------


@lower("BiasAdd BiasAddV1")
def _bias_add(value: DeviceValue, bias: DeviceValue, *, node: Node) -> Any:
    axis = 1 if node.attrs.get("data_format") == b"NCHW" else value.ndim - 1
    if bias.ndim != 1 or value.ndim < 2 or value.shape[axis] != bias.shape[0]:
        refuse(f"Must provide as many biases as the channels of the input tensor: {bias.shape} vs. {value.shape}")
    return value + bias.reshape([-1 if i == axis else 1 for i in range(value.ndim)])


@lower("BiasAddGrad")
def _bias_add_grad(grad: DeviceValue, *, data_format: bytes) -> Any:
    axis = 1 if data_format == b"NCHW" else grad.ndim - 1
    return jnp.sum(_wide(grad), [i for i in range(grad.ndim) if i != axis]).astype(grad.dtype)


lower("L2Loss")(lambda t: (jnp.sum(_wide(t) * _wide(t)) / 2).astype(t.dtype))

# ---- convolution ---------------------------------------------------------------------------------------------------


def _moved(function: Callable[..., Any], layout: bytes, *images: DeviceValue) -> Any:
    """Calls a function of images with the channels last; the result is an image in the layout."""
    order = layout_axes(layout)
    moved = [jnp.transpose(image, order) for image in images]
    return jnp.transpose(function(*moved), np.argsort(order))


def _convolve(node: Node, image: DeviceValue, filters: DeviceValue) -> Any:
    """A convolution of an image with the channels last."""
    windows = Windows(node.attrs)
    rank = len(windows.positions)
    if image.ndim != rank or filters.ndim != rank:
        refuse(f"input and filter must be {rank}-dimensional: {image.shape} and {filters.shape}")
    depth, groups = filters.shape[-2], 1
    if node.op.startswith("Depthwise"):
        groups = depth
        filters = filters.reshape(*filters.shape[:-2], 1, depth * filters.shape[-1])
    if image.shape[-1] != depth:
        if depth and image.shape[-1] % depth == 0:
            groups = image.shape[-1] // depth
        else:
            refuse(f"input depth must be evenly divisible by filter depth: {image.shape[-1]} vs {depth}")
    axes = windows.axes(tuple(image.shape[1:-1]), tuple(filters.shape[: rank - 2]))
    spatial = "DHW"[-(rank - 2) :]
    names = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    return lax.conv_general_dilated(
        image, filters, [axis.stride for axis in axes], [(axis.before, axis.after) for axis in axes],
        rhs_dilation=[axis.dilation for axis in axes], dimension_numbers=names, feature_group_count=groups,
    )  # fmt: skip


@lower("Conv2D Conv3D DepthwiseConv2dNative")
def _conv(image: DeviceValue, filters: DeviceValue, *, node: Node) -> Any:
    return _moved(lambda x: _convolve(node, x, filters), node.attrs["data_format"], image)


def _pulled(function: Callable[..., Any], shape: Sequence[int], grad: DeviceValue) -> Any:
    """The gradient of a function by its argument of this shape; the function must be linear in it."""
    return jax.linear_transpose(function, jax.ShapeDtypeStruct(tuple(shape), grad.dtype))(grad)[0]


@lower("Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput", host="input_sizes")
def _conv_input(sizes: DeviceValue, filters: DeviceValue, grad: DeviceValue, *, node: Node) -> Any:
    layout, values = node.attrs["data_format"], sizes.tolist()
    if len(values) == 2 and grad.ndim == 4:
        positions = layout_axes(layout)
        image = [grad.shape[positions[0]], *values, filters.shape[-2]]
    else:
        image = [values[axis] for axis in layout_axes(layout)]
    return _moved(lambda g: _pulled(lambda x: _convolve(node, x, filters), image, g), layout, grad)


@lower("Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter", host="filter_sizes")
def _conv_filter(image: DeviceValue, sizes: DeviceValue, grad: DeviceValue, *, node: Node) -> Any:
    order = layout_axes(node.attrs["data_format"])
    image, grad = jnp.transpose(image, order), jnp.transpose(grad, order)
    return _pulled(lambda w: _convolve(node, image, w), sizes.tolist(), grad)


# ---- pooling -------------------------------------------------------------------------------------------------------


def _windows(node: Node, image: DeviceValue) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Window, stride and padding per axis, the channels last."""
    positions = layout_axes(node.attrs["data_format"])
    ksize = [node.attrs["ksize"][axis] for axis in positions]
    strides = [node.attrs["strides"][axis] for axis in positions]
    if ksize[0] != 1 or strides[0] != 1:
        raise UnimplementedError.of("Pooling is not yet supported on the batch dimension.")
    axes = Windows(node.attrs).axes(tuple(image.shape[1:-1]), tuple(ksize[1:-1]))
    return ksize, strides, [(0, 0), *((axis.before, axis.after) for axis in axes), (0, 0)]


def _max_pooled(node: Node, image: DeviceValue) -> Any:
    window, strides, padding = _windows(node, image)
    is_integer = jnp.issubdtype(image.dtype, jnp.integer)
    lowest = np.iinfo(image.dtype).min if is_integer else -np.inf
    return lax.reduce_window(image, np.array(lowest, image.dtype), lax.max, window, strides, padding)


def _average_pooled(node: Node, image: DeviceValue) -> Any:
    window, strides, padding = _windows(node, image)
    zero = np.zeros((), image.dtype)
    sums = lax.reduce_window(image, zero, lax.add, window, strides, padding)
    ones = np.ones((1, *image.shape[1:-1], 1), image.dtype)
    counts = lax.reduce_window(ones, zero, lax.add, window, strides, padding)
    return sums / counts


def _in_layout(node: Node, function: Callable[[Node, Any], Any], *images: DeviceValue) -> Any:
    return _moved(lambda *values: function(node, *values), node.attrs["data_format"], *images)


@lower("MaxPool MaxPool3D")
def _max_pool(value: DeviceValue, *, node: Node) -> Any:
    return _in_layout(node, _max_pooled, value)


@lower("MaxPoolGrad MaxPool3DGrad")
def _max_pool_grad(image: DeviceValue, result: DeviceValue, grad: DeviceValue, *, node: Node) -> Any:
    def pull(x: DeviceValue, g: DeviceValue) -> Any:
        return jax.vjp(lambda x: _max_pooled(node, x), x)[1](g)[0]

    wide = _wide(image)
    return _moved(pull, node.attrs["data_format"], wide, grad.astype(wide.dtype)).astype(grad.dtype)


@lower("AvgPool AvgPool3D")
def _avg_pool(value: DeviceValue, *, node: Node) -> Any:
    return _in_layout(node, _average_pooled, _wide(value)).astype(value.dtype)


@lower("AvgPoolGrad AvgPool3DGrad", host="orig_input_shape")
def _avg_pool_grad(shape: DeviceValue, grad: DeviceValue, *, node: Node) -> Any:
    image = [shape.tolist()[axis] for axis in layout_axes(node.attrs["data_format"])]
    pull = lambda g: _pulled(lambda x: _average_pooled(node, x), image, g)  # noqa: E731
    return _moved(pull, node.attrs["data_format"], _wide(grad)).astype(grad.dtype)


# ---- normalisation -------------------------------------------------------------------------------------------------


def _channels(node: Node, value: DeviceValue) -> tuple[Any, Callable[[Any], Any]]:
    """All pixels with their channels in a row, as float32; and the inverse."""
    first = node.attrs["data_format"].startswith(b"NC")
    moved = jnp.moveaxis(value, 1, -1) if first else value
    flat = moved.reshape(-1, moved.shape[-1]).astype(jnp.float32)

    def restore(rows: DeviceValue) -> Any:
        image = rows.reshape(moved.shape).astype(value.dtype)
        return jnp.moveaxis(image, -1, 1) if first else image

    return flat, restore


@lower("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def _batch_norm(
    x: DeviceValue, scale: DeviceValue, offset: DeviceValue, mean: DeviceValue, variance: DeviceValue, *, node: Node
) -> Any:
    epsilon, factor = np.float32(node.attrs["epsilon"]), np.float32(node.attrs.get("exponential_avg_factor", 1.0))
    extra = () if node.op != "FusedBatchNormV3" else (np.float32(0),)
    flat, restore = _channels(node, x)
    if not node.attrs["is_training"]:
        inner = scale * lax.rsqrt(variance + epsilon)
        return (restore(flat * inner + (offset - mean * inner)), mean, variance, mean, variance, *extra)
    count = flat.shape[0]
    batch_mean = jnp.mean(flat, 0)
    centred = flat - batch_mean
    batch_variance = jnp.mean(centred * centred, 0)
    y = restore(centred * (scale * lax.rsqrt(batch_variance + epsilon)) + offset)
    new_mean, new_variance = batch_mean, batch_variance * np.float32(count / max(count - 1, 1))
    if factor != 1:
        new_mean = mean + factor * (batch_mean - mean)
        new_variance = variance + factor * (new_variance - variance)
    return (y, new_mean, new_variance, batch_mean, batch_variance, *extra)


@lower("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
def _batch_norm_grad(
    grad: DeviceValue,
    x: DeviceValue,
    scale: DeviceValue,
    mean: DeviceValue,
    variance: DeviceValue,
    *rest: DeviceValue,
    node: Node,
) -> Any:
    flat, _ = _channels(node, x)
    dy, restore = _channels(node, grad)
    inverse = lax.rsqrt(variance + np.float32(node.attrs["epsilon"]))
    normal = (flat - mean) * inverse
    offset_back, scale_back = jnp.sum(dy, 0), jnp.sum(dy * normal, 0)
    if node.attrs["is_training"]:
        count = max(flat.shape[0], 1)
        dx = (dy - offset_back / count - normal * (scale_back / count)) * (scale * inverse)
    else:
        dx = dy * (scale * inverse)
    unused = np.zeros(0 if node.attrs["is_training"] else flat.shape[1], np.float32)
    return restore(dx), scale_back, offset_back, unused, unused


def _local_sums(value: DeviceValue, radius: int) -> Any:
    """The sums over the neighbouring channels."""
    window, ones = (1,) * (value.ndim - 1) + (2 * radius + 1,), (1,) * value.ndim
    padding = [(0, 0)] * (value.ndim - 1) + [(radius, radius)]
    return lax.reduce_window(value, np.zeros((), value.dtype), lax.add, window, ones, padding)


def _normalized(node: Node, image: DeviceValue) -> Any:
    attrs = node.attrs
    norm = attrs["bias"] + attrs["alpha"] * _local_sums(image * image, attrs["depth_radius"])
    return image * norm ** np.float32(-attrs["beta"])


lower("LRN")(lambda image, *, node: _normalized(node, _wide(image)).astype(image.dtype))


@lower("LRNGrad")
def _lrn_grad(grads: DeviceValue, image: DeviceValue, output: DeviceValue, *, node: Node) -> Any:
    pull = jax.vjp(lambda x: _normalized(node, x), _wide(image))[1]
    return pull(_wide(grads))[0].astype(grads.dtype)


# ---- without a lowering yet, where TensorFlow has a kernel for GPUs --------------------------------------------------

lower_on_host(
    "MaxPoolWithArgmax MaxPoolGradWithArgmax MaxPoolGradGradWithArgmax MaxPoolGradGrad MaxPool3DGradGrad MaxPoolV2"
    " MaxPoolGradV2 MaxPoolGradGradV2 Dilation2D Dilation2DBackpropInput Dilation2DBackpropFilter CTCLoss CTCLossV2"
    " BatchNormWithGlobalNormalization BatchNormWithGlobalNormalizationGrad"
)
