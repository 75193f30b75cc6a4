"""`tfmini launch --on kubernetes` with an API server of our own. `make test-kubernetes` runs them."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.launch.fake_kubernetes import ROOT, FakeCluster
from tests.launch.programs import FAILS, TRAINS
from tests.launch.requirements import only_with
from tfmini.launch import kubernetes
from tfmini.launch.engine import EngineOptions, TaskRequest
from tfmini.launch.kubernetes import KubernetesEngine
from tfmini.launch.supervision import TaskId

pytestmark = [pytest.mark.ci, only_with("kubernetes")]

LIMIT_S = 250
# A chief that saves when it is told to end, and a ps that is needed for it.
SAVES = """
import json, os, signal, sys, threading
import tfmini as tf
config = json.loads(os.environ["TF_CONFIG"])
job, told = config["task"]["type"], threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
server = tf.train.Server(config["cluster"], job_name=job, task_index=0)
with tf.device("/job:ps/task:0"):
    value = tf.Variable(42)
with tf.Session(server.target) as session:
    if job == "worker":
        session.run(value.initializer)
        print("up", flush=True)
    while not told.wait(0.1):
        pass
    if job == "worker":
        print("saved", session.run(value), flush=True)
        sys.exit(143)
"""
# Fails at the first attempt.
ONCE = """
import os, sys
path = sys.argv[1] + os.environ["JOB_COMPLETION_INDEX"]
print("attempt", int(os.path.exists(path)), flush=True)
if not os.path.exists(path):
    open(path, "w").close()
    sys.exit(3)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    found = FakeCluster(tmp_path)
    try:
        yield found
    finally:
        found.close()


def start(cluster: FakeCluster, script: str, *options: str, args: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    path = cluster.folder / "script.py"
    path.write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(cluster.config)}
    return subprocess.Popen(
        [sys.executable, "-m", "tfmini", "launch", "--on", "kubernetes", "--image", "i", *options, str(path), *args],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def end(launcher: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, said = launcher.communicate(timeout=LIMIT_S)
    finally:
        launcher.kill()
    return launcher.returncode, out, said


def nothing_is_left(cluster: FakeCluster) -> bool:
    with cluster.changed:
        return cluster.changed.wait_for(lambda: not (cluster.pods or cluster.jobsets or cluster.secrets), LIMIT_S)


def test_a_run_from_its_submission_to_its_end(cluster: FakeCluster) -> None:
    code, out, said = end(start(cluster, TRAINS, "--workers", "2", args=("a", "b")))
    assert code == 0, out + said
    lines = sorted(out.splitlines())
    assert len(lines) == 2 and lines[1].startswith("[worker/1] ['a', 'b'] 42"), out + said
    assert "submitted the JobSet script-" in said and "in the namespace ml." in said
    assert nothing_is_left(cluster)


def test_the_first_failure_is_the_exit_code(cluster: FakeCluster) -> None:
    code, out, said = end(start(cluster, FAILS, "--workers", "3"))
    assert code == 7 and "worker/1 failed first: exit code 7" in said, out + said
    assert nothing_is_left(cluster)


def test_the_set_starts_again_as_a_whole(cluster: FakeCluster) -> None:
    options = ("--ps", "0", "--workers", "1", "--restarts", "1")
    code, out, said = end(start(cluster, ONCE, *options, args=(str(cluster.folder / "mark"),)))
    assert code == 0, out + said
    assert [line.split()[-1] for line in out.splitlines()] == ["0", "1"]
    assert "the JobSet has started all tasks again (1 of 1)" in said


def test_a_launcher_that_is_told_to_end_lets_the_chief_save(cluster: FakeCluster) -> None:
    """By SIGTERM: a background job of a shell ignores SIGINT, and so would all that it starts."""
    launcher = start(cluster, SAVES)
    assert launcher.stdout is not None
    assert launcher.stdout.readline().split() == ["[worker/0]", "up"]
    launcher.send_signal(signal.SIGTERM)
    code, out, said = end(launcher)
    assert code == 143 and "[worker/0] saved 42" in out, out + said
    assert nothing_is_left(cluster)


def test_output_is_complete_where_its_connection_is_cut(cluster: FakeCluster) -> None:
    cluster.cut_logs = 1
    script = "for number in range(50):\n    print(number, flush=True)\n"
    code, out, said = end(start(cluster, script, "--ps", "0"))
    assert code == 0 and [line.split()[-1] for line in out.splitlines()] == [str(n) for n in range(50)], out + said


@pytest.mark.parametrize("what, status, expected", [
    ("jobsets", 404, "Is the JobSet controller installed"),
    ("jobsets", 403, "You may not create a JobSet in the namespace ml"),
    ("secrets", 403, "You may not create a Secret in the namespace ml"),
])  # fmt: skip
def test_a_refusal_is_explained(cluster: FakeCluster, what: str, status: int, expected: str) -> None:
    cluster.refuse["POST", what] = (status, "refused by the test")
    code, _, said = end(start(cluster, TRAINS))
    assert code == 1 and expected in " ".join(said.split()) and "refused by the test" in said, said
    assert nothing_is_left(cluster)


def test_a_cluster_without_room_says_so(cluster: FakeCluster) -> None:
    cluster.full = True
    code, _, said = end(start(cluster, TRAINS, "--start-within", "3"))
    assert code == 1 and "worker/0: Unschedulable: 0/3 nodes are available" in said, said
    assert "these tasks have no place: ps/0, worker/0" in said
    assert nothing_is_left(cluster)


def test_no_api_server_is_no_run(cluster: FakeCluster) -> None:
    cluster.config.write_text(re.sub(r"(127.0.0.1):\d+", r"\1:9", cluster.config.read_text()))
    code, _, said = end(start(cluster, TRAINS))
    assert code == 1 and "Is this the right context?" in " ".join(said.split()), said


class SilentApi:
    """An API server without pods; it records what is deleted."""

    namespace = "ml"

    def __init__(self, namespace: str) -> None:
        self.deleted: list[str] = []

    def pods(self, name: str) -> list[Any]:
        return []

    def jobset(self, name: str) -> None:
        return None

    def delete(self, found: dict[str, Any]) -> None:
        self.deleted.append(found["kind"])

    def kill(self, pods: list[str], grace_s: int) -> None:
        pass


def test_the_job_is_deleted_although_nobody_reads_the_output_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that ends does not read; a reader that waited for it would keep the JobSet, and its Secret."""
    made: list[SilentApi] = []
    monkeypatch.setattr(kubernetes, "KubernetesCluster", lambda namespace: made.append(SilentApi(namespace)) or made[0])
    monkeypatch.setattr(kubernetes, "create_all", lambda cluster, objects: None)
    engine = KubernetesEngine(EngineOptions(image="i", script=("train.py",)))
    with selectors.DefaultSelector() as selector:
        engine.reserve([TaskRequest(TaskId("worker", 0))], Mock(), selector)
        reader = threading.Thread(target=lambda: [engine._tell(print) for _ in range(20_000)], daemon=True)
        reader.start()
        reader.join(LIMIT_S)
        assert not reader.is_alive()
        engine.close(1)
    assert made[0].deleted == ["JobSet", "Secret"]
