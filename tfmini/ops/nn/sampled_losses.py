"""Losses over sampled classes: noise-contrastive estimation and sampled softmax."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import stop_gradient
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.slicing import getitem
from tfmini.ops.array.slicing import slice as slice_tensor
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.math.unary import log
from tfmini.ops.nn import candidate_sampling
from tfmini.ops.nn.cross_entropy import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits
from tfmini.ops.nn.embedding import embedding_lookup
from tfmini.ops.sparse.layout import to_dense_op


def _looked_up(table: Any, labels: Tensor, sampled: Tensor, strategy: str) -> tuple[Tensor, Tensor]:
    """The rows of the true and of the sampled classes, by one lookup."""
    both = embedding_lookup(table, concat([labels, sampled], 0), partition_strategy=strategy)
    count = getitem(array_shape.shape(labels), 0)
    more = len(both.raw_shape or ()) - 1
    first = slice_tensor(both, [0] * (more + 1), stack([count, *[-1] * more]))
    return first, slice_tensor(both, stack([count, *[0] * more]), [-1] * (more + 1))


def _sampled_logits(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int, num_true: int,
    sampled_values: Any, subtract_log_q: bool, remove_accidental_hits: bool, partition_strategy: str,
    name: str | None, seed: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Logits and labels, [batch, num_true + num_sampled] each."""
    with name_scope(name, "compute_sampled_logits", [inputs, labels]):
        labels = cast(convert_to_tensor(labels), dtypes.int64)
        inputs = convert_to_tensor(inputs)
        flat = array_shape.reshape(labels, [-1])
        if sampled_values is None:
            sampled_values = candidate_sampling.log_uniform_candidate_sampler(
                labels, num_true, num_sampled, True, num_classes, seed
            )
        sampled, true_counts, sampled_counts = (stop_gradient(v) for v in sampled_values)
        sampled = cast(sampled, dtypes.int64)
        true_w, sampled_w = _looked_up(weights, flat, sampled, partition_strategy)
        true_b, sampled_b = _looked_up(biases, flat, sampled, partition_strategy)
        size = getitem(array_shape.shape(true_w), slice(1, 2))
        rows = array_shape.reshape(true_w, concat([[-1, num_true], size], 0))
        true_logits = reduce_sum(array_shape.expand_dims(inputs, 1) * rows, -1)
        true_logits = true_logits + array_shape.reshape(true_b, [-1, num_true])
        sampled_logits = matmul(inputs, sampled_w, transpose_b=True) + sampled_b
        if remove_accidental_hits:
            sampled_logits = sampled_logits + _hits(labels, sampled, num_true, sampled_logits)
        if subtract_log_q:
            true_logits = true_logits - log(true_counts)
            sampled_logits = sampled_logits - log(sampled_counts)
        logits = concat([true_logits, sampled_logits], 1)
        targets = concat([ones_like(true_logits) / num_true, zeros_like(sampled_logits)], 1)
        return logits, targets


def _hits(labels: Tensor, sampled: Tensor, num_true: int, like: Tensor) -> Tensor:
    """The lowest float where a sampled class is a true class of its example, else 0."""
    rows, ids, weights = candidate_sampling.compute_accidental_hits(labels, sampled, num_true)
    indices = concat([array_shape.reshape(rows, [-1, 1]), array_shape.reshape(cast(ids, dtypes.int32), [-1, 1])], 1)
    found = to_dense_op(indices, array_shape.shape(like), weights, 0.0, validate_indices=False)
    return cast(found, like.dtype.base_dtype)


@export("tf.nn.nce_loss")
def nce_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int, num_true: int = 1,
    sampled_values: Any = None, remove_accidental_hits: bool = False, partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Tensor:  # fmt: skip
    """The noise-contrastive estimation loss of each example (``tf.nn.nce_loss``).

    Args:
      weights: [num_classes, dim], or a list of its parts.
      biases: [num_classes].
      labels: int64 [batch, num_true].
      inputs: [batch, dim].
      num_sampled: the number of negative classes per batch.
      num_classes: the number of all classes.
      num_true: target classes per example.
      sampled_values: the result of a candidate sampler; default: the log-uniform one.
      remove_accidental_hits: ignore sampled classes that are targets.
      partition_strategy: the distribution of ``weights`` over a list; see `embedding_lookup`.
      name: of the scope.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
        remove_accidental_hits, partition_strategy, name, None,
    )  # fmt: skip
    losses = sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name="sampled_losses")
    return reduce_sum(losses, -1)


@export("tf.nn.sampled_softmax_loss")
def sampled_softmax_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int, num_true: int = 1,
    sampled_values: Any = None, remove_accidental_hits: bool = True, partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """The softmax loss of each example over true and sampled classes (``tf.nn.sampled_softmax_loss``).

    The arguments are those of `nce_loss`; ``seed`` makes the draws reproducible.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
        remove_accidental_hits, partition_strategy, name, seed,
    )  # fmt: skip
    targets = stop_gradient(targets, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits(labels=targets, logits=logits)
