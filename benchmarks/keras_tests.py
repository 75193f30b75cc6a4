"""Makes TensorFlow's own tests of ``tf.keras`` run in graph mode: a module that `library_suites.py` imports first.

    git --git-dir TENSORFLOW archive HEAD tensorflow/python/keras | tar x -C TESTS --wildcards \\
        '*_test.py' '*testing_utils.py' '*keras_parameterized.py' '*_test_util.py'
    python benchmarks/library_suites.py TESTS --path benchmarks --preload keras_tests --out ours.json

with a checkout of the branch of 1.15, and again with ``--target tensorflow --python ORACLE``; ``--only "not v2_eager
and not v2_function and not v2_funcgraph"`` leaves out what is skipped anyway. Of a test that runs in several modes the
one in graph mode is left, and one that asks for eager mode is skipped. A name that the target does not have can be
imported, and fails where a test uses it. The helpers of these tests come from TESTS.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import sys
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any

_HELPERS = ("testing_utils", "keras_parameterized", "model_subclassing_test_util")
_KERAS = "tensorflow.python.keras"


class AbsentName(Exception):
    """A test used a name that the target does not have."""


class _Absent(ModuleType):
    """Stands for a module, a class or a function that the target does not have."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")

    def __call__(self, *_: object, **__: object) -> Any:
        raise AbsentName(self.__name__)

    __enter__ = __iter__ = __instancecheck__ = __call__

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        absent = self.__name__

        def __init__(self: Any, *_: object, **__: object) -> None:
            raise AbsentName(absent)

        return (type(absent, (), {"__init__": __init__}),)


class _AbsentFinder:
    """Finds what no other finder has found below ``tensorflow.python``."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith(("tensorflow.python.", "tensorflow.compat.tf_keras.")):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _skip(*_: object, **__: object) -> None:
    raise unittest.SkipTest("not in graph mode")


def _in_graph(func: Any = None, config: Any = None, use_gpu: bool = True, **_: object) -> Any:
    """Runs a test in a session of the default graph alone."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(self: Any, *args: object, **kwargs: object) -> None:
            with self.test_session(use_gpu=use_gpu, config=config):
                test(self, *args, **kwargs)

        return run

    return decorate if func is None else decorate(func)


def _all_in_graph(cls: Any) -> Any:
    for name, value in list(vars(cls).items()):
        if callable(value) and name.startswith("test") and name != "test_session":
            setattr(cls, name, _in_graph(value))
    return cls


def _helper(name: str) -> ModuleType:
    """A helper module of the tests: that of the checkout, or the target's."""
    full = f"{_KERAS}.{name}"
    path = Path(_KERAS.replace(".", "/"), f"{name}.py").resolve()
    if not path.exists():
        return importlib.import_module(full)
    spec: Any = importlib.util.spec_from_file_location(full, str(path))
    made = sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    setattr(importlib.import_module(_KERAS), name, made)
    return made


def _prepare() -> None:
    importlib.import_module("tensorflow")
    for original in list(sys.meta_path):  # tfmini's finders say why a module is absent: here it only is
        if type(original).__name__ == "TensorFlowFinder":
            sys.meta_path[sys.meta_path.index(original)] = _Quiet(original)  # type: ignore[arg-type]
    sys.meta_path.append(_AbsentFinder())  # type: ignore[arg-type]
    importlib.import_module("tensorflow.python.platform.flags").FLAGS(["test"])
    test_util: Any = importlib.import_module("tensorflow.python.framework.test_util")
    test_util.run_in_graph_and_eager_modes, test_util.run_all_in_graph_and_eager_modes = _in_graph, _all_in_graph
    for check in ("assert_no_new_tensors", "assert_no_garbage_created"):  # of Python's memory
        setattr(test_util, check, lambda test: test)
    context: Any = importlib.import_module("tensorflow.python.eager.context")
    context.eager_mode = _skip
    for module in map(_helper, _HELPERS):
        for mode in [name for name in vars(module) if name.startswith("_v2_") and name.endswith("_test")]:
            setattr(module, mode, _skip)


class _Quiet:
    """A finder whose errors are no answers."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, *arguments: Any) -> Any:
        try:
            return self._finder.find_spec(*arguments)
        except ModuleNotFoundError:
            return None


_prepare()
