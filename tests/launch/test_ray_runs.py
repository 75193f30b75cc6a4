"""Real runs on a Ray cluster of three nodes on this machine. `make test-ray` runs them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launch.programs import EXAMPLES, FAILS, accuracies
from tests.launch.requirements import only_with

pytestmark = [only_with("ray"), pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="there is no ray")]

ROOT = Path(__file__).parents[2]
TFMINI = (sys.executable, "-m", "tfmini")
LIMIT_S = 280


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster of three nodes with two cores each."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = str(ROOT)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=2)
        yield cluster.address
    finally:
        cluster.shutdown()


def launch(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*TFMINI, "launch", "--on", "ray", "--address", address, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize("script, tasks", EXAMPLES)
def test_examples_train_on_three_nodes(address: str, script: str, tasks: list[str]) -> None:
    done = launch(address, "--spread", *tasks, f"examples/{script}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = accuracies(done.stdout)
    assert found and min(found) >= 95


def test_the_first_failure_is_the_exit_code(address: str, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    done = launch(address, "--workers", "3", str(script))
    assert done.returncode == 7 and "worker/1 failed first: exit code 7" in done.stderr


def test_tasks_that_find_no_place_are_named(address: str) -> None:
    done = launch(address, "--workers", "9", "--start-within", "5", "examples/digits_async.py")
    assert done.returncode == 1 and "these tasks have no place: ps/0, worker/0," in done.stderr


def train() -> tuple[int, Any]:
    import json

    import tfmini as tf

    config = json.loads(os.environ["TF_CONFIG"])
    index = config["task"]["index"]
    server = tf.train.Server(config["cluster"], job_name="worker", task_index=index)
    with tf.device("/job:ps/task:1"):
        answer = tf.constant(6) * 7
    with tf.Session(server.target) as session:
        return index, int(session.run(answer))


PROGRAM = """
import sys
from tests.launch.test_ray_runs import train
from tfmini.launch import ray
if __name__ == "__main__":
    print(ray.run(train, ps=2, workers=3, address=sys.argv[1]))
"""


def test_a_function_runs_in_every_worker(address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert "[(0, 42), (1, 42), (2, 42)]" in done.stdout, done.stdout + done.stderr
