"""``tf.contrib.nn``: losses with their old order of arguments, dropout for SELU networks, a scaled softplus."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.elementwise import minimum
from tfmini.ops.math.unary import floor
from tfmini.ops.nn.activation import softplus
from tfmini.ops.nn.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
)
from tfmini.ops.random.functions import random_uniform

_DROPPED = -1.7580993408473766  # the limit of SELU towards minus infinity


@export("tf.contrib.nn.deprecated_flipped_softmax_cross_entropy_with_logits")
def deprecated_flipped_softmax_cross_entropy_with_logits(
    logits: Any, labels: Any, dim: int = -1, name: str | None = None
) -> Any:
    """`softmax_cross_entropy_with_logits`, with the logits first."""
    return softmax_cross_entropy_with_logits(labels=labels, logits=logits, dim=dim, name=name)


@export("tf.contrib.nn.deprecated_flipped_sparse_softmax_cross_entropy_with_logits")
def deprecated_flipped_sparse_softmax_cross_entropy_with_logits(
    logits: Any, labels: Any, name: str | None = None
) -> Any:
    """`sparse_softmax_cross_entropy_with_logits`, with the logits first."""
    return sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name=name)


@export("tf.contrib.nn.deprecated_flipped_sigmoid_cross_entropy_with_logits")
def deprecated_flipped_sigmoid_cross_entropy_with_logits(logits: Any, targets: Any, name: str | None = None) -> Any:
    """`sigmoid_cross_entropy_with_logits`, with the logits first."""
    return sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)


@export("tf.contrib.nn.alpha_dropout")
def alpha_dropout(
    x: Any, keep_prob: float, noise_shape: Any = None, seed: int | None = None, name: str | None = None
) -> Any:
    """Dropout that keeps mean and variance of the activations of SELU (``tf.contrib.nn.alpha_dropout``).

    Raises:
      ValueError: ``keep_prob`` is not in (0, 1].
    """
    if not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob must be a scalar tensor or a float in the range (0, 1], got {keep_prob}")
    with name_scope(name, "alpha_dropout", [x]):
        x = convert_to_tensor(x, name="x")
        if keep_prob == 1:
            return x
        shape = shape_of(x) if noise_shape is None else noise_shape
        kept = floor(random_uniform(shape, dtype=x.dtype, seed=seed) + keep_prob)
        a = (keep_prob + keep_prob * (1 - keep_prob) * _DROPPED**2) ** -0.5
        found = a * (x * kept + _DROPPED * (1 - kept)) - a * _DROPPED * (1 - keep_prob)
        found.set_shape(x.shape)
        return found


@export("tf.contrib.nn.scaled_softplus")
def scaled_softplus(x: Any, alpha: Any, clip: Any = None, name: str | None = None) -> Any:
    """``alpha * softplus(x / alpha)``, at most ``clip`` (``tf.contrib.nn.scaled_softplus``)."""
    with name_scope(name, "scaled_softplus", [x, alpha]):
        found = alpha * softplus(convert_to_tensor(x) / alpha)
        return found if clip is None else minimum(found, clip)
