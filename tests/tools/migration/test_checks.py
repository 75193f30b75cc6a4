"""What will not run is found with its line and remedy; what runs is not."""

from __future__ import annotations

import textwrap

import pytest

from tfmini.tools.migration.checks import Project, check, read
from tfmini.tools.migration.sources import MAYBE, MENDED, STOPS, Obstacle, parse

HEAD = "import tensorflow as tf\nimport numpy as np\n"


def findings(source: str, project: Project | None = None) -> list[Obstacle]:
    parsed = parse(textwrap.dedent(source))
    found = read(parsed)
    return check(parsed, found, project or Project(defined=found.defined))


def told(source: str) -> list[str]:
    return [f"{f.level} {f.kind} {f.line} {f.what}: {f.remedy}" for f in findings(source)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tf.wrap_function()", "stops tensorflow 3 tf.wrap_function: tf.wrap_function is out of tfmini's scope"),
        ("tf.mul(1, 2)", "stops tensorflow 3 tf.mul: tf.mul is a name of TensorFlow 0.x; in TensorFlow 1.0 it is"),
        ("tf.nn.gelu(1)", "stops tensorflow 3 tf.nn.gelu: tf.nn.gelu is a name of TensorFlow 2"),
        ("tf.nn.relo(1)", "stops tensorflow 3 tf.nn.relo: TensorFlow 1.15 has no tf.nn.relo either. Did you mean relu"),
        ("tf.train.AdamOptimizer.minimise", "stops tensorflow 3 tf.train.AdamOptimizer.minimise: AdamOptimizer has"),
        ("import tensorflow.contrib.boosted_trees", "stops tensorflow 3 tf.contrib.boosted_trees"),
        ("from tensorflow.python.ops import no_such", "stops tensorflow 3 tf.python.ops.no_such"),
        ("from tensorflow.contrib import slim as s\ns.fully_connekted", "stops tensorflow 4 tf.contrib.slim.fully_con"),
        (
            "import tensorflow.contrib.learn.python.learn.dataframe",
            "stops tensorflow 3 tf.contrib.learn.python.learn.dataframe: t",
        ),
        ("tf.keras.losses.NoSuch", "stops tensorflow 3 tf.keras.losses.NoSuch: tfmini has no tf.keras.losses.NoSuch"),
        ("tf.matmul(1, 2, adjoint_c=True)", "stops signature 3 tf.matmul(...): there is no argument adjoint_c"),
        ("tf.concat(1, 2, 3, 4)", "stops signature 3 tf.concat(...): too many positional arguments"),
        ("tf.train.Supervisor(chief=True)", "stops signature 3 tf.train.Supervisor(...): there is no argument chief"),
        ("tf.layers.dense(units=2)", "stops signature 3 tf.layers.dense(...): missing a required argument: 'inputs'"),
        ("tf.concat(0, [a, b])", "stops signature 3 tf.concat(...): write tf.concat(values, axis)"),
        ("tf.split(0, 2, x)", "stops signature 3 tf.split(...): write tf.split(value, parts, axis)"),
        ("tf.nn.softmax_cross_entropy_with_logits(a, b)", "stops signature 3 tf.nn.softmax_cross_entropy_with_logits"),
        ("for i in xrange(3): pass", "stops python 2 3 xrange: write range"),
        ("def f(d): return d.iteritems()", "stops python 2 3 .iteritems: write items()"),
        ("def f(d): return d.keys()[0]", "stops python 2 3 d.keys()[0]: write list"),
        ("zip(a, b)[1:]", "stops python 2 3 zip(a, b)[1:]: write list"),
        ("m = map(f, x)\nlen(m)", "stops python 2 4 len(map(…)): write len(list(map(…)))"),
        ("import urllib2", "stops python 2 3 module urllib2: import urllib.request"),
        ("import urllib\nurllib.urlretrieve('x')", "stops python 4 urllib.urlretrieve: Python 3"),
        ("import itertools\nitertools.izip(a, b)", "stops python 4 itertools.izip: Python 3"),
        ("n = 5 / 2\nfor i in range(n): pass", "stops python 2 4 n is no integer: write //"),
        ("open('x', 'rU')", "stops python 3 open(..., 'rU'): leave out the U"),
        ("import pickle\nwith open('x') as f: pickle.load(f)", "stops python 2 4 pickle.load(...) with a file of mode"),
        ("import csv\ncsv.writer(open('x', 'wb'))", "stops python 2 4 csv.writer(...) with a file of mode 'wb'"),
        ("import random\nr = range(3)\nrandom.shuffle(r)", "stops python 2 5 random.shuffle(range(…)): write list"),
        ("print >>f, x", "stops python 2 3 print statement"),
        ("import no_such_package_at_all", "stops package 3 package no_such_package_at_all: pip install"),
        ("import google.no_such.x", "stops package 3 package google.no_such: pip install google-no_such"),
        ("def f(it): return it.next()", "maybe python 2 3 it.next(): write next(iterator)"),
        ("np.float(3)", "mended python 3 numpy.float: tfmini run gives float"),
        ("from collections import Mapping", "mended python 3 collections.Mapping: tfmini run gives collections.abc"),
        ("from distutils.version import LooseVersion", "mended python 3 distutils.version.LooseVersion: tfmini run"),
        ("import imp\nimp.load_source('a', 'b')", "mended python 3 imp: tfmini run gives its own"),
        ("import imp\nimp.find_module('a')", "stops python 4 imp.find_module"),
        (
            "import numpy as np\nnp.reshape(a, newshape=b)",
            "mended python 4 np.reshape(newshape=…): tfmini run takes it for shape",
        ),
        ("import yaml\nyaml.load(f)", "mended python 4 yaml.load(...): tfmini run takes yaml.FullLoader"),
        ("import h5py\nh5py.File('x')", "mended python 4 h5py.File(...): tfmini run makes or changes the file"),
        ("import networkx\ng = f()\ng.nodes_iter()", "mended python 5 .nodes_iter of networkx: tfmini run gives"),
    ],
)
def test_each_thing_is_found(line: str, expected: str) -> None:
    shown = told(HEAD + line + "\n")
    assert [text for text in shown if text.startswith(expected)], shown


@pytest.mark.parametrize(
    "line",
    [
        "tf.nn.relu(1)",
        "tf.train.AdamOptimizer(1e-3).minimise",  # of an object, which only a run knows
        "from tensorflow.contrib import slim\nslim.conv2d(x, 3, [3, 3])",
        "from tensorflow.python.ops import math_ops\nmath_ops.matmul(a, b)",
        "import tensorflow.compat.v1 as tf1\ntf1.disable_v2_behavior()",
        "tf.concat([a, b], 0)",
        "tf.concat(*args)",
        "tf.matmul(a, b, **options)",
        "tf.app.flags.FLAGS.anything",
        "import horovod.tensorflow as hvd\nhvd.init()",
        "from six.moves import xrange, urllib\nxrange(3); urllib.request.urlopen",
        "import six\nsix.iteritems({})",
        "try:\n    xrange\nexcept NameError:\n    xrange = range\nxrange(3)",
        "try:\n    import cPickle as pickle\nexcept ImportError:\n    import pickle\npickle.load(open('x', 'rb'))",
        "class A:\n    def iteritems(self): pass\nA().iteritems()",
        "d.values()[key]",  # the values may be a dict of the program's own
        "range(int(5 / 2)); x[5 // 2]",
        "import yaml, h5py\nyaml.load(f, Loader=yaml.Loader); h5py.File('x', 'r')",
        "import pickle\npickle.load(open('x', mode)); pickle.dump(x, f)",
        "import os.path, json, collections.abc\nos.path.join('a'); collections.OrderedDict",
        "np.zeros(3, np.float32); np.random.RandomState(1)",
    ],
)
def test_what_runs_is_not_told(line: str) -> None:
    assert told(HEAD + line + "\n") == []


def test_a_missing_module_is_told_where_it_is_imported_alone() -> None:
    source = "from tensorflow.contrib import boosted_trees as b\nimport no_such\nb.x(1)\nno_such.a()\n"
    assert [f.line for f in findings(source)] == [1, 2]


@pytest.mark.parametrize(
    ("first", "second", "lines"),
    [
        ("cPickle", "pickle", []),
        ("tensorflow.no_such", "tensorflow.contrib.no_such", [4]),
        ("json", "no_such", []),
        ("no_such, json", "no_such_2", [4]),
    ],
)
def test_of_an_import_and_its_fallback_one_must_work(first: str, second: str, lines: list[int]) -> None:
    source = f"try:\n    import {first}\nexcept ImportError:\n    import {second} as x\n"
    assert [f.line for f in findings(source)] == lines
    nested = f"try:\n    import json\nexcept ImportError:\n    {source.replace(chr(10), chr(10) + '    ')}\n"
    assert findings(nested) == []


def test_names_are_found_in_a_source_of_python_2_too() -> None:
    source = 'import tensorflow as tf\nprint "a"\nfor i in xrange(3):\n    print tf.pack([i])\n'
    assert [(f.line, f.what) for f in findings(source)] == [
        *((2, "print statement"), (3, "xrange"), (4, "print statement"), (4, "tf.pack"))
    ]


def test_own_modules_are_not_looked_up() -> None:
    source = "import data, queue\ndata.x; queue.no_such\nimport layers\n"
    assert findings(source, Project({"data", "queue"}, {"layers"})) == [
        Obstacle(
            3, "import layers", findings(source, Project({"data", "queue"}, {"layers"}))[0].remedy, "python 2", MAYBE
        )
    ]


def test_levels_say_what_stops() -> None:
    levels = {f.level for f in findings("import numpy as np\nnp.float; xrange; it = f(); it.next()\n")}
    assert levels == {STOPS, MENDED, MAYBE}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("assert '1.4' <= tf.__version__", ["stops tensorflow 3 '1.4' <= tf.__version__: it compares texts, and"]),
        ("if tf.VERSION < '1.2.0': pass", ["stops tensorflow 3 tf.VERSION < '1.2.0': it compares texts"]),
        ("assert tf.__version__ >= '1.1' and tf.VERSION < '2.0'", []),
        ("assert tf.__version__ < '1.4rc1' < '2'", []),
        ("for f, x in d.items():\n    if x: d.pop(f)", ["stops python 2 3 for … in d.items(): write list(d.items())"]),
        ("for f in d.keys():\n    del d[f]", ["stops python 2 3 for … in d.keys(): write list(d.keys()): Python 3"]),
        ("for f in d.keys():\n    del d[f]\n    break", []),
        ("for f in list(d.keys()):\n    del d[f]", []),
        ("for f in d.keys():\n    e.pop(f)", []),
        ("tf.concat(map(f, x), 0)", ["maybe python 2 3 map(…) for tf.concat: write list(map(…))"]),
        ("tf.group(*map(f, x))", []),
    ],
)
def test_habits_of_python_2_are_found(line: str, expected: list[str]) -> None:
    said = told(HEAD + line + "\n")
    assert len(said) == len(expected) and all(map(str.startswith, said, expected)), said
