"""Layers without weights (``tf.contrib.layers``): pooling, dropout, reshaping, repetition, places of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.contrib.layers import known_format, spatial_axes
from tfmini.layers.contrib.model_variables import add_arg_scope, collect_named_outputs, model_variable
from tfmini.layers.convolutional import around, normalized_tuple
from tfmini.layers.core import Flatten
from tfmini.ops.array.filling import linspace
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.layout import meshgrid, transpose
from tfmini.ops.array.partition import one_hot
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.nn.cross_entropy import softmax as softmax_of
from tfmini.ops.nn.dilated import pool as pool_of
from tfmini.ops.nn.normalization import dropout as drop_out
from tfmini.ops.nn.normalization import l2_normalize
from tfmini.ops.nn.pooling import avg_pool, avg_pool3d, max_pool, max_pool3d
from tfmini.ops.variables.initializers import Constant
from tfmini.ops.variables.scope import VariableScope, variable_scope


def _pool(name: str, default_name: str, layout: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """A pooling layer; ``compute(inputs, window, strides, padding, data_format)`` does the work."""
    axes = len(layout) - 2

    def pooled(
        inputs: TensorLike, kernel_size: int | Sequence[int], stride: int | Sequence[int] = 2, padding: str = "VALID",
        data_format: str | None = layout, outputs_collections: str | Sequence[str] | None = None,
        scope: str | VariableScope | None = None,
    ) -> Any:  # fmt: skip
        with variable_scope(scope, default_name, [inputs]) as opened:
            window, steps = normalized_tuple(kernel_size, axes, "kernel_size"), normalized_tuple(stride, axes, "stride")
            outputs = compute(convert_to_tensor(inputs), list(window), list(steps), padding.upper(), data_format)
            return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)

    pooled.__name__ = pooled.__qualname__ = name
    what = "maximum" if name.startswith("max") else "mean"
    pooled.__doc__ = f"The {what} of each window of {axes} axes (``tf.contrib.layers.{name}``)."
    return add_arg_scope(pooled)


def _images(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(
        inputs: TensorLike, window: Sequence[int], steps: Sequence[int], padding: str, data_format: str | None
    ) -> Any:
        layout = known_format(data_format)
        return function(inputs, around(window, layout), around(steps, layout), padding, data_format=layout)

    return compute


def _volumes(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(
        inputs: TensorLike, window: Sequence[int], steps: Sequence[int], padding: str, data_format: str | None
    ) -> Any:
        sizes, strides = ([1, *each, 1] if data_format != "NCDHW" else [1, 1, *each] for each in (window, steps))
        return function(inputs, sizes, strides, padding, data_format=data_format)

    return compute


max_pool2d = _pool("max_pool2d", "MaxPool2D", "NHWC", _images(max_pool))
avg_pool2d = _pool("avg_pool2d", "AvgPool2D", "NHWC", _images(avg_pool))
max_pool3d = _pool("max_pool3d", "MaxPool3D", "NDHWC", _volumes(max_pool3d))
avg_pool3d = _pool("avg_pool3d", "AvgPool3D", "NDHWC", _volumes(avg_pool3d))


@export("tf.contrib.layers.pool", "tf.contrib.slim.pool", "tf.contrib.slim.layers.pool")
@add_arg_scope
def pool(
    inputs: TensorLike,
    kernel_size: int | Sequence[int],
    pooling_type: str,
    padding: str = "VALID",
    data_format: str | None = None,
    dilation_rate: int | Sequence[int] = 1,
    stride: int | Sequence[int] = 1,
    outputs_collections: str | Sequence[str] | None = None,
    scope: str | VariableScope | None = None,
) -> Any:
    """The maximum or mean ("MAX", "AVG") of windows over all spatial axes (``tf.contrib.layers.pool``)."""
    with variable_scope(scope, f"{pooling_type.lower()}_pool", [inputs]) as opened:
        inputs = convert_to_tensor(inputs)
        axes = spatial_axes(inputs, None)
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


@export("tf.contrib.layers.dropout", "tf.contrib.slim.dropout", "tf.contrib.slim.layers.dropout")
@add_arg_scope
def dropout(
    inputs: TensorLike,
    keep_prob: TensorLike = 0.5,
    noise_shape: ShapeLike = None,
    is_training: TensorLike = True,
    outputs_collections: str | Sequence[str] | None = None,
    scope: str | VariableScope | None = None,
    seed: int | None = None,
) -> Any:
    """Sets random elements to zero if ``is_training`` (the default) (``tf.contrib.layers.dropout``)."""
    with variable_scope(scope, "Dropout", [inputs]) as opened:
        inputs = convert_to_tensor(inputs)
        outputs = smart_cond(
            is_training, lambda: drop_out(inputs, keep_prob, noise_shape, seed), lambda: identity(inputs)
        )
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export("tf.contrib.layers.flatten", "tf.contrib.slim.flatten", "tf.contrib.slim.layers.flatten")
@add_arg_scope
def flatten(
    inputs: TensorLike, outputs_collections: str | Sequence[str] | None = None, scope: str | VariableScope | None = None
) -> Any:
    """Flattens all axes but the first (``tf.contrib.layers.flatten``).

    Args:
      inputs: a tensor with at least two axes.
      outputs_collections: graph collections for the result.
      scope: the name scope.

    Returns:
      [batch, the product of the other sizes].
    """
    with variable_scope(scope, "Flatten", [inputs]) as opened:
        inputs = convert_to_tensor(inputs)
        if inputs.shape.ndims is None or inputs.shape.ndims < 2:
            raise ValueError("Inputs must have a least 2 dimensions.")
        outputs = Flatten().call(inputs)
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export(
    "tf.contrib.layers.one_hot_encoding", "tf.contrib.slim.one_hot_encoding",
    "tf.contrib.slim.layers.one_hot_encoding"
)  # fmt: skip
@add_arg_scope
def one_hot_encoding(
    labels: TensorLike,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: str | Sequence[str] | None = None,
    scope: str | VariableScope | None = None,
) -> Any:
    """One-hot labels (``tf.contrib.layers.one_hot_encoding``)."""
    with variable_scope(scope, "OneHotEncoding", [labels]) as opened:
        outputs = one_hot(convert_to_tensor(labels), num_classes, on_value=on_value, off_value=off_value)
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export("tf.contrib.layers.softmax", "tf.contrib.slim.softmax", "tf.contrib.slim.layers.softmax")
@add_arg_scope
def softmax(logits: TensorLike, scope: str | VariableScope | None = None) -> Any:
    """The softmax over the last axis of a tensor of any rank (``tf.contrib.layers.softmax``)."""
    with variable_scope(scope, "softmax", [logits]):
        logits = convert_to_tensor(logits)
        width = logits.shape.as_list()[-1]
        predictions = reshape(softmax_of(reshape(logits, [-1, width])), shape_of(logits))
        predictions.set_shape(logits.shape)
        return predictions


@export("tf.contrib.layers.unit_norm", "tf.contrib.slim.unit_norm", "tf.contrib.slim.layers.unit_norm")
@add_arg_scope
def unit_norm(inputs: TensorLike, dim: int, epsilon: float = 1e-7, scope: str | VariableScope | None = None) -> Any:
    """Scales the inputs to unit norm along an axis (``tf.contrib.layers.unit_norm``)."""
    with variable_scope(scope, "UnitNorm", [inputs]):
        return l2_normalize(inputs, dim, epsilon)


@export("tf.contrib.layers.repeat", "tf.contrib.slim.repeat", "tf.contrib.slim.layers.repeat")
def repeat(inputs: Any, repetitions: int, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Applies a layer several times, in the scopes ``<scope>_<i>`` (``tf.contrib.layers.repeat``)."""
    name = kwargs.pop("scope", None)
    with variable_scope(name, "Repeat", [inputs]):
        inputs = convert_to_tensor(inputs)
        prefix = name or getattr(layer, "__name__", None) or getattr(layer.func, "__name__", "repeat")
        for i in range(repetitions):
            inputs = layer(inputs, *args, scope=f"{prefix}_{i + 1}", **kwargs)
        return inputs


@export("tf.contrib.layers.stack", "tf.contrib.slim.stack", "tf.contrib.slim.layers.stack")
def stack(inputs: Any, layer: Any, stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Applies a layer once for each of ``stack_args`` (``tf.contrib.layers.stack``)."""
    name = kwargs.pop("scope", None)
    if not isinstance(stack_args, (list, tuple)):
        raise ValueError("stack_args need to be a list or tuple")
    with variable_scope(name, "Stack", [inputs]):
        inputs = convert_to_tensor(inputs)
        prefix = name or getattr(layer, "__name__", "stack")
        for i, arguments in enumerate(stack_args):
            given = arguments if isinstance(arguments, (list, tuple)) else [arguments]
            inputs = layer(inputs, *given, scope=f"{prefix}_{i + 1}", **kwargs)
        return inputs


export_names("tf.contrib.layers tf.contrib.slim tf.contrib.slim.layers", "avg_pool2d avg_pool3d max_pool2d max_pool3d")


@export("tf.contrib.layers.spatial_softmax", "tf.contrib.slim.spatial_softmax")
@add_arg_scope
def spatial_softmax(
    features: TensorLike, temperature: float | None = None, name: str | None = None,
    variables_collections: Any = None, trainable: bool = True, data_format: str | None = "NHWC",
) -> Tensor:  # fmt: skip
    """The mean place of each channel of images under its softmax (``tf.contrib.layers.spatial_softmax``).

    Args:
      features: (batch, height, width, channels), or as ``data_format`` says.
      temperature: what the softmax divides by at first; 1 if None.
      name: of the scope of the variable ``temperature``.
      variables_collections: those of the variable.
      trainable: whether the temperature is learned.

    Returns:
      (batch, 2 * channels): the row and the column of each channel, from -1 to 1.

    Raises:
      ValueError: for another format, or another rank.
    """
    layout = known_format(data_format)
    with variable_scope(name, "spatial_softmax"), name_scope("spatial_softmax_op", "spatial_softmax_op", [features]):
        features = convert_to_tensor(features)
        known, sizes = features.shape.with_rank(4).as_list(), shape_of(features)
        height, width, channels = (layout.index(axis) for axis in "HWC")
        scale = model_variable(
            "temperature", (), dtypes.float32, Constant(1.0 if temperature is None else temperature),
            collections=variables_collections, trainable=trainable,
        )  # fmt: skip
        images = features if layout == "NCHW" else transpose(features, [0, 3, 1, 2])
        flat = reshape(images, [-1, sizes[height] * sizes[width]])
        share = softmax_of(flat / scale)
        lines = [linspace(-1.0, 1.0, sizes[axis]) for axis in (height, width)]
        places = [
            reduce_sum(reshape(grid, [-1]) * share, [1], keepdims=True) for grid in meshgrid(*lines, indexing="ij")
        ]
        count = known[channels]
        return reshape(concat(places, 1), [-1, 2 * sizes[channels] if count is None else 2 * count])
