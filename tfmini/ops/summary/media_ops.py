"""Ops whose value is a Summary of images (as PNG) or sounds (as WAV)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini import protos
from tfmini.graph.registry import op
from tfmini.numerics.media_encoding import encode_png, encode_wav
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.summary.summary_ops import single_tag

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
def image_message(tag: Any, tensor: Any, *, max_images: int, bad_color: Any) -> bytes:
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


def _check_images(tensor: Any, bad_color: Any) -> None:
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


def _normalized(image: Any, bad_color: Any) -> Any:
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
def _audio_summary(tag: Any, tensor: Any, *, sample_rate: float, max_outputs: int) -> bytes:
    return _audio(tag, tensor, sample_rate, max_outputs)


@audio_summary_v2.kernel("CPU")
def audio_message(tag: Any, tensor: Any, sample_rate: Any, *, max_outputs: int) -> bytes:
    return _audio(tag, tensor, float(sample_rate), max_outputs)


def _audio(tag: Any, tensor: Any, sample_rate: float, max_outputs: int) -> bytes:
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
