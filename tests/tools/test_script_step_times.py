"""The step times that tasks write for `tfmini launch --predict`, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.show.simulation.profiles import TEXT
from tfmini.tools.script import (
    STEP_TIMES_ENV,
    TRACE_ENV,
    StepTimer,
    StepTimes,
    TraceOptions,
    install_step_times,
    read_times,
)
from tfmini.tools.simulate import Comparison, log_in_trace

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import json, os
import numpy as np
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
server = tf.train.Server(config["cluster"], job_name=job, task_index=index)
if job == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=config["cluster"], worker_device=f"/job:worker/task:{index}")):
    x = tf.placeholder(tf.float32, [None, 20])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, tf.get_variable("w", [20, 3]))))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
with tf.train.MonitoredTrainingSession(server.target, index == 0) as session:
    for _ in range(30):
        session.run(train, {x: np.ones([16, 20])})
"""


def test_the_training_step_that_ran_most_often_is_timed() -> None:
    x = tf.placeholder(tf.float32, [None, 4])
    w = tf.Variable(tf.ones([4, 2]))
    loss = tf.reduce_sum(tf.matmul(x, w))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    timer = StepTimer()
    uninstall = timer.install()
    try:
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert timer.times() is None
            for _ in range(14):
                session.run([train, loss], {x: np.ones([8, 4])})
            for _ in range(20):
                session.run(loss, {x: np.ones([3, 4])})  # it does not train
    finally:
        uninstall()
    found = timer.times()
    assert found is not None and (found.steps, found.batch) == (4, 8) and 0 < found.step_s < 10


def test_the_times_of_all_tasks_are_put_together(tmp_path: Path) -> None:
    assert read_times(str(tmp_path)) is None
    for name, step_s, steps, batch in (("a", 1.0, 5, None), ("b", 3.0, 7, 16), ("c", 2.0, 1, 32)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"step_s": step_s, "steps": steps, "batch": batch}))
    assert read_times(str(tmp_path)) == StepTimes(2.0, 13, 32)


def test_nothing_is_timed_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfmini.runtime.client.session import BaseSession

    monkeypatch.delenv(STEP_TIMES_ENV, raising=False)
    before = dict(vars(BaseSession))
    install_step_times()
    assert dict(vars(BaseSession)) == before


def test_the_error_is_logged_in_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps({"traceEvents": [], "otherData": {"kept": 1}}))
    monkeypatch.setenv(TRACE_ENV, TraceOptions(str(path)).to_environment())
    found = Comparison(0.003, StepTimes(0.004, 10, None))
    log_in_trace(found)
    assert json.loads(path.read_text())["otherData"] == {
        "kept": 1, "prediction": {"predicted_ms": 3.0, "measured_ms": 4.0, "error": pytest.approx(-0.25)},
    }  # fmt: skip
    assert "3.000 ms, and took 4.000 ms (median of 10): the prediction is off by -25%" in str(found)
    assert not str(Comparison(0.003, StepTimes(0.004, 10, None), "About the profile.")).endswith(".")  # the caller's


@pytest.mark.cluster
def test_launch_prints_the_prediction_beside_what_it_measured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "p.toml").write_text(TEXT)
    timeline = tmp_path / "timeline.json"
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT),
        TRACE_ENV: TraceOptions(str(timeline), 5, "worker/0").to_environment(),
    }  # fmt: skip
    launch = [sys.executable, "-m", "tfmini", "launch", "--workers", "2", "--predict", "--profile"]

    def run(profile: str) -> subprocess.CompletedProcess[str]:
        command = [*launch, profile, "train.py"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    done = run("p.toml")
    assert done.returncode == 0, done.stderr
    assert "a step was predicted to take " in done.stderr and "(median of 4" in done.stderr, done.stderr
    logged = json.loads(timeline.read_text())["otherData"]["prediction"]
    assert logged["predicted_ms"] > 0.1 and logged["measured_ms"] > 0.1
    missing = run("absent.toml")
    assert missing.returncode == 2 and "There is no absent.toml: run `tfmini calibrate`" in missing.stderr
    (tmp_path / "odd.toml").write_text("colour = 1")
    odd = run("odd.toml")
    assert odd.returncode == 2 and "unknown field 'colour'" in odd.stderr
