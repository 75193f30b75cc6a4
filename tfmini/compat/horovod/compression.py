"""``hvd.Compression``: the compression of tensors that Horovod's functions send."""

from __future__ import annotations

from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.ops.array import identity
from tfmini.train.optimizers.compression import compression_of


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


class FeedbackCompressor(Compressor):
    """What it leaves out of a gradient comes with the next one, so `DistributedOptimizer` alone takes it.

    Horovod has none.

    Attributes:
      text: the ``compression`` of `tfmini.train.AllReduceOptimizer`.
    """

    text = ""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Any, Any]:
        """Refuses a single tensor.

        Raises:
          ValueError: always.
        """
        raise ValueError(
            "This compression adds what one gradient lacks to the next one. Give it to hvd.DistributedOptimizer; a"
            " collective of one tensor takes hvd.Compression.fp16."
        )


def feedback_of(compression: type[Compressor]) -> str | None:
    """The ``text`` of a compressor with error feedback."""
    if isinstance(compression, type) and issubclass(compression, FeedbackCompressor):
        return compression.text
    return None


class Compression:
    """The available compressors; ``int8`` and ``topk`` are tfmini's own, for `DistributedOptimizer`."""

    none = Compressor
    fp16 = FP16Compressor

    class int8(FeedbackCompressor):  # noqa: N801 - as the others are written
        """Sends 8 bits of each number."""

        text = "int8"

    @staticmethod
    def topk(fraction: float) -> type[FeedbackCompressor]:
        """Sends so large a part of the numbers, those that are largest without their sign.

        Raises:
          ValueError: the fraction is not in (0, 1].
        """
        text = f"topk:{fraction}"
        compression_of(text)
        return type("topk", (FeedbackCompressor,), {"text": text})
