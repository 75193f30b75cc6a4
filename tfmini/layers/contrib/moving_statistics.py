"""Moving means, and normal distributions that learn from observations (``tf.contrib.distributions``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.core_types import GraphTensor, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers.distributions import Normal
from tfmini.ops.array.identity import cast
from tfmini.ops.variables.assignment import assign_add, assign_sub
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.scope import get_variable, variable_scope


def _float_of(variable: Any) -> Any:
    """The dtype of a variable; raises TypeError for one without fractions."""
    kind = variable.dtype.base_dtype
    if not kind.is_floating:
        raise TypeError(f"mean_var.base_dtype({kind.name}) does not have float type `dtype`.")
    return kind


@export("tf.contrib.distributions.assign_moving_mean_variance")
def assign_moving_mean_variance(
    mean_var: GraphTensor, variance_var: GraphTensor, value: TensorLike, decay: TensorLike, name: str | None = None
) -> tuple[Any, Any]:
    """Updates an exponentially weighted mean and variance.

    ``tf.contrib.distributions.assign_moving_mean_variance``. The variance is that around the mean before.

    Args:
      mean_var, variance_var: float variables of the shape of ``value``.
      value: a new observation.
      decay: the weight of what came before, close to 1.
      name: of the name scope.

    Returns:
      (the new mean, the new variance).

    Raises:
      TypeError: for variables that are not float, or tensors of another type.
    """
    with name_scope(name, "assign_moving_mean_variance", [variance_var, mean_var, value, decay]):
        kind = _float_of(mean_var)
        if variance_var.dtype.base_dtype != kind:
            raise TypeError(f"mean_var and variance_var have different types: {kind}, {variance_var.dtype}.")
        value, decay = convert_to_tensor(value, kind), convert_to_tensor(decay, kind)
        delta = value - mean_var
        with control_dependencies([delta]):
            mean = assign_add(mean_var, (1.0 - decay) * delta)
            variance = assign_sub(variance_var, (1.0 - decay) * (variance_var - decay * raw_ops.Square(delta)))
        return mean, variance


@export("tf.contrib.distributions.assign_log_moving_mean_exp")
def assign_log_moving_mean_exp(
    log_mean_exp_var: GraphTensor, log_value: TensorLike, decay: TensorLike, name: str | None = None
) -> Any:
    """Updates the logarithm of an exponentially weighted mean of exponentials.

    ``tf.contrib.distributions.assign_log_moving_mean_exp``.

    Args:
      log_mean_exp_var: a float variable of the shape of ``log_value``.
      log_value: the logarithm of a new observation.
      decay: the weight of what came before, close to 1.
      name: of the name scope.

    Returns:
      The new logarithm.

    Raises:
      TypeError: for a variable that is not float, or tensors of another type.
    """
    with name_scope(name, "assign_log_moving_mean_exp", [log_mean_exp_var, log_value, decay]):
        kind = _float_of(log_mean_exp_var)
        value, decay = convert_to_tensor(log_value, kind), convert_to_tensor(decay, kind)
        before, new = raw_ops.Log(decay), value - log_mean_exp_var + raw_ops.Log1p(-decay)
        greater = raw_ops.Maximum(before, new)
        gain = greater + raw_ops.Log(raw_ops.Exp(before - greater) + raw_ops.Exp(new - greater))
        return assign_add(log_mean_exp_var, gain)


@export("tf.contrib.distributions.moving_mean_variance")
def moving_mean_variance(
    value: TensorLike, decay: TensorLike, collections: Sequence[str] | None = None, name: str | None = None
) -> tuple[Any, Any]:
    """`assign_moving_mean_variance` of new variables (``tf.contrib.distributions.moving_mean_variance``).

    Args:
      value: a float tensor of known shape.
      decay: the weight of what came before, close to 1.
      collections: those of the variables; default: the global variables.
      name: of the variable scope.

    Returns:
      (the new mean, the new variance).
    """
    kept_in = [GraphKeys.GLOBAL_VARIABLES] if collections is None else list(collections)
    with variable_scope(name, "moving_mean_variance", [value, decay]):
        value = convert_to_tensor(value)
        kind = _float_of(value)
        decay = convert_to_tensor(decay, kind)
        variance, mean = (
            get_variable(
                what, value.shape, kind, Zeros(), trainable=False, collections=kept_in, validate_shape=True
            )
            for what in ("moving_variance", "moving_mean")
        )  # fmt: skip
        return assign_moving_mean_variance(mean, variance, value, decay)


def _checked(prior: Any, s: Any) -> Any:
    if not isinstance(prior, Normal):
        raise TypeError("Expected prior to be an instance of type Normal")
    if s.dtype != prior.dtype:
        raise TypeError(f"Observation sum s.dtype does not match prior dtype: {s.dtype} vs. {prior.dtype}")
    return s


def _learned(prior: Any, scale: Any, s: Any, n: TensorLike) -> tuple[Any, Any]:
    """(the mean, the variance) of the mean of observations."""
    n = cast(n, prior.dtype)
    before, each = raw_ops.Square(prior.scale), raw_ops.Square(scale)
    variance = 1.0 / (1.0 / before + n / each)
    return (prior.loc / before + s / each) * variance, variance


@export("tf.contrib.distributions.normal_conjugates_known_scale_posterior")
def normal_conjugates_known_scale_posterior(prior: Any, scale: TensorLike, s: Any, n: TensorLike) -> Any:
    """What observations tell of the mean of a normal distribution.

    ``tf.contrib.distributions.normal_conjugates_known_scale_posterior``.

    Args:
      prior: the normal distribution of the mean before.
      scale: the standard deviation of the observations.
      s: their sum, a tensor.
      n: their number.

    Returns:
      The normal distribution of the mean after them.

    Raises:
      TypeError: for another distribution, or a sum of another type.
    """
    s, scale = _checked(prior, s), convert_to_tensor(scale, prior.dtype)
    mean, variance = _learned(prior, scale, s, n)
    return Normal(loc=mean, scale=raw_ops.Sqrt(variance))


@export("tf.contrib.distributions.normal_conjugates_known_scale_predictive")
def normal_conjugates_known_scale_predictive(prior: Any, scale: TensorLike, s: Any, n: TensorLike) -> Any:
    """The normal distribution of the next observation; see `normal_conjugates_known_scale_posterior`.

    ``tf.contrib.distributions.normal_conjugates_known_scale_predictive``.
    """
    s, scale = _checked(prior, s), convert_to_tensor(scale, prior.dtype)
    mean, variance = _learned(prior, scale, s, n)
    return Normal(loc=mean, scale=raw_ops.Sqrt(variance + raw_ops.Square(scale)))
