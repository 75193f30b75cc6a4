"""``clone_and_build_model``: a copy of a model that is compiled like it, on other inputs or in another graph."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from tfmini.compat import tf_logging
from tfmini.compat.tf_keras import tracking


def apply(root: ModuleType) -> None:
    """Adds what makes compiled copies to ``models``."""
    models: Any = root.models
    models.share_weights = lambda layer: layer
    models.clone_and_build_model = functools.partial(clone_and_build_model, root)
    models.in_place_subclassed_model_state_restoration = restore


def clone_and_build_model(
    root: ModuleType, model: Any, input_tensors: Any = None, target_tensors: Any = None, custom_objects: Any = None,
    compile_clone: bool = True, in_place_reset: bool = False, optimizer_iterations: Any = None,
    optimizer_config: Any = None,
) -> Any:  # fmt: skip
    """A copy of a model, with new weights, and compiled as the model is.

    Args:
      input_tensors: what the copy is called on; else placeholders.
      target_tensors: of its compilation.
      custom_objects: the classes and functions that the configurations need, by name.
      compile_clone: whether it is compiled.
      in_place_reset: whether a subclassed model without a configuration becomes its own copy.
      optimizer_iterations: the variable that counts the steps of its optimizer.
      optimizer_config: the configuration of its optimizer, which in another graph the optimizer cannot tell.

    Raises:
      ValueError: the model is not compiled, or it is subclassed and cannot be copied.
    """
    optimizer = getattr(model, "optimizer", None)
    if compile_clone and not optimizer:
        raise ValueError(
            "Error when cloning model: compile_clone was set to True, but the model has not been compiled."
        )
    made_of = _training_of(root, model) if compile_clone else {}
    with root.utils.CustomObjectScope(custom_objects or {}):
        if model._is_graph_network or isinstance(model, root.Sequential):
            clone = _of_layers(root, model, input_tensors)
        else:
            clone = _of_subclass(root, model, input_tensors, in_place_reset)
    if compile_clone:
        copied = _optimizer(root, optimizer, optimizer_iterations, optimizer_config)
        clone.compile(copied, target_tensors=target_tensors, **made_of)
    return clone


def _training_of(root: ModuleType, model: Any) -> dict[str, Any]:
    """What ``compile`` got, beside the optimizer; metrics with a state of their own are copied."""
    return {
        "loss": model.loss, "loss_weights": model.loss_weights, "sample_weight_mode": model.sample_weight_mode,
        "metrics": _metrics(root, model._compile_metrics),
        "weighted_metrics": _metrics(root, model._compile_weighted_metrics),
    }  # fmt: skip


def _metrics(root: ModuleType, metrics: Any) -> Any:
    if isinstance(metrics, root.metrics.Metric):
        return type(metrics).from_config(metrics.get_config())
    if isinstance(metrics, dict):
        return {name: _metrics(root, metric) for name, metric in metrics.items()}
    return [_metrics(root, metric) for metric in metrics] if isinstance(metrics, (list, tuple)) else metrics


def _of_layers(root: ModuleType, model: Any, input_tensors: Any) -> Any:
    clone = root.models.clone_model(model, input_tensors)
    shape = getattr(model, "_build_input_shape", None)
    if isinstance(clone, root.Sequential) and not clone.inputs and shape is not None:
        clone.build(shape)
    return clone


def _of_subclass(root: ModuleType, model: Any, input_tensors: Any, in_place: bool) -> Any:
    try:
        clone = type(model).from_config(model.get_config())
    except NotImplementedError:
        tf_logging.warning(f"Model {model.name} is subclassed: its get_config and from_config would let it be cloned.")
        if not in_place:
            raise ValueError(
                "A subclassed model without get_config cannot be cloned: `in_place_reset=True` gives the model itself"
                " new layers, until `in_place_subclassed_model_state_restoration(model)`."
            ) from None
        _reset(root, model)
        clone = model
    if input_tensors is not None:
        is_one = isinstance(input_tensors, (list, tuple)) and len(input_tensors) == 1
        clone._set_inputs(input_tensors[0] if is_one else input_tensors)
    return clone


def _optimizer(root: ModuleType, optimizer: Any, iterations: Any, config: Any) -> Any:
    if isinstance(optimizer, root.optimizers.TFOptimizer):
        made = root.optimizers.TFOptimizer(optimizer.optimizer)
    else:
        made = type(optimizer).from_config(optimizer.get_config() if config is None else config)
    if iterations is not None:
        made.iterations = iterations
    return made


def _reset(root: ModuleType, model: Any) -> None:
    """Gives the attributes of a subclassed model new layers, and makes it one that was never called.

    Raises:
      ValueError: a layer of it is in no attribute, or is a model without a configuration.
    """
    layers = tracking.layers_of(model)
    names = {id(value): name for name, value in vars(model).items() if not name.startswith("_")}
    for layer in layers:
        if id(layer) not in names or getattr(layer, "_is_graph_network", None) is False:
            raise ValueError(f"Only a model whose layers all are attributes can be reset, and {layer.name} is none.")
    before = {name: list(value) if type(value) is list else value for name, value in vars(model).items()}
    vars(model).setdefault("_before_reset", before)
    for layer in layers:
        setattr(model, names[id(layer)], type(layer).from_config(layer.get_config()))
    _forget_calls(model)


def _forget_calls(model: Any) -> None:
    model.built = model._is_compiled = False
    model.inputs = model.outputs = model.optimizer = None


def restore(model: Any) -> None:
    """Undoes what ``clone_and_build_model(model, in_place_reset=True)`` has done to a subclassed model."""
    before = vars(model).pop("_before_reset", None)
    if before is None:
        _forget_calls(model)
    else:
        vars(model).clear()
        vars(model).update(before)
