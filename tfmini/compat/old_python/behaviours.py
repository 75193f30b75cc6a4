"""Functions of packages that are called as before and did something else: module -> what mends it."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tfmini.compat.old_python import arrays
from tfmini.compat.old_python.notices import tell_once

# ---- np.array of rows of several lengths and of tensors; np.issubdtype(…, float) -------------------------------------

# TensorFlow, as tfmini, takes an error for its own message; today's packages ask for today's answers.
_OF_TODAY = {"tfmini", "numpy", "scipy", "pandas", "sklearn", "jax"}


def _mend_numpy(numpy: ModuleType) -> None:
    """Lets ``np.array`` and ``np.asarray`` make arrays of objects, and ``np.issubdtype`` know Python's types."""
    arrays.install()
    if "shape" in inspect.signature(numpy.reshape).parameters:  # since NumPy 2.1
        vars(numpy)["reshape"] = _of_former_name("numpy.reshape", numpy.reshape)
    for name in ("array", "asarray"):
        vars(numpy)[name] = _of_objects(vars(numpy)[name])
    vars(numpy)["issubdtype"] = _of_kinds(numpy.issubdtype)


def _mend_threading(threading: ModuleType) -> None:
    """Gives threads ``isAlive`` back, the name of ``is_alive`` until Python 3.8."""

    def is_alive(thread: Any) -> bool:
        tell_once("Thread.isAlive", "tfmini calls is_alive")
        return bool(thread.is_alive())

    threading.Thread.isAlive = is_alive


# Arguments that have another name now: function -> the former name and the name.
RENAMED = {"numpy.reshape": ("newshape", "shape")}


def _of_former_name(path: str, original: Callable[..., Any]) -> Callable[..., Any]:
    former, name = RENAMED[path]

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if former in kwargs:
            tell_once(f"{path}({former}=…)", f"tfmini takes it for {name}")
            kwargs[name] = kwargs.pop(former)
        return original(*args, **kwargs)

    return call


def _caller() -> str:
    """The package that called the function that asks."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0]


def _of_objects(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except (ValueError, NotImplementedError) as error:
            if not args or _caller() in ("tfmini", "numpy"):
                raise
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
            if "symbolic Tensor" in str(error) and isinstance(args[0], (list, tuple)):
                if dtype is None or np.dtype(dtype) == object:
                    return _of_leaves(args[0])
                raise
            if "inhomogeneous" not in str(error):
                raise
            if dtype is not None:
                return _of_single_elements(original(args[0], dtype=object), dtype, error)
        tell_once("an array of rows of several lengths", "tfmini makes an array of objects of it, as NumPy 1.23 did")
        return original(*args[:1], **{**kwargs, "dtype": object})

    return call


def _of_single_elements(objects: np.ndarray, dtype: Any, error: Exception) -> np.ndarray:
    """Numbers of ``dtype`` from objects, some of them arrays of one element; raises ``error`` for other objects."""
    try:
        return objects.astype(dtype)
    except (TypeError, ValueError):
        raise error from None


def _of_leaves(nested: Any) -> Any:
    """An array of the objects in nested lists, as NumPy made it of tensors up to 1.19."""
    leaves: list[Any] = []

    def numbered(item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return [numbered(part) for part in item]
        leaves.append(item)
        return len(leaves) - 1

    places = np.array(numbered(nested))
    found = np.empty(len(leaves), object)
    for i, leaf in enumerate(leaves):
        found[i] = leaf
    return found[places]


def _of_kinds(original: Callable[..., bool]) -> Callable[..., bool]:
    """``np.issubdtype`` up to NumPy 1.19: ``float`` stood for all floating types, ``int`` for all signed integers."""
    kinds = {float: np.floating, int: np.signedinteger, complex: np.complexfloating, str: np.character}

    @functools.wraps(original)
    def issubdtype(arg1: Any, arg2: Any) -> bool:
        if isinstance(arg2, type) and arg2 in kinds and _caller() not in _OF_TODAY:
            arg2 = kinds[arg2]
        return original(arg1, arg2)

    return issubdtype


# ---- yaml.load(f) ----------------------------------------------------------------------------------------------------


# Functions that did something else without an argument -> the argument, and what is done where it is missing.
CALLS = {
    "yaml.load": ("Loader", "takes yaml.FullLoader"),
    "yaml.load_all": ("Loader", "takes yaml.FullLoader"),
    "h5py.File": ("mode", "makes or changes the file, as h5py 2 did"),
}


def _mend_yaml(yaml: ModuleType) -> None:
    """Gives ``yaml.load`` the loader of PyYAML 5.1 to 5.4, which had a default; it makes no objects of classes."""
    original = yaml.load

    def load(stream: Any, Loader: Any = None) -> Any:
        if Loader is None:
            tell_once("yaml.load(f) without a loader", f"tfmini {CALLS['yaml.load'][1]}")
            Loader = yaml.FullLoader
        return original(stream, Loader)

    def load_all(stream: Any, Loader: Any = None) -> Any:
        return original_all(stream, yaml.FullLoader if Loader is None else Loader)

    original_all = yaml.load_all
    vars(yaml).update(load=load, load_all=load_all)


# ---- h5py's strings --------------------------------------------------------------------------------------------------
# h5py 2 told the two kinds of strings of a file apart: ASCII was bytes, UTF-8 str. h5py 3 gives attributes as str and
# elements of datasets as bytes, always. Keras's files have attributes of both kinds.


def _mend_h5py(h5py: ModuleType) -> None:
    mend_attributes(h5py, "")
    _mend_datasets(h5py)
    _mend_mode(h5py)


def mend_attributes(h5py: ModuleType, readers: str) -> None:
    """Gives ASCII attributes as bytes, to the modules whose names begin with ``readers``; to others as before."""
    get, put = h5py.AttributeManager.__getitem__, h5py.AttributeManager.__setitem__

    def getitem(attributes: Any, name: str) -> Any:
        value = get(attributes, name)
        if not _may_be_text(value) or not sys._getframe(1).f_globals.get("__name__", "").startswith(readers):
            return value
        kind = h5py.check_string_dtype(attributes.get_id(name).dtype)
        if kind is None or kind.encoding != "ascii":
            return value
        if not readers:
            tell_once("an ASCII attribute of an HDF5 file", "tfmini gives it as bytes, as h5py 2 did")
        return value.encode() if isinstance(value, str) else _each(value, str, str.encode)

    def setitem(attributes: Any, name: str, value: Any) -> None:
        # A list of bytes was an array of a fixed length, which comes back as such.
        of_bytes = isinstance(value, (list, tuple)) and value and all(isinstance(v, bytes) for v in value)
        put(attributes, name, np.asarray(value) if of_bytes else value)

    h5py.AttributeManager.__getitem__, h5py.AttributeManager.__setitem__ = getitem, setitem


def _may_be_text(value: Any) -> bool:
    return isinstance(value, str) or getattr(value, "dtype", None) == np.dtype(object)


def _each(values: Any, kind: type, convert: Callable[[Any], Any]) -> Any:
    """A copy of an array with its elements of a type converted."""
    made = values.copy()
    made.flat = [convert(value) if isinstance(value, kind) else value for value in values.flat]
    return made


def _mend_datasets(h5py: ModuleType) -> None:
    original = h5py.Dataset.__getitem__

    def getitem(dataset: Any, args: Any, new_dtype: Any = None) -> Any:
        kind = h5py.check_string_dtype(dataset.dtype)
        if kind is None or kind.length is not None or kind.encoding == "ascii" or new_dtype is not None:
            return original(dataset, args, new_dtype)
        tell_once("UTF-8 strings of an HDF5 file", "tfmini gives them as str, as h5py 2 did")
        found = original(dataset, args)
        return found.decode() if isinstance(found, bytes) else _each(found, bytes, bytes.decode)

    def value(dataset: Any) -> Any:
        tell_once("h5py.Dataset.value", "tfmini gives it as dataset[()]")
        return dataset[()]

    h5py.Dataset.__getitem__ = getitem
    h5py.Dataset.value = property(value)


def _mend_mode(h5py: ModuleType) -> None:
    original = h5py.File.__init__

    def init(file: Any, name: Any, mode: str | None = None, *args: Any, **options: Any) -> None:
        if mode is None and not isinstance(name, h5py.h5f.FileID):
            tell_once("h5py.File without a mode", f"tfmini {CALLS['h5py.File'][1]}")
            path = os.fspath(name) if isinstance(name, (str, bytes, os.PathLike)) else ""
            mode = "r" if path and os.path.exists(path) and not os.access(path, os.W_OK) else "a"
        original(file, name, mode or "r", *args, **options)

    h5py.File.__init__ = init
    h5py.File.fid = property(lambda file: file.id)


# ---- Keras -----------------------------------------------------------------------------------------------------------


def _mend_io_utils(module: ModuleType) -> None:
    """An empty list in a file is an empty array, which numpy took for false; the library asks whether it is."""
    original = module.H5Dict.__getitem__

    def getitem(group: Any, attr: Any) -> Any:
        found = original(group, attr)
        return [] if isinstance(found, np.ndarray) and found.shape == (0,) else found

    module.H5Dict.__getitem__ = getitem


def _mend_conv_utils(module: ModuleType) -> None:
    """`convert_kernel` indexes an array by a list of slices, which numpy took for a tuple."""
    original = module.convert_kernel

    def convert_kernel(kernel: Any) -> np.ndarray:
        kernel = np.asarray(kernel)
        if not 3 <= kernel.ndim <= 5:
            return original(kernel)  # type: ignore[no-any-return]  # for its error
        return np.copy(np.flip(kernel, tuple(range(kernel.ndim - 2))))

    vars(module)["convert_kernel"] = convert_kernel


# ---- scipy -----------------------------------------------------------------------------------------------------------


def _mend_eigen(module: ModuleType) -> None:
    """It was a package; ``scipy.sparse.linalg.eigen.arpack`` is one of `dropped_modules`."""
    vars(module).setdefault("__path__", [])


# ---- networkx 1.x ----------------------------------------------------------------------------------------------------


_OF_GRAPHS: dict[str, Callable[[Any], Any]] = {
    "node": lambda g: g.nodes,
    "nodes_iter": lambda g: lambda *a, **k: iter(g.nodes(*a, **k)),
    "edges_iter": lambda g: lambda *a, **k: iter(g.edges(*a, **k)),
    "neighbors_iter": lambda g: lambda n: iter(g.neighbors(n)),
    "degree_iter": lambda g: lambda *a, **k: iter(g.degree(*a, **k)),
}


def _mend_networkx(networkx: ModuleType) -> None:
    """Gives graphs the methods of networkx 1 that it had beside others of the same use."""

    def given(name: str, function: Callable[[Any], Any]) -> Any:
        def get(graph: Any) -> Any:
            tell_once(f"networkx.Graph.{name}", "tfmini gives it as networkx 1 had it")
            return function(graph)

        return property(get)

    for name, function in _OF_GRAPHS.items():
        setattr(networkx.Graph, name, given(name, function))


# Package -> attributes of its objects that it had.
MEMBERS: dict[str, tuple[str, ...]] = {"networkx": tuple(_OF_GRAPHS), "h5py": ("value", "fid")}
MENDERS: dict[str, Callable[[ModuleType], None]] = {
    "numpy": _mend_numpy,
    "threading": _mend_threading,
    "yaml": _mend_yaml,
    "h5py": _mend_h5py,
    "networkx": _mend_networkx,
    "scipy.sparse.linalg.eigen": _mend_eigen,
    "keras.utils.io_utils": _mend_io_utils,
    "keras.utils.conv_utils": _mend_conv_utils,
}
