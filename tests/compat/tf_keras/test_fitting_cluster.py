"""``tf.keras`` with its variables on a parameter server, in another process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, sys
import numpy as np
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
if task["type"] == "ps":
    server.join()
    sys.exit()

def losses(device, target):
    tf.keras.backend.clear_session()
    with tf.device(device):
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Dense(4, activation="relu", input_shape=(3,)), layers.Dense(1)])
        model.compile(tf.keras.optimizers.Adam(0.01), "mse")
        tf.keras.backend.set_session(tf.Session(target))
        model.set_weights([np.full(w.shape.as_list(), 0.1) for w in model.weights])
        found = model.fit(np.ones((8, 3)), np.arange(8.0), 4, epochs=2, shuffle=False, verbose=0)
    return [round(loss, 5) for loss in found.history["loss"]], {w.device for w in model.weights}

here, _ = losses(None, "")
there, places = losses(tf.train.replica_device_setter(cluster=cluster), server.target)
print("RESULT", here == there, places)
"""


@pytest.mark.cluster
@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
def test_a_model_on_a_ps_learns_as_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "tfmini", "launch", "--ps", "1", "--workers", "1", str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RESULT True {'/job:ps/task:0'}" in done.stdout, done.stdout + done.stderr
