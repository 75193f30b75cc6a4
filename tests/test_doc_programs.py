"""The Python that the README and the documents show runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import internals
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.listen_fd import LISTEN_FD_ENV

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a page takes for granted before its program; `server` is one of a test.
BEFORE = {
    "collectives.md": """
w, global_step = tf.Variable(2.0), tf.train.get_or_create_global_step()
loss, num_workers, rank = w * w, 1, 0
opt = tf.train.MomentumOptimizer(0.1, 0.9)
import tempfile
model_dir = tempfile.mkdtemp()

def ones():
    return tf.data.Dataset.from_tensors((tf.ones([1]), tf.ones([1])))

def model_fn(features, labels, mode):
    loss = tf.reduce_mean(tf.square(tf.get_variable("v", [], initializer=tf.zeros_initializer()) - labels))
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

train_spec, eval_spec = tf.estimator.TrainSpec(ones, max_steps=1), tf.estimator.EvalSpec(ones, steps=1)
""",
    "consistency.md": "",
    "estimators.md": "",
    "growing-tables.md": "",
    "keras.md": """
cluster, xs, ys = server.server_def.cluster, np.ones((8, 3)), np.ones((8, 1))
""",
    "parameter-store.md": """
def batches(worker):
    rng = np.random.default_rng(worker)
    return [(rng.random((4, 64), np.float32), rng.integers(10, size=4)) for _ in range(3)]

def gradient(w, x, y):
    return x.T @ (x @ w - np.eye(10)[y])
""",
    "tracing.md": """
x = tf.placeholder(tf.float32, [])
train, feed, session = x * 2.0, {x: 1.0}, tf.Session()
""",
    "training-sessions.md": """
w = tf.Variable(2.0)
optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
train = optimizer.minimize(w * w)
""",
}


def programs(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


def test_every_page_with_a_program_is_tested() -> None:
    assert {page.name for page in (ROOT / "docs").rglob("*.md") if programs(page)} == set(BEFORE)


@pytest.mark.parametrize("page", BEFORE)
def test_the_program_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "".join([BEFORE[page], *programs(next((ROOT / "docs").rglob(page)))]).replace("/tmp/run", str(tmp_path))
    internals.install()  # as in `tfmini run`
    try:
        with tf.train.Server.create_local_server() as server:
            exec(compile(text, page, "exec"), {"tf": tf, "np": np, "server": server})
    finally:
        internals.uninstall()
        if page == "keras.md":
            tf.keras.backend.set_session(None)  # it keeps the page's session


@pytest.mark.cluster
@pytest.mark.usefixtures("ctrl_c")
def test_the_readmes_script_learns_its_weights(tmp_path: Path) -> None:
    (text,) = programs(ROOT / "README.md")
    tasks = TaskId("ps", 0), TaskId("worker", 0)
    cluster = reserve_cluster(tasks)
    for task, written in zip(tasks, ("localhost:2222", "localhost:2223")):
        text = text.replace(written, cluster.spec.task_address(*task))
    script = tmp_path / "script.py"
    script.write_text(text)
    running = []
    for task in tasks:
        fd = cluster.listeners[task].fileno()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), LISTEN_FD_ENV: str(fd)}
        command = [sys.executable, str(script), task.job, str(task.task)]
        running.append(subprocess.Popen(command, env=environment, pass_fds=[fd], stdout=subprocess.PIPE, text=True))
    cluster.close()
    ps, worker = running
    try:
        printed = worker.communicate(timeout=600)[0]
        ps.send_signal(signal.SIGINT)  # "end the ps with Ctrl-C"
        ps.communicate(timeout=60)
    finally:
        for process in running:
            process.kill()
    assert (ps.returncode, worker.returncode) == (0, 0)
    np.testing.assert_allclose([float(n) for n in re.findall(r"[\d.]+", printed)], [1, 2, 3], atol=0.3)
