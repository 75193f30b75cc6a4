"""What Python and its packages have dropped, in processes of their own: it changes modules of the whole process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def run_under_tfmini(tmp_path: Path, script: str) -> tuple[str, str]:
    """The output and the log of a script that ``tfmini run`` runs."""
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "tfmini", "run", str(path)], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_python_names_are_given_with_one_notice_each(tmp_path: Path) -> None:
    script = """
import collections, inspect, time, base64, threading
from collections import Mapping
for _ in range(3):
    assert isinstance({}, collections.Mapping) and Mapping is collections.abc.Mapping
def f(a, b=2, *c, **d): pass
print(tuple(inspect.getargspec(f)))
assert threading.Thread().isAlive() is False
print(inspect.getargspec(f).keywords, time.clock() > 0, base64.encodestring(b"x"))
try: inspect.getargspec(lambda *, a: a)
except ValueError as error: print("ValueError")
"""
    shown, log = run_under_tfmini(tmp_path, script)
    assert shown.splitlines()[0] == "(['a', 'b'], 'c', 'd', (2,))"
    assert shown.splitlines()[1:] == ["d True b'eA==\\n'", "ValueError"]
    assert log.count("collections.Mapping") == 1
    assert "script.py:3 uses collections.Mapping, which is no more: tfmini gives it as collections.abc.Mapping." in log


def test_modules_that_tensorflow_imported_are_there(tmp_path: Path) -> None:
    script = """
import tensorflow, multiprocessing, urllib, unittest, xml.dom
print(multiprocessing.pool.ThreadPool.__name__, urllib.request.urlopen.__name__, urllib.error.URLError.__name__)
print(unittest.mock.Mock.__name__, xml.dom.minidom.parse.__name__, hasattr(multiprocessing, "nothing"))
"""
    shown, log = run_under_tfmini(tmp_path, script)
    assert shown.split() == ["ThreadPool", "urlopen", "URLError", "Mock", "parse", "False"]
    assert "which is no more" not in log


def test_numpy_names_are_given(tmp_path: Path) -> None:
    script = """
import numpy as np
print(np.zeros(1, np.float).dtype, np.int, np.object, np.float_, np.string_, np.Inf, np.NaN)
print(np.asscalar(np.array([3])), np.product([2, 3]), np.alltrue([1, 1]), np.in1d([1, 2], [2]), np.msort([2, 1]))
print(np.asfarray([1]).dtype, len(np.sctypes["float"]))
try: np.nothing_of_the_kind
except AttributeError as error: print(error)
"""
    shown, _ = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == [
        "float64 <class 'int'> <class 'object'> <class 'numpy.float64'> <class 'numpy.bytes_'> inf nan",
        "3 6 True [False  True] [1 2]",
        "float64 4",
        "module 'numpy' has no attribute 'nothing_of_the_kind'",
    ]


def test_scipy_names_are_given(tmp_path: Path) -> None:
    script = """
import numpy as np, scipy, scipy.signal, scipy.integrate
from scipy.misc import imresize, imread, imsave, logsumexp
image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
imsave("a.png", image)
assert (imread("a.png") == image).all()
print(imresize(image, (2, 8)).shape, imresize(image, 50).shape, imread("a.png", mode="L").shape)
print(logsumexp([0.0, 0.0]) == np.log(2), scipy.interp(0.5, [0, 1], [0, 2]), scipy.signal.hann(3).tolist())
print(scipy.integrate.trapz([1, 1]), scipy.ones(2).tolist())
"""
    shown, _ = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == ["(2, 8, 3) (2, 2, 3) (4, 4)", "True 1.0 [0.0, 1.0, 0.0]", "1.0 [1.0, 1.0]"]


def test_modules_of_setuptools_and_python_are_given(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("value = 3")
    (tmp_path / "data.txt").write_text("words")
    script = """
import sys
sys.modules.pop("distutils", None); sys.modules.pop("pkg_resources", None)
sys.meta_path = [f for f in sys.meta_path if "istutils" not in type(f).__name__]
sys.path = [p for p in sys.path if "site-packages" not in p or True]
import pkg_resources, imp
from distutils.version import LooseVersion, StrictVersion
from distutils.util import strtobool
print(LooseVersion("1.10.0") > LooseVersion("1.9"), StrictVersion("1.15.0b1") < "1.15", strtobool("yes"))
print(pkg_resources.get_distribution("numpy").version == __import__("numpy").__version__)
print(pkg_resources.resource_string("other", "data.txt"), imp.load_source("again", "other.py").value)
"""
    shown, _ = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == ["True True 1", "True", "b'words' 3"]


def test_rows_of_several_lengths_are_an_array_of_objects(tmp_path: Path) -> None:
    script = """
import numpy as np, tensorflow as tf
pairs = np.array(list(zip([np.arange(3)] * 4, [[0, 1]] * 4)))
print(pairs.shape, pairs.dtype, np.asarray([[1], [2, 3]]).tolist())
print(np.array([[1], [2, 3]], dtype=None, copy=True).shape, np.array([[1], [2, 3]], None, ndmin=2).shape)
for wrong in (lambda: np.array([[1], [2, 3]], int), lambda: tf.constant([[1], [2, 3]])):
    try:
        wrong()
    except ValueError as error:
        print("refused")
"""
    shown, log = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == ["(4, 2) object [[1], [2, 3]]", "(2,) (1, 2)", "refused", "refused"]
    assert log.count("an array of rows of several lengths") == 1


def test_an_array_of_one_element_is_a_number(tmp_path: Path) -> None:
    script = """
import math
import numpy as np
one = np.array([[3.7]])
print(float(one), int(one), "%d %.1f" % (one, one), math.floor(float(np.array(2.5))), float(np.matrix(one)))
row, whole = np.zeros(2), np.zeros(2, int)
row[0], row[1], whole[1] = np.array([5.0]), one, one
print(row, whole, np.array([1.0, np.array([2.0])], np.float32), np.array([[1, one], [2, 3]], dtype="f"))
class Mine(np.ndarray): pass
print(float(np.ones(1).view(Mine)), bool(np.zeros(0)), bool(np.zeros(1)), bool(one))
pair = np.zeros(2, complex)
pair[0], pair[1] = np.array([3.0]), np.array([[4j]])
print(complex(one), complex(np.ones(1).view(Mine)), pair, np.array([1j, np.array([2.0])], complex))
for fails in (lambda: float(np.zeros(2)), lambda: bool(np.zeros(2)), lambda: np.array([1.0, [2.0, 3.0]], "f")):
    try: fails()
    except (TypeError, ValueError) as error: print(type(error).__name__)
"""
    shown, log = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == [
        "3.7 3 3 3.7 2 3.7", "[5.  3.7] [0 3] [1. 2.] [[1.  3.7]", " [2.  3. ]]", "1.0 False False True",
        "(3.7+0j) (1+0j) [3.+0.j 0.+4.j] [0.+1.j 2.+0.j]", "TypeError", "ValueError", "ValueError",
    ]  # fmt: skip
    if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        assert log.count("a number from an array of rank 1 or more") == 1


def test_arrays_have_the_methods_that_numpy_dropped(tmp_path: Path) -> None:
    script = """
import numpy as np
a = np.arange(4, dtype=np.uint8)
print(a.tostring(), a[:1].tostring("F"), np.float32(1).tostring(), a.ptp(), a.reshape(2, 2).ptp(axis=0))
a.itemset(2, 9)
square = a.reshape(2, 2)
square.itemset((0, 1), 7)
square.itemset(1, 0, 5)
print(a, np.array([1], "<u2").newbyteorder(), np.reshape(a, newshape=(4, 1)).shape)
"""
    shown, log = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == [
        r"b'\x00\x01\x02\x03' b'\x00' b'\x00\x00\x80?' 3 [2 2]", "[0 7 5 3] [256] (4, 1)"
    ]  # fmt: skip
    if not hasattr(np.ndarray, "tostring"):
        assert log.count("script.py:4 uses ndarray.tostring, which is no more: tfmini gives it as a.tobytes().") == 1


def test_lists_of_tensors_are_arrays_of_objects(tmp_path: Path) -> None:
    script = """
import numpy as np, tensorflow as tf
a, b = tf.constant(1.0), tf.constant([1.0, 2.0])
found = np.array([[a, b], [b, a]])
print(found.shape, found.dtype, found[0, 1] is b, np.asarray((a, b))[0] is a, np.array([b], dtype=object)[0] is b)
for fails in (lambda: np.array(a), lambda: np.array([a], float), lambda: np.array(object=a)):
    try: fails()
    except NotImplementedError as error: print(error)
"""
    shown, _ = run_under_tfmini(tmp_path, script)
    first, *errors = shown.splitlines()
    assert first == "(2, 2) object True True True" and len(errors) == 3
    assert all(line.startswith("Cannot convert a symbolic Tensor (Const:0)") for line in errors)


def test_issubdtype_knows_the_types_of_python(tmp_path: Path) -> None:
    script = """
import numpy as np
print([np.issubdtype(kind, np.float) for kind in (np.float16, np.float32, np.int32, np.complex64)])
print([np.issubdtype(kind, int) for kind in (np.int8, np.int64, np.uint8, np.float32)])
print(np.issubdtype(np.complex64, complex), np.issubdtype(np.dtype("S3"), str), np.issubdtype(np.float32, np.integer))
"""
    shown, _ = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == ["[True, True, False, False]", "[True, True, False, False]", "True True False"]


def test_yaml_load_takes_no_loader(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    shown, log = run_under_tfmini(
        tmp_path, "import yaml\nprint(yaml.load('a: [1, 2]'), yaml.load('3', yaml.SafeLoader))"
    )
    assert shown == "{'a': [1, 2]} 3\n"
    assert "yaml.load(f) without a loader" in log


def test_h5py_tells_bytes_and_strings_apart_as_it_did(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    script = """
import h5py
with h5py.File("a.h5") as f:
    f.attrs["b"], f.attrs["s"], f.attrs["l"] = b"abc", "abc", [b"a", b"bc"]
    f["d"] = "text"
with h5py.File("a.h5", "r") as f:
    print(repr(f.attrs["b"]), repr(f.attrs["s"]), f.attrs["l"].tolist(), repr(f["d"].value))
"""
    shown, _ = run_under_tfmini(tmp_path, script)
    assert shown == "b'abc' 'abc' [b'a', b'bc'] 'text'\n"


def test_networkx_has_names_of_its_first_version(tmp_path: Path) -> None:
    script = """
import networkx as nx, numpy as np
g = nx.from_numpy_matrix(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
g.node[0]["colour"] = "red"
print(list(g.nodes_iter()), list(g.edges_iter()), [len(part) for part in nx.connected_component_subgraphs(g)])
print(type(nx.to_numpy_matrix(g)).__name__)
"""
    shown, _ = run_under_tfmini(tmp_path, script)
    assert shown.splitlines() == ["[0, 1, 2] [(0, 1)] [2, 1]", "matrix"]


def test_nothing_changes_without_tfmini_run(tmp_path: Path) -> None:
    script = "import tfmini, collections; print(hasattr(collections, 'Mapping'))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n"
