"""Ops whose value is a serialized Summary message: scalars, histograms, tensors, and their merge.

The bytes equal those of TensorFlow's kernels. The first op that runs imports protobuf. Images and audio
are in `media_ops`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import protos
from tfmini.errors import InvalidArgumentError
from tfmini.graph.attr_values import content_proto, tensor_proto
from tfmini.graph.registry import op
from tfmini.numerics.histogram import Histogram
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import format_raw

scalar_summary = op("ScalarSummary(tags: string, values: T) -> summary: string; T: realnumbertype")
histogram_summary = op("HistogramSummary(tag: string, values: T) -> summary: string; T: realnumbertype = DT_FLOAT")
tensor_summary_op = op(
    """TensorSummary(tensor: T) -> summary: string
    T: type
    description: string = ''
    labels: list(string) = []
    display_name: string = ''"""
)
tensor_summary_v2 = op(
    "TensorSummaryV2(tag: string, tensor: T, serialized_summary_metadata: string) -> summary: string; T: type"
)
merge_summary = op("MergeSummary(inputs: N * string) -> summary: string; N: int >= 1")


for _handle in (scalar_summary, histogram_summary, tensor_summary_op, tensor_summary_v2, merge_summary):
    _handle.shape([()])
    _handle.not_differentiable()


def single_tag(tag: Any, message: str) -> str:
    """The text of a tag, which must be a scalar.

    Raises:
      InvalidArgumentError: with ``message``, when it is not a scalar.
    """
    if not isinstance(tag, bytes) and tag.ndim:
        refuse(message)
    return _one(tag).decode(errors="replace")


def _one(value: Any) -> bytes:
    return value if isinstance(value, bytes) else value.ravel()[0]


@scalar_summary.kernel("CPU")
def scalar_message(tags: Any, values: Any) -> bytes:
    tag_shape, shape = () if isinstance(tags, bytes) else tags.shape, np.shape(values)
    if tag_shape != shape:
        only = f" (tag '{_one(tags).decode()}')" if isinstance(tags, bytes) or tags.size == 1 else ""
        shapes = f"{format_raw(tag_shape)} != {format_raw(shape)}"
        refuse(f"tags and values not the same shape: {shapes}{only}")
    summary = protos.Summary()
    flat = [tags] if isinstance(tags, bytes) else tags.ravel()
    for tag, value in zip(flat, np.ravel(values)):
        summary.value.add(tag=tag.decode(errors="replace"), simple_value=float(np.float32(value)))
    return summary.SerializeToString()


@histogram_summary.kernel("CPU")
def histogram_message(tag: Any, values: Any, *, node: Any) -> bytes:
    text = single_tag(tag, "tags must be scalar")
    flat = np.ravel(values)
    _refuse_non_finite(flat, node.name)
    histogram = Histogram()
    histogram.add(flat)
    summary = protos.Summary()
    histogram.write(summary.value.add(tag=text).histo)
    return summary.SerializeToString()


def _refuse_non_finite(flat: Any, node_name: str) -> None:
    if flat.dtype.kind in "iu":
        return
    finite = np.isfinite(flat)
    if not finite.all():
        what = "Nan" if np.isnan(flat[np.argmin(finite)]) else "Infinity"
        refuse(f"{what} in summary histogram for: {node_name}")


@tensor_summary_op.kernel("CPU")
def _tensor_summary(tensor: Any, *, node: Any) -> bytes:
    summary = protos.Summary()
    summary.value.add(node_name=node.name).tensor.CopyFrom(_whole_content(tensor))
    return summary.SerializeToString()


@tensor_summary_v2.kernel("CPU")
def tensor_message(tag: Any, tensor: Any, serialized_summary_metadata: Any, keep_empty: bool = True) -> bytes:
    """A summary of one tensor; ``keep_empty``: with metadata even where they say nothing."""
    summary = protos.Summary()
    value = summary.value.add(tag=single_tag(tag, "tag must be scalar"))
    value.tensor.CopyFrom(_whole_content(tensor))
    metadata = _one(serialized_summary_metadata)
    if metadata or keep_empty:
        value.metadata.SetInParent()
        try:
            value.metadata.ParseFromString(metadata)
        except Exception as error:  # protobuf's DecodeError, which is slow to import
            raise InvalidArgumentError.of(f"Could not parse the serialized summary metadata: {error}") from None
    return summary.SerializeToString()


def _whole_content(value: Any) -> Any:
    """The TensorProto with all elements in ``tensor_content``, even a single one; strings are in their own field."""
    if isinstance(value, bytes):
        value = np.array(value, dtype=object)
    return tensor_proto(value) if value.dtype == object else content_proto(value)


@merge_summary.kernel("CPU")
def _merge_summary(inputs: list[Any]) -> bytes:
    from google.protobuf.message import DecodeError

    merged, tags = protos.Summary(), set()
    for serialized in (item for value in inputs for item in ([value] if isinstance(value, bytes) else value.ravel())):
        try:
            values = protos.Summary.FromString(serialized).value
        except DecodeError:
            raise InvalidArgumentError.of("Could not parse one of the summary inputs") from None
        for value in values:
            if value.tag and value.tag in tags:
                refuse(f"Duplicate tag {value.tag} found in summary inputs")
            tags.add(value.tag)
        merged.value.extend(values)
    return merged.SerializeToString()
