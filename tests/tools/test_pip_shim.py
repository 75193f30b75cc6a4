"""pip takes the shim for TensorFlow 1.15: asked itself, without an index, in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tfmini.tools import pip_shim
from tfmini.tools.cli import main


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    venv.create(tmp_path / "env", with_pip=False)
    return tmp_path / "env"


def shim(environment: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["run", "pip-shim", "--into", str(environment), *options])


def wheel(folder: Path, requirement: str) -> Path:
    """A package without code that requires something."""
    path = folder / "oldlib-1.0-py3-none-any.whl"
    files = {
        "oldlib.py": "",
        "oldlib-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: oldlib\nVersion: 1.0\n"
        f"Requires-Dist: {requirement}\n",
        "oldlib-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, "oldlib-1.0.dist-info/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, "oldlib-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return path


def pip(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_pip_installs_what_requires_tensorflow_1(environment: Path, tmp_path: Path) -> None:
    links = str(wheel(tmp_path, "tensorflow>=1.12,<2").parent)
    install = ("install", "--no-index", "oldlib", "--find-links", links)
    before = pip(environment, *install)
    assert before.returncode == 1 and "No matching distribution found for tensorflow" in before.stderr
    assert shim(environment).exit_code == 0
    assert pip(environment, *install).returncode == 0
    assert shim(environment, "--remove").exit_code == 0
    assert "which is not installed" in pip(environment, "check").stdout


@pytest.mark.slow
def test_pip_can_uninstall_the_shim_and_refuses_it_for_tensorflow_2(environment: Path, tmp_path: Path) -> None:
    assert shim(environment).exit_code == 0
    links = str(wheel(tmp_path, "tensorflow>=2").parent)
    assert pip(environment, "install", "--no-index", "oldlib", "--find-links", links).returncode == 1
    assert pip(environment, "uninstall", "-y", *pip_shim.NAMES).returncode == 0
    assert list(pip_shim.site_of(environment).iterdir()) == []


def test_it_says_what_it_is_and_goes_again(environment: Path) -> None:
    told = shim(environment)
    site = pip_shim.site_of(environment)
    assert "pip takes these for installed" in told.output and "tensorflow 1.15.5+tfmini" in told.output
    assert sorted(path.name for path in site.iterdir()) == [
        f"{name}-1.15.5+tfmini.dist-info" for name in ("tensorflow", "tensorflow_cpu", "tensorflow_gpu")
    ]
    assert "stand-in" in (site / "tensorflow-1.15.5+tfmini.dist-info" / "METADATA").read_text()
    assert shim(environment).exit_code == 0  # a second time
    assert "removed tensorflow" in shim(environment, "--remove").output
    assert list(site.iterdir()) == []
    assert "there is no shim" in shim(environment, "--remove").output


def test_a_real_tensorflow_is_left_alone(environment: Path) -> None:
    real = pip_shim.site_of(environment) / "tensorflow-2.16.1.dist-info"
    real.mkdir()
    (real / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.16.1\n")
    (real / "INSTALLER").write_text("pip\n")
    refused = shim(environment)
    assert refused.exit_code == 1 and "tensorflow 2.16.1 is installed in" in refused.output
    assert "there is no shim" in shim(environment, "--remove").output
    assert real.exists()


def test_what_is_no_environment_is_refused(tmp_path: Path) -> None:
    refused = shim(tmp_path)
    assert refused.exit_code == 1 and "is no virtual environment" in refused.output


def test_a_script_of_that_name_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip-shim").write_text("raise SystemExit(7)\n")
    done = subprocess.run([sys.executable, "-m", "tfmini", "run", "pip-shim"], cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 7
