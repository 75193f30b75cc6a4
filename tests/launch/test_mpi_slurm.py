"""Steps, roles and batch scripts for Slurm, without Slurm."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tfmini.launch.engine import EngineError, EngineOptions, Resources
from tfmini.launch.launch_options import LaunchOptions
from tfmini.launch.mpi import member_of_step, step_options, steps_of
from tfmini.tools.cli import main

STEP = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "5", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}


def test_tasks_of_equal_resources_share_a_step() -> None:
    assert list(steps_of(LaunchOptions(ps=2, workers=3).requests())) == [(0, 5, Resources())]
    mixed = LaunchOptions(ps=2, workers=3, ps_cpus=1).requests()
    assert list(steps_of(mixed)) == [(0, 2, Resources(1)), (2, 3, Resources())]


def test_resources_become_options_of_srun() -> None:
    found = step_options(3, Resources(4, 1000, 2), EngineOptions(pack=False, arguments=("--partition=x",)), shares=True)
    assert {"--ntasks=3", "--cpus-per-task=4", "--mem-per-cpu=250M", "--gpus-per-task=2", "--exact"} <= set(found)
    assert "--distribution=cyclic" in found and found[-1] == "--partition=x"


@pytest.mark.usefixtures("capfd")
def test_an_allocation_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (tmp_path / "script.py").write_text("")
    with pytest.raises(click.ClickException, match="--on slurm needs an allocation"):
        main(["launch", "--on", "slurm", str(tmp_path / "script.py")], standalone_mode=False)


@pytest.mark.usefixtures("capfd")
def test_a_step_that_ends_too_early_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho 'srun: error: More processors requested than permitted' >&2\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    (tmp_path / "script.py").write_text("")
    said = "srun ended with exit code 1 before all tasks had a place: srun: error: More processors"
    with pytest.raises(click.ClickException, match=said):
        main(["launch", "--on", "slurm", str(tmp_path / "script.py")], standalone_mode=False)


def test_a_step_tells_each_process_its_rank() -> None:
    member = member_of_step(STEP)
    assert (member.rank, member.size) == (2, 5)
    assert member.workers(2, None) == 3
    with pytest.raises(click.UsageError, match="srun has started 5 processes for 6 tasks.*or leave out --workers"):
        member.workers(2, 4)
    with pytest.raises(click.UsageError, match="srun has started 5 processes for 6 ps and chief.*a smaller --ps"):
        member.workers(6, None)
    with pytest.raises(EngineError, match="SLURM_STEP_ID is not set"):
        member_of_step({**STEP, "SLURM_STEP_ID": ""})


def test_a_batch_script_asks_for_all_tasks_and_runs_the_same_command(tmp_path: Path) -> None:
    script = tmp_path / "train it.py"
    script.write_text("")
    job = tmp_path / "job"
    options = ["--on", "slurm", "--ps", "2", "--workers", "3", "--worker-cpus", "2", "--spread", "--sbatch", str(job)]
    done = CliRunner().invoke(main, ["launch", *options, str(script), "--steps", "3"])
    assert done.exit_code == 0, done.output
    text = job.read_text()
    for line in ("--ntasks=5", "--cpus-per-task=2", "--requeue", "--spread-job", "--signal=TERM@60"):
        assert f"#SBATCH {line}\n" in text
    last = text.splitlines()[-1]
    assert "launch --ps 2 --workers 3 --on slurm --worker-cpus 2 --spread " in last
    assert last.endswith(f"'{script}' --steps 3") and "--sbatch" not in last


def test_a_batch_script_passes_the_arguments_for_srun_on(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    job = tmp_path / "job"
    options = ["--on", "slurm", "--engine-args", "--comment 'a b'", "--sbatch", str(job), str(tmp_path / "script.py")]
    assert CliRunner().invoke(main, ["launch", *options]).exit_code == 0
    command = shlex.split(job.read_text().splitlines()[-1])
    assert shlex.split(command[command.index("--engine-args") + 1]) == ["--comment", "a b"]


def test_a_batch_script_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    options = ["--on", "slurm", "--sbatch", str(tmp_path / "no" / "job"), str(tmp_path / "script.py")]
    done = CliRunner().invoke(main, ["launch", *options])
    assert done.exit_code == 1
    assert f"Error: Cannot write {tmp_path}/no/job: there is no directory {tmp_path}/no." in done.output


def test_the_name_of_a_script_is_no_line_of_the_batch_script(tmp_path: Path) -> None:
    script = tmp_path / "a'\ntouch owned #'\r\"$(id).py"
    script.write_text("")
    job = tmp_path / "job"
    done = CliRunner().invoke(main, ["launch", "--on", "slurm", "--sbatch", str(job), str(script)])
    assert done.exit_code == 0, done.output
    head, _, command = job.read_bytes().decode().partition("\nexec ")
    assert all(line.startswith("#") for line in head.splitlines() if line)
    assert "#SBATCH --job-name=a_touch_owned_id_" in head
    assert shlex.split(command)[-1] == str(script)
