"""``hvd.Compression``: the compression of tensors that Horovod's functions send."""

from __future__ import annotations

from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.ops.array import identity
from tfmini.train.optimizers.compression import compression_of


class Compressor:
    """No compression; the base class (``horovod.tensorflow.compression.Compressor``).

    Attributes:
      feedback: of one with error feedback, which Horovod has none of: the ``compression`` of `AllReduceOptimizer`.
    """

    feedback: str | None = None

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


class _Feedback(Compressor):
    """What it leaves out of a gradient comes with the next one, so `DistributedOptimizer` alone takes it."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Any, Any]:
        """Refuses a single tensor.

        Raises:
          ValueError: always.
        """
        raise ValueError(
            "This compression adds what it leaves out of one gradient to the next one. Give it to"
            " hvd.DistributedOptimizer; a collective of one tensor takes hvd.Compression.fp16."
        )


def _with_feedback(text: str) -> type[Compressor]:
    compression_of(text)  # or an error
    return type(text, (_Feedback,), {"feedback": text})


class Compression:
    """The available compressors; ``int8`` and ``topk`` are tfmini's own, for `DistributedOptimizer`."""

    none = Compressor
    fp16 = FP16Compressor
    int8 = _with_feedback("int8")

    @staticmethod
    def topk(fraction: float) -> type[Compressor]:
        """Sends so large a part of the numbers, those that are largest without their sign.

        Raises:
          ValueError: the fraction is not in (0, 1].
        """
        return _with_feedback(f"topk:{fraction}")
