"""`tfmini place`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.show.planning.scripts import mlp
from tests.show.simulation.profiles import TEXT
from tfmini.placement.device_setter import plan
from tfmini.tools.cli import main

WIDE = mlp(widths=(600,))


def placed(tmp_path: Path, *options: str, text: str = WIDE) -> Result:
    (tmp_path / "profile.toml").write_text(TEXT)
    (tmp_path / "model.py").write_text(text)
    words = ["place", str(tmp_path / "model.py"), "--profile", str(tmp_path / "profile.toml"), *options]
    return CliRunner().invoke(main, [*words, "-o", str(tmp_path / "plan.json"), "--trials", "12"])


def test_it_prints_the_gain_and_writes_the_plan(tmp_path: Path) -> None:
    result = placed(tmp_path, "--ps", "2", "--workers", "2", "--link", "100Mbit")
    assert result.exit_code == 0, result.output
    rows = {line.split("  ")[0].strip() for line in result.output.splitlines()}
    assert {"the script's own", "round robin", "greedy by bytes", "the plan", "dense/kernel", "number of ps"} <= rows
    found = plan(tmp_path / "plan.json")
    assert found.tasks == 2 and found.predicted["step_s"] <= found.predicted["round_robin_s"]
    assert found.predicted["link"] == "100Mbit"
    assert '"dense/bias": ' in (tmp_path / "plan.json").read_text()


def test_a_chief_trains_beside_the_workers(tmp_path: Path) -> None:
    own = "worker_device=f'/job:{tf.estimator.RunConfig().task_type}/task:0'"
    text = WIDE.replace("replica_device_setter(", f"replica_device_setter({own}, ")
    result = placed(tmp_path, "--ps", "2", "--workers", "1", "--chief", text=text)
    assert result.exit_code == 0 and "dense/kernel" in result.output, result.output


def test_without_a_profile_one_that_comes_with_tfmini_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(WIDE)
    result = CliRunner().invoke(main, ["place", "model.py", "--ps", "2", "--link", "1Gbit", "--trials", "4"])
    assert result.exit_code == 0, result.output
    note = "The profile servers-10gbit comes with tfmini: its times are not this machine's"
    assert note in result.output.replace("\n", " ")
    assert plan("plan.json").predicted["profile"] == "servers-10gbit"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ("--ps", "2", "--ps-memory", "40kB"),
            "dense/kernel has 96 kB of state, a ps may hold 40 kB, and it is cut into 2",
        ),
        (("--ps", "2", "--ps-memory", "10kB", "--ps-memory", "1=70kB"), "hold 80 kB together"),
        (("--ps", "2", "--ps-memory", "much"), "'much' is no size"),
        (("--ps", "2", "--ps-memory", "."), "'.' is no size"),
        (("--ps", "2", "--entry", "a:b"), "both were given"),
        (("--ps", "2", "--profile", "absent.toml"), "There is no absent.toml: run `tfmini calibrate`"),
        (("--ps", "2", "--ps-memory", "2=4GB"), "there is no ps 2 of 2"),
        (("--ps", "2", "--link", "fast"), "no link 'fast'"),
        ((), "Missing option '--ps'"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, options: tuple[str, ...], error: str) -> None:

    result = placed(tmp_path, *options)
    assert result.exit_code != 0 and result.exception.__class__ is SystemExit
    assert error in result.output


def test_a_script_without_variables_for_a_ps(tmp_path: Path) -> None:
    result = placed(tmp_path, "--ps", "2", text=mlp(scope="'/job:ps/task:0'"))
    assert result.exit_code == 1 and "no variable that a device function may place" in result.output
