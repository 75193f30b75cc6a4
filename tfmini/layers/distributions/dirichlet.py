"""The Dirichlet distribution of ``tf.distributions``."""

from __future__ import annotations

import math
from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.layers.distributions.distribution import FULLY_REPARAMETERIZED, Distribution, RegisterKL
from tfmini.ops.array.diagonals import matrix_set_diag
from tfmini.ops.array.filling import ones_like
from tfmini.ops.array.masking import where
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import less
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reduce_functions import reduce_min, reduce_sum
from tfmini.ops.math.special import lbeta
from tfmini.ops.math.unary import digamma, exp, log, rsqrt
from tfmini.ops.random.functions import random_gamma


@export("tf.distributions.Dirichlet")
class Dirichlet(Distribution):
    """The Dirichlet distribution (``tf.distributions.Dirichlet``).

    Args:
      concentration: ``[…, classes]``.
    """

    def __init__(
        self, concentration: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Dirichlet"
    ) -> None:
        parameters = dict(locals())
        self.concentration = convert_to_tensor(concentration, preferred_dtype="float32", name="concentration")
        self.total_concentration = reduce_sum(self.concentration, -1)
        super().__init__(
            self.concentration.dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters,
            [self.concentration], name,
        )  # fmt: skip

    def _batch_shape(self) -> Any:
        return self.total_concentration.shape

    def _event_shape(self) -> Any:
        return self.concentration.shape[-1:]

    def _batch_shape_tensor(self) -> Any:
        return shape_of(self.total_concentration)

    def _event_shape_tensor(self) -> Any:
        return shape_of(self.concentration)[-1:]

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        drawn = random_gamma([n], self.concentration, dtype=self.dtype, seed=seed)
        return drawn / reduce_sum(drawn, -1, keepdims=True)

    def _log_prob(self, x: Any) -> Any:
        return reduce_sum((self.concentration - 1.0) * log(x), -1) - lbeta(self.concentration)

    def _entropy(self) -> Any:
        a, total = self.concentration, self.total_concentration
        count = exp(0.0 * total) * float(self.concentration.shape.as_list()[-1] or 0)
        return lbeta(a) + (total - count) * digamma(total) - reduce_sum((a - 1.0) * digamma(a), -1)

    def _mean(self) -> Any:
        return self.concentration / reduce_sum(self.concentration, -1, keepdims=True)

    def _variance(self) -> Any:
        total = reduce_sum(self.concentration, -1, keepdims=True)
        return self._mean() * (1.0 - self._mean()) / (1.0 + total)

    def _covariance(self) -> Any:
        part = self._mean() * rsqrt(1.0 + reduce_sum(self.concentration, -1, keepdims=True))
        return matrix_set_diag(-matmul(expand_dims(part, -1), expand_dims(part, -2)), self._variance())

    def _mode(self) -> Any:
        rest = self.concentration - 1.0
        found = rest / reduce_sum(rest, -1, keepdims=True)
        least = reduce_min(self.concentration, -1, keepdims=True) * ones_like(found)
        return where(less(1.0, least), found, math.nan * ones_like(found))


@RegisterKL(Dirichlet, Dirichlet)
def _dirichlet_divergence(a: Dirichlet, b: Dirichlet) -> Any:
    total = reduce_sum(a.concentration, -1, keepdims=True)
    slopes = digamma(a.concentration) - digamma(total)
    norms = lbeta(b.concentration) - lbeta(a.concentration)
    return reduce_sum((a.concentration - b.concentration) * slopes, -1) + norms
