"""`tfmini horovodrun`, Horovod's command line for ranks on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.tools.launched import LIMIT_S, REPOSITORY
from tfmini.tools.cli import main

_SCRIPT = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.constant(float(hvd.rank() + 1)), op=hvd.Sum)
with tf.Session() as session:
    print("sum", session.run(total), "of", hvd.size(), *sys.argv[1:])
"""


def test_the_ranks_run_one_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    line = ["horovodrun", "--gloo", "--cycle-time-ms=1", "-np", "2", "-H", "localhost:2", "python", "train.py", "--x"]
    done = subprocess.run(
        [sys.executable, "-m", "tfmini", *line], cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("sum 3.0 of 2 --x") == 2


def _refused(tmp_path: Path, *line: str) -> Result:
    result = CliRunner().invoke(main, ["horovodrun", *line])
    assert result.exit_code == 2
    return result


def test_another_host_is_refused(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# ranks\nlocalhost slots=2\nserver2:22 slots=2\n")
    for option in (["-H", "localhost:2,server2:2"], ["--hostfile", str(hosts)]):
        result = _refused(tmp_path, "-np", "4", *option, "python", "train.py")
        assert "server2 is another" in result.output.replace("\n", " ")


def test_a_host_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_bytes(b"\xff\xfe")
    assert "cannot be read" in _refused(tmp_path, "-np", "2", "--hostfile", str(hosts), "python", "train.py").output


@pytest.mark.parametrize(
    "line, error",
    [
        (["python", "-m", "train"], "there is no module train"),
        (["python"], "names no script"),
        (["no_such.py"], "There is no file 'no_such.py'"),
        (["--num-ranks", "2", "train.py"], "No such option '--num-ranks'"),
    ],
)
def test_a_command_that_cannot_run_is_an_error(tmp_path: Path, line: list[str], error: str) -> None:
    assert error in _refused(tmp_path, "-np", "2", *line).output
