"""Builds the TF1 namespace from the table in `public_names`, which is generated from the `export` marks in the sources.

A name is looked up on first use and then stored as a plain attribute, so ``import tfmini`` is fast, and
protobuf is imported with the first message. ``vars(tf.nn)`` looks all names up, and has them as in TensorFlow.
A public namespace that is not a package of tfmini
(``tf.nn``, ``tf.math``, …) becomes a new module in ``sys.modules``, so ``from tfmini import nn`` and
``import tfmini.nn`` work. A namespace that is a package or module (``tf.train``, ``tf.errors``,
``tf.dtypes``, ``tf.compat``) looks up the names that it does not define; they are not stored, since
``complex`` in `dtypes` is the builtin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfmini.compat import version_2
from tfmini.export import ALIASES
from tfmini.public_names import NAMES

if TYPE_CHECKING:
    from inspect import Signature

    from tfmini.graph.op_types import OpType

ROOT = "tfmini"
# Modules whose names need no tensors. One that is missing here costs time at its first name, nothing else.
_WITHOUT_TENSORS = tuple(
    f"{ROOT}.{home}"
    for home in (
        *("_version", "cluster", "compat.app", "compat.flags", "compat.logging", "compat.tf_logging", "devices"),
        *("dimension", "dtypes", "errors", "protos", "runtime.server", "shapes"),
    )
)
# The runtime looks names of these up in every step, which is slower in a module of another class.
_IN_STEPS = (f"{ROOT}.dtypes", f"{ROOT}.errors")
Getter = Callable[[str], Any]


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Yields the rows of the table: (namespace, public name, home module, attribute)."""
    for namespace, homes in {**NAMES, **{alias: NAMES[repeated] for alias, repeated in ALIASES.items()}}.items():
        for home, names in homes.items():
            for entry in names.split():
                public, _, attribute = entry.partition("=")
                yield namespace, public, f"{ROOT}.{home}", attribute or public


def public_names() -> list[str]:
    """All public names as users write them (``tf.nn.relu``), with the ops of ``tf.raw_ops``."""
    from tfmini.graph.op_types import op_names

    listed = [f"tf.{namespace}.{name}" if namespace else f"tf.{name}" for namespace, name, _, _ in rows()]
    return sorted({*listed, *(f"tf.raw_ops.{name}" for name in op_names() if not name.startswith("_"))})


def install() -> None:
    """Adds their attributes to ``tfmini`` and each public namespace below it; adds ``tf.compat.v1``."""
    tables: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    for namespace, public, home, attribute in rows():
        tables.setdefault(namespace, {})[public] = (home, attribute)
    root = sys.modules[ROOT]
    second = {f"compat.v2.{space}".rstrip("."): listed for space, listed in version_2.names().items()}
    namespaces = sorted({*tables, *second})  # parents come before their children
    for namespace in namespaces:
        table, more = tables.get(namespace, {}), second.get(namespace, [])
        resolve = _of_version_2(namespace[10:], _resolver(table)) if more else _resolver(table)
        _set_attributes(_module(namespace), namespace, resolve, [*table, *more])
    raw_ops = _module("raw_ops")
    _set_attributes(raw_ops, "raw_ops", _raw_op, _RawOpNames())
    _list_children([*namespaces, "raw_ops"])
    _dict_of(sys.modules[f"{ROOT}.compat"])["v1"] = root
    sys.modules[f"{ROOT}.compat.v1"] = root
    for namespace in (*tables, "raw_ops"):
        if namespace and not namespace.startswith("compat"):
            sys.modules[f"{ROOT}.compat.v1.{namespace}"] = sys.modules[f"{ROOT}.{namespace}"]


def _list_children(namespaces: Sequence[str]) -> None:
    """Lets ``from tensorflow import *`` import the namespaces below one as well, as in TensorFlow."""
    for namespace in namespaces:
        while namespace:
            parent, _, last = namespace.rpartition(".")
            listed = _dict_of(_module(parent)).setdefault("__all__", [])
            if last not in listed:
                listed.append(last)
            namespace = parent


def _module(namespace: str) -> ModuleType:
    """Returns the module of a public namespace; creates it, after its parents, if it is no file."""
    name = f"{ROOT}.{namespace}" if namespace else ROOT
    found = sys.modules.get(name)
    if found is not None:
        return found
    made = _Namespace(name, f"TensorFlow's ``tf.{namespace}`` (see `tfmini.public_names`).")
    made.__path__ = []  # a package without files, so that ``import tfmini.contrib.framework`` works
    sys.modules[name] = made
    parent, _, last = namespace.rpartition(".")
    setattr(_module(parent), last, made)
    _set_attributes(made, namespace, _resolver({}), [])  # replaced later if the namespace has names
    return made


_slot: Any = vars(ModuleType)["__dict__"]


def _dict_of(module: ModuleType) -> dict[str, Any]:
    """The real ``__dict__`` of a module, of a `_Namespace` as well."""
    return _slot.__get__(module)  # type: ignore[no-any-return]


class _Namespace(ModuleType):
    """A module whose ``__dict__`` has the public names as well: old scripts look them up there.

    A module with a file of its own shows a copy: in its real one, a public name could hide a builtin.
    """

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # the attribute of each object
        found, names = _found(self), _dict_of(self)  # the look-up stores names, where it may
        return {**names, **found} if names.get("__file__") and self is not sys.modules[ROOT] else names

    def __dir__(self) -> list[str]:
        return _dict_of(self)["__dir__"]()  # type: ignore[no-any-return]  # Python's own would read `__dict__`


def _found(module: ModuleType) -> dict[str, Any]:
    """The public names of a module that can be looked up here; some need an optional package."""
    found = {}
    for name in dir(module):
        with suppress(AttributeError, ImportError):
            found[name] = getattr(module, name)
    return found


_OF_BUILD = ["__version__", "__git_version__", "__compiler_version__", "__cxx11_abi_flag__", "__monolithic_build__"]


def _set_attributes(module: ModuleType, namespace: str, resolve: Getter, names: Sequence[str]) -> None:
    """Makes ``module`` resolve ``names``, and raise a helpful error for missing ones."""
    own = not hasattr(module, "__file__") or module.__name__ == ROOT

    def module_getattr(name: str) -> Any:
        try:
            value = resolve(name)
        except KeyError:
            of_keras = namespace.partition(".")[0] == "keras" and (name[:2] != "__" or name == "__version__")
            if of_keras or (namespace, name) == ("contrib", "keras"):
                return import_module(f"{ROOT}.compat.tf_keras.names").find(namespace, name)
            if namespace in ("compat.v1", "compat.v2") and name in _OF_BUILD:
                return getattr(sys.modules[ROOT], name)
            text = _missing_message(namespace, name, names)
            # Below an uncaught error Python proposes names of the object.
            raise AttributeError(text, name=name, obj=None if "Did you mean" in text else module) from None
        if own:
            setattr(module, name, value)
        return value

    def module_dir() -> list[str]:
        return sorted({*_dict_of(module), *names})

    _dict_of(module).update(__getattr__=module_getattr, __dir__=module_dir)
    if own:
        _dict_of(module)["__all__"] = names
    if module.__name__ not in _IN_STEPS:
        module.__class__ = _Namespace


def _resolver(table: dict[str, tuple[str, str]]) -> Getter:
    def resolve(name: str) -> Any:
        home, attribute = table[name]
        if not home.startswith(_WITHOUT_TENSORS):
            _load_ops()
        return getattr(import_module(home), attribute)

    return resolve


def _of_version_2(space: str, resolve: Getter) -> Getter:
    """A look-up in ``tf.compat.v2``: of what is exported there, else of what `version_2` makes."""

    def resolve_2(name: str) -> Any:
        try:
            return resolve(name)
        except KeyError:
            _load_ops()
            return version_2.value(space, name)

    return resolve_2


def _load_ops() -> None:
    """Imports all ops, which give tensors operators and conversions. The first name of tensors does so."""
    from tfmini.graph.op_types import load_ops

    load_ops()


class _RawOpNames(Sequence[str]):
    """The names of ``tf.raw_ops``, for whoever lists them: that imports the ops."""

    def _names(self) -> list[str]:
        from tfmini.graph.op_types import op_names

        return sorted(name for name in op_names() if not name.startswith("_"))

    def __getitem__(self, index: Any) -> Any:
        return self._names()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


def _raw_op(name: str) -> Any:
    """Returns an op's raw builder, with keyword arguments only, as in TensorFlow: ``tf.raw_ops.MatMul(a=…, b=…)``."""
    from tfmini.graph import raw_ops
    from tfmini.graph.op_types import OPS

    _load_ops()
    handle, add = OPS[name], raw_ops.named(name)
    own_names = {public: own for own, public in handle.traits.get("raw_names", {}).items()}

    def raw(**arguments: Any) -> Any:
        return add(**{own_names.get(key, key): value for key, value in arguments.items()})

    raw.__name__ = raw.__qualname__ = name
    raw.__doc__ = f"Adds a {name} op to the default graph."
    vars(raw)["__signature__"] = _raw_signature(handle)
    return raw


def _raw_signature(handle: OpType) -> Signature:
    """The signature: inputs, attrs without default, attrs with default, ``name``."""
    from inspect import Parameter, Signature

    op_def, renamed = handle.op_def, handle.traits.get("raw_names", {})
    inferred = op_def.inferred_attrs()
    attrs = sorted((a for a in op_def.attrs.values() if a.name not in inferred), key=lambda a: a.has_default)
    names = [arg.name for arg in op_def.inputs] + [a.name for a in attrs if not a.has_default]
    required = [Parameter(renamed.get(n, n), Parameter.KEYWORD_ONLY) for n in names]
    defaults = {renamed.get(a.name, a.name): a.default for a in attrs if a.has_default}
    optional = [Parameter(n, Parameter.KEYWORD_ONLY, default=d) for n, d in {**defaults, "name": None}.items()]
    return Signature(required + optional)


def _missing_message(namespace: str, name: str, names: Sequence[str]) -> str:
    """The error message for a missing name, with the alternative."""
    where = f"{ROOT}.{namespace}" if namespace else ROOT
    plain = f"module {where!r} has no attribute {name!r}"
    if name.startswith("__"):
        return plain
    dotted = f"{namespace}.{name}" if namespace else name
    from tfmini.out_of_scope import alternative, in_tensorflow, is_listed, name_in_1_0  # imported for errors only

    instead = alternative(dotted)  # ``tf.compat.v2`` may have one of its own
    dotted = dotted.removeprefix("compat.v2.")
    renamed = name_in_1_0(dotted)
    if renamed is not None:
        return f"{plain}: tf.{dotted} is a name of TensorFlow 0.x; in TensorFlow 1.0 it is {renamed}"
    from tfmini.text import similar  # imported for errors only

    if instead is not None:  # it may be the way of the whole namespace, and the name a slip of the pen
        close = [] if is_listed(dotted) else similar(name, names)
        meant = f"Did you mean {' or '.join(close)}? As a name of TensorFlow, " if close else ""
        return f"{plain}: {meant}tf.{dotted} is out of tfmini's scope; use {instead}"
    told = in_tensorflow(dotted)
    close = [] if "TensorFlow 2" in told else similar(name, names)
    remedy = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{plain}: {told}.{remedy}"
