"""``tf.signal``: frames of signals, windows, spectrograms (of Fourier transforms), mel bands, cosine transforms.

All are made of ops that have gradients; lengths that are known when the graph is built become constants.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import AxisLike, DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import ones, zeros
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import pad, roll, tile, transpose
from tfmini.ops.array.shape import rank, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.segments import unsorted_segment_sum
from tfmini.ops.math.special import irfft, rfft
from tfmini.ops.math.unary import ceil, cos, log, rsqrt, square

Length = TensorLike


def _static(value: Any) -> int | None:
    """A length as a number; None if it is known in the step alone."""
    found = constant_value(convert_to_tensor(value))
    return None if found is None else int(found)


def _length(tensor: Tensor, axis: int) -> Any:
    """The size of an axis, as a number where it is known."""
    known = tensor.raw_shape[axis] if tensor.raw_shape is not None else None
    return shape_of(tensor)[axis] if known is None else known


# ---- windows -------------------------------------------------------------------------------------------------------


@export("tf.signal.hann_window", "tf.contrib.signal.hann_window")
def hann_window(
    window_length: Length, periodic: TensorLike = True, dtype: DTypeLike = dtypes.float32, name: str | None = None
) -> Tensor:
    """``0.5 - 0.5 cos``: a window of ``window_length`` floats (``tf.signal.hann_window``).

    Args:
      periodic: whether it begins again after ``window_length`` (for spectra), or is symmetric (for filters).

    Raises:
      ValueError: for a dtype that is not floating point.
    """
    return _raised_cosine(name, "hann_window", window_length, periodic, dtype, 0.5, 0.5)


@export("tf.signal.hamming_window", "tf.contrib.signal.hamming_window")
def hamming_window(
    window_length: Length, periodic: TensorLike = True, dtype: DTypeLike = dtypes.float32, name: str | None = None
) -> Tensor:
    """``0.54 - 0.46 cos``; see `hann_window` (``tf.signal.hamming_window``)."""
    return _raised_cosine(name, "hamming_window", window_length, periodic, dtype, 0.54, 0.46)


def _raised_cosine(
    name: str | None, default: str, length: Length, periodic: TensorLike, dtype: DTypeLike, a: float, b: float
) -> Tensor:
    kind = dtypes.as_dtype(dtype)
    if not kind.is_floating:
        raise ValueError(f"dtype must be a floating point type. Found {kind}")
    with name_scope(name, default, [length, periodic]):
        size = convert_to_tensor(length, name="window_length")
        size.shape.assert_has_rank(0)
        if _static(size) == 1:
            return ones([1], dtype=kind)
        even = 1 - size % 2
        period = cast(size + cast(periodic, size.dtype) * even - 1, kind)
        angle = 2 * math.pi * cast(range_of(size), kind) / period
        return a - b * cos(angle)


# ---- frames --------------------------------------------------------------------------------------------------------


@export("tf.signal.frame", "tf.contrib.signal.frame")
def frame(
    signal: TensorLike, frame_length: Length, frame_step: Length, pad_end: bool = False, pad_value: TensorLike = 0,
    axis: int = -1, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Cuts an axis into frames, which overlap if the step is less than their length (``tf.signal.frame``).

    Args:
      signal: of any type, of rank 1 or more.
      frame_length, frame_step: in samples.
      pad_end: also give the frames that begin before the end and last beyond it, filled with ``pad_value``.
      axis: is replaced by two, ``[frames, frame_length]``.

    Raises:
      ValueError: for a scalar signal, one of unknown rank with another axis than -1, or lengths that are no scalars.
    """
    with name_scope(name, "frame", [signal, frame_length, frame_step, pad_value]):
        signal = convert_to_tensor(signal, name="signal")
        for scalar in (frame_length, frame_step, pad_value):
            convert_to_tensor(scalar).shape.assert_has_rank(0)
        if signal.shape.with_rank_at_least(1).ndims in (None, 1):
            if axis not in (-1, 0) or signal.raw_shape is None and axis != -1:
                raise ValueError(f"tf.signal.frame needs a signal with an axis {axis}, but got {signal}.")
            # A reshape also makes the gradient dense, which that of `gather` alone is not.
            rows = reshape(signal, stack([-1, _length(signal, -1)]))
            cut = frame(rows, frame_length, frame_step, pad_end, pad_value)
            return reshape(cut, concat([shape_of(signal)[:-1], shape_of(cut)[1:]], 0))
        assert signal.raw_shape is not None
        place = axis % len(signal.raw_shape)
        count = _length(signal, place)
        length, step = (v if (v := _static(given)) is not None else given for given in (frame_length, frame_step))
        if pad_end:
            frames = -(-count // step)
            missing = _at_least_zero(length + step * (frames - 1) - count)
            pads = [[0, missing if i == place else 0] for i in range(len(signal.raw_shape))]
            signal = pad(signal, pads, constant_values=pad_value)
        else:
            frames = _at_least_zero(1 + (count - length) // step)
        places = reshape(range_of(frames) * step, [-1, 1]) + reshape(range_of(length), [1, -1])
        return gather(signal, places, axis=place)


def _at_least_zero(value: Any) -> Any:
    return max(value, 0) if isinstance(value, int) else maximum(value, 0)


@export("tf.signal.overlap_and_add", "tf.contrib.signal.overlap_and_add")
def overlap_and_add(signal: TensorLike, frame_step: Length, name: str | None = None) -> Tensor:
    """Adds the frames ``[..., frames, frame_length]`` up, each ``frame_step`` after the one before.

    ``tf.signal.overlap_and_add``; the result is ``[..., (frames - 1) * frame_step + frame_length]``.

    Raises:
      ValueError: for a signal of rank less than 2, or a step that is no scalar integer.
    """
    with name_scope(name, "overlap_and_add", [signal, frame_step]):
        signal = convert_to_tensor(signal, name="signal")
        signal.shape.with_rank_at_least(2)
        given = convert_to_tensor(frame_step, name="frame_step")
        given.shape.assert_has_rank(0)
        if not given.dtype.is_integer:
            raise ValueError(f"frame_step must be an integer. Got {given.dtype}")
        step, frames, length = _static(given) or frame_step, _length(signal, -2), _length(signal, -1)
        size = (frames - 1) * step + length
        outer = shape_of(signal)[:-2]
        rows = transpose(reshape(signal, stack([-1, frames * length])))
        places = reshape(range_of(frames), [-1, 1]) * step + reshape(range_of(length), [1, -1])
        summed = transpose(unsorted_segment_sum(rows, reshape(places, [-1]), size))
        result = reshape(summed, concat([outer, [size]], 0))
        if signal.raw_shape is not None:
            result.set_shape([*signal.raw_shape[:-2], size if isinstance(size, int) else None])
        return result


# ---- spectrograms --------------------------------------------------------------------------------------------------

Window = Callable[..., Any]


@export("tf.signal.stft", "tf.contrib.signal.stft")
def stft(
    signals: TensorLike, frame_length: Length, frame_step: Length, fft_length: Length | None = None,
    window_fn: Window | None = hann_window, pad_end: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The spectra of the frames of real signals ``[..., samples]`` (``tf.signal.stft``).

    Args:
      fft_length: default: the power of two that a frame fits into.
      window_fn: ``(frame_length, dtype=…)`` -> the window; None for none. See `frame` for the other arguments.

    Returns:
      Complex, ``[..., frames, fft_length // 2 + 1]``.
    """
    with name_scope(name, "stft", [signals, frame_length, frame_step]):
        signals = convert_to_tensor(signals, name="signals")
        signals.shape.with_rank_at_least(1)
        frames = frame(signals, frame_length, frame_step, pad_end=pad_end)
        if window_fn is not None:
            frames = frames * window_fn(frame_length, dtype=frames.dtype)
        return rfft(frames, [_fft_length(frame_length) if fft_length is None else fft_length])


def _fft_length(frame_length: Length) -> Any:
    known = _static(frame_length)
    if known is not None:
        return 1 << (known - 1).bit_length()
    exponent = ceil(log(cast(frame_length, dtypes.float32)) / math.log(2.0))
    return cast(2.0**exponent, dtypes.int32)


@export("tf.signal.inverse_stft", "tf.contrib.signal.inverse_stft")
def inverse_stft(
    stfts: TensorLike, frame_length: Length, frame_step: Length, fft_length: Length | None = None,
    window_fn: Window | None = hann_window, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The signals ``[..., samples]`` of spectra ``[..., frames, bins]`` (``tf.signal.inverse_stft``).

    They are those of `stft` if ``window_fn`` is `inverse_stft_window_fn` of its window.
    """
    with name_scope(name, "inverse_stft", [stfts]):
        stfts = convert_to_tensor(stfts, name="stfts")
        stfts.shape.with_rank_at_least(2)
        size = _fft_length(frame_length) if fft_length is None else fft_length
        frames: Any = irfft(stfts, [size])
        length, known = _static(frame_length), _static(size)
        if length is not None and known is not None:
            kept = frames[..., :length]
            missing: Any = max(length - known, 0)
        else:
            kept = frames[..., : minimum(frame_length, size)]
            missing = maximum(convert_to_tensor(frame_length) - size, 0)
        if isinstance(missing, Tensor) or missing:
            blank = zeros(concat([shape_of(kept)[:-1], [missing]], 0), kept.dtype)
            kept = concat([kept, blank], -1)
        if window_fn is not None:
            kept = kept * window_fn(frame_length, dtype=frames.dtype)
        return overlap_and_add(kept, frame_step)


@export("tf.signal.inverse_stft_window_fn", "tf.contrib.signal.inverse_stft_window_fn")
def inverse_stft_window_fn(
    frame_step: Length, forward_window_fn: Window = hann_window, name: str | None = None
) -> Callable[..., Tensor]:
    """The window with which `inverse_stft` gives the signals of `stft` back (``tf.signal.inverse_stft_window_fn``)."""
    with name_scope(name, "inverse_stft_window_fn", [forward_window_fn]):
        step = convert_to_tensor(frame_step, name="frame_step")

    def inverse(frame_length: Length, dtype: DTypeLike) -> Tensor:
        with name_scope(name, "inverse_stft_window_fn", [forward_window_fn]):
            length = convert_to_tensor(frame_length, name="frame_length")
            forward = forward_window_fn(frame_length, dtype=dtype)
            count = -(-length // step)
            weights = reshape(pad(square(forward), [[0, count * step - length]]), stack([count, step]))
            weights = tile(reduce_sum(weights, 0, keepdims=True), stack([count, 1]))
            window: Tensor = forward / reshape(weights, stack([count * step]))[:length]
            return window

    return inverse


@export("tf.signal.fftshift")
def fftshift(x: TensorLike, axes: AxisLike | None = None, name: str | None = None) -> Tensor:
    """Moves the zero frequency of a spectrum to the middle of its axes, all by default (``tf.signal.fftshift``)."""
    return _shifted("fftshift", x, axes, name, lambda size: size // 2)


@export("tf.signal.ifftshift")
def ifftshift(x: TensorLike, axes: AxisLike | None = None, name: str | None = None) -> Tensor:
    """The inverse of `fftshift` (``tf.signal.ifftshift``)."""
    return _shifted("ifftshift", x, axes, name, lambda size: -(size // 2))


def _shifted(
    default: str, x: TensorLike, axes: AxisLike | None, name: str | None, shift: Callable[[Tensor], Any]
) -> Tensor:
    with name_scope(name, default) as scope:
        x = convert_to_tensor(x)
        if isinstance(axes, int):
            return roll(x, shift(shape_of(x)[axes]), axes, name=scope)
        places = range_of(rank(x)) if axes is None else axes
        return roll(x, shift(gather(shape_of(x), places)), places, name=scope)


# ---- mel bands and cosine transforms -------------------------------------------------------------------------------


@export("tf.signal.linear_to_mel_weight_matrix", "tf.contrib.signal.linear_to_mel_weight_matrix")
def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20, num_spectrogram_bins: Any = 129, sample_rate: Any = 8000, lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0, dtype: DTypeLike = dtypes.float32, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A matrix that turns spectra into mel bands: ``[num_spectrogram_bins, num_mel_bins]`` of triangles.

    ``tf.signal.linear_to_mel_weight_matrix``. ``num_spectrogram_bins`` may be a tensor.

    Raises:
      ValueError: for numbers that make no bands.
    """
    bins, rate = (_static(given) for given in (num_spectrogram_bins, sample_rate))
    if rate is None or bins is not None and bins <= 0:
        raise ValueError("linear_to_mel_weight_matrix needs a known number of samples, and some bins.")
    kind = dtypes.as_dtype(dtype)
    _check_bands(num_mel_bins, rate, lower_edge_hertz, upper_edge_hertz, kind)
    edges = np.linspace(_mel(lower_edge_hertz), _mel(upper_edge_hertz), num_mel_bins + 2)
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    with name_scope(name, "linear_to_mel_weight_matrix"):
        if bins is not None:
            mel = _mel(np.linspace(0.0, rate / 2.0, bins)[1:, None])
            weights = np.maximum(0.0, np.minimum((mel - low) / (center - low), (high - mel) / (high - center)))
            return constant(np.pad(weights, [[1, 0], [0, 0]]).astype(kind.numpy), name="weights")
        count = cast(num_spectrogram_bins, dtypes.float64)
        places = reshape(range_of(1.0, count, dtype=dtypes.float64), [-1, 1]) * (rate / 2.0) / (count - 1.0)
        bands = 1127.0 * log(1.0 + places / 700.0)
        slopes = minimum((bands - low) / (center - low), (high - bands) / (high - center))
        return cast(pad(maximum(slopes, constant(0.0, dtypes.float64)), [[1, 0], [0, 0]]), kind)


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log1p(np.asarray(hertz, np.float64) / 700.0)


def _check_bands(count: int, rate: int, low: float, high: float, kind: dtypes.DType) -> None:
    if count <= 0:
        raise ValueError(f"num_mel_bins must be positive. Got: {count}")
    if rate <= 0:
        raise ValueError(f"sample_rate must be positive. Got: {rate}")
    if low < 0.0:
        raise ValueError(f"lower_edge_hertz must be non-negative. Got: {low}")
    if low >= high:
        raise ValueError(f"lower_edge_hertz {low} >= upper_edge_hertz {high}")
    if high > rate / 2:
        raise ValueError(
            "upper_edge_hertz must not be larger than the Nyquist frequency (sample_rate / 2)."
            f" Got: {high} for sample_rate: {rate}"
        )
    if not kind.is_floating:
        raise ValueError(f"dtype must be a floating point type. Got: {kind}")


@export("tf.signal.mfccs_from_log_mel_spectrograms", "tf.contrib.signal.mfccs_from_log_mel_spectrograms")
def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: TensorLike, name: str | None = None) -> Tensor:
    """The cepstral coefficients of logarithmic mel bands (``tf.signal.mfccs_from_log_mel_spectrograms``)."""
    with name_scope(name, "mfccs_from_log_mel_spectrograms", [log_mel_spectrograms]):
        bands = convert_to_tensor(log_mel_spectrograms, dtypes.float32)
        count = _length(bands, -1)
        if isinstance(count, int) and not count:
            raise ValueError(f"num_mel_bins must be positive. Got: {bands}")
        return dct(bands) * rsqrt(2.0 * cast(count, dtypes.float32))


@export("tf.signal.dct", "tf.spectral.dct")
def dct(
    input: TensorLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The discrete cosine transform I, II or III of the last axis (``tf.signal.dct``).

    Args:
      n: cut or fill the axis with zeros to this length first.
      norm: None, or "ortho" for the orthonormal transform.

    Raises:
      ValueError: for another type or norm, or a length below 1 (2 for type 1).
      NotImplementedError: for another axis.
    """
    if type not in (1, 2, 3):
        raise ValueError("Only Types I, II and III (I)DCT are supported.")
    if axis != -1:
        raise NotImplementedError(f"axis must be -1. Got: {axis}")
    if norm not in (None, "ortho") or (type == 1 and norm == "ortho") or n is not None and n < 1:
        raise ValueError(f"norm must be None or 'ortho' (not with type 1), and n positive, but got {norm!r} and {n}.")
    with name_scope(name, "dct", [input]):
        values = convert_to_tensor(input)
        if n is not None:
            count = _length(values, -1)
            values = values[..., :n]
            values = pad(values, [[0, 0]] * (len(values.shape) - 1) + [[0, _at_least_zero(n - count)]])
        count = _length(values, -1) if n is None else n
        if not isinstance(count, int):
            rows = matmul(reshape(values, stack([-1, count])), cast(_cosines_of(type, count, norm), values.dtype))
            result = reshape(rows, shape_of(values))
            result.set_shape(values.shape)
            return result
        if not count or (type == 1 and count < 2):
            raise ValueError(f"tf.signal.dct needs a last axis with elements (2 for type 1), but got {values}.")
        matrix = constant(_cosines(type, count, norm).astype(values.dtype.numpy))
        return tensordot(values, matrix, 1)


@export("tf.signal.idct", "tf.spectral.idct")
def idct(
    input: TensorLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of `dct`, up to a factor of twice the length without "ortho" (``tf.signal.idct``)."""
    return dct(input, {1: 1, 2: 3, 3: 2}.get(type, type), n, axis, norm, name)


def _cosines_of(kind: int, count: Tensor, norm: str | None) -> Tensor:
    """`_cosines` of a number that only the step knows: float64 [count, count]."""
    size, i = cast(count, dtypes.float64), cast(range_of(count), dtypes.float64)
    first, last = 1.0 - minimum(i, 1.0), 1.0 - minimum(size - 1.0 - i, 1.0)  # 1 there, else 0
    rows, columns = reshape(i, [-1, 1]), reshape(i, [1, -1])
    if kind == 1:
        return 2.0 * cos(math.pi * rows * columns / (size - 1.0)) * reshape(1.0 - 0.5 * (first + last), [-1, 1])
    matrix = 2.0 * cos(math.pi * columns * (2.0 * rows + 1.0) / (2.0 * size))
    if norm == "ortho":
        matrix *= rsqrt(2.0 * size) * reshape(1.0 - (1.0 - math.sqrt(0.5)) * first, [1, -1])
        return transpose(matrix) if kind == 3 else matrix
    return transpose(matrix) * reshape(1.0 - 0.5 * first, [-1, 1]) if kind == 3 else matrix


@functools.lru_cache(maxsize=64)
def _cosines(kind: int, count: int, norm: str | None) -> np.ndarray[Any, Any]:
    """[count, count]: what ``dct`` multiplies the values with."""
    k, i = np.arange(count)[None, :], np.arange(count)[:, None]
    if kind == 1:
        matrix = 2.0 * np.cos(np.pi * i * k / (count - 1))
        matrix[[0, -1]] /= 2.0
        return matrix
    matrix = 2.0 * np.cos(np.pi * k * (2 * i + 1) / (2 * count))
    if norm == "ortho":
        matrix *= np.sqrt(0.5 / count)
        matrix[:, 0] *= np.sqrt(0.5)
        return matrix.T if kind == 3 else matrix
    if kind == 3:
        matrix = matrix.T.copy()
        matrix[0] /= 2.0
    return matrix
