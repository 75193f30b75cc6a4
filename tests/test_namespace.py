"""The public namespace: every row resolves, the names are pinned, absences explain themselves.

After a deliberate change of the names, write the pinned list anew:
``make names``, which also writes what `tests/api_generator.py` generates from the marks.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests import api_generator
from tfmini import namespace, out_of_scope

PINNED = Path(__file__).with_name("public_names.txt")


def test_every_row_of_the_table_resolves() -> None:
    missing = [
        f"{home}.{attribute}"
        for _, _, home, attribute in namespace.rows()
        if not hasattr(importlib.import_module(home), attribute)
    ]
    assert missing == []


def test_no_name_stands_twice_in_a_namespace() -> None:
    names = [(where, name) for where, name, _, _ in namespace.rows()]
    assert sorted(set(names)) == sorted(names)


def test_public_names_are_the_pinned_ones() -> None:
    # In a process of its own: other tests declare ops, which would show up in tf.raw_ops.
    code = "from tfmini import namespace; print(*namespace.public_names())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    found, pinned = done.stdout.split(), PINNED.read_text().split()
    assert sorted(set(found) ^ set(pinned)) == [], "these differ from tests/public_names.txt: run `make names`"
    assert found == pinned, "the order differs: run `make names`"


def test_the_table_and_the_stubs_are_those_of_the_marks() -> None:
    files = api_generator.generated()
    stale = [str(path) for path, text in files.items() if not path.exists() or path.read_text() != text]
    assert stale + [str(path) for path in api_generator.written() - set(files)] == [], "run `make names`"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('export_names("tf", "lost")', "lost is not defined here"),
        ('@export("nn.relu")\ndef relu(): ...', "begins with `tf.`, not 'nn.relu'"),
        ('@export("tf.relu", "tf.relu")\ndef relu(): ...', "tf.relu is exported by one and by one"),
    ],
)
def test_wrong_marks_are_named(text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_text(f"from tfmini.export import export, export_names\n{text}\n")
    monkeypatch.setattr(api_generator, "PACKAGE", tmp_path)
    with pytest.raises(ValueError, match=told):
        api_generator.exports()


def test_every_public_name_is_reachable_as_an_attribute() -> None:
    for name in namespace.public_names():
        value = tf
        for part in name.split(".")[1:]:
            value = getattr(value, part)


def test_no_module_has_the_name_of_a_public_one_beside_it() -> None:
    """Its import would put the module in the place of the function."""
    public = {(f"tfmini.{where}" if where else "tfmini", name) for where, name, _, _ in namespace.rows()}
    paths = {name: getattr(sys.modules.get(name), "__path__", ()) for name, _ in public}
    modules = {(name, info.name) for name, path in paths.items() for info in pkgutil.iter_modules(path)}
    assert public & modules == set()


def test_namespaces_are_modules() -> None:
    for name in ("nn", "math", "train", "errors", "contrib.framework", "compat.v1", "compat.v1.nn", "raw_ops"):
        importlib.import_module(f"tfmini.{name}")
    assert sys.modules["tfmini.compat.v1"] is tf
    assert tf.compat.v1.nn.relu is tf.nn.relu


@pytest.mark.parametrize("path", ["tfmini", "tfmini.compat.v1"])
def test_a_star_imports_the_namespaces_as_well(path: str) -> None:
    found: dict[str, Any] = {}
    exec(f"from {path} import *", found)
    assert found["nn"] is tf.nn and found["contrib"] is tf.contrib and found["constant"] is tf.constant
    assert {"train", "keras", "estimator", "data", "raw_ops", "compat", "logging"} <= set(found)


def test_functions_that_autograph_does_not_convert_do_what_they_do() -> None:
    def function(x: int) -> int:
        return x + 1

    assert tf.autograph.experimental.do_not_convert(function)(1) == 2
    assert tf.contrib.autograph.do_not_convert()(function).__name__ == "function"
    assert tf.autograph.experimental.set_loop_options(parallel_iterations=1) is None


def test_versions() -> None:
    assert tf.__version__ == tf.VERSION == tf.version.VERSION == "1.15.0"


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda: tf.mul, "tf.mul is a name of TensorFlow 0.x; in TensorFlow 1.0 it is tf.multiply"),
        (
            lambda: tf.estimator.DNNClasifier,
            "Did you mean DNNClassifier. As a name of TensorFlow, tf.estimator.DNNClas",
        ),
        (lambda: tf.summary.scaler, "Did you mean scalar.?"),
        (lambda: tf.wrap_function, "out of tfmini's scope; use a graph of ops and a tf.Session"),
        (lambda: tf.contrib.distribute.TPUStrategy, "use the strategies that it has"),
        (lambda: tf.reduce_men, "Did you mean reduce_mean"),
        (lambda: tf.nn.reluu, "Did you mean relu"),
        (lambda: tf.errors.AbortError, "Did you mean AbortedError"),
        (lambda: tf.contrib.nothing, "TensorFlow 1.15 has no tf.contrib.nothing either"),
        (lambda: tf.contrib.grid_rnn, "TensorFlow 1.15 has tf.contrib.grid_rnn, tfmini does not"),
        (lambda: tf.contrib.layers.RevBlock, "TensorFlow 1.15 has tf.contrib.layers.RevBlock, tfmini does not"),
        (lambda: tf.contrib.slim.layers.RevBlock, "TensorFlow 1.15 has tf.contrib.slim.layers.RevBlock, tfmini"),
        (lambda: tf.contrib.slim.metrics.streaming_nothing, "out of tfmini's scope; use tf.metrics"),
        (lambda: tf.optimizers, "use the optimizers of tf.train"),
        (lambda: tf.data.AUTOTUNE, "in TensorFlow 1 use tf.data.experimental.AUTOTUNE.$"),
        (lambda: tf.random.set_seed, "in TensorFlow 1 use tf.set_random_seed.$"),
        (lambda: tf.losses.SparseCategoricalCrossentropy, "use tf.losses.sparse_softmax_cross_entropy.$"),
        (lambda: tf.metrics.SparseCategoricalAccuracy, "use tf.metrics.accuracy.$"),
        (lambda: tf.summary.create_file_writer, "use the functions of tf.summary of version 1"),
        (lambda: tf.inside_function, "in TensorFlow 1 use a graph of ops and a tf.Session"),
    ],
)
def test_absent_names_say_what_to_do(read, told: str) -> None:
    with pytest.raises(AttributeError, match=told) as error:
        read()
    assert "Did you mean" not in told or error.value.obj is None  # else Python proposes names of the object, too


def test_no_absent_name_exists() -> None:
    rows = Path(out_of_scope.__file__).with_name("absent_names.txt").read_text().splitlines()
    absent = set()
    for parent, *names in (row.split()[1:] for row in rows if not row.startswith("#")):
        absent |= {name if parent == "-" else f"{parent}.{name}" for name in names}
    found = []
    # A module of which libraries import names only, such as contrib.compiler, is an attribute once one has done so.
    only_imported = {"contrib.compiler"}
    for name in sorted(absent - only_imported):
        with contextlib.suppress(AttributeError):
            functools.reduce(getattr, name.split("."), tf)
            found.append(name)
    assert not found, f"tfmini has these names: delete them from absent_names.txt: {found}"


def test_names_that_remedies_name_exist() -> None:
    words = (word for way in out_of_scope.ways() for word in re.findall(r"\btf(?:\.\w+)+", way))
    for word in words:
        value: Any = tf
        for part in word.split(".")[1:]:
            value = getattr(value, part)


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda x: x.numpy(), r"'Tensor' object has no attribute 'numpy': .* session.run\(tensor\) returns it"),
        (lambda x: x.item(), "session.run"),
        (lambda x: x.backward(), "tf.gradients"),
        (lambda x: x.assign(1.0), "tf.get_variable"),
        (lambda x: tf.get_variable("v", []).numpy(), r"'RefVariable' .* session.run\(variable\) returns it"),
        (lambda x: tf.get_variable("v", [], use_resource=True).numpy(), "'ResourceVariable' .* session.run"),
        (lambda x: tf.data.Dataset.range(3).as_numpy_iterator(), "make_one_shot_iterator"),
        (lambda x: tf.data.Dataset.range(3).make_one_shot_iterator().next(), "get_next()"),
        (lambda x: tf.train.AdamOptimizer().get_weights(), r"use variables\(\)"),
        (lambda x: x.nothing, "'Tensor' object has no attribute 'nothing'$"),
        (lambda x: tf.get_variable("v", []).nothing, "'RefVariable' object has no attribute 'nothing'$"),
    ],
)
def test_absent_members_say_what_to_do(read, told: str) -> None:
    with tf.Graph().as_default(), pytest.raises(AttributeError, match=told):
        read(tf.constant(1.0))


@pytest.mark.parametrize(
    "use",
    [float, int, complex, round, math.sqrt, math.floor, lambda x: f"{x:.3f}", lambda x: "%.3f" % x],  # noqa: UP031
)
def test_a_symbol_is_no_number_and_says_where_its_value_is(use) -> None:
    with tf.Graph().as_default():
        for symbol in (
            tf.constant(1.0, name="x"),
            tf.get_variable("x", []),
            tf.get_variable("y", [], use_resource=True),
        ):
            with pytest.raises(TypeError, match=r"<tf.(Tensor|Variable) '[xy].*has no value before a session runs it"):
                use(symbol)
        assert f"{tf.constant(1.0, name='z')}" == 'Tensor("z:0", shape=(), dtype=float32)'
        assert not any(hasattr(symbol, "numpy") or hasattr(symbol, "__index__") for symbol in tf.global_variables())


def test_the_error_of_a_property_stays() -> None:
    class Odd(out_of_scope.Advising):
        @property
        def numpy(self) -> int:
            return self.gone

    with pytest.raises(AttributeError, match="'Odd' object has no attribute 'gone'"):
        _ = Odd().numpy


def test_raw_ops_take_keyword_arguments_only() -> None:
    product = tf.raw_ops.MatMul(a=[[1.0]], b=[[2.0]], name="product")
    assert product.op.type == "MatMul"
    with pytest.raises(TypeError):
        tf.raw_ops.MatMul([[1.0]], [[2.0]])


def test_raw_ops_have_signatures_with_tensorflows_names() -> None:
    assert list(inspect.signature(tf.raw_ops.Sum).parameters) == ["input", "axis", "keep_dims", "name"]
    assert tf.raw_ops.Sum(input=[[1, 2], [3, 4]], axis=0).op.type == "Sum"


# What is imported when it is first needed, so that ``import tfmini`` stays quick.
_LATER = (
    *("absl", "click", "google.protobuf", "msgpack", "networkx", "rich", "scipy", "threadpoolctl", "zmq"),
    *("asyncio", "concurrent.futures", "hashlib", "json", "multiprocessing", "pprint", "secrets", "socket"),
    *("subprocess", "uuid", "tfmini.rpc", "tfmini.placement", "tfmini.testing", "tfmini.tools"),
    *("starlette", "uvicorn", "tfmini.dashboard", "tfmini.status"),
)


def test_import_leaves_slow_packages_alone() -> None:
    # NumPy comes first: what it imports itself differs from release to release.
    code = (
        "import sys, numpy; before = set(sys.modules); import tfmini; "
        f"print([m for m in {_LATER} if m in sys.modules and m not in before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[]"


if __name__ == "__main__":
    print("\n".join(namespace.public_names()))
