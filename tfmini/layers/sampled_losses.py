"""``tf.nn.nce_loss`` and ``tf.nn.sampled_softmax_loss``: training with many classes by looking at a few."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops.array_filling import ones_like, zeros_like
from tfmini.ops.array_identity import stop_gradient
from tfmini.ops.array_joining import concat, stack
from tfmini.ops.array_scatter import scatter_nd
from tfmini.ops.array_shape import expand_dims, reshape
from tfmini.ops.array_shape import shape as shape_of
from tfmini.ops.candidate_sampling import compute_accidental_hits, log_uniform_candidate_sampler
from tfmini.ops.casting import cast
from tfmini.ops.math_elementwise import add, div, multiply, subtract
from tfmini.ops.math_matmul import matmul
from tfmini.ops.math_unary import log
from tfmini.ops.nn_cross_entropy import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits_v2
from tfmini.ops.nn_embedding import embedding_lookup
from tfmini.ops.reduce_functions import reduce_sum
from tfmini.ops.scoping import name_scope

__all__ = ["nce_loss", "sampled_softmax_loss"]


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Tensor:
    """The noise-contrastive loss ``[batch]``: true classes against drawn ones (``tf.nn.nce_loss``).

    Args:
      weights: ``[num_classes, width]``, or the parts of it.
      biases: ``[num_classes]``.
      labels: int64 ``[batch, num_true]``.
      inputs: ``[batch, width]``.
      num_sampled: how many classes are drawn for the batch.
      sampled_values: the result of a sampler, default `log_uniform_candidate_sampler`.
      remove_accidental_hits: leave out drawn classes that are true.
      partition_strategy: how parts share the rows, "mod" or "div".
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits, partition_strategy, name, None,
    )  # fmt: skip
    losses = sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name="sampled_losses")
    return reduce_sum(losses, 1)


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Tensor:
    """The softmax loss ``[batch]`` over the true and some drawn classes (``tf.nn.sampled_softmax_loss``)."""
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits, partition_strategy, name, seed,
    )  # fmt: skip
    targets = stop_gradient(targets, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits)


def _sampled_logits(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int, num_true: int,
    sampled_values: Any, remove_hits: bool, strategy: str, name: str | None, seed: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(logits, targets) ``[batch, num_true + num_sampled]``, logits less the log of the expected counts."""
    parts = list(weights) if isinstance(weights, (list, tuple)) or hasattr(weights, "_get_partitions") else [weights]
    with name_scope(name, "compute_sampled_logits", [*parts, biases, inputs, labels]):
        inputs, labels = convert_to_tensor(inputs), cast(labels, dtypes.int64)
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(labels, num_true, num_sampled, True, num_classes, seed)
        sampled, true_count, sampled_count = (stop_gradient(value) for value in sampled_values)
        sampled = cast(sampled, dtypes.int64)
        flat = reshape(labels, [-1])
        true = _true_logits(inputs, _rows(parts, flat, strategy, inputs), num_true)
        true = add(true, reshape(_rows(biases, flat, strategy, inputs), [-1, num_true]))
        drawn = matmul(inputs, _rows(parts, sampled, strategy, inputs), transpose_b=True)
        drawn = add(drawn, _rows(biases, sampled, strategy, inputs))
        if remove_hits:
            drawn = add(drawn, _without_hits(labels, sampled, num_true, drawn))
        true, drawn = subtract(true, log(true_count)), subtract(drawn, log(sampled_count))
        targets = concat([div(ones_like(true), float(num_true)), zeros_like(drawn)], 1)
        return concat([true, drawn], 1), targets


def _rows(table: Any, ids: Tensor, strategy: str, like: Tensor) -> Any:
    return cast(embedding_lookup(table, ids, partition_strategy=strategy), like.dtype)


def _true_logits(inputs: Tensor, rows: Tensor, num_true: int) -> Tensor:
    width = shape_of(rows)[1]
    by_example = reshape(rows, stack([-1, num_true, width]))
    return reduce_sum(multiply(expand_dims(inputs, 1), by_example), 2)


def _without_hits(labels: Tensor, sampled: Tensor, num_true: int, like: Tensor) -> Tensor:
    """The lowest number where a drawn class is a true one, 0 elsewhere."""
    rows, positions, lowest = compute_accidental_hits(labels, sampled, num_true)
    cells = stack([cast(rows, dtypes.int64), positions], axis=1)
    return scatter_nd(cells, cast(lowest, like.dtype), cast(shape_of(like), dtypes.int64))
