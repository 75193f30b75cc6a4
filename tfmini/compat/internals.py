"""Modules for the private paths of TensorFlow that scripts import.

``tensorflow.python.ops.math_ops`` and the like were never public, but half of the old scripts use
them. A path has the names that are exported to it (``@export("tensorflow.python.tf2.enabled")``), and those of the
places that `PATHS` lists for it, in order:

- ``tf.math``: a public namespace (``tf`` is the root, the fallback of every path);
- ``:train.slot_creator``: a module of tfmini;
- ``raw``: the raw ops under TensorFlow's generated names (``gen_math_ops.mat_mul``);
- ``=placement.device_setter``, alone: the module itself, so that a library may replace what it calls.

A path whose row is ``-`` can be imported, since many scripts import it without using it; using one of
its names raises an error with the alternative.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from tfmini import protos
from tfmini.compat import import_only, version_2
from tfmini.compat.exported_names import NAMES
from tfmini.compat.internal_paths import FUNCTIONS, PACKAGES, PATHS, SHORT, UNSUPPORTED
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
    listed |= {f"compat.v2.{space}".rstrip(".") for space in version_2.names()}
    return frozenset(listed | {name[:i] for name in listed for i, c in enumerate(name) if c == "."}) - {""}


def module(dotted: str) -> ModuleType | None:
    """Returns the module of a path below ``tensorflow``, created on first use; None for an unknown path."""
    dotted = SHORT.get(dotted, dotted)
    if dotted in _made:
        return _made[dotted]
    is_message = dotted.startswith(("core.", "python.training.")) and dotted.endswith("_pb2")
    if is_message and dotted not in import_only.NAMES:
        return protos.module_with(dotted.rpartition(".")[2])
    if not any(dotted in listed for listed in (PATHS, NAMES, import_only.NAMES, _packages())):
        return None
    return _made.setdefault(dotted, _build(dotted, PATHS.get(dotted, "").split()))


@cache
def _packages() -> frozenset[str]:
    """All paths that have modules below them."""
    paths = [*PATHS, *NAMES, *PACKAGES, *import_only.NAMES]
    return frozenset(p[:i] for p in paths for i, c in enumerate(p) if c == ".") | {*PACKAGES}


def _build(dotted: str, sources: list[str]) -> ModuleType:
    if sources and sources[0].startswith("="):
        return import_module(f"{_ROOT}.{sources[0][1:]}")
    made = ModuleType(f"tensorflow.{dotted}", f"TensorFlow's ``tensorflow.{dotted}``, served by tfmini.")
    made.__path__ = []
    exported = dict(_exported(dotted))
    lookups = [_lookup(source) for source in sources if source != "-"]
    lookups += [partial(_of_version_2, source) for source in sources if source.startswith("tf")]
    if dotted.startswith("python.keras."):
        lookups.append(partial(_of_keras, dotted))
    if dotted == "python.keras":
        lookups.insert(0, _optimizers_of_keras)
    if exported:
        lookups.insert(0, lambda name: _exported_value(exported, name))
    # The names of the public root are a fallback: ``from tensorflow.python import math_ops``.
    own = [*lookups, _lookup("tf")] if lookups else []

    def module_getattr(name: str) -> Any:
        if name == "__all__":  # read by a star import, which else would find only the names that were asked for before
            return _starred(names(), sources)
        value = _first_found(dotted, name, own)
        setattr(made, name, value)
        return value

    names = lambda: sorted({*vars(made), *exported, *_names(sources)})  # noqa: E731
    vars(made).update(__getattr__=module_getattr, __dir__=names)
    import_only.fill(made, dotted, unsupported(dotted))
    if dotted == "python.ops.init_ops":  # libraries look for initializers in what `vars` gives of it
        home: Any = import_module(f"{_ROOT}.ops.variables.initializers")
        for name, value in list(vars(home).items()):
            is_long = name[0].isupper() or name.endswith("_initializer")  # `ones` is an op where these names are used
            if is_long and isinstance(value, type) and issubclass(value, home.Initializer):
                module_getattr(name)
    return made


def _starred(names: list[str], sources: list[str]) -> list[str]:
    """The names of a star import: those of the root hide none of Python's."""
    own = {*_names([source for source in sources if source != "tf"])}
    return [name for name in names if not name.startswith("_") and (name in own or not hasattr(builtins, name))]


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


def _of_version_2(source: str, name: str) -> Any:
    """What ``tf.compat.v2`` has under a name that ends so: ``nn_ops.softmax_v2``."""
    try:
        if name.endswith("_v2"):
            return version_2.value(source.removeprefix("tf").removeprefix("."), name.removesuffix("_v2"))
    except KeyError:
        pass
    raise AttributeError(name)


def _first_found(dotted: str, name: str, lookups: list[Callable[[str], Any]]) -> Any:
    plain = f"module 'tensorflow.{dotted}' has no attribute {name!r}"
    if name.startswith("__"):
        raise AttributeError(plain)
    below = None if f"{dotted}.{name}" in FUNCTIONS else module(f"{dotted}.{name}")
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


def _of_keras(dotted: str, name: str) -> Any:
    """A name of the module of Keras that is at a path; AttributeError if there is none, or no Keras."""
    try:
        return getattr(import_module(f"{_ROOT}.compat.tf_keras.names").module(dotted), name)
    except ImportError as error:
        raise AttributeError(name) from error


def _optimizers_of_keras(name: str) -> Any:
    """The one module below ``python.keras`` that is another than the public one of its name."""
    if name != "optimizers":
        raise AttributeError(name)
    return import_module(f"{_ROOT}.compat.tf_keras.names").module(f"python.keras.{name}")


def _namespace(source: str) -> ModuleType | None:
    """The module of a public namespace; None if it does not exist."""
    path = source.replace("tf", _ROOT, 1)
    home, _, name = path.rpartition(".")
    found: ModuleType | None = sys.modules.get(path) or getattr(sys.modules.get(home), name, None)  # tf.keras is loaded
    return found


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
        path = f"{namespace}.{last}" if namespace else last
        if owner is not None and last in dir(owner) and not _is_room(owner, path):
            return f"The public name is tf.{path}."
    from tfmini.out_of_scope import alternative  # imported for errors only

    way, instead = unsupported(dotted), alternative(dotted)
    if not way and instead is not None:
        way = f"tf.{dotted} is out of tfmini's scope; use {instead}."
    return way or "Look for a public name (tf.…) that does the same."


def _is_room(owner: ModuleType, path: str) -> bool:
    """Whether a name of a namespace is no public one, but a package of tfmini that has been imported."""
    return isinstance(vars(owner).get(path.rpartition(".")[2]), ModuleType) and path not in public_namespaces()


# ---- Makes ``import tensorflow`` import tfmini, in this process only -----------------------------------------------
# `install` puts a finder before Python's own finders, so an installed TensorFlow is neither used nor
# changed. A module below ``tensorflow`` is, in this order,
#
# - a public namespace (``tensorflow.nn``): tfmini's own module, the same object;
# - a private path that old scripts use (``tensorflow.python.ops.math_ops``): a module made from the table
#   in `tfmini.compat.internals`;
# - anything else: a ModuleNotFoundError that names the alternative.

ALIAS = "tensorflow"
ESTIMATOR_ALIAS = "tensorflow_estimator"  # a package of its own, with the paths of TensorFlow's estimators
TARGET = "tfmini"


class _Present(Loader):
    """Loads a module that exists already, and keeps its own ``__spec__``."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = getattr(module, "__spec__", None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class TensorFlowFinder(MetaPathFinder):
    """Finds the modules below a root (``tensorflow``) in tfmini.

    There are three finders: those for ``tensorflow`` and ``tensorflow_estimator``, first in the list, and one for
    ``tfmini``, last in the list, since ``from tensorflow.contrib import x`` becomes an import of ``tfmini.contrib.x``.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, dotted = fullname.partition(".")
        if root != self.root:
            return _below_another_name(fullname)
        module = _module(dotted)
        if module is None:
            # With the module's own name, Python would hide the message of a `from` import; without it, `pydoc.locate`,
            # with which libraries look for classes in many places, would take it for an error inside of the module.
            name = ALIAS if _by_from_import() else fullname
            raise ModuleNotFoundError(_absent(f"{ALIAS}.{dotted}", dotted), name=name)
        _keep_functions(fullname, public_path(dotted))
        return ModuleSpec(fullname, _Present(module), is_package=True)


def _below_another_name(fullname: str) -> ModuleSpec | None:
    """The module below one with another name: ``keras.layers`` after ``sys.modules["keras"] = tf.keras``."""
    home, _, last = fullname.rpartition(".")
    parent = sys.modules.get(home)
    roots = [name.partition(".")[0] for name in (home, getattr(parent, "__name__", home))]
    if roots[0].startswith((_ROOT, ALIAS)) or roots[1] not in (_ROOT, ALIAS):
        return None
    found = getattr(parent, last, None)
    return ModuleSpec(fullname, _Present(found), is_package=True) if isinstance(found, ModuleType) else None


def _by_from_import() -> bool:
    """Whether a module is sought as a name of ``from package import name``, which hides the module's own error."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
        if frame.f_code.co_name == "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


def _keep_functions(fullname: str, plain: str) -> None:
    """Puts the modules that `FUNCTIONS` names beside their package: to import one would hide the function."""
    for path in FUNCTIONS:
        package, _, name = path.rpartition(".")
        if package == plain:
            sys.modules[f"{fullname}.{name}"] = module(path) or ModuleType(f"{ALIAS}.{path}")


_HOROVOD = {
    "horovod.tensorflow": "tfmini.compat.horovod",
    **{
        f"horovod.tensorflow.{name}": f"tfmini.compat.horovod.{name}"
        for name in ("compression", "elastic", "functions", "mpi_ops", "util")
    },
}

_HOROVOD_KERAS = ("horovod.keras", "horovod.tensorflow.keras")


class HorovodFinder(MetaPathFinder):
    """Finds ``horovod.tensorflow`` as `tfmini.compat.horovod`; ``horovod`` is a package around it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "horovod":
            return None
        if fullname == "horovod":
            package = ModuleType(fullname, "Horovod, served by tfmini.")
            package.__dict__["__version__"] = import_module(_HOROVOD["horovod.tensorflow"]).__version__
            return ModuleSpec(fullname, _Present(package), is_package=True)
        if fullname in _HOROVOD:
            return ModuleSpec(fullname, _Present(import_module(_HOROVOD[fullname])), is_package=True)
        if fullname in _HOROVOD_KERAS:
            made = import_module("tfmini.compat.horovod.keras_interface").interface(fullname)
            return ModuleSpec(fullname, _Present(made), is_package=True)
        owner, _, last = fullname.rpartition(".")
        if owner in _HOROVOD_KERAS and last == "callbacks":
            return ModuleSpec(fullname, _Present(sys.modules[owner].callbacks))
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: tfmini has horovod.tensorflow, with the interface for TensorFlow 1"
            " graphs (init, DistributedOptimizer, BroadcastGlobalVariablesHook, allreduce…), horovod.keras and"
            " horovod.tensorflow.keras; Torch, MXNet and Spark are out of its scope.",
            name="horovod",
        )


def _module(dotted: str) -> ModuleType | None:
    plain = public_path(dotted)
    if not plain:
        return import_module(TARGET)
    if plain in public_namespaces():
        return sys.modules[f"{TARGET}.{plain}"]
    found = module(plain)
    if found is None and "keras" in plain.split(".")[:2]:
        found = import_module(f"{TARGET}.compat.tf_keras.names").module(plain)
    if found is None and plain.startswith("contrib.slim."):
        found = import_module(f"{TARGET}.compat.slim_library").module(plain)
    return found


def _absent(fullname: str, dotted: str) -> str:
    """Returns the error for a missing module: the reason and the alternative."""
    plain = public_path(dotted)
    way = unsupported(plain)
    if way:
        return f"No module named {fullname!r}: {way}"
    parent, _, last = plain.rpartition(".")
    owner = sys.modules.get(f"{TARGET}.{parent}" if parent else TARGET)
    if owner is None or _is_room(owner, plain):  # the parent is a private path or missing, too
        from tfmini.out_of_scope import alternative  # imported for errors only

        instead = alternative(plain)
        if instead is not None:
            return f"No module named {fullname!r}: tf.{plain} is out of tfmini's scope; use {instead}"
    else:
        try:
            getattr(owner, last)
        except AttributeError as error:
            return f"No module named {fullname!r}: {str(error).partition(': ')[2] or error}"
    return f"No module named {fullname!r}: tfmini has no module for this part of TensorFlow. {nearest(plain)}"


def install() -> None:
    """Makes ``import tensorflow`` import tfmini from now on, in this process.

    Raises:
      RuntimeError: when a TensorFlow has been imported already.
    """
    import_module(TARGET)
    present = sys.modules.get(ALIAS)
    if present is not None and present is not sys.modules[TARGET]:
        raise RuntimeError(
            f"{ALIAS} has been imported from {getattr(present, '__file__', 'elsewhere')}; install the alias first."
        )
    protos.use_tensorflow_names()
    if not _finds(ALIAS):
        sys.meta_path.insert(0, TensorFlowFinder(ALIAS))
        sys.meta_path.insert(0, TensorFlowFinder(ESTIMATOR_ALIAS))
        sys.meta_path.insert(0, HorovodFinder())
    find_private_paths()


def find_private_paths() -> None:
    """Makes TensorFlow's private paths importable below ``tfmini``; they stay so."""
    if not _finds(TARGET):
        sys.meta_path.append(TensorFlowFinder(TARGET))


def _finds(root: str) -> bool:
    return any(isinstance(finder, TensorFlowFinder) and finder.root == root for finder in sys.meta_path)


class _InChild:
    """Travels to a process that multiprocessing starts, and installs the alias there when it arrives."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return install, ()


def install_in_children() -> None:
    """Makes ``import tensorflow`` import tfmini in processes, too, that multiprocessing starts without a fork.

    They import the program's modules again, before anything else of it runs there.
    """
    from multiprocessing import spawn

    original = spawn.get_preparation_data
    if getattr(original, "with_alias", False):
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {"tensorflow": _InChild(), **original(name)}

    get_preparation_data.with_alias = True  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


def uninstall() -> None:
    """Undoes `install`: Python's own finders handle ``import tensorflow`` again."""
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not isinstance(finder, HorovodFinder)
        and not (isinstance(finder, TensorFlowFinder) and finder.root != TARGET)
    ]
    for name in [name for name in sys.modules if name.partition(".")[0] in (ALIAS, ESTIMATOR_ALIAS, "horovod")]:
        del sys.modules[name]
