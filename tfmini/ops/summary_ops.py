"""Ops whose value is a serialized Summary message: scalars, histograms, tensors, images, sounds, and their merge.

The bytes equal those of TensorFlow's kernels. The first op that runs imports protobuf.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini import protos
from tfmini.core_types import Array
from tfmini.errors import InvalidArgumentError
from tfmini.graph.attr_values import content_proto, tensor_proto
from tfmini.graph.node import Node
from tfmini.graph.registry import op
from tfmini.numerics.histogram import Histogram
from tfmini.numerics.images import encode_png, encode_wav
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


def single_tag(tag: Array, message: str) -> str:
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
def scalar_message(tags: Array, values: Array) -> bytes:
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
def histogram_message(tag: Array, values: Array, *, node: Node) -> bytes:
    text = single_tag(tag, "tags must be scalar")
    flat = np.ravel(values)
    _refuse_non_finite(flat, node.name)
    histogram = Histogram()
    histogram.add(flat)
    summary = protos.Summary()
    histogram.write(summary.value.add(tag=text).histo)
    return summary.SerializeToString()


def _refuse_non_finite(flat: Array, node_name: str) -> None:
    if flat.dtype.kind in "iu":
        return
    finite = np.isfinite(flat)
    if not finite.all():
        what = "Nan" if np.isnan(flat[np.argmin(finite)]) else "Infinity"
        refuse(f"{what} in summary histogram for: {node_name}")


@tensor_summary_op.kernel("CPU")
def _tensor_summary(tensor: Array, *, node: Node) -> bytes:
    summary = protos.Summary()
    summary.value.add(node_name=node.name).tensor.CopyFrom(_whole_content(tensor))
    return summary.SerializeToString()


@tensor_summary_v2.kernel("CPU")
def tensor_message(tag: Array, tensor: Array, serialized_summary_metadata: Array, keep_empty: bool = True) -> bytes:
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


def _whole_content(value: Array) -> Any:
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


# ---- Ops whose value is a Summary of images (as PNG) or sounds (as WAV) --------------------------------------------

image_summary = op(
    """ImageSummary(tag: string, tensor: T) -> summary: string
    max_images: int >= 1 = 3
    T: {uint8, float, half, float64} = DT_FLOAT
    bad_color: tensor = uint8[255, 0, 0, 255]"""
)
audio_summary = op(
    "AudioSummary(tag: string, tensor: float) -> summary: string; sample_rate: float; max_outputs: int >= 1 = 3"
)
audio_summary_v2 = op(
    "AudioSummaryV2(tag: string, tensor: float, sample_rate: float) -> summary: string; max_outputs: int >= 1 = 3"
)


for _handle in (image_summary, audio_summary, audio_summary_v2):
    _handle.shape([()])
    _handle.not_differentiable()

# An image whose largest value is smaller is black instead of scaled.
_ZERO_THRESHOLD = np.float32(1e-6)
_MAX_PIXELS = 1 << 29


@image_summary.kernel("CPU")
def image_message(tag: Array, tensor: Array, *, max_images: int, bad_color: Array) -> bytes:
    base = single_tag(tag, "Tags must be a scalar")
    _check_images(tensor, bad_color)
    summary = protos.Summary()
    for i, image in enumerate(tensor[:max_images]):
        pixels = image if image.dtype == np.uint8 else _normalized(image, bad_color)
        height, width, depth = image.shape
        value = summary.value.add(tag=_numbered(f"{base}/image", i, max_images))
        value.image.height, value.image.width, value.image.colorspace = height, width, depth
        value.image.encoded_image_string = encode_png(pixels)
    return summary.SerializeToString()


def _numbered(tag: str, i: int, count: int) -> str:
    # By ``max_images`` instead of the number of images, so that all steps have the same tags.
    return f"{tag}/{i}" if count > 1 else tag


def _check_images(tensor: Array, bad_color: Array) -> None:
    shape = ",".join(map(str, tensor.shape))
    problem = ""
    if tensor.ndim != 4 or tensor.shape[3] not in (1, 3, 4):
        problem = f"Tensor must be 4-D with last dim 1, 3, or 4, not [{shape}]"
    elif tensor.shape[1] * tensor.shape[2] >= _MAX_PIXELS:
        problem = f"Tensor too large for summary [{shape}]"
    elif not tensor.shape[1] * tensor.shape[2]:
        problem = f"input tensor must have non-zero dims. Found: [{', '.join(map(str, tensor.shape))}]."
    elif bad_color.dtype != np.uint8:
        problem = f"bad_color must be uint8, got {bad_color.dtype}"
    elif bad_color.ndim != 1:
        problem = f"bad_color must be a vector, got shape [{','.join(map(str, bad_color.shape))}]"
    elif tensor.dtype != np.uint8 and len(bad_color) < tensor.shape[3]:
        problem = f"expected depth <= bad_color.size, got depth = {tensor.shape[3]}, bad_color.size = {len(bad_color)}"
    if problem:
        refuse(problem)


def _normalized(image: Array, bad_color: Array) -> Any:
    """The image as uint8: scaled to 0…255, centered at 128 if there are negative values.

    A pixel with a NaN or an infinity gets ``bad_color``.
    """
    finite = np.isfinite(image).all(axis=2)
    good = image[finite].astype(np.float32, copy=False)
    low = good.min(initial=np.inf)
    high = good.max(initial=-np.inf)
    largest = max(abs(low), abs(high)) if low < 0 else high
    room, offset = (127.0, 128.0) if low < 0 else (255.0, 0.0)
    scale = np.float32(0.0 if largest < _ZERO_THRESHOLD else room / largest)
    number = image.dtype.type
    pixels = np.empty(image.shape, np.uint8)
    pixels[finite] = (image[finite] * number(scale) + number(offset)).astype(np.uint8)
    pixels[~finite] = bad_color[: image.shape[2]]
    return pixels


@audio_summary.kernel("CPU")
def _audio_summary(tag: Array, tensor: Array, *, sample_rate: float, max_outputs: int) -> bytes:
    return _audio(tag, tensor, sample_rate, max_outputs)


@audio_summary_v2.kernel("CPU")
def audio_message(tag: Array, tensor: Array, sample_rate: Array, *, max_outputs: int) -> bytes:
    return _audio(tag, tensor, float(sample_rate), max_outputs)


def _audio(tag: Array, tensor: Array, sample_rate: float, max_outputs: int) -> bytes:
    base = single_tag(tag, "Tag must be a scalar")
    if np.ndim(tensor) not in (2, 3):
        shape = ",".join(map(str, np.shape(tensor)))
        refuse(f"Tensor must be 3-D or 2-D, got: [{shape}]")
    if not sample_rate > 0:
        refuse("sample_rate must be > 0")
    sounds = tensor if tensor.ndim == 3 else tensor[:, :, None]
    summary = protos.Summary()
    for i, sound in enumerate(sounds[:max_outputs]):
        frames, channels = sound.shape
        audio = summary.value.add(tag=_numbered(f"{base}/audio", i, max_outputs)).audio
        audio.sample_rate, audio.num_channels, audio.length_frames = sample_rate, channels, frames
        audio.content_type = "audio/wav"
        audio.encoded_audio_string = encode_wav(sound, max(1, round(min(sample_rate, math.ldexp(1, 33)))))
    return summary.SerializeToString()
