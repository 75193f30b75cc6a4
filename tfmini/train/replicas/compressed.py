"""Compressed gradients in graphs: on the way to a parameter server, and between the ranks of an all-reduce.

Each worker keeps in local variables what its compressed gradients have left out, the residuals, and adds them to the
next ones (`tfmini.train.optimizers.compression`). They stand on the worker that computes the gradients, whatever the
device function says about variables. So a worker that was restarted begins without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, init_scope, name_scope
from tfmini.ops import control
from tfmini.ops.array import joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.identity import bitcast, cast, identity
from tfmini.ops.array.layout import pad
from tfmini.ops.array.shape import reshape
from tfmini.ops.math.comparison import where_v2
from tfmini.ops.math.unary import is_finite
from tfmini.ops.variables.functions import Variable
from tfmini.placement.wire_table import COMPRESSED
from tfmini.train.optimizers.compression import GradientCompression, compression_of
from tfmini.train.optimizers.loss_scale import OptimizerWrapper
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer
from tfmini.train.replicas.elastic import Ranks


class ErrorFeedback:
    """Compresses the gradients of one worker, each with the residual of the one before.

    Args:
      text: as in `compression_of`; None: `takes` refuses all.
      name: of the optimizer that sends the gradients.

    Raises:
      ValueError: there is no such compression.
    """

    def __init__(self, text: str | None, name: str) -> None:
        self._compression, self._name = compression_of(text), name

    @property
    def compression(self) -> GradientCompression:
        """How gradients are compressed."""
        assert self._compression is not None
        return self._compression

    def takes(self, grad: Any) -> bool:
        """Whether a gradient is compressed: dense ones of floating-point numbers and known shape are."""
        return (
            self._compression is not None and isinstance(grad, Tensor) and grad.dtype.is_floating
            and bool(grad.shape.num_elements())
        )  # fmt: skip

    def sent(self, grad: Tensor, variable: Any) -> list[Tensor]:
        """What to send for a gradient that it `takes`; each run keeps the residual."""
        dtype, shape = grad.dtype.base_dtype, _shape(grad)
        with name_scope(COMPRESSED):
            residual = self._residual(grad, variable)
            whole = grad + residual.read_value()
            sent = self.compression.compressed(whole)
            rest = whole - self.compression.restored(sent, dtype, shape)
            # A number that is not finite is sent and leaves nothing, or each later gradient would have it again.
            kept = residual.assign(where_v2(is_finite(rest), rest, zeros_like(rest)))
            with control_dependencies([kept]):
                return [identity(each) for each in sent]

    def _residual(self, grad: Tensor, variable: Any) -> Variable:
        """A local variable on this worker: an op that is no variable leads it there."""
        anchor = control.no_op()
        with init_scope(), colocate_with(anchor):
            return Variable(
                zeros(grad.shape, grad.dtype.base_dtype), trainable=False, collections=[GraphKeys.LOCAL_VARIABLES],
                name=f"{variable.op.name}/{self._name}_residual",
            )  # fmt: skip

    def arrived(self, pairs: Iterable[GradAndVar]) -> list[GradAndVar]:
        """The gradients as they come out of the compressed ones where their variables are; others stay as they are."""
        return [(self._arrived(grad, var) if self.takes(grad) else grad, var) for grad, var in pairs]

    def _arrived(self, grad: Tensor, variable: Any) -> Tensor:
        sent = self.sent(grad, variable)
        with name_scope(COMPRESSED), colocate_with(variable):
            return self.compression.restored(sent, grad.dtype.base_dtype, _shape(grad))

    def gathered(self, ranks: Ranks, pairs: Sequence[GradAndVar], name: str, mean: bool) -> list[Tensor]:
        """The sums or means of gradients over the ranks, each of which sends its own to all others at once."""
        sent = [self.sent(grad, variable) for grad, variable in pairs]
        with name_scope(COMPRESSED):
            words = [_words(part) for each in sent for part in each]
            sizes = [each.shape.num_elements() or 0 for each in words]
            rows = reshape(ranks.all_gather(joining.concat(words, 0), name), [-1, sum(sizes)])
            columns = iter(joining.split(rows, sizes, 1))
            totals = []
            for (grad, _), each in zip(pairs, sent):
                parts = [_from_words(next(columns), part) for part in each]
                total = self.compression.total(parts, grad.dtype.base_dtype, _shape(grad))
                totals.append(total / cast(array_shape.shape(rows)[0], total.dtype) if mean else total)
            return totals


def _shape(value: Tensor) -> list[int]:
    """The known shape of a tensor."""
    return [int(size or 0) for size in value.shape.as_list()]


# ---- Collectives carry int32, and no smaller integers ----------------------------------------------------------------

_WORD = dtypes.int32.size


def _words(value: Tensor) -> Tensor:
    """The bytes of a tensor of known shape as a vector of int32, with zeros behind them."""
    flat, size = reshape(value, [-1]), value.dtype.size
    if size < _WORD:
        count = value.shape.num_elements() or 0
        flat = reshape(pad(flat, [[0, -count * size % _WORD // size]]), [-1, _WORD // size])
    return reshape(bitcast(flat, dtypes.int32), [-1])


def _from_words(rows: Tensor, like: Tensor) -> Tensor:
    """Tensors as ``like``, one of each row."""
    size, shape = like.dtype.size, _shape(like)
    if size > _WORD:
        rows = reshape(rows, [-1, math.prod(shape), size // _WORD])
    values = bitcast(rows, like.dtype)
    if size < _WORD:
        values = reshape(values, [-1, rows.shape[1] * (_WORD // size)])[:, : math.prod(shape)]
    return reshape(values, [-1, *shape])


# ---- The way to parameter servers ------------------------------------------------------------------------------------


@export("tf.train.CompressedGradientOptimizer")
class CompressedGradientOptimizer(OptimizerWrapper, Optimizer):
    """Wraps an optimizer so that gradients go to parameter servers in fewer bytes, for asynchronous training.

    Dense gradients of floating-point numbers and known shape are compressed on the worker, and restored where their
    variable is. The worker keeps what is left out of a gradient in a local variable and adds it to the next one. Other
    gradients are sent as they are. `SyncReplicasOptimizer`, `AllReduceOptimizer`, `DiLoCoOptimizer` and
    `tf.ParameterStore` have an argument ``compression`` for it.

    Args:
      opt: the optimizer that applies the gradients.
      compression: ``fp16``, ``int8`` or ``topk:0.01``: 16 or 8 bits per number, or the hundredth of the numbers that is
        largest without its sign.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: there is no such compression.
    """

    def __init__(
        self, opt: Optimizer, compression: str = "int8", use_locking: bool = False, name: str | None = None
    ) -> None:
        super().__init__(opt, use_locking, name or f"Compressed{opt.get_name()}")
        self._feedback = ErrorFeedback(compression, self._name)

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """`Optimizer.apply_gradients` of the wrapped optimizer, of what the compressed gradients are worth."""
        return self._opt.apply_gradients(self._feedback.arrived(grads_and_vars), global_step=global_step, name=name)
