"""A ps on a CPU and workers on fake GPUs, as real processes, by the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tfmini.graph.device_types import FAKE_ENV, DeviceWishes

pytest.importorskip("jax")
REPOSITORY = Path(__file__).parents[2]


def test_a_ps_has_no_gpu_unless_it_asks_for_one() -> None:
    assert dict(DeviceWishes().of_task("ps", 1).counts) == {"GPU": 0, "TPU": 0}
    assert dict(DeviceWishes((("GPU", 1),)).of_task("ps", 1).counts) == {"GPU": 1, "TPU": 0}
    assert DeviceWishes().of_task("worker", 1) == DeviceWishes()
    assert DeviceWishes().of_task("worker", 2).allow_growth


_SCRIPT = """
import json, os, sys
import numpy as np
import tfmini as tf

config = json.loads(os.environ["TF_CONFIG"])
cluster, index = tf.train.ClusterSpec(config["cluster"]), config["task"]["index"]
server = tf.train.Server(cluster, job_name=config["task"]["type"], task_index=index)
if config["task"]["type"] == "ps":
    server.join()
x, y = np.random.RandomState(0).rand(200, 16).astype("f"), np.arange(200) % 4
with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}/gpu:0", cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    hidden = tf.layers.dense(tf.constant(x), 8, tf.nn.relu, name="hidden")
    loss = tf.losses.sparse_softmax_cross_entropy(y, tf.layers.dense(hidden, 4, name="out"))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
soft = tf.ConfigProto(allow_soft_placement=True)
hooks = [tf.train.StopAtStepHook(last_step=30)]
with tf.train.MonitoredTrainingSession(
    server.target, index == 0, sys.argv[1], hooks=hooks, save_checkpoint_steps=10, config=soft
) as session:
    while not session.should_stop():
        session.run(train)
"""


@pytest.mark.cluster
def test_workers_that_ask_for_gpus_and_a_checkpoint_for_the_cpu(tmp_path: Path) -> None:
    """As scripts of TensorFlow 1 do, with soft placement; the checkpoint is restored where there is no GPU."""
    script, folder = tmp_path / "train.py", tmp_path / "model"
    script.write_text(_SCRIPT)
    launch("--ps", "1", "--workers", "2", str(script), str(folder))
    with tf.Graph().as_default(), tf.Session() as session:
        step, kernel = tf.train.get_or_create_global_step(), tf.get_variable("hidden/kernel", [16, 8])
        tf.train.Saver().restore(session, str(tf.train.latest_checkpoint(str(folder))))
        assert session.run(step) >= 30 and np.abs(session.run(kernel)).max() > 0


def launch(*arguments: str) -> str:
    """What `tfmini launch` prints for tasks with one fake GPU each, which must end well."""
    env = {
        **os.environ, FAKE_ENV: "1", "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1"
    }  # fmt: skip
    command = [sys.executable, "-m", "tfmini", "launch", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.cluster
@pytest.mark.parametrize(
    "script, ps, says",
    [
        ("digits_async.py", 1, "/job:worker/replica:0/task:0/device:GPU:0 -> "),  # by the inspector, at its end
        ("digits_sync.py", 1, r"total +\d\d+ applied"),
        ("digits_allreduce.py", 0, r"test accuracy 9\d\.\d %; largest difference to one process \d\.\de-0[789]"),
    ],
)
def test_examples_train_on_fake_gpus(script: str, ps: int, says: str) -> None:
    """Their ops that name no type of device go to the worker's GPU; variables of a ps stay on its CPU."""
    pytest.importorskip("sklearn")
    output = launch("--ps", str(ps), "--workers", "2", f"examples/{script}", "--steps=200")
    assert re.search(says, output), output
