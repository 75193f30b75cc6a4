"""The wheel that `pip install` and `make wheel` build has all that a program needs, away from the checkout."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def can_build() -> bool:
    """Whether this environment has pip and a setuptools that builds wheels by itself, as after `make test`."""
    try:
        major = int(metadata.version("setuptools").partition(".")[0])
        return major >= 71 and bool(metadata.version("pip"))
    except metadata.PackageNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not can_build(), reason="building a wheel needs pip and setuptools 71")
NOT_INSTALLED = {".md", ".pyc"}
PROGRAM = """
import os, sys
import tfmini as tf
assert os.path.dirname(tf.__file__).startswith(sys.prefix), tf.__file__
x = tf.placeholder(tf.float32, [None, 2], name="x")
w = tf.Variable([[1.0], [2.0]], name="w")
y = tf.matmul(x, w, name="y")
with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    print(session.run(y, {x: [[3.0, 4.0]]}).tolist())
"""


def run(*command: str | Path, cwd: Path) -> str:
    """The standard output of a command that ends well, without this checkout on the path of its Python."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a `build` folder of the checkout may contain files that have gone since."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "tfmini", source / "tfmini", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    # The setuptools of this environment, so that the test needs no network.
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `python` and `tfmini` of an environment that has the wheel and sees tfmini's dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A line of a .pth file adds a folder to the path, but not what .pth files in that folder name: an editable
    # installation of tfmini stays out.
    (packages / "dependencies.pth").write_text("\n".join([*site.getsitepackages(), site.getusersitepackages()]))
    return python.parent


def test_the_wheel_has_every_file(wheel: Path) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tfmini").rglob("*")
        if path.is_file() and path.suffix not in NOT_INSTALLED
    }
    assert files - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_an_installed_session_runs(scripts: Path, tmp_path: Path) -> None:
    assert run(scripts / "python", "-c", PROGRAM, cwd=tmp_path) == "[[11.0]]\n"


def test_the_installed_command_runs_and_inspects(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert "[[11.0]]" in run(scripts / "tfmini", "run", "program.py", cwd=tmp_path)
    inspect = (scripts / "tfmini", "inspect", "program.py")
    assert "the step runs y;" in run(*inspect, cwd=tmp_path)
    page = tmp_path / "page.html"
    run(*inspect, "--html", page, cwd=tmp_path)
    assert "cytoscape" in page.read_text()
