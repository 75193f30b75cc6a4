"""``hvd.Compression``: the compression of tensors that Horovod's functions send."""

from __future__ import annotations

from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.ops.array import identity


class Compressor:
    """No compression; the base class (``horovod.tensorflow.compression.Compressor``)."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Any, Any]:
        """Returns the tensor to send, and the context for `decompress`."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Any:
        """The inverse of `compress`."""
        return tensor


class FP16Compressor(Compressor):
    """Sends floats as float16."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Any, Any]:
        """Casts floating-point tensors to float16."""
        return (identity.cast(tensor, "float16") if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Any:
        """Casts back to the original dtype."""
        return identity.cast(tensor, ctx)


class Compression:
    """The available compressors."""

    none = Compressor
    fp16 = FP16Compressor
