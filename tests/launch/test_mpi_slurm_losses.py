"""A node of Slurm that fails under a job whose tasks start again, and a job that grows. `make test-slurm` runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.child_agents import ROOT
from tests.launch.requirements import only_with
from tests.launch.slurm_cluster import missing, slurm_cluster
from tests.tools import comers

pytestmark = [
    only_with("slurm"), pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=f"there is no {', '.join(missing())}"),
]  # fmt: skip


def node_of(pid: int) -> str:
    found = re.search(rb"SLURMD_NODENAME=(\w+)", Path(f"/proc/{pid}/environ").read_bytes())
    assert found is not None
    return found[1].decode()


@pytest.mark.ci
def test_a_ps_killed_with_its_node_comes_back_on_another_and_workers_join(tmp_path: Path) -> None:
    """The job is not started again: the allocation outlives the node, and the others go on."""
    go, script = tmp_path / "go", tmp_path / "script.py"
    script.write_text("import sys\n" + comers.SCRIPT)
    options = ["--on", "slurm", "--spread", "--workers", "2", "--restarts", "2"]
    argv = ["salloc", "-N4", "-n4", "--no-kill", sys.executable, "-m", "tfmini", "launch", *options, str(script)]
    with slurm_cluster() as slurm:
        slurm.environment |= {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(slurm.folder)}
        with subprocess.Popen(
            [*argv, "async", str(tmp_path / "model"), str(go)], env=slurm.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as launcher:  # fmt: skip
            try:
                output = comers.Output(launcher, limit_s=250)
                _, _, pid, first = output.until("[ps/0]", "ps")
                before = output.step(0, after=100)
                node = node_of(int(pid))
                slurm.kill_node(node)
                _, _, pid, second = output.until("[ps/0]", "ps")
                assert first != second and node_of(int(pid)) != node
                assert output.step(1) > before - 60
                done = comers.scale(3, XDG_RUNTIME_DIR=str(slurm.folder))
                assert done.returncode == 0, done.stderr
                output.step(2)
                go.touch()
                _, said = output.end()
            finally:
                launcher.terminate()
    assert "starting it again (1 of 2)" in said and "worker/2, to join the run." in said
