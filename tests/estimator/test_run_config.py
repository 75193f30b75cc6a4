"""A RunConfig finds its task in TF_CONFIG, as TensorFlow's does."""

from __future__ import annotations

import json

import pytest

import tfmini as tf
from tests.estimator import programs
from tests.oracle import sent

CLUSTER = {"chief": ["a:1"], "ps": ["b:1", "b:2"], "worker": ["c:1", "c:2"]}
MASTER = {"master": ["a:1"], "ps": ["b:1"], "worker": ["c:1"]}


def task(kind, index=0, cluster=CLUSTER, **more):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}, **more})


CASES = [
    "{}",
    task("chief"),
    task("ps", 1),
    task("worker", 1),
    task("worker", "1"),
    task("evaluator"),
    task("worker", 0, MASTER, model_dir="/tmp/m"),
    task("master", 0, MASTER, service={"name": "x"}),
    task("chief", 0, {"chief": ["a:1"]}),
    task("chief", session_master="grpc://z:1"),
    json.dumps({"task": {"type": "worker", "index": 0}, "session_master": "x", "eval_session_master": "y"}),
]
WRONG = [
    task("worker", 2),
    task("cook"),
    task("worker", 0, {"worker": ["a:1"]}),
    task("worker", -1),
    task("evaluator", 0, MASTER),
    task("chief", 0, {**MASTER, "chief": ["d:1"]}),
    json.dumps({"cluster": CLUSTER}),
    json.dumps({"cluster": CLUSTER, "task": {"type": "worker"}}),
    json.dumps({"task": {"type": "ps", "index": 0}}),
    json.dumps({"task": {"type": "worker", "index": 3}}),
    json.dumps({"service": "x"}),
]


@pytest.fixture(scope="module")
def told_by_tensorflow(oracle_1x):
    return oracle_1x.call(programs.all_settings, [*CASES, *WRONG])


@pytest.mark.oracle_1x
@pytest.mark.parametrize("number", range(len(CASES + WRONG)))
def test_the_settings_are_tensorflows(told_by_tensorflow, number: int) -> None:
    assert sent(programs.settings(tf, [*CASES, *WRONG][number])) == told_by_tensorflow[number]


def test_the_task_is_that_of_tf_config() -> None:
    found = programs.settings(tf, task("worker", 1))
    assert found["master"] == "grpc://c:2" and found["filters"] == ["/job:ps", "/job:worker/task:1"]
    assert (found["num_ps_replicas"], found["num_worker_replicas"], found["global_id_in_cluster"]) == (2, 3, 2)
    evaluator = programs.settings(tf, task("evaluator"))
    assert evaluator["cluster"] == {} and not evaluator["is_chief"]


@pytest.mark.parametrize("tf_config", WRONG)
def test_wrong_tasks_are_refused(tf_config: str) -> None:
    assert programs.settings(tf, tf_config) == "refused"


def test_a_cluster_without_a_chief_says_how_launch_adds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"ps": ["a:1"], "worker": ["b:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(ValueError, match='one "chief" node; it has ps, worker. The option --chief of `tfmini launch`'):
        tf.estimator.RunConfig()


def test_periods_of_checkpoints() -> None:
    config = tf.estimator.RunConfig
    assert config().save_checkpoints_secs == 600
    assert (config(save_checkpoints_steps=5).save_checkpoints_secs, config(save_checkpoints_secs=5)) != (600, None)
    assert config().replace(save_checkpoints_steps=7).save_checkpoints_secs is None
    with pytest.raises(ValueError, match="both be set|cannot be both set"):
        config(save_checkpoints_steps=1, save_checkpoints_secs=1)
    with pytest.raises(ValueError, match="not supported"):
        config().replace(master="x")


def test_strategies_fit_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    contrib, config = tf.contrib.distribute, tf.estimator.RunConfig
    both = contrib.DistributeConfig(contrib.MirroredStrategy(), contrib.OneDeviceStrategy("/cpu:0"))
    made = config(experimental_distribute=both)
    assert (made.train_distribute, made.eval_distribute) == (both.train_distribute, both.eval_distribute)
    with pytest.raises(ValueError, match="together"):
        config(experimental_distribute=both, train_distribute=both.train_distribute)
    with pytest.raises(NotImplementedError, match="remote cluster"):
        config(experimental_distribute=contrib.DistributeConfig(remote_cluster={"worker": ["a:1"]}))
    cluster = {"ps": ["a:1"], "chief": ["a:2"], "worker": ["a:3"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(NotImplementedError, match="TF_CONFIG"):
        config(train_distribute=both.train_distribute)
    with pytest.raises(NotImplementedError, match="no variables on a ps"):
        config(train_distribute=contrib.CollectiveAllReduceStrategy())
    assert config(train_distribute=contrib.ParameterServerStrategy()).num_worker_replicas == 2


def test_a_subclass_may_add_settings() -> None:
    class Own(tf.estimator.RunConfig):
        def __init__(self, speed, **kwargs) -> None:
            super().__init__(**kwargs)
            self.speed = speed

    made = Own(3, tf_random_seed=7).replace(model_dir="/tmp/x")
    assert (made.speed, made.tf_random_seed, made.model_dir, type(made)) == (3, 7, "/tmp/x", Own)
    with pytest.raises(AttributeError, match="spede"):
        made.spede  # noqa: B018
