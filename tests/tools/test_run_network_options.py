"""`tfmini run --bind`, `--ports` and `--address-book`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("book", ["--address-book", "--addresses"])
def test_a_server_of_the_script_listens_as_the_options_say(tmp_path: Path, book: str) -> None:
    (tmp_path / "script.py").write_text(
        "import tensorflow as tf\n"
        "server = tf.train.Server({'worker': ['192.0.2.1:0']})\n"
        "print(open('book/worker-0.json').read())\n"
        "server.stop()\n"
    )
    options = ["--bind", "lo", "--ports", "40000-40999", book, "book"]
    command = [sys.executable, "-m", "tfmini", "run", *options, "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=200)
    assert b'"127.0.0.1:40' in done.stdout, done.stderr.decode()
    assert (b"--addresses is now called --address-book" in done.stderr) == (book == "--addresses")
    assert list((tmp_path / "book").iterdir()) == []  # what a server has written goes when it stops
