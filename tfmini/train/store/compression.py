"""Compressed gradients: how a worker sends dense ones in fewer bytes, and what a parameter server makes of them.

The worker keeps what a compressed gradient lacks, and adds it to the next one (error feedback; Karimireddy et al.,
*Error feedback fixes SignSGD*, 2019). So nothing is lost, only late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array
from tfmini.graph.operation import Tensor
from tfmini.ops.array.gather import scatter_nd
from tfmini.ops.array.identity import cast, placeholder
from tfmini.ops.array.shape import expand_dims, reshape

_LARGEST_HALF, _LARGEST_BYTE = 65504.0, 127


class GradientCompression:
    """A way to send a dense gradient. This one sends 16 bits of each number (``fp16``).

    Attributes:
      text: as the user gave it.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def placeholders(self, dtype: dtypes.DType, shape: Sequence[int]) -> list[Tensor]:
        """What is fed for a gradient."""
        return [placeholder(dtypes.float16, shape, "compressed")]

    def restored(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        """The gradient, from what is fed."""
        return cast(sent[0], dtype)

    def compress(self, gradient: Array) -> tuple[list[Array], Array]:
        """What to feed for a gradient, and the gradient that the parameter server makes of it."""
        sent = np.clip(gradient, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16)
        return [sent], sent.astype(gradient.dtype)


class _Bytes(GradientCompression):
    """Sends 8 bits of each number, and their scale (``int8``)."""

    def placeholders(self, dtype: dtypes.DType, shape: Sequence[int]) -> list[Tensor]:
        return [placeholder(dtypes.int8, shape, "compressed"), placeholder(dtype, [], "scale")]

    def restored(self, sent: Sequence[Tensor], dtype: dtypes.DType, shape: Sequence[int]) -> Tensor:
        numbers: Tensor = cast(sent[0], dtype) * sent[1]
        return numbers

    def compress(self, gradient: Array) -> tuple[list[Array], Array]:
        scale = np.asarray(np.abs(gradient).max(initial=0) / _LARGEST_BYTE, gradient.dtype)
        sent = np.rint(gradient / scale).astype(np.int8) if scale else np.zeros(gradient.shape, np.int8)
        return [sent, scale], sent.astype(gradient.dtype) * scale


class _Largest(GradientCompression):
    """Sends the numbers that are largest without their sign, and where they are (``topk:FRACTION``)."""

    def __init__(self, text: str, fraction: float) -> None:
        super().__init__(text)
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

    def compress(self, gradient: Array) -> tuple[list[Array], Array]:
        flat = gradient.reshape(-1)
        count = self._count(flat.size)
        places = np.argpartition(np.abs(flat), flat.size - count)[flat.size - count :] if count else np.arange(0)
        restored = np.zeros_like(flat)
        restored[places] = flat[places]
        return [places.astype(np.int32), flat[places]], restored.reshape(gradient.shape)


def compression_of(text: str | None) -> GradientCompression | None:
    """The compression that a user names: ``fp16``, ``int8``, ``topk:0.01``; None for none.

    Raises:
      ValueError: there is none of that name, or a fraction is not in (0, 1].
    """
    name, _, fraction = (text or "").partition(":")
    if not text:
        return None
    if text == "fp16":
        return GradientCompression(text)
    if text == "int8":
        return _Bytes(text)
    try:
        share = float(fraction)
    except ValueError:
        share = 0.0
    if name != "topk" or not 0 < share <= 1:
        raise ValueError(f"compression is 'fp16', 'int8' or 'topk:FRACTION' with a fraction in (0, 1]: {text!r}")
    return _Largest(text, share)
