"""Builds the TF1 namespace from the table in `public_names`.

A name is looked up when it is first used and then kept as a plain attribute, so ``import tfmini``
pays for no table walk, and protobuf is not imported before the first message is. A public
namespace that is no package of ours (``tf.nn``, ``tf.math``, …) becomes a module of its own in
``sys.modules``, so ``from tfmini import nn`` and ``import tfmini.nn`` work. Where the namespace is
one of our packages (``tf.train``, ``tf.errors``, ``tf.dtypes``, ``tf.compat``) that module answers
for the missing names; nothing is stored in it, since ``complex`` in `dtypes` is the builtin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any

from tfmini.graph.op_def import OpDef
from tfmini.graph.registry import OPS
from tfmini.public_names import NAMES

ROOT = "tfmini"
Getter = Callable[[str], Any]


def rows() -> Iterator[tuple[str, str, str, str]]:
    """The table, unfolded: (namespace, public name, home module, attribute)."""
    for namespace, homes in NAMES.items():
        for home, names in homes.items():
            for entry in names.split():
                public, _, attribute = entry.partition("=")
                yield namespace, public, f"{ROOT}.{home}", attribute or public


def public_names() -> list[str]:
    """Every public name as users write it (``tf.nn.relu``), the ops of ``tf.raw_ops`` included."""
    listed = [f"tf.{namespace}.{name}" if namespace else f"tf.{name}" for namespace, name, _, _ in rows()]
    return sorted({*listed, *(f"tf.raw_ops.{name}" for name in OPS if not name.startswith("_"))})


def install() -> None:
    """Gives ``tfmini`` and each public namespace below it its attributes, and ``tf.compat.v1``."""
    tables: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    for namespace, public, home, attribute in rows():
        tables.setdefault(namespace, {})[public] = (home, attribute)
    root = sys.modules[ROOT]
    for namespace, table in sorted(tables.items()):  # parents come before their children
        _serve(_module(namespace), namespace, _resolver(table), list(table))
    raw_ops = _module("raw_ops")
    _serve(raw_ops, "raw_ops", _raw_op, [name for name in OPS if not name.startswith("_")])
    compat = sys.modules[f"{ROOT}.compat"]
    compat.v1 = root  # type: ignore[attr-defined]
    sys.modules[f"{ROOT}.compat.v1"] = root
    for namespace in (*tables, "raw_ops"):
        if namespace and not namespace.startswith("compat"):
            sys.modules[f"{ROOT}.compat.v1.{namespace}"] = sys.modules[f"{ROOT}.{namespace}"]


def _module(namespace: str) -> ModuleType:
    """The module of a public namespace; one that is no file of ours is made, its parents first."""
    name = f"{ROOT}.{namespace}" if namespace else ROOT
    found = sys.modules.get(name)
    if found is not None:
        return found
    made = ModuleType(name, f"TensorFlow's ``tf.{namespace}`` (see `tfmini.public_names`).")
    made.__path__ = []  # a package without files, so that ``import tfmini.contrib.framework`` works
    sys.modules[name] = made
    parent, _, last = namespace.rpartition(".")
    setattr(_module(parent), last, made)
    _serve(made, namespace, _resolver({}), [])  # until its own table comes, if there is one
    return made


def _serve(module: ModuleType, namespace: str, resolve: Getter, names: list[str]) -> None:
    """Lets ``module`` answer for ``names``, and explain the ones that it does not have."""
    own = not hasattr(module, "__file__") or module.__name__ == ROOT

    def module_getattr(name: str) -> Any:
        try:
            value = resolve(name)
        except KeyError:
            raise AttributeError(_explain(namespace, name, names), name=name, obj=module) from None
        if own:
            setattr(module, name, value)
        return value

    def module_dir() -> list[str]:
        return sorted({*vars(module), *names})

    module.__getattr__ = module_getattr  # type: ignore[method-assign]
    module.__dir__ = module_dir  # type: ignore[method-assign]
    if own:
        module.__all__ = names  # type: ignore[attr-defined]


def _resolver(table: dict[str, tuple[str, str]]) -> Getter:
    def resolve(name: str) -> Any:
        home, attribute = table[name]
        return getattr(import_module(home), attribute)

    return resolve


# Arguments of `tf.raw_ops` that are called otherwise than the op's inputs and attrs.
_REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm", "All", "Any")
_RAW_NAMES: dict[str, dict[str, str]] = {
    **{name: {"reduction_indices": "axis"} for name in _REDUCTIONS},
    "ExpandDims": {"dim": "axis"},
    "Select": {"t": "x", "e": "y"},
    "Split": {"split_dim": "axis"},
    "SplitV": {"split_dim": "axis"},
    "Squeeze": {"squeeze_dims": "axis"},
    "Where": {"input": "condition"},
}


def _raw_op(name: str) -> Any:
    """The op's raw builder, keyword arguments only as in TensorFlow: ``tf.raw_ops.MatMul(a=…, b=…)``."""
    handle = OPS[name]
    own_names = {public: own for own, public in _RAW_NAMES.get(name, {}).items()}

    def raw(**arguments: Any) -> Any:
        return handle(**{own_names.get(key, key): value for key, value in arguments.items()})

    raw.__name__ = raw.__qualname__ = name
    raw.__doc__ = f"Adds a {name} op to the default graph."
    raw.__signature__ = _raw_signature(handle.op_def)  # type: ignore[attr-defined]
    return raw


def _raw_signature(op_def: OpDef) -> Signature:
    """Inputs, then attrs without default, then those with one, then ``name``."""
    renamed = _RAW_NAMES.get(op_def.name, {})
    inferred = op_def.inferred_attrs()
    attrs = sorted((a for a in op_def.attrs.values() if a.name not in inferred), key=lambda a: a.has_default)
    names = [arg.name for arg in op_def.inputs] + [a.name for a in attrs if not a.has_default]
    required = [Parameter(renamed.get(n, n), Parameter.KEYWORD_ONLY) for n in names]
    defaults = {renamed.get(a.name, a.name): a.default for a in attrs if a.has_default}
    optional = [Parameter(n, Parameter.KEYWORD_ONLY, default=d) for n, d in {**defaults, "name": None}.items()]
    return Signature(required + optional)


def _explain(namespace: str, name: str, names: list[str]) -> str:
    """Why ``name`` is missing, and what to use."""
    where = f"{ROOT}.{namespace}" if namespace else ROOT
    plain = f"module {where!r} has no attribute {name!r}"
    if name.startswith("__"):
        return plain
    dotted = f"{namespace}.{name}" if namespace else name
    from tfmini.out_of_scope import new_name, way_around  # serves errors only

    renamed = new_name(dotted)
    if renamed is not None:
        return f"{plain}: tf.{dotted} is of TensorFlow 0.x; TensorFlow 1.0 calls it {renamed}"
    way = way_around(dotted)
    if way is not None:
        return f"{plain}: tf.{dotted} is out of tfmini's scope; use {way}"
    from difflib import get_close_matches  # costs a few ms and serves errors only

    close = get_close_matches(name, names, n=3)
    remedy = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{plain}: if TensorFlow 1.x has tf.{dotted}, tfmini does not have it yet.{remedy}"
