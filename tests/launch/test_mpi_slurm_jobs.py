"""Real jobs on a Slurm of four nodes. `make test-slurm` runs them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.programs import EXAMPLES, FAILS, accuracies
from tests.launch.requirements import only_with
from tests.launch.slurm_cluster import SlurmCluster, missing, slurm_cluster

pytestmark = [only_with("slurm"), pytest.mark.skipif(bool(missing()), reason=f"there is no {', '.join(missing())}")]

ROOT = Path(__file__).parents[2]
TFMINI = (sys.executable, "-m", "tfmini")
LIMIT_S = 250


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster() as cluster:
        cluster.environment |= {"PYTHONPATH": str(ROOT)}
        yield cluster


def run(slurm: SlurmCluster, *command: str) -> subprocess.CompletedProcess[str]:
    return slurm.run(*command, cwd=ROOT, timeout=LIMIT_S)


@pytest.mark.parametrize("script, tasks", EXAMPLES)
def test_examples_train_on_four_nodes(slurm: SlurmCluster, script: str, tasks: list[str]) -> None:
    count = str(sum(map(int, tasks[1::2])))
    launch = [*TFMINI, "launch", "--on", "slurm", *tasks, f"examples/{script}"]
    done = run(slurm, "salloc", "-N4", f"-n{count}", *launch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracies(done.stdout) and min(accuracies(done.stdout)) >= 95


@pytest.mark.parametrize("script, tasks", EXAMPLES)
def test_examples_train_as_a_step_of_srun(slurm: SlurmCluster, script: str, tasks: list[str]) -> None:
    count = str(sum(map(int, tasks[1::2])))
    member = [*TFMINI, "run", "--cluster", "slurm", *tasks[:2], f"examples/{script}"]
    done = run(slurm, "srun", "-N4", f"-n{count}", *member)
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracies(done.stdout) and min(accuracies(done.stdout)) >= 95


def test_the_first_failure_is_the_exit_code(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    done = run(slurm, "salloc", "-N4", "-n4", *TFMINI, "launch", "--on", "slurm", "--workers", "3", str(script))
    assert done.returncode == 7 and "worker/1 failed first: exit code 7" in done.stderr


def test_roles_have_their_resources(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = tmp_path / "cpus.py"
    script.write_text("import os, time\nprint(os.environ['SLURM_CPUS_PER_TASK'], os.environ['OMP_NUM_THREADS'])\n")
    options = ["--ps", "1", "--workers", "2", "--ps-cpus", "1", "--worker-cpus", "2", "--spread"]
    done = run(slurm, "salloc", "-N4", "-n8", *TFMINI, "launch", "--on", "slurm", *options, str(script))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[ps/0]     1 1", "[worker/0] 2 2", "[worker/1] 2 2"]


def test_more_tasks_than_the_allocation_has_is_an_error_of_srun(slurm: SlurmCluster) -> None:
    launch = [*TFMINI, "launch", "--on", "slurm", "--workers", "9", "examples/digits_async.py"]
    done = run(slurm, "salloc", "-N2", "-n2", *launch)
    assert done.returncode == 1 and "srun ended with exit code" in done.stderr
    assert "More processors requested than permitted" in done.stderr


def wait_for(path: Path, words: str, count: int = 1) -> str:
    """The text of a job's output file, as soon as it has these words so many times. Slurm tells nobody."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        text = path.read_text() if path.exists() else ""
        if text.count(words) >= count:
            return text
        time.sleep(0.1)
    raise AssertionError(f"{words!r} did not come {count} times:\n{text}")


def submit(slurm: SlurmCluster, folder: Path, *script: str) -> tuple[str, Path]:
    """Submits a job of a ps and two workers, each on a node of its own; returns its id and its output file."""
    job, output = folder / "job", folder / "output"
    launch = ["--on", "slurm", "--workers", "2", "--spread", "--sbatch", str(job)]
    assert run(slurm, *TFMINI, "launch", *launch, "examples/digits_checkpoints.py", *script).returncode == 0
    done = run(slurm, "sbatch", "--parsable", "-N3", f"--output={output}", str(job))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), output


def test_a_cancelled_job_saves_before_it_ends(slurm: SlurmCluster, tmp_path: Path) -> None:
    job, output = submit(slurm, tmp_path, f"--logdir={tmp_path}", "--steps=1000000", "--save_steps=1000000")
    wait_for(output, "checkpoint at step")  # the first one, at the beginning
    assert run(slurm, "scancel", job).returncode == 0
    text = wait_for(output, "ended by SIGTERM.")
    steps = [int(step) for step in re.findall(r"checkpoint at step (\d+)", text)]
    assert len(steps) == 2 and steps[1] > steps[0], text
    assert "grace time" not in text


def test_a_job_whose_ps_was_lost_with_its_node_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with slurm_cluster() as slurm:
        slurm.environment |= {"PYTHONPATH": str(ROOT)}
        job, output = submit(slurm, tmp_path, f"--logdir={tmp_path}", "--steps=3000", "--save_steps=200")
        wait_for(output, "checkpoint at step", 3)
        first = run(slurm, "squeue", "-h", "-j", job, "-o", "%B").stdout.strip()  # where ps/0 and the launcher are
        slurm.kill_node(first)
        text = wait_for(output, "checkpoints: ")
        again = run(slurm, "scontrol", "show", "job", job).stdout
    restored = re.search(r"going on from .*-(\d+)", text)
    assert restored is not None and int(restored[1]) >= 200, text
    assert float(re.findall(r"at step 3\d\d\d: test accuracy ([\d.]+)", text)[-1]) >= 95
    assert "Restarts=1" in again and f"BatchHost={first}" not in again


def test_a_notice_of_the_end_saves_too(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Before a time limit Slurm signals the tasks and their agents, each of which gets the signal twice."""
    job, output = submit(slurm, tmp_path, f"--logdir={tmp_path}", "--steps=1000000", "--save_steps=1000000")
    wait_for(output, "checkpoint at step")
    assert run(slurm, "scancel", "--signal=TERM", job).returncode == 0
    text = wait_for(output, "checkpoint at step", 2)
    assert "grace time" not in text


def test_nothing_of_a_cluster_is_left(tmp_path: Path) -> None:
    """Also where jobs still run when it ends."""
    with slurm_cluster() as slurm:
        slurm.environment |= {"PYTHONPATH": str(ROOT)}
        _, output = submit(slurm, tmp_path, f"--logdir={tmp_path}", "--steps=1000000")
        wait_for(output, "checkpoint at step")
    assert slurm.processes() == []
