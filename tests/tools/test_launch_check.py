"""`tfmini launch --check`: what a launch would do, and what is wrong with it."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from tfmini.launch import cluster_run
from tfmini.tools.cli import main

_SHARED = """
import argparse, json, os
import tensorflow as tf
parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index")
parser.parse_known_args()
config = json.loads(os.environ["TF_CONFIG"])
with tf.device(tf.train.replica_device_setter(cluster=config["cluster"])):
    w = tf.get_variable("w", [1000])
train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w * w))
with tf.Session() as session:
    session.run(train)
"""
_ALONE = """
import tensorflow as tf
w = tf.get_variable("w", [1000])
train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w * w))
with tf.Session() as session:
    session.run(train)
"""


def checked(script: Path, body: str, *options: str, args: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code of a check, and what it prints, with single spaces."""
    script.write_text(body)
    done = CliRunner().invoke(main, ["launch", "--check", *options, str(script), *args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.stdout.split())


def test_a_launch_without_problems_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_run.ClusterRun, "run", None)  # nothing may start
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = tmp_path / "train.py"
    code, said = checked(script, _SHARED, "--ps", "1", "--workers", "2", "--port-base", str(port), args=("--lr=1",))
    assert code == 0, said
    assert "role by --job_name, --task_index, TF_CONFIG" in said
    assert "ports free graph" in said and "ps 1 of 1 used, with 1 variables" in said
    assert f"ps/0 127.0.0.1:{port} tfmini run {script} --job_name=ps --task_index=0 --lr=1" in said
    assert f"worker/1 127.0.0.1:{port + 2} tfmini run {script} --job_name=worker --task_index=1 --lr=1" in said
    assert said.endswith("nothing was started; no problem found")


def test_what_would_waste_a_launch_is_a_problem(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        code, said = checked(script, _ALONE, "--workers", "2", "--port-base", str(port), args=("--ps", "2"))
    assert code == 1
    assert f"problem: --ps follows {script}, so it is passed to the script" in said
    assert "defines no role flag (--job_name, --task_index) and does not read TF_CONFIG" in said
    assert f"cannot reserve 127.0.0.1:{port} for ps/0: Address already in use. Choose another --port-base" in said
    assert "no variable and no op of the graph lies on a ps" in said
    assert "the workers share neither variables nor collectives" in said
    assert said.endswith("nothing was started; 5 problems")


@pytest.mark.parametrize("body, problem", [
    ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ("print 'TF_CONFIG'", "SyntaxError"),
    (_SHARED.replace("with tf.Session", "with tf.device('/job:ps/task:7'):\n    tf.constant(1)\nwith tf.Session"),
     "The tasks of the job 'ps' are 0"),
    (_SHARED.replace("train =", "with tf.device('/gpu:0'):\n    w = tf.abs(w)\ntrain ="),
     "a session would refuse the graph"),
])  # fmt: skip
def test_a_script_that_would_fail_is_a_problem(tmp_path: Path, body: str, problem: str) -> None:
    code, said = checked(tmp_path / "train.py", body)
    assert code == 1 and problem in said


def test_an_engine_without_its_command_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: None)
    code, said = checked(tmp_path / "train.py", _SHARED, "--on", "mpi", "--workers", "20")
    assert code == 1 and "There is no command mpirun here" in said
    assert "worker/10 HOST:PORT" in said and "worker/11" not in said and "… 9 more" in said


def test_a_script_that_runs_no_session_is_said(tmp_path: Path) -> None:
    code, said = checked(tmp_path / "train.py", "import os; os.environ['TF_CONFIG']", "--ps", "0")
    assert code == 0 and "graph not looked at: " in said and "built no graph" in said
