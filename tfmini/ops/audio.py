"""Sounds: WAV files (``tf.audio``), and the features of ``tensorflow.contrib.framework.python.ops.audio_ops``.

The layout of a WAV file is that of Microsoft's and IBM's RIFF; only 16-bit PCM is read, as in TensorFlow.
Python's ``wave`` is not used: it wants a byte after chunks of odd size, which TensorFlow's files need not have.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, op
from tfmini.memory import check_room
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, with_rank

decode_op = op(
    """DecodeWav(contents: string) -> audio: float, sample_rate: int32
    desired_channels: int = -1; desired_samples: int = -1""",
    differentiable=None,
)
encode_op = op("EncodeWav(audio: float, sample_rate: int32) -> contents: string", differentiable=None)
spectrogram_op = op(
    """AudioSpectrogram(input: float) -> spectrogram: float
    window_size: int; stride: int; magnitude_squared: bool = False""",
    differentiable=None,
)
mfcc_op = op(
    """Mfcc(spectrogram: float, sample_rate: int32) -> output: float
    upper_frequency_limit: float = 4000.0; lower_frequency_limit: float = 20.0
    filterbank_channel_count: int = 40; dct_coefficient_count: int = 13""",
    differentiable=None,
)

_FULL_SCALE = 32768  # of a number of 16 bits
_PCM = 1


# ---- WAV files ------------------------------------------------------------------------------------------------------


@decode_op.shape
def _decode_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    wanted: list[int | None] = []
    for what in ("samples", "channels"):
        count = node.attrs[f"desired_{what}"]
        if count < -1:
            raise ValueError(f"{what} must be non-negative, got {count}")
        wanted.append(None if count == -1 else count)
    return [tuple(wanted), ()]


class _WavReader:
    """Takes a WAV file apart; each read is checked against its end.

    Raises:
      InvalidArgumentError: from all methods, for what is not a file of 16-bit PCM.
    """

    def __init__(self, contents: bytes) -> None:
        self._contents, self._at = contents, 0

    def samples(self) -> tuple[Array, int]:
        """The samples, int16 of shape (samples, channels), and how many of them a second has."""
        self._expect(b"RIFF")
        self._take(4)  # the size of the rest: nothing depends on it
        self._expect(b"WAVE")
        self._expect(b"fmt ")
        channels, rate = self._format()
        while self._at < len(self._contents):
            kind, (size,) = self._take(4), struct.unpack("<I", self._take(4))
            chunk = self._take(size)
            if kind == b"data":
                count = size // (2 * channels)
                return np.frombuffer(chunk, "<i2", count * channels).reshape(count, channels), rate
        refuse("No data chunk found in WAV")

    def _format(self) -> tuple[int, int]:
        (size,) = struct.unpack("<I", self._take(4))
        if size not in (16, 18):
            refuse(f"Bad header size for WAV: Expected 16 or 18, but got{size}")
        kind, channels, rate, byte_rate, frame, bits = struct.unpack("<HHIIHH", self._take(16))
        self._take(size - 16)
        if kind != _PCM:
            refuse(f"Bad audio format for WAV: Expected 1 (PCM), but got{kind}")
        if bits != 16:
            refuse(f"Can only read 16-bit WAV files, but received {bits}")
        if channels < 1:
            refuse(f"Bad number of channels for WAV: Expected at least 1, but got {channels}")
        if frame != 2 * channels:
            refuse(f"Bad bytes per sample in WAV header: Expected {2 * channels} but got {frame}")
        if byte_rate != frame * rate:
            refuse(f"Bad bytes per second in WAV header: Expected {frame * rate} but got {byte_rate}")
        return channels, rate

    def _take(self, size: int) -> bytes:
        piece = self._contents[self._at : self._at + size]
        if len(piece) < size:
            refuse("Data too short when trying to read string")
        self._at += size
        return piece

    def _expect(self, text: bytes) -> None:
        found = self._take(len(text))
        if found != text:
            refuse(f"Header mismatch: Expected {text.decode()} but found {found.decode('latin-1')}")


@decode_op.kernel("CPU")
def _decode_kernel(contents: Any, *, desired_channels: int, desired_samples: int) -> tuple[Any, Any]:
    if np.ndim(contents):
        refuse(f"contents must be scalar, got shape {list(np.shape(contents))}")
    samples, rate = _WavReader(bytes(contents if isinstance(contents, bytes) else contents.item())).samples()
    count = len(samples) if desired_samples == -1 else desired_samples
    channels = samples.shape[1] if desired_channels == -1 else desired_channels
    check_room((count, channels), 4)
    audio = np.zeros((count, channels), np.float32)
    # A channel that the file does not have sounds as its last one; samples behind its end are silent.
    chosen = samples[:count, np.minimum(np.arange(channels), samples.shape[1] - 1)]
    np.divide(chosen, np.float32(_FULL_SCALE), out=audio[: len(chosen)], dtype=np.float32)
    return audio, np.int32(rate)


@encode_op.shape
def _encode_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 2)
    with_rank(node.inputs[1].raw_shape, 0)
    return [()]


@encode_op.kernel("CPU")
def _encode_kernel(audio: Array, sample_rate: Array) -> bytes:
    if audio.ndim != 2:
        refuse(f"audio must be 2-dimensional, got shape {list(audio.shape)}")
    rate, channels = int(sample_rate), audio.shape[1]
    if rate <= 0:
        refuse(f"sample_rate must be in (0, 2^32), got: {rate}")
    if not audio.size:
        refuse("audio is null")
    if channels >= 1 << 15:
        refuse(f"channels_count must be in (0, 2^15), got: {channels}")
    scaled = np.nan_to_num(audio * np.float32(_FULL_SCALE), nan=0.0)
    rounded = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)  # halves go away from 0
    data = np.clip(rounded, -_FULL_SCALE, _FULL_SCALE - 1).astype("<i2").tobytes()
    frame = 2 * channels
    described = struct.pack("<HHIIHH", _PCM, channels, rate, rate * frame & 0xFFFFFFFF, frame, 16)
    head = struct.pack("<4sI4s4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", len(described))
    return head + described + struct.pack("<4sI", b"data", len(data)) + data


# ---- features of sounds ---------------------------------------------------------------------------------------------


def _fft_size(window: int) -> int:
    """The power of two that a window is filled up to."""
    return 1 << max(window - 1, 0).bit_length()


@spectrogram_op.shape
def _spectrogram_shape(node: Operation) -> list[RawShape]:
    samples, channels = with_rank(node.inputs[0].raw_shape, 2)
    window, stride = node.attrs["window_size"], node.attrs["stride"]
    for what, size in (("window size", window), ("stride", stride)):
        if size < 1:
            raise ValueError(f"{what} must be strictly positive, got {size}")
    slices = None if samples is None else _slices(samples, window, stride)
    return [(channels, slices, _fft_size(window) // 2 + 1)]


def _slices(samples: int, window: int, stride: int) -> int:
    return 0 if samples < window else 1 + (samples - window) // stride


@spectrogram_op.kernel("CPU")
def _spectrogram_kernel(input: Array, *, window_size: int, stride: int, magnitude_squared: bool) -> Any:  # noqa: A002
    if input.ndim != 2:
        refuse(f"input must be 2-dimensional, got shape {list(input.shape)}")
    if window_size < 2 or stride < 1:
        refuse(f"Spectrogram initialization failed for window size {window_size} and stride {stride}")
    count, size = _slices(len(input), window_size, stride), _fft_size(window_size)
    check_room((input.shape[1], count, size), 24)  # of the transform, whose numbers are complex
    if not count:
        return np.zeros((input.shape[1], 0, size // 2 + 1), np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window_size) / window_size)
    slices = np.lib.stride_tricks.sliding_window_view(input.T, window_size, -1)[:, ::stride]
    spectrum = np.fft.rfft(slices * window, size)
    power = spectrum.real**2 + spectrum.imag**2
    return (power if magnitude_squared else np.sqrt(power)).astype(np.float32)


@mfcc_op.shape
def _mfcc_shape(node: Operation) -> list[RawShape]:
    channels, slices, _ = with_rank(node.inputs[0].raw_shape, 3)
    with_rank(node.inputs[1].raw_shape, 0)
    return [(channels, slices, node.attrs["dct_coefficient_count"])]


@mfcc_op.kernel("CPU")
def _mfcc_kernel(
    spectrogram: Array, sample_rate: Array, *, upper_frequency_limit: float, lower_frequency_limit: float,
    filterbank_channel_count: int, dct_coefficient_count: int,
) -> Any:  # fmt: skip
    if spectrogram.ndim != 3:
        refuse(f"spectrogram must be 3-dimensional, got shape {list(spectrogram.shape)}")
    bins, rate = spectrogram.shape[2], int(sample_rate)
    if (
        rate <= 0 or bins < 2 or filterbank_channel_count < 1 or not 0 <= lower_frequency_limit < upper_frequency_limit
        or not 1 <= dct_coefficient_count <= filterbank_channel_count
    ):  # fmt: skip
        _refuse_mfcc(bins, rate, "")
    if upper_frequency_limit / (0.5 * rate / (bins - 1)) >= bins:
        _refuse_mfcc(bins, rate, f": the upper frequency limit {upper_frequency_limit} is above half of the rate")
    weights = _mel_weights(bins, rate, lower_frequency_limit, upper_frequency_limit, filterbank_channel_count)
    bands = np.sqrt(spectrogram.astype(np.float64)) @ weights
    check_room((filterbank_channel_count, dct_coefficient_count), 8)
    numbers = np.arange(filterbank_channel_count) + 0.5
    cosines = np.cos(np.pi / filterbank_channel_count * np.outer(numbers, np.arange(dct_coefficient_count)))
    cepstrum = np.log(np.maximum(bands, 1e-12)) @ (cosines * np.sqrt(2 / filterbank_channel_count))
    return cepstrum.astype(np.float32)


def _refuse_mfcc(bins: int, rate: int, why: str) -> NoReturn:
    refuse(f"Mfcc initialization failed for channel count {bins} and sample rate {rate}{why}")


@functools.lru_cache(8)  # the arguments are attrs and sizes: a program has few
def _mel_weights(bins: int, rate: int, low: float, high: float, channels: int) -> Any:
    """What each frequency adds to each channel: triangles that are even on the mel scale, [bins, channels]."""

    def mel(hertz: Any) -> Any:
        return 1127.0 * np.log1p(hertz / 700.0)

    check_room((bins, channels), 8)
    width = 0.5 * rate / (bins - 1)
    bounds = mel(low) + (mel(high) - mel(low)) / (channels + 1) * np.arange(channels + 2)
    numbers = np.arange(bins)
    used = (numbers >= int(1.5 + low / width)) & (numbers <= int(high / width))
    place = mel(numbers * width)[:, None]
    rising = (place - bounds[:-2]) / (bounds[1:-1] - bounds[:-2])
    falling = (bounds[2:] - place) / (bounds[2:] - bounds[1:-1])
    return np.maximum(np.minimum(rising, falling), 0) * used[:, None]


# ---- functions ------------------------------------------------------------------------------------------------------


@export("tf.audio.decode_wav")
def decode_wav(
    contents: TensorLike, desired_channels: int = -1, desired_samples: int = -1, name: str | None = None
) -> Any:
    """Reads a WAV file of 16-bit PCM (``tf.audio.decode_wav``).

    Args:
      contents: the file, a string.
      desired_channels: how many to give, or -1 for those of the file; the last one of the file stands for more.
      desired_samples: how many to give, or -1 for all; silence stands for more.

    Returns:
      ``audio``, float32 of shape (samples, channels) in [-1, 1), and ``sample_rate``, an int32 scalar in hertz.

    Raises:
      InvalidArgumentError: when it runs, for another file.
    """
    return decode_op(contents, desired_channels=desired_channels, desired_samples=desired_samples, name=name)


@export("tf.audio.encode_wav")
def encode_wav(audio: TensorLike, sample_rate: TensorLike, name: str | None = None) -> Tensor:
    """A WAV file of 16-bit PCM (``tf.audio.encode_wav``).

    Args:
      audio: float32 of shape (samples, channels); what is outside of [-1, 1) is cut.
      sample_rate: an int32 scalar in hertz.

    Returns:
      The file, a string.
    """
    made: Tensor = encode_op(audio, convert_to_tensor(sample_rate, dtype=dtypes.int32), name=name)
    return made


def audio_spectrogram(
    input: TensorLike, window_size: int, stride: int, magnitude_squared: bool = False,  # noqa: A002
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """How loud each frequency is in each slice of a sound (``audio_ops.audio_spectrogram``).

    Args:
      input: float32 of shape (samples, channels).
      window_size: the samples of a slice, at least 2, under a Hann window, filled up with zeros to a power of two.
      stride: the samples between two slices.
      magnitude_squared: give the squares.

    Returns:
      float32 of shape (channels, slices, frequencies).
    """
    made: Tensor = spectrogram_op(
        input, window_size=window_size, stride=stride, magnitude_squared=magnitude_squared, name=name
    )
    return made


def mfcc(
    spectrogram: TensorLike, sample_rate: TensorLike, upper_frequency_limit: float = 4000,
    lower_frequency_limit: float = 20, filterbank_channel_count: int = 40, dct_coefficient_count: int = 13,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Mel-frequency cepstral coefficients of a spectrogram of squared magnitudes (``audio_ops.mfcc``).

    Args:
      spectrogram: float32 of shape (channels, slices, frequencies).
      sample_rate: an int32 scalar in hertz.
      upper_frequency_limit, lower_frequency_limit: in hertz.
      filterbank_channel_count: the bands of the mel scale.
      dct_coefficient_count: how many coefficients to give, at most as many as bands.

    Returns:
      float32 of shape (channels, slices, coefficients).

    Raises:
      InvalidArgumentError: when it runs, for limits that do not fit. (TensorFlow gives zeros where the upper one is
        above half of the rate.)
    """
    made: Tensor = mfcc_op(
        spectrogram, convert_to_tensor(sample_rate, dtype=dtypes.int32), upper_frequency_limit=upper_frequency_limit,
        lower_frequency_limit=lower_frequency_limit, filterbank_channel_count=filterbank_channel_count,
        dct_coefficient_count=dct_coefficient_count, name=name,
    )  # fmt: skip
    return made
