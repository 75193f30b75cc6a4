"""A Ray cluster that loses a node, and a job that grows. `make test-ray` runs them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launch.child_agents import ROOT
from tests.launch.requirements import only_with
from tests.tools import comers

pytestmark = [
    only_with("ray"), pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="there is no ray"),
]  # fmt: skip


@pytest.fixture
def ray_cluster() -> Iterator[Any]:
    """A head that runs the workers, and two nodes with enough cores for a ps."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = str(ROOT)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=6)
        yield cluster
    finally:
        cluster.shutdown()


def node_of(ray_cluster: Any, pid: int) -> Any:
    """The node on which a process runs, by the variable that a raylet gives its workers."""
    found = re.search(rb"\0RAY_RAYLET_PID=(\d+)\0", Path(f"/proc/{pid}/environ").read_bytes())
    assert found is not None
    raylets = {n: n.all_processes["raylet"][0].process.pid for n in ray_cluster.list_all_nodes()}
    (node,) = [n for n, raylet in raylets.items() if raylet == int(found[1])]
    return node


@pytest.mark.ci
def test_a_ps_killed_with_its_node_comes_back_on_another_and_workers_join(ray_cluster: Any, tmp_path: Path) -> None:
    go, script = tmp_path / "go", tmp_path / "script.py"
    script.write_text("import sys\n" + comers.SCRIPT)
    options = ["--on", "ray", "--address", ray_cluster.address, "--ps-cpus", "4", "--workers", "2", "--restarts", "2"]
    argv = [sys.executable, "-m", "tfmini", "launch", *options, str(script), "async", str(tmp_path / "model"), str(go)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        try:
            output = comers.Output(launcher, limit_s=250)
            _, _, pid, first = output.until("[ps/0]", "ps")
            before = output.step(0, after=100)
            ray_cluster.remove_node(node_of(ray_cluster, int(pid)), allow_graceful=False)
            _, _, _, second = output.until("[ps/0]", "ps")
            assert first != second
            assert output.step(1) > before - 60
            done = comers.scale(3, str(launcher.pid))
            assert done.returncode == 0, done.stderr
            output.step(2)
            go.touch()
            _, said = output.end()
        finally:
            launcher.terminate()
    assert "ps/0 was killed by" in said and "worker/2, to join the run." in said
