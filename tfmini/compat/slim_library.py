"""``tf.contrib.slim.nets``, and slim's datasets and queues: those of the installed ``tf_slim``.

The files of TF-Slim 1.1.0 run again as modules of tfmini (`library_copy`), on the layers and argument scopes of
``tf.contrib``, so that those of a program apply to the networks. ``tf_slim`` itself is not imported.
"""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from tfmini.compat.library_copy import installed_folder, load
from tfmini.export import export_names

NAME = "tfmini.compat.slim_copy"
REMEDY = "pip install 'tfmini-cluster[slim]'"
_MODULES = {
    "nets": "nets",
    "queues": "queues",
    **{
        name: f"data.{name}"
        for name in (
            *("data_decoder", "data_provider", "dataset", "dataset_data_provider", "parallel_reader"),
            *("prefetch_queue", "tfexample_decoder"),
        )
    },
}
export_names(
    "tf.contrib.slim",
    "data_decoder data_provider dataset dataset_data_provider nets parallel_reader prefetch_queue queues "
    "tfexample_decoder",
)
_EVERYWHERE = [
    (r"(?m)^from tf_slim\.(nets|data)\b", rf"from {NAME}.\1"),
    (r"(?m)^from tf_slim import layers\b", "from tfmini.contrib import layers"),
    (r"(?m)^from tf_slim\.layers\b", "from tfmini.contrib.layers.python.layers"),
    (r"(?m)^from tf_slim\.ops\.arg_scope\b", "from tfmini.contrib.framework"),
    (r"(?m)^from tensorflow\b", "from tfmini"),
]


def changed(module: str, text: str) -> str:
    """The text of a module of TF-Slim as tfmini runs it; of the root nothing: it imports what ``tf.contrib`` has."""
    for pattern, replacement in _EVERYWHERE:
        text = re.sub(pattern, replacement, text)
    return text if module else ""


def __getattr__(name: str) -> Any:
    try:
        found = _find(_MODULES.get(name, ""))
    except ImportError as error:
        raise AttributeError(f"tf.contrib.slim.{name} is not here: {error}", name=name) from None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return found


def module(dotted: str) -> ModuleType | None:
    """The module of a path below ``tensorflow``, such as ``contrib.slim.nets``; None for other paths.

    Raises:
      ImportError: TF-Slim is not installed, or in another release; names the remedy.
    """
    found = re.fullmatch(r"contrib\.slim\.(?!data)(?:python\.slim\.)?((?:nets|queues|data)\b.*)", dotted)
    return _find(found[1]) if found else None


def _find(below: str) -> ModuleType | None:
    """A module of the copy by its path; None where there is none."""
    if below:
        load(NAME, lambda: installed_folder("tf_slim", "1.1.0", ("six",), "tf.contrib.slim", REMEDY), changed)
        with suppress(ModuleNotFoundError):
            return import_module(f"{NAME}.{below}")
    return None
