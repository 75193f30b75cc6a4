"""The alias ``tensorflow``: the modules that it finds, and the errors for missing ones."""

from __future__ import annotations

import contextlib
import importlib
import operator
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import internals
from tfmini.compat.internal_paths import PATHS
from tfmini.estimator.input_functions import features_and_labels


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    internals.install()
    yield
    internals.uninstall()


def test_public_namespaces_are_the_same_objects() -> None:
    for path in ("", ".compat.v1", ".nn", ".compat.v1.train", ".errors"):
        importlib.import_module("tensorflow" + path)
    assert sys.modules["tensorflow"] is sys.modules["tensorflow.compat.v1"] is tf
    assert sys.modules["tensorflow.nn"] is tf.nn
    assert sys.modules["tensorflow.compat.v1.train"] is tf.train
    assert tf.__spec__ is not None and tf.__spec__.name == "tfmini"


def test_every_private_path_imports_and_lists_its_names() -> None:
    for path in PATHS:
        module = importlib.import_module(f"tensorflow.{path}")
        assert module.__name__.endswith(path) or module.__name__.startswith("tfmini")
        dir(module)


def test_a_replaced_strategy_is_the_one_of_device_setters(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("tensorflow.python.training.device_setter")
    monkeypatch.setattr(module, "_RoundRobinStrategy", lambda tasks: lambda op: tasks - 1)  # as AdaNet does
    with tf.device(tf.train.replica_device_setter(ps_tasks=3)):
        assert tf.Variable(1.0).device == "/job:ps/task:2"


def test_a_replaced_scope_is_the_one_of_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("tensorflow.python.ops.summary_op_util")
    monkeypatch.setattr(module, "summary_scope", lambda *_, **__: contextlib.nullcontext(("short", "long/")))  # AdaNet
    made = tf.summary.scalar("x", 1.0)
    writer = tf.contrib.summary.create_file_writer("unused")
    with writer.as_default(), tf.contrib.summary.always_record_summaries():
        tf.contrib.summary.scalar("x", 1.0, step=0)
    tags = [op.inputs[2] for op in tf.get_default_graph().get_operations() if op.type == "WriteScalarSummary"]
    assert made.op.name == "long" and tf.get_static_value(made.op.inputs[0]) == b"short"
    assert [tf.get_static_value(tag) for tag in tags] == [b"short"]


def test_constants_are_evaluated_by_the_private_function() -> None:
    evaluate = importlib.import_module("tensorflow.python.pywrap_tensorflow").TF_TryEvaluateConstant_wrapper
    known = tf.reduce_any(tf.less(tf.constant([2.0, 5.0]) * 2.0, 5.0))
    unknown = tf.reduce_any(tf.less(tf.random_uniform([2]), tf.placeholder(tf.float32)))
    found = [evaluate(t.graph._c_graph, t._as_tf_output()) for t in (known, unknown)]
    assert found[0] is not None and found[0].dtype == np.bool_ and bool(found[0]) and found[1] is None
    assert known.graph.is_feedable(known)  # unlike after tf.get_static_value


def test_devices_merge_by_the_private_function() -> None:
    merge_device = importlib.import_module("tensorflow.python.framework.device").merge_device
    with tf.device(merge_device("/job:x/cpu:1")), tf.device("/job:y"):
        assert tf.constant(1).device == "/job:y/device:CPU:1"


@pytest.mark.parametrize(("path", "name"), [("ops.rnn_cell", "GRUCell"), ("ops.math_ops", "tanh")])
def test_a_star_import_gives_the_names_and_leaves_pythons(path: str, name: str) -> None:
    found: dict[str, object] = {}
    exec(f"from tensorflow.python.{path} import *", found)  # before anything asked for a name
    assert name in found
    assert "range" not in found and not any(key.startswith("_") for key in found if key != "__builtins__")


@pytest.mark.parametrize(
    ("path", "name", "same"),
    [
        ("python.ops.math_ops", "matmul", lambda: tf.matmul),
        ("python.framework.ops", "convert_to_tensor", lambda: tf.convert_to_tensor),
        ("python.framework.ops", "GraphKeys", lambda: tf.GraphKeys),
        ("python.estimator.util", "parse_input_fn_result", lambda: features_and_labels),
        ("python.platform.gfile", "Exists", lambda: tf.gfile.Exists),
        ("python.platform.tf_logging", "info", lambda: tf.logging.info),
        ("python.platform.test", "TestCase", lambda: tf.test.TestCase),
        ("python.training.saver", "Saver", lambda: tf.train.Saver),
        ("python.util.compat", "as_bytes", lambda: tf.compat.as_bytes),
        ("python.layers.core", "dense", lambda: tf.layers.dense),
        ("contrib.learn.python.learn.datasets.mnist", "read_data_sets",
         lambda: tf.examples.tutorials.mnist.input_data.read_data_sets),
        ("core.protobuf.config_pb2", "ConfigProto", lambda: tf.ConfigProto),
        ("python.ops.work_queue", "WorkQueue", lambda: tf.WorkQueue),  # DeepRec's
    ],
)  # fmt: skip
def test_private_paths_have_public_names(path: str, name: str, same) -> None:
    assert getattr(importlib.import_module(f"tensorflow.{path}"), name) is same()


def test_a_class_may_derive_from_both_test_cases() -> None:
    googletest = importlib.import_module("tensorflow.python.platform.googletest")
    parameterized = type("Parameterized", (googletest.TestCase,), {})
    assert issubclass(type("Both", (tf.test.TestCase, parameterized), {}), googletest.TestCase)


def test_layer_utils_know_python_booleans() -> None:
    utils = importlib.import_module("tensorflow.python.layers.utils")
    assert [utils.constant_value(p) for p in (True, 0, tf.constant(True), tf.placeholder(tf.bool))] == [
        True, False, True, None,
    ]  # fmt: skip


def test_generated_ops_have_their_names_in_snake_case() -> None:
    from tensorflow.python.ops import gen_math_ops  # type: ignore[import-not-found]

    assert gen_math_ops.mat_mul([[1.0]], [[2.0]]).op.type == "MatMul"
    assert internals.generated_name("Conv2DBackpropInput") == "conv2d_backprop_input"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("from tensorflow.contrib.distribute import TPUStrategy", "use the strategies that it has"),
        ("from tensorflow.contrib.learn import SVM", "use tf.estimator.Estimator with a model function"),
        ("from tensorflow.contrib.tpu import rewrite", r"use TPUEstimator\(use_tpu=False\)"),
        ("import tensorflow.nothing", "TensorFlow 1.15 has no tf.nothing either"),
        ("from tensorflow.python.ops import nothing_ops", r"Look for a public name \(tf.…\) that does the same"),
        ("from tensorflow.contrib import tensor_forest", "use scikit-learn's forests"),
    ],
)
def test_errors_for_missing_names_have_an_alternative(code: str, told: str) -> None:
    with pytest.raises(ImportError, match=told):
        exec(code)


@pytest.mark.parametrize(("room", "told"), [("rpc", "Look for a public name"), ("runtime", "Look for a public name")])
def test_a_package_of_tfmini_is_no_public_name(room: str, told: str) -> None:
    importlib.import_module(f"tfmini.{room}")
    with pytest.raises(ImportError, match=told):
        exec(f"import tensorflow.{room}")


def test_private_paths_of_data_and_columns() -> None:
    from tensorflow.python.feature_column import feature_column  # type: ignore[import-not-found]
    from tensorflow.python.keras.datasets import mnist  # type: ignore[import-not-found]

    assert mnist.load_data is tf.keras.datasets.mnist.load_data
    assert feature_column.numeric_column is tf.feature_column.numeric_column


def test_names_of_modules_that_can_only_be_imported() -> None:
    from tensorflow.python import debug  # type: ignore[import-not-found]

    with pytest.raises(NotImplementedError, match="out of tfmini's scope; use tf.Print"):
        debug.LocalCLIDebugWrapperSession(None)


def test_a_tensorflow_imported_before_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    internals.uninstall()
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    with pytest.raises(RuntimeError, match="install the alias first"):
        internals.install()


def test_uninstall_removes_everything() -> None:
    importlib.import_module("tensorflow.python.ops.math_ops")
    internals.uninstall()
    assert not [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]


def test_the_private_tensor_util_answers_as_tensorflows_does() -> None:
    tensor_util = internals.module("python.framework.tensor_util")
    proto = tensor_util.make_tensor_proto([1, 2, 3])
    assert tensor_util.ShapeEquals(proto, [3]) and tensor_util.MakeNdarray(proto).tolist() == [1, 2, 3]
    shape = tensor_util.constant_value_as_shape(tf.shape(tf.placeholder(tf.float32, [None, 3])))
    assert isinstance(shape, tf.TensorShape) and shape.as_list() == [None, 3]
    array = np.array([3])
    assert tensor_util.constant_value(array) is array


def test_children_that_are_not_forked_have_the_alias_too(tmp_path: Path) -> None:
    script = """
import multiprocessing
def name(x):
    import tensorflow
    return tensorflow.__name__
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(name, [1]))
"""
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-m", "tfmini", "run", str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "['tfmini']\n", done.stderr


@pytest.mark.parametrize("path", ["nn.rnn_cell.LSTMCell", "train.AdamOptimizer", "python.ops.nn_ops.relu"])
def test_pydoc_locates_classes_and_functions(path: str) -> None:
    assert pydoc.locate(f"tensorflow.{path}") is not None


@pytest.mark.parametrize("path", ["relu", "nn.Absent", "python.ops.absent.name"])
def test_pydoc_finds_nothing_at_a_path_without_a_name(path: str) -> None:
    assert pydoc.locate(f"tensorflow.{path}") is None  # so that a library goes on and looks in the next place


def test_a_case_by_another_conditional_takes_predicates_of_python() -> None:
    """TensorFlow Probability's `prefer_static.case`: what Python knows makes no op."""
    by_cond = operator.attrgetter("_case_helper")(importlib.import_module("tensorflow.python.ops.control_flow_ops"))

    def choose(pred: Any, true_fn: Any, false_fn: Any) -> Any:
        return (true_fn if pred else false_fn)() if isinstance(pred, bool) else tf.cond(pred, true_fn, false_fn)

    fed = tf.placeholder(tf.bool, [])
    pairs = [(False, lambda: tf.constant(1)), (fed, lambda: tf.constant(2))]
    for exclusive in (False, True):
        found = by_cond(choose, pairs, lambda: tf.constant(3), exclusive, "case", allow_python_preds=True)
        with tf.Session() as session:
            assert [session.run(found, {fed: value}) for value in (True, False)] == [2, 3]
    with pytest.raises(TypeError, match="pred must be a Tensor"):
        by_cond(choose, pairs, None, False, "case")


def test_modules_are_found_below_a_name_that_a_program_gave_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "our_keras", tf.keras)
    layers = importlib.import_module("our_keras.layers")
    assert layers.Dense is tf.keras.layers.Dense
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("our_keras.no_such")


def test_gradients_can_be_looked_up_by_name() -> None:
    ops = importlib.import_module("tensorflow.python.framework.ops")
    tensor = tf.tanh(tf.constant([1.0]))
    registry = ops.__getattr__("_gradient_registry")
    assert registry.lookup("Tanh") is ops.get_gradient_function(tensor.op)
    with pytest.raises(LookupError):
        registry.lookup("NoSuchOp")


def test_paths_that_libraries_of_the_time_import() -> None:
    learn = importlib.import_module("tensorflow.contrib.learn.python.learn.monitored_session")
    lstm = importlib.import_module("tensorflow.contrib.rnn.python.ops.lstm_ops")
    pool = importlib.import_module("tensorflow.contrib.data.python.ops.threadpool")
    datasets = importlib.import_module("tensorflow.python.data.ops.dataset_ops")
    savers = importlib.import_module("tensorflow.python.training.saver")
    optimizers = importlib.import_module("tensorflow.python.training.optimizer")
    events = importlib.import_module("tensorflow.python.summary.writer.event_file_writer")
    data = tf.data.Dataset.range(3).batch(2)
    assert learn.MonitoredSession is tf.train.MonitoredSession
    assert issubclass(lstm.LSTMBlockFusedCell, lstm.LSTMBlockWrapper)
    assert pool.override_threadpool(data, pool.PrivateThreadPool(3, display_name="x")) is data
    assert datasets.get_legacy_output_types(data) is tf.int64
    assert savers.BaseSaverBuilder.SaveableObject and hasattr(savers, "_get_saver_or_default")
    assert hasattr(events, "_EventLoggerThread") and events.EventFileWriter
    summed = optimizers.__getattr__("_deduplicate_indexed_slices")(
        tf.constant([[1.0], [2.0], [3.0]]), tf.constant([5, 2, 5])
    )
    with tf.Session() as session:
        assert [part.tolist() for part in session.run(summed)] == [[[4.0], [2.0]], [5, 2]]


def test_the_inputs_of_a_layer_are_checked_by_their_specs() -> None:
    check = importlib.import_module("tensorflow.python.keras.engine.input_spec").assert_input_compatibility
    spec, x = tf.layers.InputSpec(ndim=2), tf.zeros([2, 3])
    check(None, x, "layer")
    check([spec, spec], [x, x], "layer")
    with pytest.raises(ValueError, match="expects 1 inputs, but it received 2"):
        check(spec, [x, x], "layer")
    with pytest.raises(ValueError, match="expected ndim=2, found ndim=1"):
        check(spec, tf.zeros([2]), "layer")


def test_the_package_of_private_modules_has_those_below_its_packages_as_names() -> None:
    for short, whole in ("math_ops", "ops.math_ops"), ("vs", "ops.variable_scope"), ("nest", "util.nest"):
        module = importlib.import_module(f"tensorflow.python.{whole}")
        assert importlib.import_module(f"tensorflow.python.{short}") is module
    assert importlib.import_module("tensorflow.python.ops").convert_to_tensor is tf.convert_to_tensor


def test_libraries_find_initializers_in_what_vars_gives() -> None:
    found = vars(importlib.import_module("tensorflow.python.ops.init_ops"))
    assert {"RandomUniform", "RandomNormal", "constant_initializer", "zeros_initializer"} <= set(found)
    assert "ones" not in found and "random_uniform" not in found
