"""Runs the files of an installed library again as modules below tfmini, with changes to their text.

A library of TensorFlow 1's time may so be a part of ``tf`` (``tf.keras``, ``tf.contrib.slim.nets``) and, unchanged and
in any release, be imported beside it under its own name.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Any

Change = Callable[[str, str], str]
_lock = threading.RLock()


def installed_folder(title: str, version: str, modules: tuple[str, ...], what: str, remedy: str) -> str:
    """The folder of an installed library.

    Args:
      title, version: the library, such as "Keras", and its release, such as "2.3.1"; another one of 2.3 does, too.
      modules: what the library imports and does not ask for.
      what, remedy: what needs the library, and how it is installed.

    Raises:
      ImportError: the library or one of the modules is missing, or it is another release; names the remedy.
    """
    release, package = f"{title} {version}", title.lower()
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        raise ImportError(f"{what} needs {release}, which is not installed: {remedy}", name=package) from None
    if not installed.version.startswith(version.rpartition(".")[0] + "."):
        raise ImportError(
            f"{what} needs {release}, and {title} {installed.version} is installed: {remedy}", name=package
        )
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ImportError(f"{what} needs {module}, which is not installed: {remedy}", name=module)
    return str(installed.locate_file(package))


def load(
    name: str, find_folder: Callable[[], str], change: Change, helpers: Callable[[], dict[str, Any]] = dict,
    finish: Callable[[ModuleType], None] = lambda root: None,
) -> ModuleType:  # fmt: skip
    """The root module of a copy, loaded at the first call.

    Args:
      name: the full name of the root, below a package of tfmini.
      find_folder: finds the installed library.
      change: (a module's name below the root, its text) -> the text that runs.
      helpers: the names that each module has before its text runs.
      finish: changes the loaded copy.

    Raises:
      ImportError: of ``find_folder``, or of a text that cannot be changed.
    """
    with _lock:
        found = sys.modules.get(name)
        return found if found is not None and hasattr(found, "_is_whole") else _load(
            _Finder(name, find_folder(), change, helpers), finish
        )  # fmt: skip


def _load(finder: _Finder, finish: Callable[[ModuleType], None]) -> ModuleType:
    from tfmini.compat import internals

    internals.find_private_paths()
    sys.meta_path.insert(0, finder)
    try:
        root = importlib.import_module(finder.name)
        finish(root)
    except BaseException:
        for name in [name for name in sys.modules if finder.has(name)]:
            del sys.modules[name]
        sys.meta_path.remove(finder)
        raise
    root._is_whole = True  # type: ignore[attr-defined]
    return root


class _Finder(MetaPathFinder):
    """Finds the modules of the copy in the files of the installed library."""

    def __init__(self, name: str, folder: str, change: Change, helpers: Callable[[], dict[str, Any]]) -> None:
        self.name, self.folder, self.change, self.helpers = name, folder, change, helpers

    def has(self, fullname: str) -> bool:
        """Whether a module is one of the copy."""
        return fullname == self.name or fullname.startswith(self.name + ".")

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not self.has(fullname):
            return None
        parent, package = os.path.split(self.folder)
        found = PathFinder.find_spec(
            f"{package}{fullname[len(self.name) :]}", [parent] if fullname == self.name else path
        )
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=_Loader(fullname, found.origin, self),
            submodule_search_locations=found.submodule_search_locations,
        )  # fmt: skip


class _Loader(SourceFileLoader):
    """Compiles the changed text; there is no cache of it, as Python's is that of the library itself."""

    def __init__(self, fullname: str, path: str, finder: _Finder) -> None:
        super().__init__(fullname, path)
        self._finder = finder

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = importlib.util.decode_source(self.get_data(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of a library that nobody changes any more
            changed = self._finder.change(fullname[len(self._finder.name) + 1 :], text)
            return compile(changed, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._finder.helpers())
        super().exec_module(module)
