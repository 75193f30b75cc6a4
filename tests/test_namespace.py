"""The public namespace: every row resolves, the names are pinned, absences explain themselves.

After a deliberate change of the names, write the pinned list anew:
``make names``, which also writes what `tests/api_generator.py` generates from the marks.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfmini as tf
from tests import api_generator
from tfmini import namespace

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
    assert done.stdout.split() == PINNED.read_text().split()


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


def test_versions() -> None:
    assert tf.__version__ == tf.VERSION == tf.version.VERSION == "1.15.0"


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda: tf.mul, "tf.mul is a name of TensorFlow 0.x; in TensorFlow 1.0 it is tf.multiply"),
        (lambda: tf.GradientTape, "use tf.gradients"),
        (lambda: tf.function, "out of tfmini's scope; use a graph of ops and a tf.Session"),
        (lambda: tf.contrib.distribute, "use tf.estimator.train_and_evaluate"),
        (lambda: tf.reduce_men, "Did you mean reduce_mean"),
        (lambda: tf.nn.reluu, "Did you mean relu"),
        (lambda: tf.errors.AbortError, "Did you mean AbortedError"),
        (lambda: tf.contrib.nothing, "if TensorFlow 1.x has tf.contrib.nothing, tfmini does not have it yet"),
    ],
)
def test_absent_names_say_what_to_do(read, told: str) -> None:
    with pytest.raises(AttributeError, match=told):
        read()


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
