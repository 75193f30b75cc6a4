"""`tfmini trace`: the choice of the run, the timeline, and the message if there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

import tfmini as tf
from tfmini import protos
from tfmini.show.inspection.study import trains
from tfmini.show.inspection.trace import OP, WIRE, read_trace
from tfmini.tools.cli import main
from tfmini.tools.script import TRACE_ENV, TraceOptions, Tracer

REPOSITORY = Path(__file__).parents[2]


def names(path: Path) -> set[str]:
    return {span.name for span in read_trace(path).of_kind(OP)}


def test_the_first_step_that_reaches_the_number_of_runs_is_traced(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    tracer = Tracer(TraceOptions(str(path), run=3))
    rare, often = tf.random_uniform([], name="rare") + 1.0, tf.random_normal([], name="often") + 1.0
    with tf.Session() as session, tracer.installed():
        for _ in range(2):
            session.run(rare)
            session.run(often)
        assert not path.exists() and "--run 2 or less" in tracer.failure()
        assert isinstance(float(session.run(often)), float)
        assert any(name.startswith("often") for name in names(path)) and tracer.failure() == ""
        written = path.read_bytes()
        session.run(rare)
    assert path.read_bytes() == written and list(tmp_path.iterdir()) == [path]


def test_only_runs_of_a_fetch_count_and_requested_metadata_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    tracer = Tracer(TraceOptions(str(path), run=1, fetch="wanted"))
    other, wanted = tf.constant(1.0, name="other"), tf.random_uniform([], name="wanted")
    metadata = tf.RunMetadata()
    with tf.Session() as session, tracer.installed():
        session.run(other)
        assert tracer.failure().startswith("no run fetched or ran wanted; other runs did so with other:0.")
        session.run([wanted, other], options=protos.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    assert tracer.done and metadata.partition_graphs
    with tf.Session() as session:  # no longer watched
        session.run(wanted)


def test_the_step_of_a_synchronous_chief_that_gives_gradients_is_traced(tmp_path: Path) -> None:
    """It was the step of the queue thread, which runs first."""
    path = tmp_path / "t.json"
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
    loss = tf.reduce_sum(tf.get_variable("w", [3]))
    train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
    [applies] = optimizer.get_chief_queue_runner().enqueue_ops
    graph = tf.get_default_graph()
    assert [trains(graph, [op.name]) for op in (applies, train_op)] == [False, True]
    tracer = Tracer(TraceOptions(str(path), run=1))  # the initialisers come first, too
    hooks = [optimizer.make_session_run_hook(True)]
    with tracer.installed(), tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        while not tracer.done:
            session.run(train_op)
    kinds = {span.op for span in read_trace(path).of_kind(OP)}
    assert "ResourceAccumulatorApplyGradient" in kinds or "AccumulatorApplyGradient" in kinds
    assert "AccumulatorTakeGradient" not in kinds


def test_other_steps_of_a_graph_that_trains_do_not_count(tmp_path: Path) -> None:
    w = tf.get_variable("w", [])
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(w * w)
    tracer = Tracer(TraceOptions(str(tmp_path / "t.json"), run=3))
    with tf.Session() as session, tracer.installed():
        session.run(w.initializer)
        for _ in range(5):
            session.run(w)
        assert not tracer.done and "--fetch w:0" in tracer.failure() and "no training step" in tracer.failure()
        for _ in range(3):
            session.run([train_op, w])
    assert tracer.done


def test_a_failing_step_is_reported(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, [])
    tracer = Tracer(TraceOptions(str(tmp_path / "t.json"), run=1))
    with tf.Session() as session, tracer.installed(), pytest.raises(tf.errors.InvalidArgumentError):
        session.run(tf.check_numerics(x, "bad"), {x: float("inf")})
    assert tracer.failure() == "the step to trace failed."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "worker/0"], "--task worker/0 needs a cluster: give --ps, --workers or --chief, too."),
        (["--ps", "1", "--task", "worker/7"], "has no task worker/7; --task may be ps/0, worker/0."),
        (["--ps", "2", "--workers", "0"], "has no task worker/0; --task may be ps/0, ps/1."),
        (["-o", "/no/such/t.json"], "there is no directory /no/such."),
        (["--html", "/no/such/t.html"], "Cannot write /no/such/t.html: there is no directory /no/such."),
    ],
)
def test_wrong_options_are_named_before_anything_runs(options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["trace", *options, __file__])
    assert result.exit_code in (1, 2) and message in " ".join(result.output.split())


def test_a_request_is_for_one_task() -> None:
    request = TraceOptions("/tmp/t.json", 5, "worker/1", "train")
    role = {"cluster": {}, "task": {"type": "worker", "index": 1}}
    environment = {TRACE_ENV: request.to_environment(), "TF_CONFIG": json.dumps(role)}
    assert TraceOptions.from_environment(environment) == request
    role["task"] = {"type": "worker", "index": 0}
    assert TraceOptions.from_environment({**environment, "TF_CONFIG": json.dumps(role)}) is None
    assert TraceOptions.from_environment({}) is None


def command(tmp_path: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(body))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-m", "tfmini", "trace", *options, str(script), "--flag"],
        env=environment, capture_output=True, text=True, timeout=140, cwd=tmp_path,
    )  # fmt: skip


@pytest.mark.cluster
def test_a_script_in_this_process_is_traced(tmp_path: Path) -> None:
    body = """
        import sys
        import tensorflow as tf
        assert sys.argv[1:] == ["--flag"]
        step = tf.assign_add(tf.Variable(1.0, name="v"), tf.random_uniform([]), name="step")
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(4):
                session.run(step)
        sys.exit(3)
    """
    done = command(tmp_path, body, "--run", "4", "-o", "out.json")
    assert done.returncode == 3, done.stderr
    assert "of it is attributed" in done.stdout and "out.json" in done.stdout
    assert "step" in names(tmp_path / "out.json")
    done = command(tmp_path, body, "--run", "5", "-o", "out.json")
    assert done.returncode == 1 and "give --run 4 or less" in done.stderr and "No timeline was written" in done.stderr
    assert not (tmp_path / "out.json").exists()


@pytest.mark.cluster
def test_the_reason_and_the_missing_timeline_are_one_error(tmp_path: Path) -> None:
    done = command(tmp_path, "raise SystemExit(3)")
    assert done.returncode == 1
    assert done.stderr == "Error: No timeline was written: the script ran no session. Its exit code was 3.\n"


@pytest.mark.cluster
def test_a_script_on_a_cluster_is_traced(tmp_path: Path) -> None:
    body = """
        import json, os
        import tensorflow as tf
        config = json.loads(os.environ["TF_CONFIG"])
        job, index = config["task"]["type"], config["task"]["index"]
        server = tf.train.Server(config["cluster"], job, index)
        if job == "ps":
            server.join()
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(1.0, name="v")
        step = tf.assign_add(v, tf.random_uniform([], name="noise"), name="step")
        with tf.Session(server.target) as session:
            session.run(v.initializer)
            for _ in range(3):
                session.run(step.op)
    """
    done = command(tmp_path, body, "--ps", "1", "--workers", "1", "--run", "3")
    assert done.returncode == 0, done.stderr
    trace = read_trace(tmp_path / "timeline.json")
    assert trace.tasks == ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"]
    assert [(wire.name, wire.task, wire.bytes) for wire in trace.of_kind(WIRE)] == [("noise", trace.tasks[0], 4)]
    assert trace.attributed() > 0.95
