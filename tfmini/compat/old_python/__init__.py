"""Old Python beside old TensorFlow: what Python and its packages have dropped since the scripts were written.

`install` gives it back to this process: names of modules that are there (``np.float``, ``inspect.getargspec``), whole
modules (``distutils``, ``pkg_resources``), and old behaviour (``yaml.load(f)``, h5py's strings). The first use of each
is logged, once. ``tfmini run`` installs it; nothing else does, as it changes modules that all code of the process sees.

- `dropped_names`: the names, as tables;
- `dropped_modules`: the modules;
- `behaviours`: what is called as before, and did something else;
- `arrays`: what NumPy's arrays themselves did: numbers of arrays of one element, dropped methods;
- `generated_messages`: files that protobuf's compiler wrote before version 3.20.
"""

from __future__ import annotations

import importlib
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tfmini.compat.old_python import behaviours, dropped_modules
from tfmini.compat.old_python.dropped_names import NAMES
from tfmini.compat.old_python.generated_messages import loader_of_messages
from tfmini.compat.old_python.notices import tell_once

_original_getattr: dict[str, Any] = {}


def install() -> None:
    """Gives the names, modules and behaviours back to this process; idempotent."""
    if any(isinstance(finder, _ChangingFinder) for finder in sys.meta_path):
        return
    sys.meta_path[:0] = [_Mender(), GeneratedMessages()]
    sys.meta_path.append(_StandIns())
    for name in {*NAMES, *behaviours.MENDERS}:
        if name in sys.modules:
            _mend(sys.modules[name])


def uninstall() -> None:
    """Takes the names and modules away again; behaviours stay as they are."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, (_ChangingFinder, _StandIns))]
    for name, original in _original_getattr.items():
        module = vars(sys.modules[name])
        if original is None:
            module.pop("__getattr__", None)
        else:
            module["__getattr__"] = original
    _original_getattr.clear()
    for name in dropped_modules.MAKERS:
        if getattr(sys.modules.get(name), "__tfmini__", False):
            del sys.modules[name]


def _mend(module: ModuleType) -> None:
    if module.__name__ in NAMES and module.__name__ not in _original_getattr:
        _give_names(module, NAMES[module.__name__])
    if module.__name__ in behaviours.MENDERS:
        behaviours.MENDERS[module.__name__](module)


def _give_names(module: ModuleType, table: dict[str, str]) -> None:
    """Makes a module find the names of ``table`` that it lacks; whoever looks one up for the first time is told."""
    before: Callable[[str], Any] | None = getattr(module, "__getattr__", None)
    _original_getattr[module.__name__] = vars(module).get("__getattr__")

    def module_getattr(name: str) -> Any:
        if name in table and ":" not in table[name]:
            return importlib.import_module(table[name])
        if name in table:
            value = resolve(table[name])
            tell_once(f"{module.__name__}.{name}", f"tfmini gives it as {table[name].replace(':', '.')}")
            return value
        if before is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return before(name)

    vars(module)["__getattr__"] = module_getattr


def resolve(path: str) -> Any:
    """The object of ``module:attribute``."""
    home, _, attribute = path.partition(":")
    return getattr(importlib.import_module(home), attribute)


class _ChangingFinder(MetaPathFinder):
    """Finds the modules that it wants where the other finders find them, and changes their loaders."""

    def __init__(self) -> None:
        self._busy: set[str] = set()  # what the others are asked for, this finder among them

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._busy or not self._is_wanted(fullname):
            return None
        self._busy.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._busy.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = self._changed(fullname, spec.loader)
        return spec

    @abstractmethod
    def _is_wanted(self, fullname: str) -> bool:
        """Whether the module may be one to change."""

    @abstractmethod
    def _changed(self, fullname: str, loader: Loader) -> Loader:
        """The loader to take instead of that of the module; the same one leaves the module as it is."""


class _Mender(_ChangingFinder):
    """Mends a module of the tables after its own loader has run it."""

    def _is_wanted(self, fullname: str) -> bool:
        return fullname in NAMES or fullname in behaviours.MENDERS

    def _changed(self, fullname: str, loader: Loader) -> Loader:
        return _ThenMend(loader)


class _ThenMend(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _mend(module)

    def __getattr__(self, name: str) -> Any:  # its resources, such as those that importlib.resources asks for
        return getattr(self._loader, name)


class GeneratedMessages(_ChangingFinder):
    """Loads the modules of old generated code of protobuf in another way."""

    def _is_wanted(self, fullname: str) -> bool:
        return fullname.endswith("_pb2") and not fullname.startswith("google.protobuf.")

    def _changed(self, fullname: str, loader: Loader) -> Loader:
        return loader_of_messages(fullname, loader)


class _StandIns(MetaPathFinder):
    """Finds modules that Python or its packages had; the last finder, so that an installed module wins."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in dropped_modules.MAKERS:
            return None
        if "." not in fullname:
            tell_once(fullname, "tfmini gives its most frequent functions")
        return ModuleSpec(fullname, _Made(), is_package=True)


class _Made(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(dropped_modules.MAKERS[module.__name__](), __tfmini__=True)
