"""``tf.contrib.layers.batch_norm``: `BatchNormalization` as a function for use with `arg_scope`."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import add_to_collections, control_dependencies
from tfmini.layers.contrib.arg_scope import add_arg_scope
from tfmini.layers.contrib.layers import collected
from tfmini.layers.contrib.model_variables import add_model_variable
from tfmini.layers.normalization import BatchNormalization
from tfmini.ops.array.identity import identity
from tfmini.ops.flow.cond import smart_constant_value
from tfmini.ops.variables.initializers import Ones, Zeros
from tfmini.ops.variables.scope import variable_scope


@export("tf.contrib.layers.batch_norm", "tf.contrib.slim.batch_norm", "tf.contrib.slim.layers.batch_norm")
@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    param_initializers: Any = None,
    param_regularizers: Any = None,
    updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> Any:
    """Batch normalization (``tf.contrib.layers.batch_norm``).

    Args:
      updates_collections: collections for the updates of the averages; None runs them with the layer.
      param_initializers, param_regularizers: dictionaries by name: beta, gamma, moving_mean, moving_variance.
      batch_weights, zero_debias_moving_mean: not supported.
      The others are those of ``tf.layers.batch_normalization``, which calls ``renorm_decay`` renorm_momentum.

    Raises:
      NotImplementedError: when an unsupported argument is given.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise NotImplementedError(
            "tfmini's batch_norm does not support `batch_weights` and `zero_debias_moving_mean`; leave them out."
        )
    with variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as opened:
        inputs = convert_to_tensor(inputs)
        layer = BatchNormalization(
            axis=1 if data_format == "NCHW" else -1, momentum=decay, epsilon=epsilon, center=center, scale=scale,
            trainable=trainable, renorm=renorm, renorm_clipping=renorm_clipping, renorm_momentum=renorm_decay,
            adjustment=adjustment, fused=fused, name=opened.name, _scope=opened, _reuse=reuse,
            **_parameters(param_initializers, param_regularizers),
        )  # fmt: skip
        layer.updates_collection = None
        outputs = layer(inputs, training=is_training)
        _collect(layer, variables_collections)
        if smart_constant_value(is_training) is not False:
            if updates_collections is None:
                with control_dependencies(layer.updates):
                    outputs = identity(outputs)
            else:
                for update in layer.updates:
                    add_to_collections(updates_collections, update)
        return collected(outputs, activation_fn, outputs_collections, opened.original_name_scope[:-1])


def _parameters(initializers: Any, regularizers: Any) -> dict[str, Any]:
    first, second = initializers or {}, regularizers or {}
    return {
        "beta_initializer": first.get("beta", Zeros()),
        "gamma_initializer": first.get("gamma", Ones()),
        "moving_mean_initializer": first.get("moving_mean", Zeros()),
        "moving_variance_initializer": first.get("moving_variance", Ones()),
        "beta_regularizer": second.get("beta"),
        "gamma_regularizer": second.get("gamma"),
    }


def _collect(layer: BatchNormalization, variables_collections: Any) -> None:
    for name in ("beta", "gamma", "moving_mean", "moving_variance"):
        variable = getattr(layer, name)
        if variable is None:
            continue
        add_model_variable(variable)
        wanted = variables_collections
        if isinstance(wanted, dict):
            wanted = wanted.get(name)
        add_to_collections(wanted or (), variable)
