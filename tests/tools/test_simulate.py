"""``tfmini simulate``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.show.simulation.profiles import TEXT
from tfmini.show.simulation import predictor
from tfmini.tools.cli import main

SCRIPT = """
import tensorflow as tf

with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
    x = tf.placeholder(tf.float32, [None, 64])
    loss = tf.reduce_mean(tf.layers.dense(x, 16))
    train = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=tf.train.get_or_create_global_step())
with tf.train.MonitoredTrainingSession() as session:
    session.run(train, {x: [[0.0] * 64]})
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The arguments that name a profile and a script."""
    (tmp_path / "profile.toml").write_text(TEXT)
    (tmp_path / "train.py").write_text(SCRIPT)
    return ["--profile", str(tmp_path / "profile.toml"), "--ps", "2", "--batch", "8", str(tmp_path / "train.py")]


def test_a_run_is_predicted_by_the_runtime(files: list[str]) -> None:
    done = CliRunner().invoke(main, ["simulate", "--workers", "2", "--link", "10Gbit", *files])
    assert done.exit_code == 0, done.output
    for shown in ("a step takes", "steps/s of all workers", "updates of others", "busiest:", "worker/1", "Session.run"):
        assert shown in done.output
    assert "predicted by the runtime in virtual time" in done.output
    assert "/job:" not in done.output and "unknown dimensions" not in done.output


def test_a_chief_trains_beside_the_workers(files: list[str]) -> None:
    own = "worker_device=f'/job:{tf.estimator.RunConfig().task_type}/task:0'"
    Path(files[-1]).write_text(SCRIPT.replace("ps_tasks=2", f"ps_tasks=2, {own}"))
    command = ["simulate", "--workers", "1..2", "--link", "10Gbit"]
    without = CliRunner().invoke(main, [*command, *files])
    assert without.exit_code == 1 and "The option --chief of `tfmini launch`, `inspect`, `simulate`" in without.output
    done = CliRunner().invoke(main, [*command, "--chief", *files])
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()[1:3]] == ["2", "3"]
    done = CliRunner().invoke(main, ["simulate", "--workers", "1", "--link", "10Gbit", "--chief", *files])
    assert all(task in done.output for task in ("chief/0", "worker/0")) and "worker/1" not in done.output


def test_unknown_sizes_outside_the_step_are_not_warned_of(files: list[str]) -> None:
    """The report of uninitialised variables, which a monitored session adds, has some in every script."""
    path = Path(files[-1])
    known = path.write_text(SCRIPT.replace("[None, 64]", "[8, 64]")) and [a for a in files if a not in ("--batch", "8")]
    assert "unknown dimensions" not in CliRunner().invoke(main, ["simulate", "--workers", "1..2", *known]).output
    path.write_text(SCRIPT)
    unknown = CliRunner().invoke(main, ["simulate", "--workers", "1..2", *known])
    assert unknown.exit_code == 0 and unknown.output.count("unknown dimensions") == 1


@pytest.mark.parametrize(("options", "name"), [((), "laptop"), (("--link", "10Gbit"), "servers-10gbit")])
def test_without_a_profile_one_that_comes_with_tfmini_answers(
    files: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    done = CliRunner().invoke(main, ["simulate", *options, *files[2:]])
    assert done.exit_code == 0, done.output
    note = f"The profile {name} comes with tfmini: its times are not this machine's"
    assert "a step takes" in done.output and note in done.output.replace("\n", " ")
    own = CliRunner().invoke(main, ["simulate", *options, *files])
    assert own.exit_code == 0 and "comes with tfmini" not in own.output


def test_the_profile_may_be_named_before_the_link(files: list[str]) -> None:
    done = CliRunner().invoke(main, ["simulate", "--profile", "laptop", "--link", "10Gbit", *files[2:]])
    assert done.exit_code == 0 and "The profile laptop comes with tfmini" in done.output.replace("\n", " ")


def test_an_option_of_earlier_versions_changes_nothing(files: list[str]) -> None:
    own, fast = (CliRunner().invoke(main, ["simulate", *more, *files]).output for more in ((), ("--fast",)))
    assert own == fast


def test_a_large_run_says_that_it_has_fewer_steps(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "MOST_STEPS", 8)
    done = CliRunner().invoke(main, ["simulate", "--workers", "2", *files])
    assert "with 4 steps of each worker: 10 would be more than" in done.output


def test_a_sweep_has_a_row_for_each_number(files: list[str]) -> None:
    done = CliRunner().invoke(main, ["simulate", "--workers", "1..3", *files])
    rows = [line.split()[0] for line in done.output.splitlines() if " ms " in line]
    assert rows == ["1", "2", "3"]


def test_a_wrong_number_is_refused(files: list[str]) -> None:
    done = CliRunner().invoke(main, ["simulate", "--workers", "many", *files])
    assert done.exit_code == 1
    assert "no number of workers" in done.output


def test_ops_without_the_gpu_that_they_ask_for_are_told(tmp_path: Path) -> None:
    script = tmp_path / "gpu.py"
    script.write_text(
        "import tensorflow as tf\n"
        "with tf.device('/job:worker/task:0/gpu:0'):\n"
        "    w = tf.get_variable('w', [4]); step = tf.assign_add(w, tf.ones([4]))\n"
        "tf.Session(config=tf.ConfigProto(allow_soft_placement=True)).run(step)\n"
    )
    plainly = CliRunner().invoke(main, ["simulate", "--fetch", "AssignAdd", str(script)])
    assert plainly.exit_code == 0 and "ask for a GPU and count as ops of a CPU" in plainly.output
    profile = tmp_path / "gpu.toml"
    profile.write_text(TEXT + "\n[machines.plain.gpu]\n[machines.plain.gpu.kernels]\nupdate = [[1, 5000]]\n")
    done = CliRunner().invoke(main, ["simulate", "--profile", str(profile), "--fetch", "AssignAdd", str(script)])
    assert done.exit_code == 0 and "ask for a GPU" not in done.output and "CPU (of one core) or GPU" in done.output
