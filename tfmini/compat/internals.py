"""Modules for the private paths of TensorFlow that scripts import.

``tensorflow.python.ops.math_ops`` and the like were never public, but half of the old scripts use
them. A path has the names that are exported to it (``@export("tensorflow.python.tf2.enabled")``), and those of the
places that `PATHS` lists for it, in order:

- ``tf.math``: a public namespace (``tf`` is the root, the fallback of every path);
- ``:train.slot_creator``: a module of tfmini;
- ``raw``: the raw ops under TensorFlow's generated names (``gen_math_ops.mat_mul``).

A path whose row is ``-`` can be imported, since many scripts import it without using it; using one of
its names raises an error with the alternative.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from tfmini.compat.exported_names import NAMES
from tfmini.compat.internal_paths import PACKAGES, PATHS, UNSUPPORTED
from tfmini.graph.op_types import OPS, op_names

_ROOT = "tfmini"
_made: dict[str, ModuleType] = {}


def public_path(dotted: str) -> str:
    """Removes version prefixes: ``nn`` for ``compat.v1.nn``, ``_api.v1.nn`` and ``compat.v1.compat.v1.nn``."""
    for prefix in ("compat.v1", "_api.v1"):
        while dotted == prefix or dotted.startswith(prefix + "."):
            dotted = dotted[len(prefix) + 1 :]
    return dotted


def public_namespaces() -> frozenset[str]:
    """The public namespaces below ``tf``, dotted."""
    rows = import_module(f"{_ROOT}.namespace").rows()
    listed = {namespace for namespace, _, _, _ in rows} | {"raw_ops", "compat"}
    return frozenset(listed | {name[:i] for name in listed for i, c in enumerate(name) if c == "."}) - {""}


def module(dotted: str) -> ModuleType | None:
    """Returns the module of a path below ``tensorflow``, created on first use; None for an unknown path."""
    if dotted in _made:
        return _made[dotted]
    if dotted.startswith("core.") and dotted.endswith("_pb2"):
        return _proto_module(dotted.rpartition(".")[2])
    if dotted not in PATHS and dotted not in NAMES and dotted not in _packages():
        return None
    return _made.setdefault(dotted, _build(dotted, PATHS.get(dotted, "").split()))


@cache
def _packages() -> frozenset[str]:
    """All paths that have modules below them."""
    paths = [*PATHS, *NAMES, *PACKAGES]
    return frozenset(p[:i] for p in paths for i, c in enumerate(p) if c == ".") | {*PACKAGES}


def _proto_module(name: str) -> ModuleType | None:
    try:
        return import_module(f"{_ROOT}.protos.{name}")
    except ModuleNotFoundError:
        return None


def _build(dotted: str, sources: list[str]) -> ModuleType:
    made = ModuleType(f"tensorflow.{dotted}", f"TensorFlow's ``tensorflow.{dotted}``, served by tfmini.")
    made.__path__ = []
    exported = dict(_exported(dotted))
    lookups = [_lookup(source) for source in sources if source != "-"]
    if exported:
        lookups.insert(0, lambda name: _exported_value(exported, name))
    # The names of the public root are a fallback: ``from tensorflow.python import math_ops``.
    own = [*lookups, _lookup("tf")] if lookups else []

    def module_getattr(name: str) -> Any:
        value = _first_found(dotted, name, own)
        setattr(made, name, value)
        return value

    names = lambda: sorted({*vars(made), *exported, *_names(sources)})  # noqa: E731
    vars(made).update(__getattr__=module_getattr, __dir__=names)
    return made


def _exported(dotted: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The names that are exported to a path: (name, (module, its attribute))."""
    for home, names in NAMES.get(dotted, {}).items():
        for entry in names.split():
            name, _, attribute = entry.partition("=")
            yield name, (f"{_ROOT}.{home}", attribute or name)


def _exported_value(exported: dict[str, tuple[str, str]], name: str) -> Any:
    if name not in exported:
        raise AttributeError(name)
    home, attribute = exported[name]
    return getattr(import_module(home), attribute)


def _first_found(dotted: str, name: str, lookups: list[Callable[[str], Any]]) -> Any:
    plain = f"module 'tensorflow.{dotted}' has no attribute {name!r}"
    if name.startswith("__"):
        raise AttributeError(plain)
    below = module(f"{dotted}.{name}")
    if below is not None:
        return below
    for lookup in lookups:
        try:
            return lookup(name)
        except AttributeError:
            continue
    raise AttributeError(f"{plain} in tfmini. {nearest(f'{dotted}.{name}')}", name=name)


def _lookup(source: str) -> Callable[[str], Any]:
    if source == "raw":
        return _raw
    if source.startswith(":"):
        return lambda name: getattr(import_module(f"{_ROOT}.{source[1:]}"), name)
    return lambda name: getattr(_namespace(source), name)


def _namespace(source: str) -> ModuleType | None:
    """The module of a public namespace; None if it does not exist."""
    return sys.modules.get(source.replace("tf", _ROOT, 1))


def _names(sources: list[str]) -> Iterator[str]:
    for source in sources:
        if source not in ("-", "raw"):
            home = import_module(f"{_ROOT}.{source[1:]}") if source.startswith(":") else _namespace(source)
            yield from (name for name in dir(home) if not name.startswith("_"))


@cache
def _raw_names() -> dict[str, str]:
    return {generated_name(op): op for op in op_names()}


def generated_name(op: str) -> str:
    """The function name that TensorFlow generates for an op type: MatMul -> mat_mul."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", op).lower()


def _raw(name: str) -> Any:
    op = _raw_names().get(name)
    if op is None:
        raise AttributeError(name)
    return OPS[op]


def unsupported(dotted: str) -> str:
    """Says that a path is out of scope, and the alternative; "" if neither it nor a parent path is."""
    for path, way in UNSUPPORTED.items():
        if dotted == path or dotted.startswith(path + "."):
            return f"tensorflow.{path} is out of tfmini's scope; use {way}."
    return ""


def nearest(dotted: str) -> str:
    """Suggests an alternative to a name that tfmini does not have at that path."""
    last = dotted.rpartition(".")[2]
    for namespace in ("", "nn", "train", "math", "contrib.framework"):
        owner = sys.modules.get(f"{_ROOT}.{namespace}" if namespace else _ROOT)
        if owner is not None and last in dir(owner):
            return f"The public name is tf.{namespace + '.' if namespace else ''}{last}."
    return unsupported(dotted) or "Look for a public name (tf.…) that does the same."
