"""Modules that Python or setuptools had: their most frequent functions, on what is there today."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

# ---- distutils -------------------------------------------------------------------------------------------------------


@functools.total_ordering
class LooseVersion:
    """A version as numbers and words that compare one by one (``distutils.version.LooseVersion``).

    Attributes:
      vstring: as it was written.
      version: its parts, a list of ints and strs.
    """

    def __init__(self, vstring: str = "") -> None:
        self.parse(vstring)

    def parse(self, vstring: str) -> None:
        """Reads a version."""
        self.vstring = vstring
        parts = re.split(r"(\d+|[a-z]+|\.)", vstring)
        self.version: list[Any] = [int(p) if p.isdigit() else p for p in parts if p and p != "."]

    def _key(self) -> list[tuple[bool, Any]]:
        return [(isinstance(part, int), part) for part in self.version]

    def _of(self, other: Any) -> LooseVersion:
        return other if isinstance(other, LooseVersion) else type(self)(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (str, LooseVersion)) and self._key() == self._of(other)._key()

    def __lt__(self, other: Any) -> bool:
        return self._key() < self._of(other)._key()

    def __hash__(self) -> int:
        return hash(tuple(self._key()))

    def __str__(self) -> str:
        return self.vstring

    def __repr__(self) -> str:
        return f"{type(self).__name__} ('{self}')"


class StrictVersion(LooseVersion):
    """A version of two or three numbers, perhaps with ``a1`` or ``b2`` (``distutils.version.StrictVersion``).

    Raises:
      ValueError: it is none.
    """

    prerelease: tuple[str, int] | None

    def parse(self, vstring: str) -> None:
        found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:([ab])(\d+))?", vstring, re.ASCII)
        if found is None:
            raise ValueError(f"invalid version number '{vstring}'")
        major, minor, patch, letter, number = found.groups()
        self.vstring = vstring
        self.version = [int(major), int(minor), int(patch or 0)]
        self.prerelease = (letter, int(number)) if letter else None

    def _key(self) -> list[tuple[bool, Any]]:
        return [*((True, n) for n in self.version), (self.prerelease is None, self.prerelease or 0)]


def strtobool(val: str) -> int:
    """1 for yes, true, on, 1 and the like, 0 for their contraries; raises ValueError for others."""
    if val.lower() in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if val.lower() in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise ValueError(f"invalid truth value {val.lower()!r}")


def copy_tree(src: str, dst: str, *_: object, **__: object) -> list[str]:
    """Copies what is in a folder into another, which may exist; the paths of the copies."""
    shutil.copytree(src, dst, dirs_exist_ok=True)
    return [os.path.join(folder, name) for folder, _, names in os.walk(dst) for name in names]


def mkpath(name: str, mode: int = 0o777, *_: object, **__: object) -> list[str]:
    """Makes a folder and those above it."""
    os.makedirs(name, mode, exist_ok=True)
    return [name]


def _distutils() -> dict[str, Any]:
    return {"__version__": sys.version.partition(" ")[0]}


def _distutils_dir_util() -> dict[str, Any]:
    return {"copy_tree": copy_tree, "mkpath": mkpath, "remove_tree": lambda path, *_: shutil.rmtree(path)}


# ---- pkg_resources ---------------------------------------------------------------------------------------------------


def _path(package_or_requirement: Any, resource_name: str) -> str:
    module = importlib.import_module(str(package_or_requirement))
    return os.path.join(os.path.dirname(os.path.abspath(module.__file__ or "")), *resource_name.split("/"))


def _bytes(package: Any, resource: str) -> bytes:
    with open(_path(package, resource), "rb") as file:
        return file.read()


def _get_distribution(dist: Any) -> Any:
    name = re.split(r"[\s<>=!~\[;]", str(dist))[0]
    version = metadata.version(name)
    return SimpleNamespace(project_name=name, key=name.lower(), version=version, parsed_version=LooseVersion(version))


def _iter_entry_points(group: str, name: str | None = None) -> Iterator[Any]:
    found = metadata.entry_points(group=group)
    return iter(found if name is None else found.select(name=name))


def _pkg_resources() -> dict[str, Any]:
    return {
        "parse_version": LooseVersion,
        "resource_filename": _path,
        "resource_string": _bytes,
        "resource_stream": lambda package, resource: io.BytesIO(_bytes(package, resource)),
        "resource_exists": lambda package, resource: os.path.exists(_path(package, resource)),
        "resource_isdir": lambda package, resource: os.path.isdir(_path(package, resource)),
        "resource_listdir": lambda package, resource: os.listdir(_path(package, resource)),
        "get_distribution": _get_distribution,
        "require": lambda *names: [_get_distribution(name) for name in names],
        "iter_entry_points": _iter_entry_points,
        "declare_namespace": lambda name: None,
        "DistributionNotFound": metadata.PackageNotFoundError,
        "VersionConflict": type("VersionConflict", (Exception,), {}),
    }


# ---- imp, and names of modules ---------------------------------------------------------------------------------------


def _load_source(name: str, pathname: str, *_: object) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, pathname)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _imp() -> dict[str, Any]:
    return {"load_source": _load_source, "reload": importlib.reload, "new_module": ModuleType}


def _renamed(module: str) -> Callable[[], dict[str, Any]]:
    return lambda: dict(vars(importlib.import_module(module)))


MAKERS: dict[str, Callable[[], dict[str, Any]]] = {
    "distutils": _distutils,
    "distutils.version": lambda: {"LooseVersion": LooseVersion, "StrictVersion": StrictVersion},
    "distutils.util": lambda: {"strtobool": strtobool},
    "distutils.dir_util": _distutils_dir_util,
    "distutils.spawn": lambda: {"find_executable": lambda executable, path=None: shutil.which(executable, path=path)},
    "pkg_resources": _pkg_resources,
    "imp": _imp,
    "xml.etree.cElementTree": _renamed("xml.etree.ElementTree"),
    "scipy.misc": dict,
    "scipy.sparse.linalg.eigen": _renamed("scipy.sparse.linalg"),
    "scipy.sparse.linalg.eigen.arpack": _renamed("scipy.sparse.linalg"),
    "scipy.ndimage.interpolation": _renamed("scipy.ndimage"),
    "scipy.ndimage.filters": _renamed("scipy.ndimage"),
    "scipy.ndimage.morphology": _renamed("scipy.ndimage"),
    "scipy.ndimage.measurements": _renamed("scipy.ndimage"),
    "sklearn.externals.joblib": _renamed("joblib"),
    "sklearn.externals.six": _renamed("six"),
}
