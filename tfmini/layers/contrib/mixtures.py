"""Distributions of ``tf.contrib.distributions`` that show others in other shapes, or mix them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.discrete_distributions import Categorical
from tfmini.layers.distributions import (
    NOT_REPARAMETERIZED,
    Distribution,
    RegisterKL,
    keeps_arguments,
)
from tfmini.ops.array.filling import ones_like, zeros
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.partition import one_hot, where
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import greater_equal, less
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_logsumexp, reduce_prod, reduce_sum
from tfmini.ops.math.unary import ceil, exp, floor, square
from tfmini.ops.nn.cross_entropy import log_softmax, softmax
from tfmini.shapes import TensorShape, known_rank


@export("tf.contrib.distributions.Independent")
class Independent(Distribution):
    """A batch of distributions as one of vectors (``tf.contrib.distributions.Independent``).

    Args:
      distribution: the batch.
      reinterpreted_batch_ndims: how many of its last axes are of the event; default: all but the first.
    """

    def __init__(
        self, distribution: Distribution, reinterpreted_batch_ndims: int | None = None, validate_args: bool = False,
        name: str | None = None,
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.distribution = distribution
        if reinterpreted_batch_ndims is None:
            reinterpreted_batch_ndims = max(
                known_rank(distribution.batch_shape, f"the batch of {distribution.name}") - 1, 0
            )
        self.reinterpreted_batch_ndims = int(reinterpreted_batch_ndims)
        super().__init__(
            distribution.dtype, distribution.reparameterization_type, validate_args, distribution.allow_nan_stats,
            parameters, distribution._graph_parents, name or "Independent" + distribution.name.rstrip("/"),
        )  # fmt: skip

    def _cut(self) -> int:
        rank = known_rank(self.distribution.batch_shape, f"the batch of {self.distribution.name}")
        return rank - self.reinterpreted_batch_ndims

    def _batch_shape(self) -> Any:
        return self.distribution.batch_shape[: self._cut()]

    def _event_shape(self) -> Any:
        return TensorShape(self.distribution.batch_shape[self._cut() :]).concatenate(self.distribution.event_shape)

    def _batch_shape_tensor(self) -> Any:
        return self.distribution.batch_shape_tensor()[: self._cut()]

    def _event_shape_tensor(self) -> Any:
        rest = self.distribution.batch_shape_tensor()[self._cut() :]
        return concat([rest, self.distribution.event_shape_tensor()], 0)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return self.distribution.sample(reshape(n, [1]), seed)

    def _summed(self, x: Any) -> Any:
        return reduce_sum(x, [-1 - i for i in range(self.reinterpreted_batch_ndims)])

    def _log_prob(self, x: Tensor) -> Any:
        return self._summed(self.distribution.log_prob(x))

    def _entropy(self) -> Any:
        return self._summed(self.distribution.entropy())

    def _mean(self) -> Any:
        return self.distribution.mean()

    def _variance(self) -> Any:
        return self.distribution.variance()

    def _stddev(self) -> Any:
        return self.distribution.stddev()

    def _mode(self) -> Any:
        return self.distribution.mode()


@RegisterKL(Independent, Independent)
def _independent_divergence(a: Independent, b: Independent) -> Any:
    return a._summed(a.distribution.kl_divergence(b.distribution))


class _Mixed(Distribution):
    """A distribution of which a class is drawn first."""

    def __init__(self, mixing: Any, component: Distribution, parameters: dict[str, Any], parents: Any) -> None:
        self._mixing, self._component = mixing, component
        super().__init__(
            component.dtype, NOT_REPARAMETERIZED, parameters["validate_args"], parameters["allow_nan_stats"],
            parameters, parents, parameters["name"],
        )  # fmt: skip

    def _event_shape(self) -> Any:
        return self._component.event_shape

    def _event_shape_tensor(self) -> Any:
        return self._component.event_shape_tensor()

    @property
    def _event_rank(self) -> int:
        return known_rank(self._component.event_shape, f"an event of {self._component.name}")

    def _chosen(self, n: Any, seed: int | None, samples: Any) -> Any:
        """Of samples ``[n, …, classes, *event]``, those of the classes that are drawn."""
        drawn = self._mixing.sample(reshape(n, [1]), seed)
        count = self._mixing.event_size
        mask = one_hot(drawn, count, dtype=samples.dtype)
        for _ in range(self._event_rank):
            mask = expand_dims(mask, -1)
        return reduce_sum(samples * mask, -1 - self._event_rank)

    def _weights(self) -> Any:
        """The probabilities of the classes, ``[…, classes, *ones]``."""
        found = softmax(self._mixing.logits)
        for _ in range(self._event_rank):
            found = expand_dims(found, -1)
        return found

    def _spread(self, means: Any, variances: Any) -> Any:
        """The variance of the mixture of classes with these means and variances."""
        axis, weights = -1 - self._event_rank, self._weights()
        mean = reduce_sum(weights * means, axis, keepdims=True)
        return reduce_sum(weights * (variances + square(means - mean)), axis)


@export("tf.contrib.distributions.MixtureSameFamily")
class MixtureSameFamily(_Mixed):
    """A mixture of the last axis of a batch (``tf.contrib.distributions.MixtureSameFamily``).

    Args:
      mixture_distribution: a `Categorical`.
      components_distribution: its batch ends with the classes.
    """

    def __init__(
        self, mixture_distribution: Categorical, components_distribution: Distribution, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "MixtureSameFamily",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.mixture_distribution, self.components_distribution = mixture_distribution, components_distribution
        parents = [*mixture_distribution._graph_parents, *components_distribution._graph_parents]
        super().__init__(mixture_distribution, components_distribution, parameters, parents)

    def _batch_shape(self) -> Any:
        return self._component.batch_shape[:-1]

    def _batch_shape_tensor(self) -> Any:
        return self._component.batch_shape_tensor()[:-1]

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        samples = self._component.sample(reshape(n, [1]), seed)
        whole = self._mixing.logits + zeros(self._component.batch_shape_tensor(), self._mixing.logits.dtype)
        drawn = Categorical(logits=whole).sample(reshape(n, [1]), None if seed is None else seed + 1)
        mask = one_hot(drawn, self._mixing.event_size, dtype=samples.dtype)
        for _ in range(self._event_rank):
            mask = expand_dims(mask, -1)
        return reduce_sum(samples * mask, -1 - self._event_rank)

    def _by_class(self, x: Tensor) -> Any:
        return expand_dims(x, -1 - self._event_rank)

    def _log_prob(self, x: Tensor) -> Any:
        logs = self._component.log_prob(self._by_class(x))
        return reduce_logsumexp(logs + log_softmax(self._mixing.logits), -1)

    def _cdf(self, x: Tensor) -> Any:
        return reduce_sum(self._component.cdf(self._by_class(x)) * softmax(self._mixing.logits), -1)

    def _log_cdf(self, x: Tensor) -> Any:
        logs = self._component.log_cdf(self._by_class(x))
        return reduce_logsumexp(logs + log_softmax(self._mixing.logits), -1)

    def _mean(self) -> Any:
        return reduce_sum(self._weights() * self._component.mean(), -1 - self._event_rank)

    def _variance(self) -> Any:
        return self._spread(self._component.mean(), self._component.variance())

    def _covariance(self) -> Any:
        if not self._event_rank:
            raise NotImplementedError("covariance is not implemented for numbers")
        mean = self._component.mean()
        off = expand_dims(mean - expand_dims(self.mean(), -2), -1)
        weights = expand_dims(self._weights(), -1)
        inner = self._component.covariance() + matmul(off, off, transpose_b=True)
        return reduce_sum(weights * inner, -3)


@export("tf.contrib.distributions.Mixture")
class Mixture(_Mixed):
    """A mixture of several distributions (``tf.contrib.distributions.Mixture``).

    Args:
      cat: a `Categorical` of the classes.
      components: a distribution for each class, with the same batch and event shapes.

    Raises:
      TypeError: ``cat`` is no `Categorical`.
      ValueError: there are no components.
    """

    def __init__(
        self, cat: Categorical, components: Sequence[Distribution], validate_args: bool = False,
        allow_nan_stats: bool = True, use_static_graph: bool = False, name: str = "Mixture",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        if not isinstance(cat, Categorical):
            raise TypeError(f"cat must be a Categorical distribution, but saw: {cat}")
        if not components:
            raise ValueError("components must be a list or tuple")
        self.cat, self.components = cat, list(components)
        parents = [*cat._graph_parents, *(t for one in components for t in one._graph_parents)]
        super().__init__(cat, self.components[0], parameters, parents)

    @property
    def num_components(self) -> int:
        """The number of classes."""
        return len(self.components)

    def _batch_shape(self) -> Any:
        return self.cat.batch_shape

    def _batch_shape_tensor(self) -> Any:
        return self.cat.batch_shape_tensor()

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        seeds = [None if seed is None else seed + 1 + i for i in range(len(self.components))]
        samples = [one.sample(reshape(n, [1]), own) for one, own in zip(self.components, seeds)]
        return self._chosen(n, seed, stack(samples, -1 - self._event_rank))

    def _log_prob(self, x: Tensor) -> Any:
        logs = stack([one.log_prob(x) for one in self.components], -1)
        return reduce_logsumexp(logs + log_softmax(self.cat.logits), -1)

    def _log_cdf(self, x: Tensor) -> Any:
        logs = stack([one.log_cdf(x) for one in self.components], -1)
        return reduce_logsumexp(logs + log_softmax(self.cat.logits), -1)

    def _cdf(self, x: Tensor) -> Any:
        return exp(self._log_cdf(x))

    def _means(self) -> Any:
        return stack([one.mean() for one in self.components], -1 - self._event_rank)

    def _mean(self) -> Any:
        return reduce_sum(self._weights() * self._means(), -1 - self._event_rank)

    def _stddev(self) -> Any:
        variances = stack([square(one.stddev()) for one in self.components], -1 - self._event_rank)
        return self._spread(self._means(), variances) ** 0.5

    def entropy_lower_bound(self, name: str = "entropy_lower_bound") -> Any:
        """The mean of the entropies of the classes, which the entropy is not below."""
        entropies = stack([one.entropy() for one in self.components], -1)
        return reduce_sum(softmax(self.cat.logits) * entropies, -1)


@export("tf.contrib.distributions.QuantizedDistribution")
class QuantizedDistribution(Distribution):
    """Samples rounded up to whole numbers (``tf.contrib.distributions.QuantizedDistribution``).

    Args:
      distribution: of numbers.
      low, high: the least and the largest result; None: no limit.
    """

    def __init__(
        self, distribution: Distribution, low: TensorLike | None = None, high: TensorLike | None = None,
        validate_args: bool = False, name: str = "QuantizedDistribution",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.distribution = distribution
        self.low = None if low is None else convert_to_tensor(low, distribution.dtype, name="low")
        self.high = None if high is None else convert_to_tensor(high, distribution.dtype, name="high")
        super().__init__(
            distribution.dtype, NOT_REPARAMETERIZED, validate_args, distribution.allow_nan_stats, parameters,
            distribution._graph_parents, name,
        )  # fmt: skip

    def _batch_shape(self) -> Any:
        return self.distribution.batch_shape

    def _event_shape(self) -> Any:
        return self.distribution.event_shape

    def _batch_shape_tensor(self) -> Any:
        return self.distribution.batch_shape_tensor()

    def _event_shape_tensor(self) -> Any:
        return self.distribution.event_shape_tensor()

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        found = ceil(self.distribution.sample(reshape(n, [1]), seed))
        found = found if self.low is None else maximum(found, self.low)
        return found if self.high is None else minimum(found, self.high)

    def _cdf(self, y: Tensor) -> Any:
        y = floor(y)
        found = self.distribution.cdf(y)
        if self.low is not None:
            found = where(less(y + 0.0 * found, self.low + 0.0 * found), 0.0 * found, found)
        if self.high is not None:
            found = where(greater_equal(y + 0.0 * found, self.high + 0.0 * found), ones_like(found), found)
        return found

    def _survival_function(self, y: Tensor) -> Any:
        return 1.0 - self._cdf(y)

    def _prob(self, y: Tensor) -> Any:
        return self._cdf(y) - self._cdf(y - 1.0)


@export("tf.contrib.distributions.BatchReshape")
class BatchReshape(Independent):
    """A batch in another shape (``tf.contrib.distributions.BatchReshape``).

    Args:
      distribution: the batch.
      batch_shape: the other shape; one size may be -1.
    """

    @keeps_arguments
    def __init__(
        self, distribution: Distribution, batch_shape: Sequence[int], validate_args: bool = False,
        allow_nan_stats: bool = True, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(distribution, 0, validate_args, name or "BatchReshape" + distribution.name.rstrip("/"))
        sizes: Any = [int(size) for size in batch_shape]
        count = distribution.batch_shape.num_elements()
        rest = math.prod(size for size in sizes if size >= 0)
        self._sizes = [(None if count is None else count // rest) if size < 0 else size for size in sizes]

    def _batch_shape(self) -> Any:
        return TensorShape(self._sizes)

    def _batch_shape_tensor(self) -> Any:
        if None not in self._sizes:
            return convert_to_tensor(self._sizes, dtypes.int32)
        rest = math.prod(size for size in self._sizes if size is not None)
        size = reduce_prod(self.distribution.batch_shape_tensor()) // rest
        return stack([size if one is None else one for one in self._sizes])

    def _turned(self, x: Any, tail: Any) -> Any:
        """``[…, *old batch, *tail]`` in the new shape."""
        old = known_rank(self.distribution.batch_shape, f"the batch of {self.distribution.name}")
        lead = known_rank(x.shape, "the value") - old - tail
        return reshape(x, concat([shape_of(x)[:lead], self.batch_shape_tensor(), shape_of(x)[lead + old :]], 0))

    @property
    def _tail(self) -> int:
        return known_rank(self.event_shape, f"an event of {self.name}")

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return self._turned(self.distribution.sample(reshape(n, [1]), seed), self._tail)

    def _log_prob(self, x: Tensor) -> Any:
        lead = max(known_rank(x.shape, "the value") - len(self._sizes) - self._tail, 0)
        back = concat([self.distribution.batch_shape_tensor(), self.event_shape_tensor()], 0)
        whole = x + zeros(concat([self.batch_shape_tensor(), self.event_shape_tensor()], 0), x.dtype)
        inner = reshape(whole, concat([shape_of(whole)[:lead], back], 0))
        return self._turned(self.distribution.log_prob(inner), 0)

    def _entropy(self) -> Any:
        return self._turned(self.distribution.entropy(), 0)

    def _mean(self) -> Any:
        return self._turned(self.distribution.mean(), self._tail)

    def _variance(self) -> Any:
        return self._turned(self.distribution.variance(), self._tail)

    def _stddev(self) -> Any:
        return self._turned(self.distribution.stddev(), self._tail)

    def _mode(self) -> Any:
        return self._turned(self.distribution.mode(), self._tail)
