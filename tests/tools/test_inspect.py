"""`tfmini inspect`: its exit codes, for CI, and modules in the place of scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tfmini as tf
from tfmini.tools.cli import main

WORKER, PS = "/job:worker/task:0", "/job:ps/task:0"


def good() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device=WORKER)):
        loss = tf.reduce_sum(tf.get_variable("w", [3]))
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def with_a_finding() -> None:
    with tf.device(WORKER):  # the variable should be on the ps
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.get_variable("w", [3])))


def on_no_task() -> None:
    with tf.device("/job:nothing/task:0"):
        tf.get_variable("w", [3])


def refused() -> None:
    with tf.device(f"{WORKER}/device:GPU:0"):
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.get_variable("w", [3])))


def with_an_op_that_nobody_has() -> None:
    good()
    meta = tf.train.export_meta_graph()
    node = meta.graph_def.node.add(name="foreign", op="NobodyHasIt", input=["w/read"], device=WORKER)
    node.attr["T"].type = 1
    Path("graph.meta").write_bytes(meta.SerializeToString())


@pytest.mark.parametrize(
    ("build", "options", "code", "message"),
    [
        (good, [], 0, "no warnings"),
        (with_a_finding, [], 1, "state on a worker"),
        (on_no_task, [], 2, "Cannot assign a device for operation w"),
        (refused, [], 2, "Error: A session would refuse this step: a session refuses this graph"),
        (with_an_op_that_nobody_has, [], 1, "NobodyHasIt"),
        (with_an_op_that_nobody_has, ["--fetch", "foreign"], 2, "Error: A session would refuse this step"),
        (good, ["--fetch", "nothing"], 2, "the graph has no op nothing"),
    ],
)
def test_lint_gates_ci(
    build: object, options: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default():
        assert callable(build)
        build()
        if not Path("graph.meta").exists():
            tf.train.export_meta_graph("graph.meta")
    command = ["inspect", "graph.meta", "--ps", "1", "--workers", "2", *options]
    result = CliRunner().invoke(main, [*command, "--view", "lint"])
    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert CliRunner().invoke(main, command).exit_code == ("nothing" in options or build is on_no_task)


def test_a_chief_can_be_added(tmp_path: Path) -> None:
    script = tmp_path / "estimated.py"
    script.write_text("import tensorflow as tf\ntf.estimator.RunConfig()\ntf.constant(1, name='c')\n")
    command = ["inspect", str(script), "--workers", "1"]
    without = CliRunner().invoke(main, command)
    assert without.exit_code == 1 and "The option --chief of `tfmini launch`, `inspect`" in without.output
    result = CliRunner().invoke(main, [*command, "--chief", "--fetch", "c"])
    assert result.exit_code == 0 and "chief/0" in result.output, result.output
    (tmp_path / "c.json").write_text('{"worker": 1}')
    both = CliRunner().invoke(main, ["inspect", str(script), "--chief", "--cluster", str(tmp_path / "c.json")])
    assert both.exit_code == 2 and "a --cluster file names its chief itself" in both.output


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["inspect", "--workers", "1"], "the step runs GradientDescent"),
        (["simulate", "--steps", "2"], "steps/s of all workers"),
        (["place", "--ps", "2", "--trials", "2"], "the plan"),
    ],
)
def test_a_module_is_studied_as_a_script_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], shown: str
) -> None:
    package = f"trainer_of_{command[0]}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "model.py").write_text("SIZE = 3\n")
    (tmp_path / package / "task.py").write_text(
        "import sys, tensorflow as tf\n"
        "from .model import SIZE\n"
        "assert sys.argv[1:] == ['--x=1']\n"
        "with tf.device(tf.train.replica_device_setter(ps_tasks=1)):\n"
        "    loss = tf.reduce_sum(tf.get_variable('w', [SIZE]))\n"
        "    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)\n"
        "with tf.Session() as session:\n"
        "    session.run(step)\n"
    )
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command, "-m", f"{package}.task", "--", "--x=1"])
    assert result.exit_code == 0 and shown in result.output, result.output
    result = CliRunner().invoke(main, [*command, "-m", f"{package}.absent"])
    assert result.exit_code == 2 and f"there is no module {package}.absent" in result.output
