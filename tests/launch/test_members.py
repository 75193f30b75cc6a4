"""Processes that a scheduler has started as tasks; here the test is the scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.launch.programs import TRAINS
from tfmini.launch.engine import EngineError, EngineOptions
from tfmini.launch.members import SchedulerMember, SharedDirectory

ROOT = Path(__file__).parents[2]


def members(folder: Path, body: str, size: int) -> list[subprocess.CompletedProcess[str]]:
    """Runs a script as `size` tasks of a job step of Slurm."""
    script = folder / "script.py"
    script.write_text(body)
    command = [sys.executable, "-m", "tfmini", "run", "--cluster", "slurm", str(script)]
    started = []
    for rank in range(size):
        step = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(size), "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}
        environment = {**os.environ, **step, "PYTHONPATH": str(ROOT), "TFMINI_RENDEZVOUS": str(folder / "shared")}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
    found = []
    for process in started:
        out, err = process.communicate(timeout=200)
        found.append(subprocess.CompletedProcess(command, process.returncode, out, err))
    return found


def test_rank_0_leads_and_all_end_with_the_code_of_the_run(tmp_path: Path) -> None:
    # A word of an earlier run, which was killed, leads nowhere.
    SharedDirectory("slurm-1.0.0", str(tmp_path / "shared")).publish("bm93aGVyZQ")
    first, second = members(tmp_path, TRAINS, 2)
    assert (first.returncode, first.stdout) == (0, "[worker/0] [] 42 fd\n"), first.stderr
    assert (second.returncode, second.stdout) == (0, "")
    assert list((tmp_path / "shared").iterdir()) == []


def test_a_failure_is_named_by_rank_0(tmp_path: Path) -> None:
    first, second = members(tmp_path, TRAINS.replace("6) * 7", "6) * nothing"), 2)
    assert (first.returncode, second.returncode) == (1, 1)
    assert "tfmini: worker/0 failed first: exit code 1. Its last lines:" in first.stderr


def test_only_this_user_can_read_what_is_published(tmp_path: Path) -> None:
    exchange = SharedDirectory("x", str(tmp_path / "new"))
    assert exchange.receive() == ""
    exchange.publish("word")
    assert exchange.receive() == "word"
    assert oct((tmp_path / "new" / "run-x").stat().st_mode) == "0o100600"
    exchange.withdraw()
    assert exchange.receive() == ""


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="Set TFMINI_RENDEZVOUS to a directory"):
        SharedDirectory("x", str(tmp_path / "file")).publish("word")


def test_a_directory_that_others_can_write_gets_no_secret(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    exchange = SharedDirectory("x", str(tmp_path / "open"))
    with pytest.raises(EngineError, match="chmod go-w"):
        exchange.publish("word")
    assert list((tmp_path / "open").iterdir()) == []
    (tmp_path / "open" / "run-x").write_text("word")
    (tmp_path / "open" / "run-x").chmod(0o600)
    assert exchange.receive() == "" and "chmod go-w" in exchange.problem


def test_the_secret_is_not_written_into_a_planted_file(tmp_path: Path) -> None:
    """Another user of a shared directory knows the name of the run, and can guess process ids."""
    planted = tmp_path / "planted"
    planted.write_text("")
    for name in (f".run-x.{os.getpid()}", "run-x"):
        (tmp_path / name).symlink_to(planted)
    exchange = SharedDirectory("x", str(tmp_path))
    exchange.publish("word")
    assert exchange.receive() == "word"
    assert planted.read_text() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_word_of_another_user_is_not_used(tmp_path: Path) -> None:
    exchange = SharedDirectory("x", str(tmp_path))
    exchange.publish("word")
    os.chown(tmp_path / "run-x", 65533, -1)
    assert exchange.receive() == ""
    assert "belongs to user 65533" in exchange.problem


def test_a_rank_that_waits_in_vain_tells_what_it_did_not_use(tmp_path: Path) -> None:
    exchange = SharedDirectory("x", str(tmp_path))
    (tmp_path / "run-x").write_text("word")
    (tmp_path / "run-x").chmod(0o644)
    member = SchedulerMember("a scheduler", 1, 2, lambda: exchange)
    with pytest.raises(click.ClickException, match="chmod 600"):
        member.run(lambda engine: 0, EngineOptions(), 0.0)
