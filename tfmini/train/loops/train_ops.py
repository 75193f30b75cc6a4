"""``create_train_op`` of ``tf.contrib.training`` and ``slim``: a tensor that trains and returns the loss."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, get_collection, get_collection_ref, name_scope
from tfmini.layers.functional import sharing
from tfmini.ops.array.identity import check_numerics as finite
from tfmini.ops.control import no_op, with_dependencies
from tfmini.ops.math.clip import clip_by_norm, global_norm
from tfmini.ops.math.indexed_slices import IndexedSlices
from tfmini.ops.summary.functions import histogram, scalar
from tfmini.ops.variables.functions import trainable_variables
from tfmini.train.global_steps import get_or_create_global_step
from tfmini.train.optimizers.optimizer import Optimizer

GradsAndVars = list[tuple[Any, Any]]

_log = logging.getLogger("tensorflow")
_USE_GLOBAL_STEP = 0  # the graph's global step; None means that no step is counted


def values_of(gradient: Any) -> Any:
    """The values of a sparse gradient, or the dense gradient itself."""
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


def with_values(gradient: Any, change: Callable[[Any], Any]) -> Any:
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
def clip_gradient_norms(gradients_to_variables: GradsAndVars, max_norm: Any) -> GradsAndVars:
    """Clips each gradient to a maximum norm (``tf.contrib.training.clip_gradient_norms``)."""
    return [(with_values(g, lambda v: clip_by_norm(v, max_norm)), v) for g, v in gradients_to_variables]


@export("tf.contrib.training.clip_gradient_norms_fn")
def clip_gradient_norms_fn(max_norm: Any) -> Callable[[GradsAndVars], GradsAndVars]:
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


def _multiplied(gradient: Any, variable: Any, multipliers: dict[Any, Any]) -> Any:
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
