"""What a dotted name is: on tfmini, in this Python, or in one of its packages; and what became of names that are gone.

Modules are looked up in this process, so that the answer is that of a run. Only tfmini, the standard library and
packages of `PACKAGES` are imported, and nothing from the working directory.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from tfmini.compat import internals
from tfmini.compat.old_python import dropped_modules
from tfmini.compat.old_python.dropped_names import NAMES

# Packages whose names are looked up: those of which old programs use names that are gone.
PACKAGES = {
    *("numpy", "scipy", "networkx", "h5py", "yaml", "six", "matplotlib", "pylab", "sklearn", "pandas", "PIL", "absl"),
    *("tensorflow", "horovod"),
}
OF_TENSORFLOW = ("tensorflow", "horovod")
_NEVER = {"antigravity", "this", "idlelib", "test", "__main__", "turtle", "turtledemo"}  # which do something

# What old programs import -> what to install for it, where the names differ.
_DISTRIBUTIONS = {
    "cv2": "opencv-python", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
    "bs4": "beautifulsoup4", "dateutil": "python-dateutil", "tensorflow_probability": "'tensorflow-probability<0.9'",
    "tensorflow_hub": "'tensorflow-hub<0.13'",
}  # fmt: skip

# Names of packages that are gone, which `tfmini run` does not give back -> what to write. A key covers those below it.
DROPPED = {
    "sklearn.cross_validation": "sklearn.model_selection",
    "sklearn.grid_search": "sklearn.model_selection",
    "sklearn.learning_curve": "sklearn.model_selection",
    "sklearn.preprocessing.Imputer": "sklearn.impute.SimpleImputer",
    "sklearn.datasets.samples_generator": "sklearn.datasets",
    "sklearn.datasets.fetch_mldata": "sklearn.datasets.fetch_openml",
    "sklearn.datasets.load_boston": "sklearn.datasets.fetch_california_housing",
    "sklearn.mixture.GMM": "sklearn.mixture.GaussianMixture",
    "sklearn.utils.linear_assignment_": "scipy.optimize.linear_sum_assignment",
    "matplotlib.finance": "the package mplfinance",
    "matplotlib.mlab.normpdf": "scipy.stats.norm.pdf",
    "matplotlib.mlab.griddata": "scipy.interpolate.griddata",
    "matplotlib.pyplot.hold": "nothing: every axis holds now",
    "matplotlib.pyplot.spectral": "matplotlib.pyplot.nipy_spectral",
    "matplotlib.pyplot.cm.spectral": "matplotlib.pyplot.cm.nipy_spectral",
    "matplotlib.cm.get_cmap": "matplotlib.colormaps[name]",
    "matplotlib.cm.register_cmap": "matplotlib.colormaps.register",
    "pandas.Panel": "an xarray.DataArray, or a frame with a MultiIndex",
    "pandas.ix": "loc or iloc",
    "pandas.tools.plotting": "pandas.plotting",
    "pandas.rolling_mean": "frame.rolling(n).mean()",
    "pandas.io.data": "the package pandas_datareader",
    "pandas.Int64Index": "pandas.Index",
    "PIL.PILLOW_VERSION": "PIL.__version__",
    "scipy.spatial.distance.wminkowski": "scipy.spatial.distance.minkowski with w",
    "scipy.interpolate.interp2d": "scipy.interpolate.RegularGridInterpolator",
    "scipy.weave": "numba or Cython",
    "numpy.find_common_type": "numpy.result_type",
    "numpy.issubsctype": "numpy.issubdtype",
    "numpy.sctype2char": "numpy.dtype(...).char",
    "numpy.chararray": "numpy.char",
    "networkx.info": "str(graph)",
    "networkx.write_gpickle": "pickle.dump",
    "networkx.read_gpickle": "pickle.load",
    "networkx.write_yaml": "yaml.dump",
    "asyncore": "asyncio",
    "asynchat": "asyncio",
    "asyncio.async": "asyncio.ensure_future",
    "asyncio.coroutine": "async def",
    "os.errno": "the module errno",
    "os.getcwdu": "os.getcwd",
    "pipes": "shlex and subprocess",
    "string.join": "separator.join(words)",
    "string.split": "text.split",
    "string.replace": "text.replace",
    "string.atoi": "int",
    "string.atof": "float",
    "string.uppercase": "string.ascii_uppercase",
    "string.lowercase": "string.ascii_lowercase",
    "sys.exc_clear": "nothing: an exception is over at the end of its except",
    "types.StringType": "str",
    "types.ListType": "list",
    "types.DictType": "dict",
    "types.IntType": "int",
    "types.FloatType": "float",
    "types.TupleType": "tuple",
    "types.NoneType": "type(None)",
    "types.StringTypes": "str",
    "unittest.makeSuite": "unittest.TestLoader().loadTestsFromTestCase",
    "urllib.urlretrieve": "urllib.request.urlretrieve",
    "urllib.urlopen": "urllib.request.urlopen",
    "urllib.urlencode": "urllib.parse.urlencode",
    "urllib.quote": "urllib.parse.quote",
    "urllib.unquote": "urllib.parse.unquote",
    "urllib.URLopener": "urllib.request.urlopen",
    "itertools.izip": "zip",
    "itertools.izip_longest": "itertools.zip_longest",
    "itertools.imap": "map",
    "itertools.ifilter": "filter",
    "itertools.ifilterfalse": "itertools.filterfalse",
    "operator.isCallable": "callable",
    "operator.sequenceIncludes": "operator.contains",
    "operator.div": "operator.truediv or operator.floordiv",
}


@dataclass(frozen=True)
class Absent:
    """A name that is not there.

    Attributes:
      path: as far as it is missing: ``a.b`` where ``a.b.c`` is asked for and ``a`` has no ``b``.
      told: what the error says that a run would end with.
      package: whether a package is missing that may be installed.
    """

    path: str
    told: str
    package: bool = False


def is_known(root: str) -> bool:
    """Whether names of a module are looked up here."""
    return root in PACKAGES or (root in sys.stdlib_module_names and root not in _NEVER)


@cache
def is_installed(module: str) -> bool:
    """Whether there is a module of that name to import; of ``a.b``, ``a`` is imported for it."""
    with _only_installed():
        try:
            return importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            return False


def distribution(module: str) -> str:
    """What to install for a module."""
    return _DISTRIBUTIONS.get(module, module.replace(".", "-"))


@cache
def look_up(path: str) -> object:
    """What a path denotes; `Absent` if it is not there; None where only a run could tell."""
    root, *parts = path.split(".")
    if root in OF_TENSORFLOW:
        internals.install()
    found: object
    with _only_installed():
        try:
            found, reached = importlib.import_module(root), root
        except ImportError as error:
            return None if is_installed(root) else Absent(root, str(error), package=True)
        for part in parts:
            owner, reached = found, f"{reached}.{part}"
            if isinstance(owner, ModuleType):
                found = _of_module(owner, part, reached)
            elif isinstance(owner, type):
                found = getattr(owner, part) if hasattr(owner, part) else Absent(reached, _plain(owner, part))
            else:
                return None  # an object, whose attributes may come while it is used
            if isinstance(found, Absent):
                return found
    return found


def _of_module(owner: ModuleType, name: str, path: str) -> object:
    """A name of a module or a module below it."""
    try:
        return getattr(owner, name)
    except (AttributeError, ImportError) as error:
        told = str(error)
    if hasattr(owner, "__path__"):
        try:
            return importlib.import_module(path)
        except ImportError as error:
            told = max((told, str(error)), key=_says_what_to_use)
        except Exception as error:  # a module of an old package that fails
            told = f"{type(error).__name__}: {error}"
    return Absent(path, told)


_GENERAL = internals.nearest("no.such.path")


def _says_what_to_use(told: str) -> int:
    """How well an error says it: a remedy, then a reason; least where it has nothing but general advice."""
    if told.endswith(_GENERAL):
        return 0
    return ("use " in told or "public name is" in told) * 2 + (": " in told or ". " in told) + 1


def _plain(owner: type, name: str) -> str:
    return f"{owner.__name__} has no attribute {name!r}"


def public_names(module: str) -> list[str] | None:
    """What ``from module import *`` brings; None if that is not known."""
    if not is_known(module.partition(".")[0]):
        return None
    found = look_up(module)
    if not isinstance(found, ModuleType):
        return []
    return list(getattr(found, "__all__", [name for name in dir(found) if not name.startswith("_")]))


@contextlib.contextmanager
def _only_installed() -> Iterator[None]:
    """Imports within the block come from what is installed, not from the working directory, and warn of nothing."""
    before = list(sys.path)
    sys.path[:] = [folder for folder in before if folder and os.path.abspath(folder) != os.getcwd()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.path[:] = before


# ---- What became of names that are gone ------------------------------------------------------------------------------


def mended(path: str) -> str:
    """What `tfmini run` does about a name that Python or a package had; "" if nothing."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module, name = ".".join(parts[:end]), parts[end]
        if name in NAMES.get(module, {}):
            given = NAMES[module][name].replace(":", ".").removeprefix("builtins.")
            return "tfmini run gives its own" if given.startswith("tfmini.") else f"tfmini run gives {given}"
        if module in dropped_modules.MAKERS and name in dropped_modules.MAKERS[module]():
            return "tfmini run gives its own"
    return "tfmini run gives its own" if path in dropped_modules.MAKERS else ""


def of_module_to_go(path: str) -> bool:
    """Whether a path is of a module that newer Pythons or setuptools lack."""
    return path.partition(".")[0] in dropped_modules.MAKERS


def dropped(path: str) -> str:
    """What to write for a name that is gone; "" if that is not known."""
    parts = path.split(".")
    return next((DROPPED[key] for n in range(len(parts), 0, -1) if (key := ".".join(parts[:n])) in DROPPED), "")


def version_of(root: str) -> str:
    """A package or Python with its version, for messages."""
    if root in sys.stdlib_module_names:
        return f"Python {sys.version_info.major}.{sys.version_info.minor}"
    version = getattr(sys.modules.get(root), "__version__", "")
    return f"{root} {version}".rstrip()


# ---- Calls -----------------------------------------------------------------------------------------------------------


@cache
def signature(path: str) -> inspect.Signature | None:
    """The signature of what a path denotes; None if it has none or is no callable."""
    found = look_up(path)
    if found is None or isinstance(found, Absent) or not callable(found):
        return None
    try:
        return inspect.signature(found)
    except (ValueError, TypeError):
        return None


_MODULE_WITHOUT = re.compile(r"^(?:module|No module named) '[^']*'(?: has no attribute '[^']*')?(?: in tfmini)?[:.]? *")


def told(absent: Absent) -> str:
    """The reason and remedy of an error about a missing name of TensorFlow, without the name."""
    reason = _MODULE_WITHOUT.sub("", absent.told)
    return reason or f"tfmini has no {absent.path.replace('tensorflow.', 'tf.', 1)}"
