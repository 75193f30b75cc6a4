"""Asks real TensorFlow in processes of its own.

The functions that run there are in modules that do not import tfmini. Most get the namespace ``tf`` as an argument, so
that the test itself can run them with tfmini's. This file is also the program that has TensorFlow: it reads requests
from stdin, a line each, and a fork of it, which need not import TensorFlow again, writes the answer to stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).parents[1]
_LIMIT_S = 900


class Oracle:
    """An interpreter that has TensorFlow. It starts with the first question.

    Attributes:
      python: its path.
    """

    def __init__(self, python: str) -> None:
        self.python = python
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - `close` does

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
        before = self._errors.seek(0, os.SEEK_END)
        answer = self._answer(json.dumps(_packed(request)))
        if not answer.strip():
            self._errors.seek(before)
            raise AssertionError(f"{module}.{function} in TensorFlow: {self._errors.read()[-3000:]}")
        return _unpacked(json.loads(answer))

    def _answer(self, request: str) -> str:
        """The answer as text; none if the function has raised, or has taken too long."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._started()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        too_long = threading.Timer(_LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
        too_long.start()
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        finally:
            too_long.cancel()
            too_long.join()

    def _started(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment |= {"PYTHONPATH": str(_ROOT), "TF_USE_LEGACY_KERAS": "1"}  # Keras 3 has no `tf.layers`
        return subprocess.Popen(
            [self.python, "-m", "tests.oracle"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, cwd=_ROOT, env=environment, start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
        self._errors.close()


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
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            _answer(tf, line, answers)
        if os.waitpid(pid, 0)[1]:
            answers.write("\n")
            answers.flush()


def _answer(tf: Any, line: str, answers: Any) -> None:
    """Answers a request and ends the process."""
    code = 1
    try:
        request = _unpacked(json.loads(line))
        function = getattr(importlib.import_module(request["module"]), request["function"])
        given = [tf] if request["gets_tf"] else []
        text = json.dumps(_packed(function(*given, *request["arguments"])))
        answers.write(text + "\n")
        answers.flush()
        code = 0
    except BaseException:  # even SystemExit: this child must end here, and its parent shows what it prints
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)  # TensorFlow's servers cannot be stopped


if __name__ == "__main__":
    _main()
