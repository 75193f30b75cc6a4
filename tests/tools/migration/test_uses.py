"""Names are followed through imports, aliases and scopes; what a program guards is left out."""

from __future__ import annotations

import ast

import pytest

from tfmini.tools.migration.uses import uses


def paths(source: str) -> list[str]:
    """What a source uses, without import statements."""
    found = uses(ast.parse(source), {"math": ["sqrt"], "tensorflow.losses": ["absolute"]}.get)
    return [use.path for use in found.uses if not use.is_import]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("import tensorflow as tf\ntf.nn.relu", "tensorflow.nn.relu"),
        ("import tensorflow.contrib.slim as s\ns.conv2d()", "tensorflow.contrib.slim.conv2d"),
        ("import tensorflow.contrib.slim\ntensorflow.nn.relu", "tensorflow.nn.relu"),
        ("from tensorflow.contrib import slim\nslim.a", "tensorflow.contrib.slim.a"),
        ("from tensorflow.python.ops import x as y\ny.z", "tensorflow.python.ops.x.z"),
        ("import tensorflow as tf\nlayers = tf.contrib.layers\nlayers.a", "tensorflow.contrib.layers.a"),
        ("import tensorflow as tf\nl = tf.contrib\nm = l.layers\ndef f():\n  m.a", "tensorflow.contrib.layers.a"),
        ("def f():\n  import tensorflow as tf\n  return lambda x: tf.a(x)", "tensorflow.a"),
        ("import tensorflow as tf\nclass A(tf.B): pass", "tensorflow.B"),
        ("import tensorflow as tf\n@tf.function\ndef f(): pass", "tensorflow.function"),
        ("import tensorflow as tf\ndef f(x=tf.a): pass", "tensorflow.a"),
        ("import tensorflow as tf\n[tf.a(x) for x in y]", "tensorflow.a"),
        ("from math import *\nsqrt(2)", "math.sqrt"),
        ("from tensorflow.losses import *\nabsolute(2)", "tensorflow.losses.absolute"),
        ("xrange(3)", "builtins.xrange"),
        ("def f():\n  tf.a\nimport tensorflow as tf", "tensorflow.a"),
        ("try:\n  import a.b as c\nexcept ValueError:\n  pass\nc.d", "a.b.d"),
    ],
)
def test_names_are_followed(source: str, path: str) -> None:
    assert path in paths(source)


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\ndef f(tf): tf.a",  # a parameter
        "import tensorflow as tf\ntf = object()\ntf.a",  # bound twice
        "import tensorflow as tf\n[tf.a for tf in y]",
        "import tensorflow as tf\nfor tf in y: tf.a",
        "from .x import tf\ntf.a",
        "x = x.a\nx.a",
        "from unknown import *\na.b",
    ],
)
def test_what_may_be_something_else_is_not_followed(source: str) -> None:
    assert not [path for path in paths(source) if path.endswith(".a") or path == "builtins.a"]


@pytest.mark.parametrize(
    "source",
    [
        "try:\n  {use}\nexcept ImportError:\n  import b",
        "try:\n  import b\nexcept ImportError:\n  {use}",
        "try:\n  x = {use}\nexcept AttributeError:\n  x = 1",
        "try:\n  {use}\nexcept:\n  pass",
        "if sys.version_info[0] < 3:\n  {use}",
        "if six.PY2:\n  {use}\nelse:\n  pass",
        "x = {use} if hasattr(m, 'a') else 1",
        "if tf.__version__ < '1':\n  def f():\n    {use}",
    ],
)
def test_what_a_program_guards_is_left_out(source: str) -> None:
    head = "import m, tf, sys, six\n"
    assert "m.a" not in paths(head + source.format(use="m.a"))
    assert "m.a" in paths(head + source.format(use="1") + "\nm.a")


def test_a_long_try_with_a_bare_except_is_no_guard() -> None:
    assert "m.a" in paths("import m\ntry:\n  b()\n  c()\n  d()\n  m.a\nexcept: pass")


def test_an_import_is_guarded_by_what_it_raises_alone() -> None:
    source = "try:\n  import m\nexcept {}:\n  pass"
    imports = {error: len(uses(ast.parse(source.format(error)), lambda _: None).uses) for error in _ERRORS}
    assert imports == {"AttributeError": 1, "ImportError": 0, "(ModuleNotFoundError, ValueError)": 0, "Exception": 0}


_ERRORS = ("AttributeError", "ImportError", "(ModuleNotFoundError, ValueError)", "Exception")


def test_attributes_and_items_of_other_things() -> None:
    found = uses(ast.parse("ks = (d := {}).keys()\nks[0]\nks[a]\nd.iteritems()\n"), lambda _: None)
    items = [
        (m.line, m.is_position) for m in found.members if m.name == "" and ast.unparse(m.owner).endswith(".keys()")
    ]
    assert items == [(2, True), (3, False)]
    assert [m.line for m in found.members if m.name == "iteritems" and m.call is not None] == [4]


@pytest.mark.parametrize("use", ["range(n)", "range(0, a / b)", "x[:n]", "x[n + 1:]", "range(n * 2)"])
def test_quotients_that_are_taken_for_integers(use: str) -> None:
    found = uses(ast.parse(f"n = a / b\n{use}\n"), lambda _: None)
    assert [line for line, _ in found.quotients] == ([2] if "n + 1" not in use and "n * 2" not in use else [])


@pytest.mark.parametrize("use", ["print >>f, x", "print ('%d') % x", "print >> sys.stderr"])
def test_print_statements_that_python_3_can_parse(use: str) -> None:
    assert uses(ast.parse(use), lambda _: None).prints == [1]
    assert uses(ast.parse(f"from m import print\n{use}"), lambda _: None).prints == []


@pytest.mark.parametrize("use", ["range(int(a / b))", "range(a // b)", "x[int(n)]", "f(n)", "round(a / b)"])
def test_other_quotients_are_no_findings(use: str) -> None:
    assert uses(ast.parse(f"n = a / b\n{use}\n"), lambda _: None).quotients == []
