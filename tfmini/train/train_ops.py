"""``create_train_op`` of ``tf.contrib.training`` and ``slim``: a tensor that trains and returns the loss."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, get_collection, get_collection_ref, name_scope
from tfmini.layers.core import sharing
from tfmini.ops.array.identity import check_numerics as finite
from tfmini.ops.control import no_op, with_dependencies
from tfmini.ops.math.sums import IndexedSlices, clip_by_global_norm, clip_by_norm, global_norm
from tfmini.ops.random_functions import truncated_normal
from tfmini.ops.summary import histogram, scalar
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.functions import trainable_variables
from tfmini.ops.variables.initializers import Constant
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.train.global_steps import assert_global_step, get_global_step, get_or_create_global_step
from tfmini.train.optimizers.fused_optimizer import (
    AdagradOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
)
from tfmini.train.optimizers.optimizer import Optimizer

GradsAndVars = list[tuple[Any, Any]]

_log = logging.getLogger("tensorflow")
_USE_GLOBAL_STEP = 0  # the graph's global step; None means that no step is counted


def values_of(gradient: Tensor | IndexedSlices) -> Any:
    """The values of a sparse gradient, or the dense gradient itself."""
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


def with_values(gradient: Tensor | IndexedSlices, change: Callable[[Any], Any]) -> Any:
    """Applies ``change`` to the values of a gradient; None stays None."""
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return None if gradient is None else change(gradient)


@export("tf.contrib.training.add_gradients_summaries", "tf.contrib.slim.learning.add_gradients_summaries")
def add_gradients_summaries(grads_and_vars: GradsAndVars) -> list[Tensor]:
    """Adds summaries of each gradient's histogram and norm (``tf.contrib.training.add_gradients_summaries``)."""
    summaries = []
    for gradient, variable in grads_and_vars:
        name = variable.op.name
        if gradient is None:
            _log.info("Var %s has no gradient", name)
            continue
        values = values_of(gradient)
        summaries.append(histogram(f"{name}_gradient", values))
        summaries.append(scalar(f"{name}_gradient_norm", global_norm([values])))
    return summaries


@export("tf.contrib.training.clip_gradient_norms", "tf.contrib.slim.learning.clip_gradient_norms")
def clip_gradient_norms(gradients_to_variables: GradsAndVars, max_norm: TensorLike) -> GradsAndVars:
    """Clips each gradient to a maximum norm (``tf.contrib.training.clip_gradient_norms``)."""
    return [(with_values(g, lambda v: clip_by_norm(v, max_norm)), v) for g, v in gradients_to_variables]


@export("tf.contrib.training.clip_gradient_norms_fn")
def clip_gradient_norms_fn(max_norm: TensorLike) -> Callable[[GradsAndVars], GradsAndVars]:
    """`clip_gradient_norms` as a ``transform_grads_fn`` of `create_train_op`."""
    return lambda grads_and_vars: clip_gradient_norms(grads_and_vars, max_norm)


@export("tf.contrib.training.multiply_gradients", "tf.contrib.slim.learning.multiply_gradients")
def multiply_gradients(grads_and_vars: GradsAndVars, gradient_multipliers: dict[Any, Any]) -> GradsAndVars:
    """Scales the gradients of some variables (``tf.contrib.training.multiply_gradients``).

    Args:
      grads_and_vars: pairs (gradient, variable).
      gradient_multipliers: variable or its op's name -> factor.

    Raises:
      ValueError: when an argument has another type, or a variable to scale has no gradient.
    """
    if not isinstance(grads_and_vars, list):
        raise ValueError("`grads_and_vars` must be a list.")
    if not gradient_multipliers:
        raise ValueError("`gradient_multipliers` is empty.")
    if not isinstance(gradient_multipliers, dict):
        raise ValueError("`gradient_multipliers` must be a dict.")
    return [(_multiplied(g, v, gradient_multipliers), v) for g, v in grads_and_vars]


def _multiplied(gradient: Tensor | IndexedSlices, variable: Variable, multipliers: dict[Any, Any]) -> Any:
    key = variable if variable in multipliers else variable.op.name
    if key not in multipliers:
        return gradient
    if gradient is None:
        raise ValueError("Requested multiple of `None` gradient.")
    factor = convert_to_tensor(multipliers[key], dtype=gradient.dtype)
    return with_values(gradient, lambda values: values * factor)


@dataclass
class _Training:
    """The arguments that both kinds of `create_train_op` share."""

    global_step: Any = _USE_GLOBAL_STEP
    update_ops: Sequence[Any] | None = None
    variables_to_train: Sequence[Any] | None = None
    summarize_gradients: bool = False
    gate_gradients: int = Optimizer.GATE_OP
    aggregation_method: Any = None
    colocate_gradients_with_ops: bool = False
    check_numerics: bool = True


@export("tf.contrib.training.create_train_op")
@sharing(_Training, before={"transform_grads_fn": "summarize_gradients"})
def create_train_op(
    given: _Training, total_loss: Any, optimizer: Optimizer, *,
    transform_grads_fn: Callable[[GradsAndVars], GradsAndVars] | None = None,
) -> Tensor:  # fmt: skip
    """A tensor that runs the update ops, applies the gradients and returns the loss.

    TF name: ``tf.contrib.training.create_train_op``.

    Args:
      total_loss: a scalar.
      global_step: the variable to increment; default: the graph's global step, created if needed; None for none.
      update_ops: ops to run before the loss; default: the collection UPDATE_OPS.
      variables_to_train: the variables to train; default: all trainable variables.
      transform_grads_fn: a function from pairs (gradient, variable) to new pairs.
      summarize_gradients: whether to call `add_gradients_summaries`.
      check_numerics: raise an error if the loss is not finite.
      The others are those of `tf.train.Optimizer.compute_gradients`.
    """
    global_step = given.global_step
    if global_step is _USE_GLOBAL_STEP:
        global_step = get_or_create_global_step()
    total_loss = _after_updates(total_loss, given.update_ops)
    gradients = optimizer.compute_gradients(
        total_loss,
        _to_train(given.variables_to_train),
        gate_gradients=given.gate_gradients,
        aggregation_method=given.aggregation_method,
        colocate_gradients_with_ops=given.colocate_gradients_with_ops,
    )
    if transform_grads_fn:
        gradients = transform_grads_fn(gradients)
    if given.summarize_gradients:
        with name_scope("summarize_grads"):
            add_gradients_summaries(gradients)
    applied = optimizer.apply_gradients(gradients, global_step=global_step)
    with name_scope("train_op"):
        if given.check_numerics:
            total_loss = finite(total_loss, "LossTensor is inf or nan")
        train_op = with_dependencies([applied], total_loss)
    collected = get_collection_ref(GraphKeys.TRAIN_OP)
    if not any(op is train_op for op in collected):
        collected.append(train_op)
    return train_op  # type: ignore[no-any-return]


def _after_updates(total_loss: Any, update_ops: Sequence[Any] | None) -> Any:
    """The loss, with a dependency on the update ops."""
    registered = get_collection(GraphKeys.UPDATE_OPS)
    wanted = registered if update_ops is None else list(update_ops)
    if not {id(op) for op in registered} <= {id(op) for op in wanted}:
        _log.warning("update_ops in create_train_op does not contain all the update_ops in GraphKeys.UPDATE_OPS")
    if not wanted:
        return total_loss
    with control_dependencies(list(dict.fromkeys(wanted))):
        barrier = no_op(name="update_barrier")
    return with_dependencies([barrier], total_loss)


def _to_train(variables: Sequence[Any] | None) -> list[Any]:
    chosen = trainable_variables() if variables is None else list(variables)
    for variable in chosen:
        if not variable.trainable:
            raise AssertionError(f"{variable.name} is not trainable")
    if not chosen:
        raise AssertionError("There are no variables to train")
    return chosen


@export("tf.contrib.slim.learning.create_train_op")
@sharing(_Training, before={"clip_gradient_norm": "summarize_gradients", "gradient_multipliers": "check_numerics"})
def create_slim_train_op(
    given: _Training, total_loss: Any, optimizer: Optimizer, *, clip_gradient_norm: float = 0,
    gradient_multipliers: dict[Any, Any] | None = None,
) -> Tensor:  # fmt: skip
    """`create_train_op` that scales, then clips the gradients (``tf.contrib.slim.learning.create_train_op``)."""

    def transform(grads_and_vars: GradsAndVars) -> GradsAndVars:
        if gradient_multipliers:
            with name_scope("multiply_grads"):
                grads_and_vars = multiply_gradients(grads_and_vars, gradient_multipliers)
        if clip_gradient_norm > 0:
            with name_scope("clip_grads"):
                grads_and_vars = clip_gradient_norms(grads_and_vars, clip_gradient_norm)
        return grads_and_vars

    return create_train_op(total_loss, optimizer, transform_grads_fn=transform, **vars(given))


# ---- optimize loss ----------------------------------------
# ``tf.contrib.layers.optimize_loss``: a train op with gradient clipping, learning rate decay and summaries.

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": lambda learning_rate: MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}
OPTIMIZER_SUMMARIES = ["learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm"]


@export("tf.contrib.layers.optimize_loss", "tf.contrib.slim.layers.optimize_loss", "tf.contrib.slim.optimize_loss")
def optimize_loss(
    loss: TensorLike | Callable[[], Any],
    global_step: Any,
    learning_rate: TensorLike | Callable[[], Any],
    optimizer: str | Callable[..., Any] | Optimizer,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: dict[Any, Any] | None = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: str | None = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Tensor:
    """A train op: a tensor that applies the gradients and returns the loss (``tf.contrib.layers.optimize_loss``).

    Args:
      loss: a scalar.
      global_step: the variable to increment; default: the graph's global step, if there is one.
      learning_rate: a float or a scalar tensor; None if the optimizer has its own.
      optimizer: a name in `OPTIMIZER_CLS_NAMES`, an optimizer, its class, or a function of the learning rate.
      gradient_noise_scale: standard deviation of noise that is added to the gradients.
      gradient_multipliers: variable or its name -> factor.
      clip_gradients: the maximum global norm, or a function of the pairs (gradient, variable).
      learning_rate_decay_fn: a function of (learning rate, global step).
      update_ops: ops to run before the loss; default: the collection UPDATE_OPS.
      variables: the variables to train; default: all trainable variables.
      summaries: a list of names in `OPTIMIZER_SUMMARIES`; default: loss, learning rate and global norm.

    Raises:
      ValueError: when arguments are invalid, with TensorFlow's messages.
    """
    loss = convert_to_tensor(loss)
    if loss.shape.ndims not in (0, None):
        raise ValueError(f"Expected scalar shape for {loss.name}, saw shape: {loss.shape}.")
    if global_step is None:
        global_step = get_global_step()
    else:
        assert_global_step(global_step)
    with variable_scope(name, "OptimizeLoss", [loss, global_step]):
        before = list(dict.fromkeys(get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else update_ops))
        loss = with_dependencies(before, loss) if before else loss
        wanted = _known_summaries(summaries)
        rate = _rate(learning_rate)
        if rate is not None and learning_rate_decay_fn is not None:
            rate = _decayed(rate, global_step, learning_rate_decay_fn, wanted)
        chosen = optimizer_of(optimizer, rate)
        gradients = chosen.compute_gradients(
            loss,
            trainable_variables() if variables is None else variables,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        gradients = _changed(gradients, gradient_noise_scale, gradient_multipliers)
        gradients = _clipped(gradients, clip_gradients, wanted)
        _summarize(loss, gradients, wanted)
        step = global_step if increment_global_step else None
        return with_dependencies([chosen.apply_gradients(gradients, global_step=step, name="train")], loss)


def _known_summaries(summaries: Sequence[str] | None) -> Sequence[str]:
    if summaries is None:
        return ["loss", "learning_rate", "global_gradient_norm"]
    for summary in summaries:
        if summary not in OPTIMIZER_SUMMARIES:
            raise ValueError(f"Summaries should be one of [{', '.join(OPTIMIZER_SUMMARIES)}], you provided {summary}.")
    return summaries


def _rate(learning_rate: TensorLike | Callable[[], Any]) -> Any:
    """The learning rate as a tensor; a float becomes an untrainable variable."""
    if learning_rate is None or (isinstance(learning_rate, Tensor) and learning_rate.shape.ndims == 0):
        return learning_rate
    if not isinstance(learning_rate, float):
        raise ValueError(
            f"Learning rate should be 0d Tensor or float. Got {learning_rate} of type {type(learning_rate)}"
        )
    if learning_rate < 0.0:
        raise ValueError(f"Invalid learning_rate {learning_rate}.")
    return get_variable("learning_rate", [], trainable=False, initializer=Constant(learning_rate))


def _decayed(
    rate: TensorLike, global_step: Variable | Tensor, decay: Callable[[Any, Any], Any], wanted: Sequence[str]
) -> Any:
    if global_step is None:
        raise ValueError("global_step is required for learning_rate_decay_fn.")
    rate = decay(rate, global_step)
    if "learning_rate" in wanted:
        scalar("learning_rate", rate)
    return rate


def optimizer_of(optimizer: Any, rate: Tensor | float | None) -> Optimizer:
    """The optimizer that a name in `OPTIMIZER_CLS_NAMES`, a class or a function of the learning rate stands for."""
    is_class = isinstance(optimizer, type) and issubclass(optimizer, Optimizer)
    if isinstance(optimizer, str) or is_class:
        if rate is None:
            kind = "class" if is_class else "string"
            raise ValueError(f"Learning rate is None, but should be specified if optimizer is {kind} ({optimizer}).")
        if is_class:
            return optimizer(learning_rate=rate)  # type: ignore[no-any-return]
        if optimizer not in OPTIMIZER_CLS_NAMES:
            names = ", ".join(OPTIMIZER_CLS_NAMES)
            raise ValueError(f"Optimizer name should be one of [{names}], you provided {optimizer}.")
        return OPTIMIZER_CLS_NAMES[optimizer](learning_rate=rate)
    if isinstance(optimizer, Optimizer):
        return optimizer
    if not callable(optimizer):
        raise ValueError(
            "Unrecognized optimizer: should be string, subclass of Optimizer, instance of subclass of Optimizer or"
            f" function with one argument. Got {optimizer}."
        )
    made = optimizer() if rate is None else optimizer(rate)
    if not isinstance(made, Optimizer):
        raise ValueError(f"Unrecognized optimizer: function should return subclass of Optimizer. Got {made}.")
    return made


def _changed(gradients: GradsAndVars, noise: float | None, multipliers: dict[Any, Any] | None) -> GradsAndVars:
    """Adds noise to the gradients, then scales them."""
    if noise is not None:
        scale = noise
        gradients = [(with_values(g, lambda v: v + truncated_normal(v.shape) * scale), v) for g, v in gradients]
    if multipliers is None:
        return gradients
    if not gradients:
        raise ValueError(
            "Empty list of (gradient, var) pairs encountered. This is most likely to be caused by an improper value"
            " of gradient_multipliers."
        )
    return [(_scaled(g, _factor(v, multipliers)), v) for g, v in gradients]


def _factor(variable: Variable, multipliers: dict[Any, Any]) -> Any:
    return multipliers.get(variable, multipliers.get(variable.name))


def _scaled(gradient: Tensor | IndexedSlices, factor: TensorLike) -> Any:
    return gradient if factor is None else with_values(gradient, lambda values: values * factor)


def _clipped(gradients: GradsAndVars, clip: Any, wanted: Sequence[str]) -> GradsAndVars:
    """Clips the gradients; adds summaries of their norm before and after."""
    with_norm = "global_gradient_norm" in wanted or "gradient_norm" in wanted
    if with_norm:
        scalar("global_norm/gradient_norm", global_norm([g for g, _ in gradients]))
    if clip is None:
        return gradients
    if isinstance(clip, float):
        shorter, _ = clip_by_global_norm([g for g, _ in gradients], clip)
        gradients = list(zip(shorter, [v for _, v in gradients], strict=True))
    elif callable(clip):
        gradients = clip(gradients)
    else:
        raise ValueError(f"Unknown type {type(clip)} for clip_gradients")
    if with_norm:
        scalar("global_norm/clipped_gradient_norm", global_norm([g for g, _ in gradients]))
    return gradients


def _summarize(loss: TensorLike | Callable[[], Any], gradients: GradsAndVars, wanted: Sequence[str]) -> None:
    if "loss" in wanted:
        scalar("loss", loss)
    for gradient, variable in gradients:
        if gradient is None:
            continue
        name = variable.name.replace(":", "_")
        if "gradients" in wanted:
            histogram(f"gradients/{name}", values_of(gradient))
        if "gradient_norm" in wanted:
            scalar(f"gradient_norm/{name}", global_norm([values_of(gradient)]))


export_names("tf.contrib.layers tf.contrib.slim.layers", "OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES")
