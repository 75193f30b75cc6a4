"""How Horovod's tensors travel: ``hvd.Compression``."""

from __future__ import annotations

from typing import Any

from tfmini.ops import casting


class Compressor:
    """Sends tensors as they are; the base of all (``horovod.tensorflow.compression.Compressor``)."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What travels, and what `decompress` needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The inverse of `compress`."""
        return tensor


class FP16Compressor(Compressor):
    """Sends floats as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """As float16 where it is a float of another width."""
        return (casting.cast(tensor, "float16") if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Back to the dtype that it had."""
        return casting.cast(tensor, ctx)


class Compression:
    """The choices."""

    none = Compressor
    fp16 = FP16Compressor
