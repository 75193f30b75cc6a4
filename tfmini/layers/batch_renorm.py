"""Batch renormalization (Ioffe, 2017): batch statistics corrected towards their moving averages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.graph.scoping import colocate_with, control_dependencies, name_scope
from tfmini.ops.array.casting import cast
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import identity, stop_gradient
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.math.elementwise import divide, maximum, minimum, multiply, subtract
from tfmini.ops.math.unary import sqrt
from tfmini.ops.nn.activation import relu
from tfmini.ops.variables.assignment import assign, assign_sub

_KEYS = ("rmax", "rmin", "dmax")


def moved(variable: Any, value: Any, momentum: Any) -> Any:
    """An op that updates a moving average with a value."""
    with name_scope("AssignMovingAvg") as scope, colocate_with(variable.op):
        decay = cast(subtract(1.0, momentum), variable.dtype.base_dtype)
        delta = multiply(subtract(variable, cast(value, variable.dtype.base_dtype)), decay)
        return assign_sub(variable, delta, name=scope)


class Renorm:
    """The moving averages of batch renormalization and the corrections derived from them.

    Args:
      clipping: the bounds "rmin", "rmax" and "dmax" of the corrections; all optional.
      momentum: momentum of the averages.
      epsilon: added to variances.

    Raises:
      ValueError: when ``clipping`` has other keys.
    """

    def __init__(self, clipping: dict[str, Any] | None, momentum: float, epsilon: float) -> None:
        self.clipping = clipping or {}
        if set(self.clipping) - set(_KEYS):
            raise ValueError(f"renorm_clipping {self.clipping} contains keys not in {list(_KEYS)}")
        self.momentum = momentum
        self.epsilon = epsilon

    def build(self, add: Callable[[str, Any], Any], mean_initializer: Any, variance_initializer: Any) -> None:
        """Makes the variables, each with ``add(name, initializer)``."""

        def deviation(*args: Any, **kwargs: Any) -> Any:
            return sqrt(variance_initializer(*args, **kwargs))

        self.moving_stddev = add("moving_stddev", deviation)
        self.mean = add("renorm_mean", mean_initializer)
        self.stddev = add("renorm_stddev", deviation)

    def corrections(self, mean: Any, variance: Any, training: Any) -> tuple[Any, Any, Any, Any]:
        """The factor r and offset d of the correction, and the moments with a dependency on the updates."""
        stddev = sqrt(variance + self.epsilon)
        floor = maximum(self.stddev, sqrt(self.epsilon))
        r, d = divide(stddev, floor), divide(subtract(mean, self.mean), floor)
        with control_dependencies([r, d]):  # r and d read the averages before the update
            mean, stddev = identity(mean), identity(stddev)
        if "rmin" in self.clipping:
            r = maximum(r, self.clipping["rmin"])
        if "rmax" in self.clipping:
            r = minimum(r, self.clipping["rmax"])
        if "dmax" in self.clipping:
            d = minimum(maximum(d, -self.clipping["dmax"]), self.clipping["dmax"])
        r_used = smart_cond(training, lambda: r, lambda: ones_like(r))
        d_used = smart_cond(training, lambda: d, lambda: zeros_like(d))
        updates = [self._updated(self.mean, mean, training), self._updated(self.stddev, stddev, training)]
        with control_dependencies(updates):
            mean, variance = identity(mean), identity(variance)
        return stop_gradient(r_used, name="renorm_r"), stop_gradient(d_used, name="renorm_d"), mean, variance

    def _updated(self, variable: Any, value: Any, training: Any) -> Any:
        return smart_cond(training, lambda: identity(moved(variable, value, self.momentum)), lambda: identity(variable))

    def variance_update(self, moving_variance: Any, variance: Any, momentum: Any, training: Any) -> Any:
        """An op that updates the moving variance from the moving standard deviation."""

        def update() -> Any:
            stddev = moved(self.moving_stddev, sqrt(variance + self.epsilon), momentum)
            with name_scope("AssignNewValue") as scope, colocate_with(moving_variance.op):
                return identity(assign(moving_variance, relu(stddev * stddev - self.epsilon), name=scope))

        return smart_cond(training, update, lambda: identity(moving_variance))
