"""Optimizers of ``tf.keras``: TensorFlow's, which are made of its fused update ops, in the place of those of Keras."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tfmini.compat.tf_keras import optimizer_classes, schedules
from tfmini.compat.tf_keras.optimizer_v2 import Optimizer
from tfmini.train.optimizers.optimizer import Optimizer as TrainOptimizer


def apply(root: ModuleType) -> None:
    """Changes the optimizers of the copy."""
    optimizers = root.optimizers
    legacy = _legacy(optimizers)
    optimizers.schedules = schedules.module(f"{optimizers.__name__}.schedules")
    for name in ["adadelta", "adagrad", "adam", "adamax", "gradient_descent", "nadam", "rmsprop"]:
        setattr(optimizers, f"{name}_v2", optimizers)  # modules that this one imports in TensorFlow
    classes = {cls.__name__: cls for cls in optimizer_classes.CLASSES}
    vars(optimizers).update(classes, Optimizer=Optimizer, OptimizerV2=Optimizer)
    vars(optimizers).update({name.lower(): cls for name, cls in classes.items()})
    optimizers.serialize = lambda optimizer: root.utils.generic_utils.serialize_keras_object(optimizer)
    optimizers.deserialize = _deserialize(root, {name.lower(): cls for name, cls in classes.items()})
    optimizers.get = _get(optimizers, legacy.Optimizer)
    legacy.__dict__["__getattr__"] = functools.partial(getattr, optimizers)
    optimizers.legacy = legacy


# The arguments of Keras's own optimizers, in TensorFlow's order.
_ARGUMENTS = {
    "SGD": "lr momentum decay nesterov",
    "RMSprop": "lr rho epsilon decay",
    "Adagrad": "lr epsilon decay",
    "Adadelta": "lr rho epsilon decay",
    "Adam": "lr beta_1 beta_2 epsilon decay amsgrad",
    "Adamax": "lr beta_1 beta_2 epsilon decay",
    "Nadam": "lr beta_1 beta_2 epsilon schedule_decay",
}


def _legacy(optimizers: ModuleType) -> Any:
    """The module ``tensorflow.python.keras.optimizers``: Keras's own classes, which have other defaults."""
    made = ModuleType("tensorflow.python.keras.optimizers", "Optimizers as Keras has them.")
    made.Optimizer = optimizers.Optimizer  # type: ignore[attr-defined]
    for name, arguments in _ARGUMENTS.items():
        setattr(made, name, _in_order(getattr(optimizers, name), arguments.split()))
    return made


def _in_order(base: Any, arguments: list[str]) -> type:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = {**dict(zip(arguments, args, strict=False)), **kwargs}
        if any(given.get(name, 0) < 0 for name in ("clipnorm", "clipvalue")):
            raise ValueError("clipnorm and clipvalue must not be negative.")
        base.__init__(self, **{key: value for key, value in given.items() if (key, value) != ("epsilon", None)})

    def get_config(self: Any) -> dict[str, Any]:
        config = base.get_config(self)
        return {"lr": config.pop("learning_rate"), **config}

    return type(base.__name__, (base,), {"__init__": __init__, "get_config": get_config, "__doc__": base.__doc__})


def _deserialize(root: ModuleType, classes: dict[str, Any]) -> Callable[..., Any]:
    def deserialize(config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """Makes the optimizer of a configuration; the names of TensorFlow's classes in any case."""
        name = config["class_name"]
        config["class_name"] = name.lower() if name.lower() in classes else name  # as callers of TensorFlow's see it
        return root.utils.generic_utils.deserialize_keras_object(
            config, module_objects=classes, custom_objects=custom_objects, printable_module_name="optimizer"
        )

    return deserialize


def _get(optimizers: Any, legacy: Any) -> Callable[[Any], Any]:
    def get(identifier: Any) -> Any:
        """The optimizer that a name, a configuration or an optimizer is, one of ``tf.train`` too.

        Raises:
          ValueError: it is none of these.
        """
        if isinstance(identifier, (Optimizer, legacy)):
            return identifier
        if isinstance(identifier, TrainOptimizer):
            return optimizers.TFOptimizer(identifier)
        if isinstance(identifier, dict):
            return optimizers.deserialize(identifier)
        if isinstance(identifier, str):
            return optimizers.deserialize({"class_name": identifier, "config": {}})
        raise ValueError(f"Could not interpret optimizer identifier: {identifier}{_remedy(identifier)}")

    return get


def _remedy(identifier: object) -> str:
    """The remedy for an error message, if the value is a class, or an optimizer of another library such as `keras`."""
    if not hasattr(identifier, "get_updates"):
        return ""
    cls = identifier if isinstance(identifier, type) else type(identifier)
    if issubclass(cls, Optimizer):
        return f"; it is a class: give {cls.__name__}(), an optimizer"
    base = next((base for base in cls.__mro__ if base.__name__ == "Optimizer"), cls)
    return (
        f"; {cls.__name__} derives from {base.__module__}.{base.__name__}: models of tf.keras take optimizers that"
        " derive from tf.keras.optimizers.Optimizer, whose `__init__` takes a name (`get_updates` may be their own)"
    )
