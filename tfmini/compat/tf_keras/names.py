"""Where ``tf.keras.layers`` and ``tensorflow.python.keras.layers`` come from: the copy of the installed Keras."""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from tfmini.compat.tf_keras.changes import MOVED, value_at
from tfmini.compat.tf_keras.library import NAME, library

# Packages of TensorFlow whose modules are those of Keras.
_PREFIXES = ("python.keras", "contrib.keras.api.keras", "contrib.keras", "keras")
# Packages of TensorFlow that are one module in Keras, and their modules.
_MERGED = {
    "optimizer_v2": "optimizers",
    "saving": "engine.saving",
}
_MODULES = {
    "optimizer_v2": "adadelta adagrad adam adamax ftrl gradient_descent nadam optimizer_v2 rmsprop",
    "saving": "hdf5_format save saving_utils model_config saved_model_experimental",
}
_made: dict[str, ModuleType] = {}


def find(namespace: str, name: str) -> Any:
    """A name below ``tf.keras``, or ``keras`` in ``tf.contrib``, which is the same.

    Args:
      namespace: ``keras`` or one below it, such as ``keras.utils``; or ``contrib``.

    Raises:
      AttributeError: Keras has no such name, or is not installed; its message has the remedy.
    """
    try:
        owner: Any = library()
    except ImportError as error:
        raise AttributeError(f"module 'tfmini.{namespace}' has no attribute {name!r}: {error}", name=name) from None
    for part in f"{namespace}.{name}".removeprefix("contrib.").split(".")[1:]:
        if not hasattr(owner, part):
            raise AttributeError(
                f"module 'tfmini.{namespace}' has no attribute {name!r}: tf.keras is made of Keras 2.3, which has none",
                name=name,
            )
        owner = getattr(owner, part)
    return owner


@functools.cache
def version_2() -> ModuleType:
    """``keras`` of ``tf.compat.v2``, which has the second versions of some layers.

    Raises:
      ImportError: Keras is not installed.
    """
    root = library()
    made, layers = ModuleType("tensorflow.compat.v2.keras"), ModuleType("tensorflow.compat.v2.keras.layers")
    vars(made).update(vars(root) | {"layers": layers, "__name__": made.__name__})
    vars(layers).update(vars(root.layers) | {"__name__": layers.__name__})
    recurrent = {name: getattr(root.layers.recurrent_v2, name) for name in ("GRU", "GRUCell", "LSTM", "LSTMCell")}
    dense = type("DenseFeatures", (root.layers.DenseFeatures,), {"__module__": root.layers.__name__, "_second": True})
    normal = root.layers.BatchNormalizationV2
    vars(layers).update(recurrent, DenseFeatures=dense, BatchNormalization=normal)
    return made


def __getattr__(name: str) -> Any:
    """``DenseFeatures`` of ``tensorflow.python.feature_column.dense_features_v2``, which is made at its first use."""
    if name != "DenseFeatures":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return version_2().layers.DenseFeatures


def module(dotted: str) -> ModuleType | None:
    """The module of a path below ``tensorflow``, such as ``python.keras.layers``; None for other paths.

    Raises:
      ImportError: Keras is not installed.
    """
    for prefix in _PREFIXES:
        if dotted.startswith(prefix + "."):
            below = dotted[len(prefix) + 1 :]
            break
        if dotted == prefix and prefix != "keras":
            return library()
    else:
        return None
    root = library()
    if dotted == "python.keras.optimizers":
        return root.optimizers.legacy  # type: ignore[no-any-return]
    if dotted in ("python.keras.testing_utils", "python.keras.keras_parameterized"):
        return import_module("tfmini.compat.tf_keras.testing_utils")
    if below in _MERGED:
        return _made.setdefault(below, _package(f"{prefix}.{below}", value_at(root, _MERGED[below]), _MODULES[below]))
    below = MOVED.get(below, _MERGED.get(below.rpartition(".")[0], below))
    found = sys.modules.get(f"{NAME}.{below}")
    if found is not None:
        return found
    value = value_at(root, below)
    return value if isinstance(value, ModuleType) else None


def _package(dotted: str, names: Any, modules: str) -> ModuleType:
    """A package whose modules all are one of Keras: Python seeks those below it by the package's own name."""
    made = ModuleType(f"tensorflow.{dotted}", f"The names of {names.__name__}.")
    made.__path__ = []
    vars(made).update(dict.fromkeys(modules.split(), names), __getattr__=functools.partial(getattr, names))
    return made
