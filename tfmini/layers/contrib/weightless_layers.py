"""Layers without weights (``tf.contrib.layers``): pooling, dropout, reshaping, repetition of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.layers.contrib.arg_scope import add_arg_scope
from tfmini.layers.contrib.layers import known_format
from tfmini.layers.contrib.named_outputs import collect_named_outputs
from tfmini.layers.core import Flatten
from tfmini.layers.spatial_arguments import around, normalized_tuple
from tfmini.ops.array.identity import identity
from tfmini.ops.array.index_sets import one_hot
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.nn.cross_entropy import softmax as softmax_of
from tfmini.ops.nn.normalization import dropout as drop_out
from tfmini.ops.nn.normalization import l2_normalize
from tfmini.ops.nn.pooling import avg_pool, max_pool
from tfmini.ops.variables.scope import variable_scope

_NHWC = "NHWC"


def _pooled(
    function: Any, default_name: str, inputs: Any, kernel_size: Any, stride: Any, padding: str,
    data_format: str | None, outputs_collections: Any, scope: Any,
) -> Any:  # fmt: skip
    with variable_scope(scope, default_name, [inputs]) as opened:
        inputs, layout = convert_to_tensor(inputs), known_format(data_format)
        outputs = function(
            inputs,
            around(normalized_tuple(kernel_size, 2, "kernel_size"), layout),
            around(normalized_tuple(stride, 2, "stride"), layout),
            padding.upper(),
            data_format=layout,
        )
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export("tf.contrib.layers.max_pool2d", "tf.contrib.slim.max_pool2d", "tf.contrib.slim.layers.max_pool2d")
@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str | None = _NHWC,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The maximum of each window (``tf.contrib.layers.max_pool2d``)."""
    return _pooled(max_pool, "MaxPool2D", inputs, kernel_size, stride, padding, data_format, outputs_collections, scope)


@export("tf.contrib.layers.avg_pool2d", "tf.contrib.slim.avg_pool2d", "tf.contrib.slim.layers.avg_pool2d")
@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str | None = _NHWC,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The mean of each window (``tf.contrib.layers.avg_pool2d``)."""
    return _pooled(avg_pool, "AvgPool2D", inputs, kernel_size, stride, padding, data_format, outputs_collections, scope)


@export("tf.contrib.layers.dropout", "tf.contrib.slim.dropout", "tf.contrib.slim.layers.dropout")
@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
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
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """Flattens all axes but the first (``tf.contrib.layers.flatten``)."""
    with variable_scope(scope, "Flatten", [inputs]) as opened:
        inputs = convert_to_tensor(inputs)
        if inputs.shape.ndims is None or inputs.shape.ndims < 2:
            raise ValueError("Inputs must have a least 2 dimensions.")
        outputs = Flatten().call(inputs)
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export(
    "tf.contrib.layers.one_hot_encoding", "tf.contrib.slim.one_hot_encoding", "tf.contrib.slim.layers.one_hot_encoding"
)
@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """One-hot labels (``tf.contrib.layers.one_hot_encoding``)."""
    with variable_scope(scope, "OneHotEncoding", [labels]) as opened:
        outputs = one_hot(convert_to_tensor(labels), num_classes, on_value=on_value, off_value=off_value)
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export("tf.contrib.layers.softmax", "tf.contrib.slim.softmax", "tf.contrib.slim.layers.softmax")
@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Any:
    """The softmax over the last axis of a tensor of any rank (``tf.contrib.layers.softmax``)."""
    with variable_scope(scope, "softmax", [logits]):
        logits = convert_to_tensor(logits)
        width = logits.shape.as_list()[-1]
        predictions = reshape(softmax_of(reshape(logits, [-1, width])), shape_of(logits))
        predictions.set_shape(logits.shape)
        return predictions


@export("tf.contrib.layers.unit_norm", "tf.contrib.slim.unit_norm", "tf.contrib.slim.layers.unit_norm")
@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
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
