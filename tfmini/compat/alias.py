"""Makes ``import tensorflow`` import tfmini, in this process only.

`install` puts a finder before Python's own finders, so an installed TensorFlow is neither used nor
changed. A module below ``tensorflow`` is, in this order,

- a public namespace (``tensorflow.nn``): tfmini's own module, the same object;
- a private path that old scripts use (``tensorflow.python.ops.math_ops``): a module made from the table
  in `tfmini.compat.internals`;
- anything else: a ModuleNotFoundError that names the alternative.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tfmini.compat import internals

ALIAS = "tensorflow"
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

    There are two finders: one for ``tensorflow``, first in the list, and one for ``tfmini``, last in the
    list, since ``from tensorflow.contrib import x`` becomes an import of ``tfmini.contrib.x``.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, dotted = fullname.partition(".")
        if root != self._root:
            return None
        module = _module(dotted)
        if module is None:
            # The error's name is the root: with its own name, Python would hide the message of a `from` import.
            raise ModuleNotFoundError(_absent(f"{ALIAS}.{dotted}", dotted), name=ALIAS)
        return ModuleSpec(fullname, _Present(module), is_package=True)


_HOROVOD = {
    "horovod.tensorflow": "tfmini.compat.horovod",
    **{
        f"horovod.tensorflow.{name}": f"tfmini.compat.horovod.{name}"
        for name in ("compression", "elastic", "functions", "mpi_ops", "util")
    },
}


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
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: tfmini has only horovod.tensorflow, with the interface for TensorFlow 1"
            " graphs (init, DistributedOptimizer, BroadcastGlobalVariablesHook, allreduce…); Keras, Torch, MXNet and"
            " Spark are out of its scope.",
            name="horovod",
        )


def _module(dotted: str) -> ModuleType | None:
    plain = internals.public_path(dotted)
    if not plain:
        return import_module(TARGET)
    if plain in internals.public_namespaces():
        return sys.modules[f"{TARGET}.{plain}"]
    return internals.module(plain)


def _absent(fullname: str, dotted: str) -> str:
    """Returns the error for a missing module: the reason and the alternative."""
    plain = internals.public_path(dotted)
    way = internals.unsupported(plain)
    if way:
        return f"No module named {fullname!r}: {way}"
    parent, _, last = plain.rpartition(".")
    try:
        getattr(sys.modules[f"{TARGET}.{parent}" if parent else TARGET], last)
    except AttributeError as error:
        return f"No module named {fullname!r}: {str(error).partition(': ')[2] or error}"
    except KeyError:  # the parent is a private path or missing, too
        from tfmini.out_of_scope import alternative  # imported for errors only

        instead = alternative(plain)
        if instead is not None:
            return f"No module named {fullname!r}: tf.{plain} is out of tfmini's scope; use {instead} instead"
    return f"No module named {fullname!r}: tfmini has no module for this part of TensorFlow. {internals.nearest(plain)}"


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
    if not any(isinstance(finder, TensorFlowFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TensorFlowFinder(ALIAS))
        sys.meta_path.append(TensorFlowFinder(TARGET))
        sys.meta_path.insert(0, HorovodFinder())


def uninstall() -> None:
    """Undoes `install`: Python's own finders handle ``import tensorflow`` again."""
    ours = (TensorFlowFinder, HorovodFinder)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, ours)]
    for name in [name for name in sys.modules if name.partition(".")[0] in (ALIAS, "horovod")]:
        del sys.modules[name]
