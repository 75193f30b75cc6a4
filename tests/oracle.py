"""Asks real TensorFlow in a process of its own.

The functions that run there are in modules that do not import tfmini. Most get the namespace ``tf`` as an argument, so
that the test itself can run them with tfmini's. This file is also the program of that process: it reads the request
from stdin and writes the answer to stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).parents[1]
_LIMIT_S = 900


class Oracle:
    """An interpreter that has TensorFlow.

    Attributes:
      python: its path.
    """

    def __init__(self, python: str) -> None:
        self.python = python

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of ``function(tf, *arguments)`` in a new process, where ``tf`` is TensorFlow 1.x's namespace.

        Arguments and result arrive as `sent` returns them. Fails the test if the function raises.
        """
        return self._ask(function.__module__, function.__name__, True, arguments)

    def call_own(self, module: str, function: str, *arguments: Any) -> Any:
        """The same for a function of a module that imports TensorFlow itself: it is called without ``tf``."""
        return self._ask(module, function, False, arguments)

    def _ask(self, module: str, function: str, gets_tf: bool, arguments: Sequence[Any]) -> Any:
        request = {"module": module, "function": function, "gets_tf": gets_tf, "arguments": arguments}
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment |= {"PYTHONPATH": str(_ROOT), "TF_USE_LEGACY_KERAS": "1"}  # Keras 3 has no `tf.layers`
        done = subprocess.run(
            [self.python, "-m", "tests.oracle"], input=json.dumps(_packed(request)), capture_output=True, text=True,
            cwd=_ROOT, env=environment, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{module}.{function} in TensorFlow: {done.stderr[-3000:]}"
        return _unpacked(json.loads(done.stdout))


def sent(value: Any) -> Any:
    """``value`` as it arrives: dictionaries, lists (tuples too), numbers, strings, bytes, None and numpy arrays."""
    return _unpacked(json.loads(json.dumps(_packed(value))))


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        return {"pairs": [[_packed(key), _packed(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_packed(item) for item in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, (np.ndarray, np.generic)):
        items = _packed(value.ravel().tolist()) if value.dtype == object else value.tobytes().hex()
        return {"array": items, "dtype": value.dtype.str, "shape": value.shape}
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return bytes.fromhex(value["bytes"])
    if "pairs" in value:
        return {_unpacked(key): _unpacked(item) for key, item in value["pairs"]}
    dtype, shape = np.dtype(value["dtype"]), value["shape"]
    if dtype.kind != "O":
        return np.frombuffer(bytes.fromhex(value["array"]), dtype).reshape(shape)[() if shape == [] else ...]
    array = np.empty(len(value["array"]), object)
    array[:] = _unpacked(value["array"])
    return array.reshape(shape)


def _main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TensorFlow and the function print is no part of the answer
    import tensorflow as tf

    if not tf.__version__.startswith("1."):  # 1.x itself has tf.contrib as well
        tf = tf.compat.v1
        tf.disable_v2_behavior()
    request = _unpacked(json.load(sys.stdin))
    function = getattr(importlib.import_module(request["module"]), request["function"])
    with answers:
        given = [tf] if request["gets_tf"] else []
        json.dump(_packed(function(*given, *request["arguments"])), answers)
    os._exit(0)  # TensorFlow's servers cannot be stopped


if __name__ == "__main__":
    _main()
