"""Real jobs whose workers join and leave, by `tfmini scale`, and whose tasks start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfmini as tf
from tests.tools import comers
from tests.tools.launched import LIMIT_S, REPOSITORY, Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    """A folder for the files of jobs that no other test uses. Paths of sockets are short: not pytest's."""
    with tempfile.TemporaryDirectory(prefix="tfr.") as folder:
        yield {"XDG_RUNTIME_DIR": folder}


def test_workers_join_a_running_asynchronous_job_and_leave_it(
    cluster: Cluster, tmp_path: Path, runtime: dict[str, str]
) -> None:
    go = tmp_path / "go"
    arguments = ("async", str(tmp_path / "model"), str(go))
    with cluster.start(comers.SCRIPT, "--workers", "2", args=arguments, **runtime) as launcher:
        output = comers.Output(launcher)
        output.step(1)
        more = comers.scale(4, **runtime)
        assert "starting worker/2, worker/3, to join the run." in more.stdout, more.stderr
        output.step(2)
        seen = output.step(3)
        assert "4 workers are there already." in comers.scale(4, **runtime).stdout
        fewer = comers.scale(1, "script", **runtime)
        assert "asking worker/1, worker/2, worker/3 to leave the run." in fewer.stdout, fewer.stderr
        output.step(0, after=seen + 50)
        go.touch()
        out, err = output.end()
    for worker in (1, 2, 3):
        assert f"worker/{worker} has left the run, as asked." in err
    assert "[worker/0] done" in out and "[worker/3] done" not in out


def test_no_update_is_lost_while_ps_join_a_job_and_are_drained(
    cluster: Cluster, tmp_path: Path, runtime: dict[str, str]
) -> None:
    go = tmp_path / "go"
    arguments = ("count", "", str(go))
    with cluster.start(comers.SCRIPT, "--workers", "3", "--ps", "2", args=arguments, **runtime) as launcher:
        output = comers.Output(launcher)
        output.step(1)
        more = comers.scale(3, option="--ps", **runtime)
        assert "starting ps/2, to take variables." in more.stdout and "to ps/2." in more.stdout, more.stderr
        seen = output.step(2)
        assert "3 ps have the variables already." in comers.scale(3, option="--ps", **runtime).stdout
        fewer = comers.scale(1, option="--ps", **runtime)
        assert "ps/2 is drained" in fewer.stdout and "ps/1 is drained" in fewer.stdout, fewer.stderr
        seen = output.step(1, after=seen)
        again = comers.scale(2, option="--ps", **runtime)
        assert "starting ps/3" in again.stdout and "to ps/3." in again.stdout, again.stderr
        output.step(1, after=seen + 50)
        go.touch()
        out, _ = output.end()
    lines = [line.split()[1:] for line in out.splitlines()]
    assert [words[1] for words in lines if words[0] == "found"] == [
        str(sum(int(words[1]) for words in lines if words[0] == "added"))
    ]


def test_synchronous_updates_follow_the_number_of_workers(
    cluster: Cluster, tmp_path: Path, runtime: dict[str, str]
) -> None:
    go = tmp_path / "go"
    with cluster.start(comers.SCRIPT, "--workers", "2", args=("sync", "", str(go)), **runtime) as launcher:
        output = comers.Output(launcher)
        output.until("[worker/0]", "step", "*", "2")
        assert comers.scale(4, **runtime).returncode == 0
        output.until("[worker/0]", "step", "*", "4")
        assert comers.scale(1, **runtime).returncode == 0
        output.until("[worker/0]", "step", "*", "1")
        go.touch()
        out, _ = output.end()
    assert "[worker/0] done" in out


def test_each_shard_is_seen_while_workers_join_leave_and_are_killed(
    cluster: Cluster, tmp_path: Path, runtime: dict[str, str]
) -> None:
    """A worker that is asked to leave ends with its shard; one that is killed leaves one shard, which others repeat."""
    go = tmp_path / "go"
    with cluster.start(comers.SCRIPT, "--workers", "2", args=("shards", "", str(go)), **runtime) as launcher:
        output = comers.Output(launcher)
        output.until("[worker/1]", "saw")
        assert comers.scale(4, **runtime).returncode == 0
        pid = int(output.until("[worker/3]", "pid")[2])
        output.until("[worker/3]", "has")
        os.kill(pid, signal.SIGKILL)
        output.until("[worker/2]", "saw")
        while "worker/3" not in comers.scale(4, **runtime).stdout:  # until the launcher has noticed the kill
            output.until("[worker/0]", "saw")
        output.until(
            "[worker/3]", "saw"
        )  # it goes on with its number, so the barrier does not wait for its earlier life
        assert comers.scale(1, **runtime).returncode == 0
        output.until("[worker/0]", "saw")
        go.touch()
        out, err = output.end()
    for worker in (1, 2, 3):
        assert f"worker/{worker} has left the run, as asked." in err
    never, once, twice, *often = map(int, [line.split()[2:] for line in out.splitlines() if " seen " in line][0])
    assert never == 0 and twice <= 1 and not any(often) and once + twice == comers.SHARDS
    assert "[worker/0] done" in out and "[worker/1] done" not in out


def test_a_killed_ps_starts_again_and_training_goes_on_from_the_checkpoint(
    cluster: Cluster, tmp_path: Path, runtime: dict[str, str]
) -> None:
    go = tmp_path / "go"
    arguments = ("async", str(tmp_path / "model"), str(go))
    with cluster.start(comers.SCRIPT, "--workers", "2", "--restarts", "1", args=arguments, **runtime) as launcher:
        output = comers.Output(launcher)
        pid = int(output.until("[ps/0]", "ps")[2])
        before = output.step(0, after=100)
        os.kill(pid, signal.SIGKILL)
        output.until("[ps/0]", "ps")
        assert output.step(1) > before - 60
        go.touch()
        _, err = output.end()
    assert "ps/0 was killed by SIGKILL; starting it again (1 of 1)." in err


def test_four_ranks_go_on_as_three_and_again_as_four(cluster: Cluster, tmp_path: Path, runtime: dict[str, str]) -> None:
    go = tmp_path / "go"
    options, arguments = ("--ps", "0", "--workers", "4"), ("ranks", "", str(go))
    with cluster.start(comers.SCRIPT, *options, args=arguments, **runtime) as launcher:
        output = comers.Output(launcher)
        output.until("[worker/3]", "step", "*", "4")
        assert comers.scale(3, **runtime).returncode == 0
        output.until("[worker/0]", "step", "*", "3")
        assert comers.scale(4, **runtime).returncode == 0
        at = int(output.until("[worker/3]", "step", "*", "4")[2])
        assert at > 1  # it has taken over what the others have
        go.touch()
        out, err = output.end()
    done = [line.split()[2] for line in out.splitlines() if line.split()[1] == "done"]
    assert len(done) == 4 and len(set(done)) == 1  # the same bits


def test_a_job_that_is_not_there_is_an_error(runtime: dict[str, str]) -> None:
    done = comers.scale(3, **runtime)
    assert done.returncode == 2 and "No job of `tfmini launch` runs here." in done.stderr


def test_a_running_job_is_listed_shows_its_last_lines_and_saves_when_it_is_stopped(
    cluster: Cluster, tmp_path: Path, runtime: dict[str, str]
) -> None:
    arguments = ("async", str(tmp_path / "model"), str(tmp_path / "never"))
    with cluster.start(comers.SCRIPT, "--workers", "2", args=arguments, **runtime) as launcher:
        output = comers.Output(launcher)
        output.step(1)
        step = output.step(0)
        (listed,) = [line.split() for line in _tfmini(runtime, "jobs").splitlines()[1:]]
        name = f"script-{launcher.pid}"
        assert listed[:7] == [name, str(cluster.script), str(launcher.pid), "1", "ps,", "2", "worker"]
        logged = _tfmini(runtime, "logs", "--task", "worker/0").splitlines()
        assert 0 < len(logged) <= 20 and all(line.startswith("[worker/0] ") for line in logged)
        assert "has no task worker/9" in _tfmini(runtime, "logs", "script", "--task", "worker/9")
        assert _tfmini(runtime, "stop", name) == f"{name} has ended\n"
        assert launcher.wait(LIMIT_S) == 143
    assert int(str(tf.train.latest_checkpoint(str(tmp_path / "model"))).rpartition("-")[2]) >= step
    assert _tfmini(runtime, "jobs") == "no job runs\n"


def _tfmini(runtime: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "tfmini", *words]
    environment = {**os.environ, **runtime, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "300"}  # paths on one line
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout + done.stderr
