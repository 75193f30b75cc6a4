"""Where ``tf.keras.layers`` and ``tensorflow.python.keras.layers`` come from: the copy of the installed Keras."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tfmini.compat.tf_keras.library import NAME, library

# Packages of TensorFlow whose modules are those of Keras.
_PREFIXES = ("python.keras", "contrib.keras.api.keras", "contrib.keras", "keras")
# Modules that TensorFlow has in other places than Keras.
_MOVED = {
    "saving": "engine.saving",
    "engine.base_layer_v1": "engine.base_layer",
    "layers.recurrent_v2": "layers.recurrent",
}


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
    below = _MOVED.get(below, below)
    found = sys.modules.get(f"{NAME}.{below}")
    if found is not None:
        return found
    value: Any = root
    for part in below.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, ModuleType) else None
