"""Real runs of mpirun on this machine. `make test-mpi` runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.programs import EXAMPLES, FAILS, accuracies
from tests.launch.requirements import MPI_AS_ROOT, only_with

pytestmark = only_with("mpi")

ROOT = Path(__file__).parents[2]
TFMINI = (sys.executable, "-m", "tfmini")
LIMIT_S = 250
LAUNCHERS = {"mpirun.openmpi": ["--oversubscribe"], "mpirun.mpich": []}


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **MPI_AS_ROOT, **env}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def scores(done: subprocess.CompletedProcess[str]) -> list[float]:
    assert done.returncode == 0, done.stdout + done.stderr
    return accuracies(done.stdout)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("script, tasks", EXAMPLES)
def test_examples_train_on_five_ranks(launcher: str, script: str, tasks: list[str], tmp_path: Path) -> None:
    if shutil.which(launcher) is None:
        pytest.skip(f"there is no {launcher}")
    member = [*TFMINI, "run", "--cluster", "mpi", *tasks[:2], f"examples/{script}"]
    done = run(launcher, *LAUNCHERS[launcher], "-np", "5", *member, TFMINI_RENDEZVOUS=str(tmp_path))
    found = scores(done)
    assert found and min(found) >= 95


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_launch_starts_the_tasks_by_mpirun() -> None:
    options = ["--on", "mpi", "--engine-args", "--oversubscribe", "--ps", "2", "--workers", "3"]
    found = scores(run(*TFMINI, "launch", *options, "examples/digits_async.py"))
    assert found and min(found) >= 95


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="there is no Open MPI")
def test_the_first_failure_is_named(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    member = [*TFMINI, "run", "--cluster", "mpi", str(script)]
    done = run("mpirun.openmpi", "--oversubscribe", "-np", "3", *member, TFMINI_RENDEZVOUS=str(tmp_path))
    assert done.returncode == 7 and "worker/1 failed first: exit code 7" in done.stderr
