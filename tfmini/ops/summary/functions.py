"""``tf.summary.scalar`` and the other summary functions, with their tags and collections."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfmini import dtypes, protos
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import add_to_collection, get_collection, name_scope
from tfmini.ops.summary.media_ops import audio_summary_v2, image_summary
from tfmini.ops.summary.summary_ops import histogram_summary, merge_summary, scalar_summary, tensor_summary_v2

_log = logging.getLogger("tensorflow")
_NOT_IN_TAGS = re.compile(r"[^-/\w\.]")


def clean_tag(name: str | None) -> str | None:
    """The name with ``_`` for invalid characters, and without leading slashes; logs a change."""
    if name is None:
        return None
    cleaned = _NOT_IN_TAGS.sub("_", name).lstrip("/")
    if cleaned != name:
        _log.info("Summary name %s is illegal; using %s instead.", name, cleaned)
    return cleaned


@contextmanager
def summary_scope(
    name: str | None, family: str | None = None, default_name: str | None = None, values: Any = None
) -> Iterator[tuple[str, str]]:
    """A name scope for one summary; yields its tag and the scope's name.

    The tag is the scope without the final ``/``, after ``family/`` if there is a family, so that the
    family comes first in all name scopes.
    """
    name, family = clean_tag(name), clean_tag(family)
    with name_scope(name if family is None else f"{family}/{name}", default_name, values) as scope:
        inner = scope.rstrip("/")
        yield (inner if family is None else f"{family}/{inner}"), scope


def collect(value: Tensor, collections: Sequence[str] | None, default: Sequence[str]) -> None:
    """Adds a summary to ``collections``, or to ``default`` if that is None."""
    for key in default if collections is None else collections:
        add_to_collection(key, value)


@export("tf.summary.scalar")
def scalar(name: str, tensor: Any, collections: Sequence[str] | None = None, family: str | None = None) -> Tensor:
    """A summary of one number (``tf.summary.scalar``).

    Args:
      name: of the op; with the name scopes it is also the series' name.
      tensor: a real tensor with a single element.
      collections: the collections to add the op to, default ``[GraphKeys.SUMMARIES]``.
      family: comes first in the tag; TensorBoard groups by it.

    Returns:
      A scalar string tensor: the serialized Summary.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made: Tensor = scalar_summary(tag, tensor, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.histogram")
def histogram(name: str, values: Any, collections: Sequence[str] | None = None, family: str | None = None) -> Tensor:
    """A summary of the distribution of a real tensor's elements (``tf.summary.histogram``).

    In the step, it raises `InvalidArgumentError` when an element is not finite. See `scalar` for the arguments.
    """
    with summary_scope(name, family, "HistogramSummary", [values]) as (tag, scope):
        made: Tensor = histogram_summary(tag, values, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.image")
def image(
    name: str, tensor: Any, max_outputs: int = 3, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """A summary of up to ``max_outputs`` images (``tf.summary.image``), tagged ``name/image/i``.

    Args:
      tensor: [batch, height, width, channels] with 1, 3 or 4 channels. uint8 values are unchanged; floats
        are scaled per image to 0…255, centered at 128 if some are negative.

    See `scalar` for the other arguments.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made: Tensor = image_summary(tag, tensor, max_images=max_outputs, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.audio")
def audio(
    name: str, tensor: Any, sample_rate: Any, max_outputs: int = 3,
    collections: Sequence[str] | None = None, family: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of up to ``max_outputs`` sounds (``tf.summary.audio``), tagged ``name/audio/i``.

    Args:
      tensor: float32 in -1…1, [batch, frames, channels] or [batch, frames].
      sample_rate: in hertz, a scalar.

    See `scalar` for the other arguments.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        rate = convert_to_tensor(sample_rate, dtype=dtypes.float32, name="sample_rate")
        made: Tensor = audio_summary_v2(tag, tensor, rate, max_outputs=max_outputs, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.tensor_summary")
def tensor_summary(
    name: str, tensor: Any, summary_description: str | None = None, collections: Sequence[str] | None = None,
    summary_metadata: Any = None, family: str | None = None, display_name: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of a whole tensor of any type, for TensorBoard's plugins (``tf.summary.tensor_summary``).

    Args:
      summary_description: a description in Markdown.
      summary_metadata: a SummaryMetadata message, which names the plugin.
      display_name: the name of the series in TensorBoard; default: the tag.

    See `scalar` for the other arguments.
    """
    metadata = protos.SummaryMetadata() if summary_metadata is None else summary_metadata
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made: Tensor = tensor_summary_v2(tag, tensor, metadata.SerializeToString(), name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.text")
def text(name: str, tensor: Tensor, collections: Sequence[str] | None = None) -> Tensor:
    """A summary of strings, shown as Markdown and tables (``tf.summary.text``).

    Raises:
      ValueError: when ``tensor`` is not a string tensor.
    """
    if tensor.dtype.base_dtype is not dtypes.string:
        raise ValueError(f"Expected tensor {tensor.name} to have dtype string, got {tensor.dtype!r}")
    metadata = protos.SummaryMetadata(plugin_data=protos.SummaryMetadata.PluginData(plugin_name="text"))
    return tensor_summary(name, tensor, summary_metadata=metadata, collections=collections)


@export("tf.summary.merge")
def merge(inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str | None = None) -> Tensor:
    """One summary with all the values of several (``tf.summary.merge``).

    In the step, it raises `InvalidArgumentError` when two values have the same tag.

    Args:
      inputs: scalar string tensors, serialized Summary messages.
      collections: the collections to add the op to, default none.
    """
    name = clean_tag(name)
    with name_scope(name, "Merge", inputs):
        made: Tensor = merge_summary(list(inputs), name=name)
        collect(made, collections, [])
    return made


@export("tf.summary.merge_all")
def merge_all(key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None) -> Tensor | None:
    """`merge` of the summaries in a collection of the default graph; None if there are none (``tf.summary.merge_all``).

    Args:
      key: the collection.
      scope: a regular expression; only summaries whose names match it at their start.
    """
    found = get_collection(key, scope=scope)
    return merge(found, name=name) if found else None


@export("tf.summary.get_summary_description")
def get_summary_description(node_def: Any) -> Any:
    """The SummaryDescription of a TensorSummary node (``tf.summary.get_summary_description``).

    Raises:
      ValueError: for a NodeDef of another op.
    """
    from google.protobuf import json_format

    if node_def.op != "TensorSummary":
        raise ValueError(f"Can't get_summary_description on {node_def.op}")
    return json_format.Parse(node_def.attr["description"].s.decode(), protos.SummaryDescription())
