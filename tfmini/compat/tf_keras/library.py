"""Loads the installed Keras 2.3 as ``tf.keras``: a copy of its own, with changes.

A program may use ``keras`` and ``tf.keras`` beside each other, as with TensorFlow, and may have another Keras than 2.3
as ``keras`` in the process; so the files of the installed library are run again, as `tfmini.compat.tf_keras.keras`.
On the way to Python, their text is changed in a few places (`_EVERYWHERE`, `_IN`): where it names TensorFlow or what
Python and numpy have dropped, and where TensorFlow's ``tf.keras`` does otherwise. `changes` does what needs more code.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import threading
import warnings
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Any

NAME = "tfmini.compat.tf_keras.keras"
REMEDY = "pip install 'tfmini-cluster[keras]'"
_lock = threading.RLock()

# What tfmini is for TensorFlow, and what Python and numpy have dropped since Keras 2.3.
_EVERYWHERE = [
    (r"(?m)^(\s*)import tensorflow as tf$", r"\1import tfmini as tf"),
    (r"(?m)^(\s*)from tensorflow(?=[. ])", r"\1from tfmini"),
    (r"(?m)^(\s*)from keras(?=[. ])", rf"\1from {NAME}"),
    (r"from distutils\.version", "from tfmini.compat.old_python.dropped_modules"),
    (r"from collections import Iterable\b", "from collections.abc import Iterable"),
    (r"\bcollections\.(Mapping|Sequence|Iterable|Callable)\b", r"collections.abc.\1"),
    (r"\binspect\.getargspec\b", "inspect.getfullargspec"),
    (r"\bnp\.Inf\b", "np.inf"),
    (r"\bnp\.string_", "np.bytes_"),
    (r"\bnp\.unicode_", "np.str_"),
    (r"\bnp\.(bool|int)\b", r"\1"),
]
_IN: dict[str, list[tuple[str, str]]] = {
    "backend.load_backend": [
        ("    _BACKEND = _backend\n", "    pass\n"),  # tf.keras has one backend
        ("if not os.path.exists(_keras_dir):", "if False:"),  # leaves no files behind
        ("if not os.path.exists(_config_path):", "if False:"),
        ("    sys.stderr.write('Using TensorFlow backend.\\n')\n", ""),
    ],
    "backend.tensorflow_backend": [
        (
            "        v1_variable_initialization()\n",
            "        _track_all_variables()\n",
        ),  # without a session for each function
    ],
    "engine.base_layer": [
        (
            "name = _to_snake_case(prefix) + '_' + str(K.get_uid(prefix))",
            "name = _unique_name(_to_snake_case(prefix))",
        ),
        ("print('tracking', value, name)", "pass"),
        ("self.activity_regularizer(x)", "_mean_activity(self, x)"),
        (
            "output_shape = self.compute_output_shape(input_shape)",
            "output_shape = _output_shape(self, input_shape, output)",
        ),
    ],
    "engine.training": [
        ("self.call(unpack_singleton(self.inputs)", "_call_in_scope(self, unpack_singleton(self.inputs)")
    ],
    "engine.training_generator": [
        (
            "averages = [float(outs_per_batch[-1][0])]",
            "averages = [float(np.mean([outs[0] for outs in outs_per_batch]))]",
        ),
        # Losses are means of the steps, whatever their batches: only an array's number of examples is known before.
        ("batch_logs = {'batch': batch_index, 'size': batch_size}", "batch_logs = {'batch': batch_index, 'size': 1}"),
    ],
    "layers.recurrent": [("recurrent_activation='sigmoid'", "recurrent_activation='hard_sigmoid'")],
    "engine.network": [
        ("layer.activity_regularizer(x)", "_mean_activity(layer, x)"),
        ("prefix = self.__class__.__name__.lower()", "prefix = _to_snake_case(self.__class__.__name__)"),
        ("name = prefix + '_' + str(K.get_uid(prefix))", "name = _unique_name(prefix)"),
        (
            "        self._output_tensor_cache[cache_key] = ",
            "        if not _in_scope(): self._output_tensor_cache[cache_key] = ",
        ),
        (
            "if cache_key in self._output_tensor_cache:",
            "if cache_key in self._output_tensor_cache and not _in_scope():",
        ),
    ],
    "layers.normalization": [
        ("if K.backend() != 'cntk':", "if False:"),  # the fused op estimates the variance so already, the others do not
    ],
    "optimizers": [
        ("[K.update_add(self.iterations, 1)]", "[]"),  # `optimizing` counts the step after what reads the count
        ("allowed_kwargs = {'clipnorm', 'clipvalue'}", "allowed_kwargs = {'clipnorm', 'clipvalue', 'name'}"),
    ],
    "utils.losses_utils": [("    NONE = 'none'\n", "    AUTO = 'sum_over_batch_size'\n    NONE = 'none'\n")],
}


def changed(module: str, text: str) -> str:
    """The text of a module of Keras (``engine.network``) as ``tf.keras`` runs it."""
    for pattern, replacement in _EVERYWHERE:
        text = re.sub(pattern, replacement, text)
    for old, new in _IN.get(module, ()):
        if old not in text:
            raise ImportError(f"keras.{module} has no {old.strip()!r}: tf.keras is made from Keras 2.3.1; {REMEDY}")
        text = text.replace(old, new)
    return text


class _Loader(SourceFileLoader):
    """Compiles the changed text; there is no cache of it, as Python's is that of the library itself."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = importlib.util.decode_source(self.get_data(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of a library that nobody changes any more
            return compile(changed(fullname[len(NAME) + 1 :], text), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        from tfmini.compat.tf_keras import changes

        vars(module).update(changes.HELPERS)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the modules of the copy in the files of the installed library."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != NAME and not fullname.startswith(NAME + "."):
            return None
        folders = [os.path.dirname(self._folder)] if fullname == NAME else path
        found = PathFinder.find_spec(f"keras{fullname[len(NAME) :]}", folders)
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=_Loader(fullname, found.origin),
            submodule_search_locations=found.submodule_search_locations,
        )  # fmt: skip


def library() -> ModuleType:
    """The root of the copy, loaded and changed at the first call.

    Raises:
      ImportError: Keras is missing, or is another than 2.3; names the remedy.
    """
    with _lock:
        found = sys.modules.get(NAME)
        if found is not None and hasattr(found, "_is_whole"):
            return found
        return _load()


def _load() -> ModuleType:
    from tfmini.compat import internals

    internals.find_private_paths()
    finder = _Finder(_folder())
    sys.meta_path.insert(0, finder)
    try:
        root = importlib.import_module(NAME)
        from tfmini.compat.tf_keras import changes

        changes.apply(root)
    except BaseException:
        for name in [name for name in sys.modules if name == NAME or name.startswith(NAME + ".")]:
            del sys.modules[name]
        sys.meta_path.remove(finder)
        raise
    root._is_whole = True  # type: ignore[attr-defined]
    return root


def _folder() -> str:
    """Where the installed Keras lies."""
    try:
        installed = distribution("keras")
    except PackageNotFoundError:
        raise ImportError(f"tf.keras needs Keras 2.3.1, which is not installed: {REMEDY}", name="keras") from None
    if not installed.version.startswith("2.3."):
        raise ImportError(
            f"tf.keras needs Keras 2.3.1, and Keras {installed.version} is installed: {REMEDY}", name="keras"
        )
    for module in ("h5py", "six", "yaml", "keras_applications", "keras_preprocessing"):
        if importlib.util.find_spec(module) is None:
            raise ImportError(f"tf.keras needs {module}, which is not installed: {REMEDY}", name=module)
    return str(installed.locate_file("keras"))
