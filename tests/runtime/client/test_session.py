"""Session.run in one process: structures, feeds, errors, growth."""

from __future__ import annotations

import collections
import logging
import threading
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tfmini as tf
from tfmini.runtime.client import session as session_module


def test_results_mirror_the_fetch_structure() -> None:
    a, b = tf.constant(1.0), tf.constant([2, 3])
    op = tf.no_op()
    Pair = collections.namedtuple("Pair", "left right")
    with tf.Session() as session:
        result = session.run({"x": [a, (b, op)], "y": Pair(a, "Const:0"), "z": []})
    assert result["x"][0] == 1.0 and isinstance(result["x"], list)
    assert isinstance(result["x"][1], tuple) and result["x"][1][1] is None
    np.testing.assert_array_equal(result["x"][1][0], [2, 3])
    assert isinstance(result["y"], Pair) and result["y"].right == 1.0 and result["z"] == []
    assert isinstance(result["y"].left, np.float32)


def test_strings_and_scalars_come_back_as_python_sees_them() -> None:
    with tf.Session() as session:
        assert session.run(tf.constant("abc")) == b"abc"
        np.testing.assert_array_equal(session.run(tf.constant(["a", "b"])), np.array([b"a", b"b"], object))
        x = tf.placeholder(tf.string, [None])
        np.testing.assert_array_equal(session.run(x, {x: ["u", b"v"]}), np.array(["u", b"v"], object))


def test_any_tensor_can_be_fed_and_its_producer_is_pruned() -> None:
    p = tf.placeholder(tf.float32, name="p")
    middle = p * 2.0
    out = middle + 1.0
    with tf.Session() as session:
        assert session.run(out, {middle: 10.0}) == 11.0
        assert session.run([out, middle], {"mul:0": 3.0}) == [4.0, 3.0]


@pytest.mark.parametrize(
    ("fetch", "kind", "text"),
    [
        (None, TypeError, "Fetch argument None has invalid type"),
        (3, TypeError, "must be a string or Tensor. (Can not convert a int into a Tensor or Operation.)"),
        ("zz:0", ValueError, "The operation, 'zz', does not exist in the graph."),
        ("c:7", ValueError, "exists but only has 1 outputs."),
        ("zz", ValueError, "The name 'zz' refers to an Operation not in the graph."),
        ("images_:0", ValueError, "Did you mean 'images:0'?"),
    ],
)
def test_invalid_fetches_are_refused(fetch: object, kind: type[Exception], text: str) -> None:
    tf.constant(1.0, name="c")
    tf.constant(1.0, name="images")
    with tf.Session() as session, pytest.raises(kind) as info:
        session.run(fetch)
    assert text in str(info.value) and f"mean {fetch!r}" not in str(info.value)


def test_a_fetch_from_another_graph_is_refused() -> None:
    tf.constant(1.0)
    with tf.Graph().as_default():
        other = tf.constant(2.0)
    with tf.Session() as session, pytest.raises(ValueError, match="is not an element of this graph"):
        session.run(other)


def test_invalid_feeds_are_refused() -> None:
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    i = tf.placeholder(tf.int8, [], name="i")
    y = x + 1.0
    with tf.Session() as session:
        with pytest.raises(
            ValueError, match=r"Cannot feed value of shape \(3,\) for Tensor 'x:0', which has shape '\(\?, 2\)'"
        ):
            session.run(y, {x: [1, 2, 3]})
        with pytest.raises(TypeError, match="Cannot interpret feed_dict key as Tensor"):
            session.run(y, {"x": [[1, 2]]})
        with pytest.raises(TypeError, match="cannot be a tf.Tensor object"):
            session.run(y, {x: y})
        with pytest.raises(ValueError, match=r"to float: 'a' \(fed for 'x:0', which is float32\)"):
            session.run(y, {x: [["a", "b"]]})
        with pytest.raises(TypeError, match="not compatible with Tensor type"):
            session.run(i, {i: 1000})
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"placeholder tensor 'x' with dtype float and shape \[\?,2\]"
        ) as info:
            session.run(y)
        assert info.value.op is x.op and "test_session.py" in info.value.message


def test_closed_sessions_and_empty_graphs_are_refused() -> None:
    with tf.Graph().as_default():
        with pytest.raises(RuntimeError, match="The Session graph is empty"):
            tf.Session().run("x")
        c = tf.constant(1.0)
        session = tf.Session()
        session.close()
        session.close()
        with pytest.raises(RuntimeError, match="Attempted to use a closed Session."):
            session.run(c)
    with pytest.raises(tf.errors.NotFoundError, match="No session factory registered"):
        tf.Session("foo://bar")
    with pytest.raises(tf.errors.NotFoundError, match=r"Did you mean grpc://localhost:2222, or server.target\?"):
        tf.Session("localhost:2222")
    with pytest.raises(TypeError, match="Did you do"):
        tf.Session(tf.ConfigProto())


def test_variables_belong_to_their_session() -> None:
    v = tf.Variable(1.0, name="v")
    add = v.assign_add(2.0)
    with tf.Session() as one, tf.Session() as two:
        one.run(v.initializer)
        assert one.run(add) == 3.0
        with pytest.raises(tf.errors.FailedPreconditionError, match="Attempting to use uninitialized value v"):
            two.run(v)


def test_a_fetched_array_is_the_callers_own() -> None:
    v = tf.Variable([1.0, 2.0])
    c = tf.constant([5.0])
    with tf.Session() as session:
        session.run(v.initializer)
        for tensor in (v, c, tf.identity(v), tf.reshape(v, [2, 1])):
            value = session.run(tensor)
            value += 100
        np.testing.assert_array_equal(session.run(v), [1, 2])
        np.testing.assert_array_equal(session.run(c), [5])


def test_fetches_do_not_share_memory_with_feeds_or_each_other() -> None:
    x = tf.placeholder(tf.float32, [2])
    y = x * 2.0
    fed = np.ones(2, np.float32)
    with tf.Session() as session:
        same, one, two = session.run([tf.identity(x), y, tf.identity(y)], {x: fed})
        for a, b in ((same, fed), (one, two)):
            assert not np.shares_memory(a, b)


def test_threads_may_make_the_first_run_of_a_fetch_together() -> None:
    y = tf.placeholder_with_default(1.0, []) + 1.0
    found: list[float] = []
    with tf.Session() as session:
        gate = threading.Barrier(4)

        def work() -> None:
            gate.wait()
            found.append(session.run(y))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [2.0] * 4


def test_eval_and_run_use_the_default_session() -> None:
    c = tf.constant(4.0)
    with pytest.raises(ValueError, match="No default session is registered"):
        c.eval()
    with tf.Session():
        assert c.eval() == 4.0
        tf.no_op().run()
    session = tf.InteractiveSession()
    assert c.eval() == 4.0
    session.close()


def test_a_second_interactive_session_is_warned_about() -> None:
    first = tf.InteractiveSession()
    with pytest.warns(UserWarning, match="An interactive session is already active"):
        second = tf.InteractiveSession()
    second.close()
    first.close()


def test_names_may_be_bytes() -> None:
    named = tf.constant(4.0, name=b"named")
    assert named.name == "named:0"
    with tf.Session() as session:
        assert session.run(b"named:0") == 4.0


def test_a_number_cannot_be_fed_as_a_string() -> None:
    text = tf.placeholder(tf.string)
    with tf.Session() as session:
        assert session.run(text, {text: "1"}) == "1"  # fed and fetched: as it was given
        with pytest.raises(TypeError, match="Type of feed value 1 with type <class 'int'> is not compatible"):
            session.run(text, {text: 1})


def test_devices_are_described_as_in_tensorflow() -> None:
    with tf.Session() as session:
        [device] = session.list_devices()
    assert device.memory_limit_bytes == 256 << 20
    assert str(device).startswith("_DeviceAttributes(/job:localhost/replica:0/task:0/device:CPU:0, CPU, 268435456, ")
    assert type(device)("/job:ps/replica:0/task:3/cpu:1", "CPU").name == "/job:ps/replica:0/task:3/device:CPU:1"


def test_make_callable_takes_positional_feeds() -> None:
    x = tf.placeholder(tf.float32)
    with tf.Session() as session:
        double = session.make_callable(x * 2.0, [x])
        assert double(4.0) == 8.0
        assert session.make_callable(tf.constant(1.0))() == 1.0


def test_threads_share_a_session() -> None:
    v = tf.Variable(0)
    add = v.assign_add(1)
    with tf.Session() as session:
        session.run(v.initializer)
        threads = [threading.Thread(target=lambda: [session.run(add.op) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.run(v) == 800


def test_a_step_without_an_update_leaves_the_steps_of_other_threads_whole() -> None:
    """A thread repeats a step without its update, and another one runs the same call meanwhile."""
    inside, over = threading.Event(), threading.Event()

    def one() -> Any:
        if threading.current_thread() is repeats:
            inside.set()
            assert over.wait(60)
        return np.float32(1)

    v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=False)
    gradient = tf.ensure_shape(tf.py_func(one, [], tf.float32), [])
    update = tf.assign_add(v, gradient, name="update")
    with tf.control_dependencies([gradient]):  # a step without the update computes it, too
        step = tf.group(update)
    with tf.Session() as session:
        args = (session, frozenset({"update"}), step)
        repeats = threading.Thread(target=session_module.run_without, args=args)
        session.run(v.initializer)
        repeats.start()
        assert inside.wait(60)
        session.run(step)
        over.set()
        repeats.join(60)
        session.run(step)
        assert session.run(v) == 2


def test_calls_are_remembered_and_known_ops_run_while_another_thread_extends_the_graph() -> None:
    known = tf.constant(2.0) * 3.0
    with tf.Session() as session:
        assert session.run(known) == 6.0
        x = tf.constant(1.0) + 1.0
        extend = session.master.extend
        asked, go_on = threading.Event(), threading.Event()

        def extend_late(nodes: Any, timeout_s: float | None = None) -> None:  # as a master that waits for a task
            asked.set()
            assert go_on.wait(60)
            extend(nodes)

        session.master.extend = extend_late  # type: ignore[method-assign]
        first = threading.Thread(target=session.run, args=(x,))
        first.start()
        assert asked.wait(60)
        second = threading.Thread(target=session.run, args=([],), daemon=True)  # a call that needs no step
        second.start()
        second.join(10)
        assert not second.is_alive()
        third = threading.Thread(target=session.run, args=(known,), daemon=True)
        third.start()
        third.join(10)
        assert not third.is_alive()
        go_on.set()
        first.join(60)
        assert session.run(x) == 2.0


def test_a_loop_that_grows_the_graph_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    v = tf.constant(1.0)
    with caplog.at_level(logging.WARNING, logger="tensorflow"), tf.Session() as session:
        for _ in range(20):
            session.run(-v)
    warnings = [r for r in caplog.records if "The graph grows between runs" in r.getMessage()]
    assert len(warnings) == 1 and "test_session.py" in warnings[0].getMessage()


def test_stages_that_build_something_once_are_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tensorflow"), tf.Session() as session:

        def run(made: tf.Tensor) -> None:
            for _ in range(2):
                session.run(made)

        v = tf.Variable([1.0])
        session.run(v.initializer)
        run(tf.exp(v))
        run(tf.sin(v))
        run(tf.cos(v))
        run(tf.tan(v))
        run(tf.abs(v))
        run(tf.sqrt(v))
        run(tf.negative(v))
        run(tf.square(v))
        run(tf.sigmoid(v))
        saver = tf.train.Saver()
        run(v + 2.0)
        assert saver is not None
    assert "The graph grows between runs" not in caplog.text


def test_the_warning_counts_the_runs_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    v = tf.placeholder_with_default([1.0], [None])
    with caplog.at_level(logging.WARNING, logger="tensorflow"), tf.Session() as session:
        for _ in range(9):
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(tf.reshape(v, [2]))
    (warning,) = (r for r in caplog.records if "The graph grows between runs" in r.getMessage())
    assert "8 of 9 runs" in warning.getMessage()


def test_a_cluster_device_in_a_local_session_has_its_own_message() -> None:
    with tf.device("/job:ps/task:0"):
        v = tf.constant(1.0)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="server.target"):
        session.run(v)


def test_partition_graphs_come_with_the_metadata() -> None:
    y = tf.placeholder_with_default(1.0, []) + 1.0
    metadata = tf.RunMetadata()
    with tf.Session() as session:
        session.run(y, options=tf.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    (graph,) = metadata.partition_graphs
    assert "add" in [node.name for node in graph.node]


def test_control_dependencies_order_state() -> None:
    v = tf.Variable(1.0)
    with tf.control_dependencies([v.assign(5.0)]):
        after = tf.identity(v)
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(after) == 5.0


def test_a_kernel_error_names_its_node_and_line() -> None:
    x = tf.placeholder(tf.float32, name="x")
    y = tf.matmul(x, x, name="bad_product")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as info:
        session.run(y, {x: np.ones((2, 3))})
    assert info.value.op is y.op and "bad_product" in info.value.message


def test_nested_fetches_are_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = tf.constant(1), tf.constant(2)
    pair = collections.namedtuple("pair", ["x", "y"])
    analyse = Mock(side_effect=session_module.Call)
    monkeypatch.setattr(session_module, "Call", analyse)
    with tf.Session() as session:
        for _ in range(3):
            assert session.run({"k": [a, (b,)], "l": a}) == {"k": [1, (2,)], "l": 1}
        assert analyse.call_count == 1
        assert session.run({"l": a, "k": [a, (b,)]}) == {"k": [1, (2,)], "l": 1}
        assert session.run({"k": [a, [b]], "l": a}) == {"k": [1, [2]], "l": 1}
        assert session.run({"k": [pair(a, b)]}) == {"k": [pair(1, 2)]}
        assert session.run({"k": [(a, b)]})["k"][0].__class__ is tuple
        assert analyse.call_count == 5


def test_seeding_python_does_not_repeat_step_ids() -> None:
    import random

    from tfmini.runtime.options import new_step_id

    random.seed(7)
    first = new_step_id()
    random.seed(7)
    assert new_step_id() != first


def test_a_server_or_cluster_in_place_of_its_target_is_named() -> None:
    with tf.LocalCluster(ps=0, workers=1) as cluster, pytest.raises(TypeError, match=r"Give its target: tf\.Session"):
        tf.Session(cluster)  # type: ignore[arg-type]


def test_soft_placement_is_that_of_sessions_without_a_config() -> None:
    assert not tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        assert tf.config.get_soft_device_placement()
        with tf.device("/gpu:0"):
            x = tf.constant(1.0) + tf.constant(2.0)
        with tf.Session() as session:
            assert session.run(x) == 3
        with tf.Session(config=tf.ConfigProto()) as session, pytest.raises(tf.errors.InvalidArgumentError):
            session.run(x)
    finally:
        tf.config.set_soft_device_placement(False)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"):
        session.run(x)


def test_devices_are_listed_without_a_session() -> None:
    (logical,) = tf.config.experimental.list_logical_devices("CPU")
    assert logical == ("/job:localhost/replica:0/task:0/device:CPU:0", "CPU") == (logical.name, logical.device_type)
    (physical,) = tf.config.experimental.list_physical_devices("CPU")
    assert physical == ("/physical_device:CPU:0", "CPU") and not tf.config.experimental.list_physical_devices("TPU")
