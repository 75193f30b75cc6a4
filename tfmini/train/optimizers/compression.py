"""Compressed gradients: how a worker sends dense ones in fewer bytes, and what a parameter server makes of them.

The worker keeps what a compressed gradient leaves out, the residual, and adds it to the next one (error feedback;
Karimireddy et al., *Error feedback fixes SignSGD*, 2019). So nothing is lost, only late. A `tf.ParameterStore`
compresses arrays of numpy, graphs compress tensors; what is sent is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array
from tfmini.graph.operation import Tensor
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.gather import gather, scatter_nd
from tfmini.ops.array.identity import cast, placeholder
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.math.comparison import where_v2
from tfmini.ops.math.reductions import reduce_max, reduce_sum
from tfmini.ops.math.search import top_k
from tfmini.ops.math.segments import unsorted_segment_sum
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import is_finite, rint

_LARGEST_HALF, _LARGEST_BYTE = 65504.0, 127


class GradientCompression:
    """A way to send a dense gradient.

    Attributes:
      adds_up: whether the sum of what workers send is what is sent of their sum.
    """

    adds_up = False

    def placeholders(self, dtype: dtypes.DType, shape: Sequence[int]) -> list[Tensor]:
        """What is fed for a gradient."""
        raise NotImplementedError

    def restored(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        """The gradient, from what is fed."""
        raise NotImplementedError

    def total(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        """The sum of the gradients of several workers, which are the first dimension of each of ``sent``.

        Needed where what is sent does not add up.
        """
        raise NotImplementedError

    def compress(self, gradient: Array) -> tuple[list[Array], Array]:
        """What to feed for a gradient, and the gradient that the parameter server makes of it."""
        raise NotImplementedError

    def compressed(self, gradient: Tensor) -> list[Tensor]:
        """What to send of a gradient of known shape that is not empty, as `compress` does."""
        raise NotImplementedError


class _Halves(GradientCompression):
    """Sends 16 bits of each number (``fp16``)."""

    adds_up = True

    def placeholders(self, dtype: dtypes.DType, shape: Sequence[int]) -> list[Tensor]:
        return [placeholder(dtypes.float16, shape, "compressed")]

    def restored(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        return cast(sent[0], dtype)

    def compress(self, gradient: Array) -> tuple[list[Array], Array]:
        wide = _widened(gradient)
        limited = np.clip(wide, -_LARGEST_HALF, _LARGEST_HALF)
        sent = np.where(np.isfinite(wide), limited, wide).astype(np.float16)  # infinity tells that training has failed
        return [sent], sent.astype(gradient.dtype)

    def compressed(self, gradient: Tensor) -> list[Tensor]:
        wide = cast(gradient, _wide(gradient.dtype))
        limited = clip_by_value(wide, -_LARGEST_HALF, _LARGEST_HALF)
        return [cast(where_v2(is_finite(wide), limited, wide), dtypes.float16)]


def _wide(dtype: dtypes.DType) -> dtypes.DType:
    """In what limits and scales are: 16 bits round the largest half up, and small scales to nothing."""
    return dtypes.float64 if dtype == dtypes.float64 else dtypes.float32


def _widened(gradient: Array) -> Array:
    return gradient.astype(_wide(dtypes.as_dtype(gradient.dtype)).as_numpy_dtype, copy=False)


class _Bytes(GradientCompression):
    """Sends 8 bits of each number, and their scale (``int8``)."""

    def placeholders(self, dtype: dtypes.DType, shape: Sequence[int]) -> list[Tensor]:
        return [placeholder(dtypes.int8, shape, "compressed"), placeholder(_wide(dtype), [], "scale")]

    def restored(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        numbers, scale = sent
        return cast(cast(numbers, _wide(dtype)) * scale, dtype)

    def total(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        numbers, scales = sent
        scales = reshape(scales, [-1] + [1] * len(shape))
        return cast(reduce_sum(cast(numbers, _wide(dtype)) * scales, 0), dtype)

    def compress(self, gradient: Array) -> tuple[list[Array], Array]:
        wide = _widened(gradient)
        scale = np.asarray(np.abs(wide).max(initial=0) / _LARGEST_BYTE, wide.dtype)
        with np.errstate(invalid="ignore"):  # of numbers that are not finite
            # A scale that is subnormal may be too small.
            numbers = np.rint(wide / scale).clip(-_LARGEST_BYTE, _LARGEST_BYTE) if scale else np.zeros_like(wide)
            sent = numbers.astype(np.int8)
            return [sent, scale], (sent.astype(wide.dtype) * scale).astype(gradient.dtype, copy=False)

    def compressed(self, gradient: Tensor) -> list[Tensor]:
        wide = cast(gradient, _wide(gradient.dtype))
        scale: Tensor = reduce_max(absolute(wide)) / _LARGEST_BYTE
        numbers = clip_by_value(
            rint(wide / where_v2(scale > 0, scale, ones_like(scale))), -_LARGEST_BYTE, _LARGEST_BYTE
        )
        return [cast(where_v2(is_finite(numbers), numbers, zeros_like(numbers)), dtypes.int8), scale]


class _Largest(GradientCompression):
    """Sends the numbers that are largest without their sign, and where they are (``topk:FRACTION``)."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def placeholders(self, dtype: dtypes.DType, shape: Sequence[int]) -> list[Tensor]:
        count = self._count(math.prod(shape))
        return [placeholder(dtypes.int32, [count], "places"), placeholder(dtype, [count], "compressed")]

    def _count(self, size: int) -> int:
        """How many of so many numbers are sent."""
        return min(size, math.ceil(self._fraction * size))

    def restored(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        places, numbers = sent
        return reshape(scatter_nd(expand_dims(places, 1), numbers, [math.prod(shape)]), shape)

    def total(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        places, numbers = sent
        return reshape(unsorted_segment_sum(numbers, places, math.prod(shape)), shape)

    def compress(self, gradient: Array) -> tuple[list[Array], Array]:
        flat = gradient.reshape(-1)
        count = self._count(flat.size)
        places = np.argpartition(np.abs(flat), flat.size - count)[flat.size - count :] if count else np.arange(0)
        restored = np.zeros_like(flat)
        restored[places] = flat[places]
        return [places.astype(np.int32), flat[places]], restored.reshape(gradient.shape)

    def compressed(self, gradient: Tensor) -> list[Tensor]:
        flat = reshape(gradient, [-1])
        count = self._count(gradient.shape.num_elements() or 0)
        places = top_k(absolute(flat), count, sorted=False).indices
        return [places, gather(flat, places)]


def compression_of(text: str | None) -> GradientCompression | None:
    """The compression that a user names: ``fp16``, ``int8``, ``topk:0.01``; None for none.

    Raises:
      ValueError: there is none of that name, or a fraction is not in (0, 1].
    """
    name, _, fraction = (text or "").partition(":")
    if not text:
        return None
    if text == "fp16":
        return _Halves()
    if text == "int8":
        return _Bytes()
    try:
        share = float(fraction)
    except ValueError:
        share = 0.0
    if name != "topk" or not 0 < share <= 1:
        raise ValueError(f"compression is 'fp16', 'int8' or 'topk:FRACTION' with a fraction in (0, 1]: {text!r}")
    return _Largest(share)
