"""``tf.contrib.losses.metric_learning``: losses by which embeddings of one class come near each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.contrib.losses import softmax_cross_entropy_with_logits
from tfmini.ops.array.diagonals import matrix_set_diag
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.array.layout import matrix_transpose
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.composites import SparseTensor
from tfmini.ops.math.comparison import equal, greater, logical_and, logical_not
from tfmini.ops.math.elementwise import maximum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_any, reduce_logsumexp, reduce_max, reduce_mean, reduce_min, reduce_sum
from tfmini.ops.math.unary import sqrt, square
from tfmini.ops.sparse.functions import sparse_tensor_to_dense

_FAR = 1e30


def _squared_distances(embeddings: Tensor) -> Any:
    """The squared distances of all pairs of rows, [n, n], with zeros in the diagonal."""
    norms = reduce_sum(square(embeddings), 1, keepdims=True)
    found = maximum(norms + matrix_transpose(norms) - 2.0 * matmul(embeddings, embeddings, transpose_b=True), 0.0)
    return matrix_set_diag(found, zeros([shape_of(embeddings)[0]], embeddings.dtype))


def _same(labels: TensorLike) -> tuple[Any, Any]:
    """(pairs of one class without those of a row with itself, pairs of two classes), bool [n, n]."""
    column = reshape(convert_to_tensor(labels), [-1, 1])
    same = equal(column, matrix_transpose(column))
    return matrix_set_diag(same, zeros([shape_of(column)[0]], same.dtype)), logical_not(same)


@export("tf.contrib.losses.metric_learning.triplet_semihard_loss")
def triplet_semihard_loss(labels: TensorLike, embeddings: TensorLike, margin: float = 1.0) -> Any:
    """Triplets with the nearest negative beyond the positive (``…metric_learning.triplet_semihard_loss``).

    Where no negative is farther, the farthest one counts (FaceNet; Schroff, Kalenichenko and Philbin, 2015).

    Args:
      labels: [batch] ints.
      embeddings: [batch, size], of norm 1.
      margin: how much farther negatives shall be.
    """
    distances = _squared_distances(convert_to_tensor(embeddings))
    positive, negative = _same(labels)
    to_positive, to_negative = expand_dims(distances, 2), expand_dims(distances, 1)
    farther = logical_and(greater(to_negative, to_positive), expand_dims(negative, 1))
    nearest = reduce_min(
        where(farther, to_negative + 0.0 * to_positive, _FAR + zeros_like(to_negative + to_positive)), 2
    )
    farthest = reduce_max(where(negative, distances, zeros_like(distances)), 1, keepdims=True) + zeros_like(distances)
    chosen = where(reduce_any(farther, 2), nearest, farthest)
    losses = maximum(margin + distances - chosen, 0.0) * cast(positive, distances.dtype)
    return reduce_sum(losses) / reduce_sum(cast(positive, distances.dtype))


@export("tf.contrib.losses.metric_learning.contrastive_loss")
def contrastive_loss(
    labels: TensorLike, embeddings_anchor: TensorLike, embeddings_positive: TensorLike, margin: float = 1.0
) -> Any:
    """Pairs that are near or apart (``tf.contrib.losses.metric_learning.contrastive_loss``; Hadsell et al., 2006).

    Args:
      labels: [batch], 1 for pairs of one class, else 0.
      embeddings_anchor, embeddings_positive: [batch, size], of norm 1.
      margin: how far apart the others shall be.
    """
    anchor, other = convert_to_tensor(embeddings_anchor), convert_to_tensor(embeddings_positive)
    far = sqrt(reduce_sum(square(anchor - other), 1))
    near = cast(convert_to_tensor(labels), far.dtype)
    return reduce_mean(near * square(far) + (1.0 - near) * square(maximum(margin - far, 0.0)), name="contrastive_loss")


def _npairs(anchor: Tensor, positive: Tensor, weights: Tensor, reg_lambda: float) -> Any:
    """The cross-entropy of the similarities, and a part of the squared norms."""
    squares = reduce_mean(reduce_sum(square(anchor), 1)) + reduce_mean(reduce_sum(square(positive), 1))
    targets = weights / reduce_sum(weights, 1, keepdims=True)
    logits = matmul(anchor, positive, transpose_b=True)
    entropy = softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    return 0.25 * reg_lambda * squares + reduce_mean(entropy)


@export("tf.contrib.losses.metric_learning.npairs_loss")
def npairs_loss(
    labels: TensorLike, embeddings_anchor: TensorLike, embeddings_positive: TensorLike, reg_lambda: float = 0.002,
    print_losses: bool = False,
) -> Any:  # fmt: skip
    """Pairs beside all others of the batch (``tf.contrib.losses.metric_learning.npairs_loss``; Sohn, 2016).

    Args:
      labels: [pairs] ints.
      embeddings_anchor, embeddings_positive: [pairs, size].
      reg_lambda: of the squared norms.
      print_losses: ignored.
    """
    anchor, positive = convert_to_tensor(embeddings_anchor), convert_to_tensor(embeddings_positive)
    column = reshape(convert_to_tensor(labels), [-1, 1])
    return _npairs(anchor, positive, cast(equal(column, matrix_transpose(column)), anchor.dtype), reg_lambda)


@export("tf.contrib.losses.metric_learning.npairs_loss_multilabel")
def npairs_loss_multilabel(
    sparse_labels: Sequence[SparseTensor], embeddings_anchor: TensorLike, embeddings_positive: TensorLike,
    reg_lambda: float = 0.002, print_losses: bool = False,
) -> Any:  # fmt: skip
    """`npairs_loss` of pairs with several labels (``tf.contrib.losses.metric_learning.npairs_loss_multilabel``).

    Args:
      sparse_labels: a bool SparseTensor, [classes], for each pair.

    Raises:
      TypeError: when one is no SparseTensor.
    """
    if not all(isinstance(labels, SparseTensor) for labels in sparse_labels):
        raise TypeError(f"sparse_labels must be a list of SparseTensors, but got {sparse_labels}")
    anchor, positive = convert_to_tensor(embeddings_anchor), convert_to_tensor(embeddings_positive)
    with name_scope("NpairsLossMultiLabel"):
        parts = [SparseTensor(s.indices, cast(s.values, anchor.dtype), s.dense_shape) for s in sparse_labels]
        shared = stack([reshape(sparse_tensor_to_dense(part), [-1]) for part in parts])
        return _npairs(anchor, positive, matmul(shared, shared, transpose_b=True), reg_lambda)


@export("tf.contrib.losses.metric_learning.lifted_struct_loss")
def lifted_struct_loss(labels: TensorLike, embeddings: TensorLike, margin: float = 1.0) -> Any:
    """Pairs beside all negatives of both (``tf.contrib.losses.metric_learning.lifted_struct_loss``; Song et al., 2016).

    Args:
      labels: [batch] ints.
      embeddings: [batch, size].
      margin: how much farther negatives shall be.
    """
    squared = _squared_distances(convert_to_tensor(embeddings))
    zero = equal(squared, 0.0)
    distances = where(zero, zeros_like(squared), sqrt(where(zero, squared + 1.0, squared)))
    positive, negative = _same(labels)
    near = where(negative, margin - distances, zeros_like(distances) - _FAR)
    row = reduce_logsumexp(near, 1, keepdims=True) + zeros_like(distances)
    both = reduce_logsumexp(stack([row, matrix_transpose(row)]), 0) + distances
    pairs = cast(positive, distances.dtype)
    return 0.25 * reduce_sum(square(maximum(where(positive, both, zeros_like(both)), 0.0))) / (reduce_sum(pairs) / 2.0)
