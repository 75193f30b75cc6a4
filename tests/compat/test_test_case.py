"""tf.test: its own assertions, sessions, threads, clusters and gradient checks."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import test_functions


@pytest.fixture
def case() -> tf.test.TestCase:
    case = tf.test.TestCase()
    case.setUp()
    yield case
    case.tearDown()
    case.doCleanups()


def test_a_case_that_begins_inside_of_a_graph_forgets_it(case: tf.test.TestCase) -> None:
    with tf.Graph().as_default() as outer:
        case.setUp()
        inner = tf.get_default_graph()
        with case.test_session() as session:
            assert session.graph is inner
            assert case.evaluate(tf.constant(2)) == 2
    assert inner is not outer and inner.seed == 87654321
    assert tf.get_default_graph() is inner
    with pytest.raises(AssertionError, match="Nesting violated"), tf.Graph().as_default():
        case.setUp()
        left_open = tf.Graph().as_default()
        left_open.__enter__()
    case.setUp()
    tf.reset_default_graph()


def test_assertions_about_values_hold(case: tf.test.TestCase) -> None:
    case.assertAllEqual([[1, 2]], tf.constant([[1, 2]]))
    case.assertAllEqual([[tf.constant(1), 2]], ([tf.constant(1), tf.constant(2)],))
    case.assertAllEqual([np.nan], np.array([np.nan]))
    case.assertAllClose({"a": [1.0, (2.0, tf.constant(3.0))]}, {"a": [1.0, (2.0, 3.0 + 1e-7)]})
    case.assertAllCloseAccordingToType(np.float16(1.0), np.float16(1.0005))
    case.assertNotAllClose([1.0], [1.1])
    case.assertNotAllEqual([1], [2])
    case.assertAllInRange(tf.constant([1, 2]), 1, 2)
    case.assertAllInSet([1, 1, 2], {1, 2})
    case.assertAllGreater([2, 3], 1)
    case.assertArrayNear([1.0, 2.0], [1.0, 2.01], 0.02)
    case.assertShapeEqual(np.zeros((2, 3)), tf.zeros([2, 3]))
    case.assertDTypeEqual(tf.constant(1.0), np.float32)
    case.assertDeviceEqual("/cpu:0", "/device:CPU:0")
    case.assertProtoEquals("name: 'x' op: 'NoOp'", tf.NodeDef(name="x", op="NoOp"))


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (lambda c: c.assertAllEqual([1, 2], [1, 3]), r"Arrays are not equal: 1 of 2 values differ, first at \(1,\)"),
        (lambda c: c.assertAllClose([1.0], [1.1], msg="about x"), "Not equal to tolerance .* about x"),
        (lambda c: c.assertAllClose([[1.0]], [1.0]), "Shape mismatch"),
        (lambda c: c.assertAllClose([{"a": 1.0}], [{"a": 2.0}]), "Not equal to tolerance"),
        (lambda c: c.assertAllLess([1, 5], 3), r"Not < 3 at \[\[1\]\]"),
        (lambda c: c.assertNotAllEqual([1], [1]), "equal at all"),
        (lambda c: c.assertShapeEqual(np.zeros(2), tf.zeros([3])), "Arrays are not equal"),
    ],
)
def test_failures_name_the_element(case: tf.test.TestCase, claim, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        claim(case)


def test_errors_of_ops_are_matched_by_text(case: tf.test.TestCase) -> None:
    with case.session(), case.assertRaisesOpError("is not positive|must be"):
        tf.check_numerics(tf.constant(np.nan), "must be a number").eval()
    with pytest.raises(AssertionError, match="does not match"):  # noqa: SIM117
        with case.assertRaisesWithPredicateMatch(ValueError, "x"):
            raise ValueError("y")


def test_sessions_are_cached_or_of_another_graph(case: tf.test.TestCase) -> None:
    x = tf.constant(2)
    assert case.evaluate([x, x + 1]) == [2, 3]
    with case.cached_session() as first, case.cached_session() as second:
        assert first is second and x.eval() == 2
    with case.test_session(graph=tf.Graph()) as other:
        assert other is not first and tf.get_default_graph() is other.graph


@pytest.mark.parametrize(
    ("options", "device"),
    [({}, "/device:CPU:0"), ({"use_gpu": True}, ""), ({"force_gpu": True}, "/device:GPU:0")],
)
def test_sessions_request_the_devices_that_a_test_asks_for(case: tf.test.TestCase, options, device: str) -> None:
    for opened in (case.session, case.cached_session, case.test_session):
        with opened(**options):
            assert tf.constant(1).device == device
    with pytest.raises(ValueError, match="another graph, config or force_gpu"), case.cached_session(tf.Graph()):
        pass


def test_decorated_tests_run_in_a_session_without_a_device(case: tf.test.TestCase) -> None:
    seen = []
    run = test_functions.run_in_graph_and_eager_modes
    for decorate in (run, run(), run(use_gpu=True), run(use_gpu=False)):
        decorate(lambda self: seen.append(tf.constant(len(seen)).device + str(self.evaluate(tf.constant(1)))))(case)
    assert seen == ["1", "1", "1", "/device:CPU:01"]


def test_a_test_session_places_ops_softly(case: tf.test.TestCase) -> None:
    with case.session(tf.Graph()) as sess, tf.device("/device:GPU:7"):
        assert sess.run(tf.constant(1)) == 1
    soft = tf.ConfigProto(allow_soft_placement=True)
    for config, force_gpu in ((tf.ConfigProto(), False), (soft, True), (None, True)):
        session = case.session(tf.Graph(), config, force_gpu=force_gpu)
        with session as sess, tf.device("/device:GPU:7"), pytest.raises(tf.errors.InvalidArgumentError, match="GPU:7"):
            sess.run(tf.constant(1))
    with test_functions.force_gpu(), test_functions.use_gpu():
        assert tf.constant(1).device == "/device:CPU:0"


def test_an_error_in_a_checked_thread_fails_its_join(case: tf.test.TestCase) -> None:
    def fail() -> None:
        raise ValueError("inside")

    thread = case.checkedThread(fail)
    thread.start()
    with pytest.raises(AssertionError, match="ValueError: inside"):
        thread.join()


def test_output_to_a_stream_is_captured(case: tf.test.TestCase, capfd: pytest.CaptureFixture[str]) -> None:
    with case.captureWritesToStream(sys.__stderr__) as captured:
        os.write(sys.__stderr__.fileno(), b"from below")
        assert captured.contents() == "from below"


def test_each_test_case_has_a_temporary_directory(case: tf.test.TestCase) -> None:
    assert os.path.isdir(case.get_temp_dir()) and case.get_temp_dir().startswith(tf.test.get_temp_dir())


def test_a_local_cluster_runs_a_session() -> None:
    workers, ps = tf.test.create_local_cluster(num_workers=2, num_ps=1)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(3.0)
    with tf.Session(workers[1].target) as sess:
        sess.run(v.initializer)
        assert sess.run(v + 1.0) == 4.0
    for server in workers + ps:
        server.stop()


@pytest.mark.parametrize("dtype", [tf.float64, tf.complex128])
def test_gradients_agree_with_differences(case: tf.test.TestCase, dtype: tf.DType) -> None:
    with case.session():
        x = tf.placeholder_with_default(tf.zeros([3], dtype), [3])
        y = x * x * 2
        theoretical, numeric = tf.test.compute_gradient(x, [3], y, [3], delta=1e-4)
        assert theoretical.shape == ((6, 6) if dtype.is_complex else (3, 3))
        np.testing.assert_allclose(theoretical, numeric, atol=1e-6)
        assert tf.test.compute_gradient_error(x, [3], y, [3], delta=1e-4) < 1e-6


def test_a_wrong_gradient_is_detected(case: tf.test.TestCase) -> None:
    with case.session():
        x = tf.constant([1.0, 2.0])
        y = x * tf.stop_gradient(x)
        assert tf.test.compute_gradient_error(x, [2], y, [2]) > 0.5


def test_gradients_of_functions_agree_with_differences(case: tf.test.TestCase) -> None:
    check = tf.compat.v2.test.compute_gradient
    with case.session():
        theoretical, numeric = check(lambda a, b: a * tf.sin(b), [np.array([1.0, 2.0]), tf.constant([3.0], tf.float64)])
        assert [j.shape for j in theoretical] == [(2, 2), (1, 2)] == [j.shape for j in numeric]
        assert test_functions.max_error(theoretical, numeric) < 1e-6
        assert test_functions.max_error(*check(lambda x: x * tf.stop_gradient(x), [tf.ones([2])])) > 0.5
        rows = check(lambda x: tf.gather(x, [2, 0, 2]), [np.arange(3.0)])
        assert rows[0][0].tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 1]] and test_functions.max_error(*rows) < 1e-6
        with pytest.raises(ValueError, match="must be a list"):
            check(tf.sin, tf.ones([2]))
    assert np.isnan(test_functions.max_error([np.ones(1), np.full(1, np.nan)], [np.ones(1), np.ones(1)]))


def test_graphs_are_compared_node_by_node() -> None:
    tf.constant(1, name="one")
    test_functions.assert_ops_in_graph({"one": "Const"}, tf.get_default_graph())
    with pytest.raises(ValueError, match="is missing from the graph"):
        test_functions.assert_ops_in_graph({"two": "Const"}, tf.get_default_graph())
    graph_def = tf.get_default_graph().as_graph_def()
    tf.test.assert_equal_graph_def(graph_def, graph_def)
    with pytest.raises(AssertionError, match="Nodes only in the actual graph"):
        tf.test.assert_equal_graph_def(graph_def, tf.GraphDef())


def test_missing_features() -> None:
    assert not tf.test.is_gpu_available() and not tf.test.is_built_with_cuda() and tf.test.gpu_device_name() == ""


def test_stubs_are_undone_at_the_end() -> None:
    stubs = tf.test.StubOutForTesting()
    with stubs:
        stubs.Set(os, "sep", "!")
        assert os.sep == "!"
    assert os.sep == "/"


def test_a_benchmark_reports_its_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    with tf.Session() as sess:
        found = tf.test.Benchmark().run_op_benchmark(sess, tf.constant(1), min_iters=3, name="one")
    assert found["iters"] == 3 and "Benchmark.one" in capsys.readouterr().out
    tf.test.Benchmark().report_benchmark(cpu_time=0.5, metrics=["m"])
    assert capsys.readouterr().out == "Benchmark.benchmark: cpu_time=0.5 metrics=['m']\n"


def test_lists_of_the_same_tensors_are_equal_whatever_their_values(case: tf.test.TestCase) -> None:
    noise, scalar = tf.random_normal([2]), tf.constant(3.0)
    case.assertAllEqual([noise], [noise])
    case.assertAllEqual((noise, [scalar]), (noise, [scalar]))  # no array
    with pytest.raises(AssertionError):
        case.assertAllEqual([noise], [tf.random_normal([2])])


@tf.RegisterGradient("TransposedForTheCheck")
def _transposed(node: object, grad: Any) -> Any:
    return tf.transpose(grad)


def test_an_empty_gradient_of_another_shape_is_told() -> None:
    x = tf.placeholder(tf.float32)
    with tf.get_default_graph().gradient_override_map({"Identity": "TransposedForTheCheck"}):
        y = tf.identity(x)
    with tf.Session(), pytest.raises(ValueError, match=r"wrong shape: expected \(0, 3\), got \(3, 0\)"):
        tf.test.compute_gradient(x, (0, 3), y, (0, 3))


def test_lists_of_unequal_lengths_are_compared_as_objects() -> None:
    case = tf.test.TestCase()
    shapes = tf.TensorShape([3]), tf.TensorShape([3, 10])
    case.assertAllEqual(shapes, (tf.TensorShape([3]), tf.TensorShape([3, 10])))
    case.assertAllEqual([[], [20]], [[], [20]])
    for given, wanted in [([[], [2]], [[], [3]]), (shapes, (tf.TensorShape([3]), tf.TensorShape([3, 11])))]:
        with pytest.raises(AssertionError):
            case.assertAllEqual(given, wanted)
