"""What a failed step tells its user: the node, its line, the remedy, and nothing of tfmini's own machinery."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.data.function_graph import trace
from tfmini.data.structure import given_structure

REPOSITORY = Path(__file__).parents[3]


def failure(fetches: Any, feeds: Any = None, target: str = "") -> tf.errors.OpError:
    with tf.Session(target, getattr(fetches, "graph", None)) as session, pytest.raises(tf.errors.OpError) as caught:
        session.run(fetches, feeds)
    return caught.value


@pytest.mark.parametrize("use_resource", [False, True])
def test_an_uninitialized_variable_names_the_remedy(use_resource: bool) -> None:
    v = tf.get_variable("v", [2], use_resource=use_resource)
    error = failure(v + 1.0)
    assert isinstance(error, tf.errors.FailedPreconditionError)
    assert error.message.startswith(("Attempting to use uninitialized value v\n", "Error while reading resource"))
    assert error.message.endswith("\nRun tf.global_variables_initializer(), or restore, first.")


def test_a_local_variable_has_an_initializer_of_its_own() -> None:
    v = tf.get_variable("v", [2], collections=[tf.GraphKeys.LOCAL_VARIABLES])
    assert "Run tf.local_variables_initializer()" in failure(v).message


def test_an_error_of_a_fetched_variable_names_the_variable() -> None:
    v = tf.get_variable("v", [2])
    error = failure(v)
    assert error.op is v.op
    assert f"[[node v (defined at {__file__}:" in error.message


def test_the_op_that_reads_an_uninitialized_variable_is_named_as_in_tensorflow() -> None:
    """The names are those of TensorFlow 1.15.5; compiled steps leave ``v/read`` out, and a loop is one unit."""
    v = tf.get_variable("v", [2, 2])
    loop = tf.while_loop(lambda i: i < 2, lambda i: i + tf.cast(v[0, 0], tf.int32), [tf.constant(0)])
    users = [v * 2.0, tf.matmul(v, v), tf.gather(v, [0]), tf.cond(tf.constant(True), lambda: v * 2.0, lambda: v), loop]
    for use in users:
        error = failure(use)
        assert error.op is v.value().op and "[[node v/read (defined at" in error.message
    for update in (v.assign_add(v), tf.scatter_add(v, [0], [[1.0, 1.0]])):
        assert failure(update).op.type in ("Identity", "ScatterAdd")


def test_an_assignment_of_another_shape_names_the_variable_and_the_job_that_left_it() -> None:
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    with workers[0], servers[0]:
        for size in (2, 3):  # two jobs
            with tf.Graph().as_default(), tf.Session(workers[0].target) as session, tf.device("/job:ps/task:0"):
                w = tf.get_variable("w", [size], use_resource=False)
                if size == 2:
                    session.run(w.initializer)
        error = failure(w.initializer, target=workers[0].target)
    left = "so that of shape [2] on /job:ps/replica:0/task:0 is left from an earlier job, or of one that uses the same"
    assert f"\nThe variable 'w' has shape [3] in this graph, {left} servers now. Start the" in error.message
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=False)
    value = tf.placeholder(tf.float32)
    with tf.Session() as session:
        session.run(v.initializer)
        told = r"(?s)rhs shape= \[3\].*It assigns to the variable 'v'"
        with pytest.raises(tf.errors.InvalidArgumentError, match=told):
            session.run(tf.assign(v, value), {value: [1, 2, 3]})


def test_an_error_of_a_sent_value_names_its_producer() -> None:
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    with tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", [2])
    with tf.device("/job:worker/task:0"):
        double = w * 2.0
    with workers[0], servers[0]:
        error = failure(double, target=workers[0].target)
    assert error.op is not None and error.op.name == "w/read"
    assert "[[node w/read (defined at " in error.message
    assert error.message.endswith("first; it is a variable on /job:ps/task:0.")


def test_shape_errors_have_tensorflows_text() -> None:
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    error = failure(tf.add(a, b, name="sum"), {a: np.zeros((2, 3)), b: np.zeros(4)})
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert error.message.startswith("Incompatible shapes: [2,3] vs. [4]\n\t [[node sum (defined at ")


def test_a_kernel_that_cannot_be_made_has_its_node() -> None:
    error = failure(tf.cast(tf.constant("1"), tf.float32, name="number"))
    assert isinstance(error, tf.errors.UnimplementedError)
    assert error.op is not None and error.op.name == "number"
    assert "[[node number (defined at " in error.message


def test_a_failing_node_of_a_datasets_function_has_its_line() -> None:
    dataset = tf.data.Dataset.range(3).map(
        lambda x: tf.check_numerics(tf.cast(x, tf.float32) / 0.0, "bad", name="culprit")
    )
    line = test_a_failing_node_of_a_datasets_function_has_its_line.__code__.co_firstlineno + 2
    error = failure(dataset.make_one_shot_iterator().get_next())
    assert f"bad : Tensor had NaN values\n\t [[node culprit (defined at {__file__}:{line}) ]]" in error.message


def test_a_functions_nodes_keep_their_lines_on_the_wire() -> None:
    body = trace(lambda x: x + 1.0, [given_structure(tf.float32, [])], "f").body
    assert type(body).from_wire(body.to_wire()).nodes[-1].attrs["_defined_at"].startswith(__file__.encode())


# ---- stacks -----------------------------------------------------------------------------------


def test_a_stack_is_shown_as_python_shows_it() -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    error = failure(tf.check_numerics(x, "bad"), {x: [np.nan]})
    file, line, name = error.op.creation_stack()[-1]
    source = 'error = failure(tf.check_numerics(x, "bad"), {x: [np.nan]})'
    assert str(error).endswith(f'  File "{file}", line {line}, in {name}\n    {source}')


def test_an_op_that_tfmini_makes_deep_inside_of_a_call_names_the_users_line() -> None:
    gs = tf.train.get_or_create_global_step()
    with tf.train.SingularMonitoredSession() as session:
        session.run(gs)
    made = [op for op in tf.get_default_graph().get_operations() if len(op.traceback) > 20]
    assert made and all(op.creation_site()[0] == __file__ for op in made)


def test_an_op_that_no_user_has_made_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    checked = tf.check_numerics(x, "bad", name="checked")
    monkeypatch.setattr(tf.Operation, "creation_stack", lambda self: [])
    error = failure(checked, {x: [np.nan]})
    assert "defined at" not in error.message and "[[node checked" in error.message
    assert str(error) == error.message


SCRIPT = """
    import tensorflow as tf

    def build():
        return tf.get_variable("w", [2])

    def main(_):
        w = build()
        try:
            tf.Session().run(w)
        except tf.errors.OpError as error:
            print(error)
        try:
            build()
        except ValueError as error:
            print(error)

    tf.app.run()
"""


def test_a_stack_begins_with_the_script_also_under_the_launcher(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, "-m", "tfmini", "run", str(script)],
        capture_output=True, text=True, timeout=200, check=True, cwd=REPOSITORY,
    )  # fmt: skip
    frames = [line.strip() for line in done.stdout.splitlines() if line.startswith("  File ")]
    expected = [
        f'File "{script}", line 18, in <module>',
        f'File "{script}", line 8, in main',
        f'File "{script}", line 5, in build',
    ]
    assert frames == expected * 2, done.stdout


def test_the_source_line_replaces_a_tag_without_a_second_space() -> None:
    with tf.device("/device:GPU:0"):
        v = tf.constant(1.0, name="v")
    assert re.search(r"operation v: node v \(defined at \S+:\d+\) was explicitly assigned", failure(v).message)


def test_an_error_of_a_gradient_names_the_op_that_it_belongs_to() -> None:
    a, b = tf.placeholder_with_default([[1.0, 2.0]], None), tf.placeholder_with_default([[1.0], [2.0]], None)
    product = tf.matmul(a, b, name="product")
    wrong = tf.placeholder_with_default([[1.0, 2.0]], None)
    error = failure(tf.gradients(product, a, grad_ys=wrong)[0])
    assert error.node_def.name == error.op.name and error.op._original_op is product.op
    assert "...which was originally created as op 'product', defined at:" in str(error)
    again = type(error)(error.node_def, error.op, "again")
    assert again.op is error.op


def test_an_op_that_cannot_be_placed_names_the_scopes_that_request_its_device() -> None:
    with tf.device("/job:nowhere"), tf.device(lambda op: "/task:1"):
        value = tf.random_uniform([])
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as info:
        session.run(value)
    inner, outer = info.value.message.splitlines()[-2:]
    assert re.fullmatch(rf"A scope around \S+: with tf.device\(<lambda><{__file__}, \d+>\) at {__file__}:\d+\.", inner)
    assert re.fullmatch(rf"A scope around \S+: with tf.device\(/job:nowhere\) at {__file__}:\d+\.", outer)
