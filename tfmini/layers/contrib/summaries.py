"""Summaries of tensors and collections (``tf.contrib.layers.summarize_…``, ``tf.contrib.slim.summaries``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, get_collection
from tfmini.ops.array.casting import cast
from tfmini.ops.debugging.logging_ops import Print
from tfmini.ops.math.comparison import greater, less
from tfmini.ops.math.reduce_functions import reduce_mean
from tfmini.ops.nn.normalization import zero_fraction
from tfmini.ops.summary.functions import histogram, image, scalar


def _share(condition: Tensor) -> Tensor:
    return reduce_mean(cast(condition, dtypes.float32))


@export("tf.contrib.layers.summarize_activation", "tf.contrib.layers.summaries.summarize_activation")
def summarize_activation(op: Any) -> Tensor:
    """A histogram summary; for a relu also the fraction of zeros, for a relu6 also that of values clipped at 6."""
    source, name = op.op, op.op.name
    if source.type in ("Relu", "Softplus", "Relu6"):
        before = source.inputs[0]
        scalar(f"{name}/zeros", _share(less(before, convert_to_tensor(0, dtype=before.dtype))))
    if source.type == "Relu6":
        scalar(f"{name}/sixes", _share(greater(source.inputs[0], convert_to_tensor(6, dtype=source.inputs[0].dtype))))
    return histogram(f"{name}/activation", op)


@export("tf.contrib.layers.summarize_tensor", "tf.contrib.layers.summaries.summarize_tensor")
def summarize_tensor(tensor: Any, tag: str | None = None) -> Tensor | None:
    """A summary of a scalar or a histogram of another tensor; None for strings and booleans."""
    if tensor.dtype.base_dtype in (dtypes.string, dtypes.bool):
        return None
    tag = tag or f"{tensor.op.name}_summary"
    return scalar(tag, tensor) if tensor.shape.ndims == 0 else histogram(tag, tensor)


@export("tf.contrib.layers.summarize_tensors", "tf.contrib.layers.summaries.summarize_tensors")
def summarize_tensors(tensors: Iterable[Any], summarizer: Callable[[Any], Any] = summarize_tensor) -> list[Any]:
    """The summaries of several tensors."""
    return [summarizer(tensor) for tensor in tensors]


@export("tf.contrib.layers.summarize_collection", "tf.contrib.layers.summaries.summarize_collection")
def summarize_collection(
    collection: str, name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_tensor
) -> list[Any]:
    """The summaries of a collection's tensors whose op names match the regular expression at their start."""
    wanted = [t for t in get_collection(collection) if name_filter is None or re.match(name_filter, t.op.name)]
    return summarize_tensors(wanted, summarizer)


@export("tf.contrib.layers.summarize_activations", "tf.contrib.layers.summaries.summarize_activations")
def summarize_activations(
    name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_activation
) -> list[Any]:
    """`summarize_collection` of ACTIVATIONS."""
    return summarize_collection(GraphKeys.ACTIVATIONS, name_filter, summarizer)


summarize_variables = partial(summarize_collection, GraphKeys.GLOBAL_VARIABLES)
summarize_weights = partial(summarize_collection, GraphKeys.WEIGHTS)
summarize_biases = partial(summarize_collection, GraphKeys.BIASES)


# ---- tf.contrib.slim.summaries ------------------------------------------------------------------


def _name(tensor: Any, name: str | None, prefix: str | None, ending: str = "") -> str:
    """``prefix/name/ending``; by default the name is the op's."""
    whole = name or tensor.op.name
    return (f"{prefix}/{whole}" if prefix else whole) + (f"/{ending}" if ending else "")


def _printed(summary: Tensor, tensor: Any, name: str, print_summary: bool) -> Tensor:
    if print_summary:
        add_to_collection(GraphKeys.SUMMARIES, Print(summary, [tensor], name))
    return summary


@export("tf.contrib.slim.summaries.add_histogram_summary")
def add_histogram_summary(tensor: Any, name: str | None = None, prefix: str | None = None) -> Tensor:
    """A histogram summary named ``prefix/name``."""
    return histogram(_name(tensor, name, prefix), tensor)


@export("tf.contrib.slim.summaries.add_image_summary")
def add_image_summary(
    tensor: Any, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Tensor:
    """An image summary named ``prefix/name``; ``print_summary`` also prints the tensor."""
    name = _name(tensor, name, prefix)
    return _printed(image(name, tensor), tensor, name, print_summary)


@export("tf.contrib.slim.summaries.add_scalar_summary")
def add_scalar_summary(
    tensor: Any, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Tensor:
    """A scalar summary named ``prefix/name``; ``print_summary`` also prints the tensor."""
    name = _name(tensor, name, prefix)
    return _printed(scalar(name, tensor), tensor, name, print_summary)


@export("tf.contrib.slim.summaries.add_zero_fraction_summary")
def add_zero_fraction_summary(
    tensor: Any, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Tensor:
    """A summary of the fraction of zeros, named ``prefix/name/Fraction of Zero Values``."""
    name = _name(tensor, name, prefix, "Fraction of Zero Values")
    return add_scalar_summary(zero_fraction(tensor), name, print_summary=print_summary)


@export("tf.contrib.slim.summaries.add_histogram_summaries")
def add_histogram_summaries(tensors: Iterable[Any], prefix: str | None = None) -> list[Tensor]:
    """`add_histogram_summary` for each tensor."""
    return [add_histogram_summary(tensor, prefix=prefix) for tensor in tensors]


@export("tf.contrib.slim.summaries.add_image_summaries")
def add_image_summaries(tensors: Iterable[Any], prefix: str | None = None) -> list[Tensor]:
    """`add_image_summary` for each tensor."""
    return [add_image_summary(tensor, prefix=prefix) for tensor in tensors]


@export("tf.contrib.slim.summaries.add_scalar_summaries")
def add_scalar_summaries(
    tensors: Iterable[Any], prefix: str | None = None, print_summary: bool = False
) -> list[Tensor]:
    """`add_scalar_summary` for each tensor."""
    return [add_scalar_summary(tensor, prefix=prefix, print_summary=print_summary) for tensor in tensors]


@export("tf.contrib.slim.summaries.add_zero_fraction_summaries")
def add_zero_fraction_summaries(tensors: Iterable[Any], prefix: str | None = None) -> list[Tensor]:
    """`add_zero_fraction_summary` for each tensor."""
    return [add_zero_fraction_summary(tensor, prefix=prefix) for tensor in tensors]


export_names("tf.contrib.layers tf.contrib.layers.summaries", "summarize_biases summarize_variables summarize_weights")
