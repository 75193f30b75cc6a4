"""Errors of an inspected script: they name a line of the user, and a server's cluster is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.findings import REFUSED
from tfmini.show.inspection.sources import ScriptError

SERVER = 'tf.train.Server({"ps": ["a:1"], "worker": ["b:1"]}, '


@pytest.mark.parametrize("lines, said", [
    (['with tf.device("/nonsense"):', "  pass"], 'line 2 (with tf.device("/nonsense"):): ValueError: Unknown'),
    (['with tf.name_scope("no name!"):', "  pass"], 'line 2 (with tf.name_scope("no name!"):): ValueError'),
    (["import json", 'json.loads("{")'], 'line 3 (json.loads("{")): JSONDecodeError'),
    (["import numpy", "numpy.linalg.inv(numpy.zeros([2, 3]))"], "line 3 (numpy.linalg.inv(numpy.zeros([2, 3])))"),
    (["import helper", "helper.build()"], "helper.py, line 2 (raise KeyError"),
    (["import sys", "job = sys.argv[1]"], "list index out of range\nDoes it need arguments (as in: -- w"),
    ([SERVER + '"wroker", 0)'], 'Job "wroker" was not defined in cluster. The jobs of this cluster: '),
    ([SERVER + '"worker", 3)'], 'Task 3 was not defined in job "worker". The tasks of this job: 0'),
    ([SERVER + '"worker", task_index=0, protocol="http")'], 'protocol "http"'),
    (['tf.train.Server({"a": ["h:1"], "b": ["h:1"]}, "a", 0)'], "have the same address"),
])  # fmt: skip
def test_the_users_line_is_blamed(tmp_path: Path, monkeypatch, lines: list[str], said: str) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "script.py").write_text("\n".join(["import tensorflow as tf", *lines]))
    (tmp_path / "helper.py").write_text("def build():\n  raise KeyError('x')\n")
    try:
        with pytest.raises(ScriptError) as caught:
            inspect(tmp_path / "script.py")
    finally:
        __import__("sys").modules.pop("helper", None)
    assert said in str(caught.value)


SERVE = 'server = tf.train.Server({"ps": ["a:1"], "worker": ["b:1"]}, "worker", 0'
TRAIN = "as s: s.run(train)"
WAYS = {
    "session": f"with tf.Session(config=soft) {TRAIN}",
    "session of a server": f"{SERVE})\nwith tf.Session(server.target, config=soft) {TRAIN}",
    "interactive session": "tf.InteractiveSession(config=soft)\ntrain.run()",
    "server": f"{SERVE}, config=soft)\nwith tf.train.MonitoredTrainingSession(server.target) {TRAIN}",
    "server def": 'd = tf.train.ServerDef(cluster=tf.train.ClusterSpec({"worker": ["b:1"]}).as_cluster_def(),'
    ' job_name="worker", task_index=0, protocol="grpc", default_session_config=soft)\n'
    f"with tf.Session(tf.train.Server(d).target) {TRAIN}",
    "a ps": SERVE.replace('"worker", 0', '"ps", 0') + ", config=soft)\nserver.join()",
    "monitored training session": f"with tf.train.MonitoredTrainingSession(config=soft) {TRAIN}",
    "session creator": f"with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(config=soft)) {TRAIN}",
    "supervisor": f"with tf.train.Supervisor().managed_session(config=soft) {TRAIN}",
    "session manager": "tf.train.SessionManager().prepare_session('', tf.global_variables_initializer(), config=soft)",
    "slim": "from tensorflow.contrib import slim\nslim.learning.train(train, None, session_config=soft)",
    "run config": "def f(): return tf.zeros([1, 1])\n"
    "def m(features, mode): return tf.estimator.EstimatorSpec(mode, loss=loss(features), train_op=step(features))\n"
    "tf.estimator.Estimator(m, config=tf.estimator.RunConfig(session_config=soft)).train(f, steps=1)",
    "no session": "unused = tf.Session(config=soft)",
}


@pytest.mark.parametrize("way", WAYS)
def test_soft_placement_is_as_the_script_configures_it(tmp_path: Path, way: str) -> None:
    lines = f"""
import tensorflow as tf
soft = tf.ConfigProto(allow_soft_placement=SOFT)
def loss(x):
  with tf.device("/gpu:0"):
    return tf.reduce_sum(tf.get_variable("w", [1, 1]) * x)
def step(x):
  with tf.variable_scope("", reuse=tf.AUTO_REUSE):
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss(x), tf.train.get_or_create_global_step())
train = step(1.0) if {way != "run config"} else None
{WAYS[way]}
"""
    kinds, job = [], "chief" if way == "run config" else "worker"
    for allowed in ("True", "False"):
        (tmp_path / "script.py").write_text(lines.replace("SOFT", allowed))
        found = inspect(tmp_path / "script.py", cluster={"ps": ["a:1"], job: ["b:1"]})
        kinds.append([warning.kind for warning in found.warnings if warning.kind == REFUSED])
    assert kinds == [[], [REFUSED]]


def test_a_server_says_nothing_about_a_session_without_its_target(tmp_path: Path) -> None:
    lines = ["import tensorflow as tf", f"{SERVE}, config=tf.ConfigProto(allow_soft_placement=True))",
             'with tf.device("/gpu:0"): x = tf.constant(1.0)', "tf.Session().run(x)"]  # fmt: skip
    (tmp_path / "script.py").write_text("\n".join(lines))
    assert REFUSED in [warning.kind for warning in inspect(tmp_path / "script.py", fetches="Const:0").warnings]
