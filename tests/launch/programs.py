"""Scripts and examples that the tests of several engines run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TRAINS = """
import json, os, sys
import tfmini as tf
config = json.loads(os.environ["TF_CONFIG"])
job, task = config["task"]["type"], config["task"]["index"]
server = tf.train.Server(config["cluster"], job_name=job, task_index=task)
if job == "ps":
    server.join()
with tf.device("/job:ps/task:0"):
    answer = tf.constant(6) * 7
with tf.Session(server.target) as session:
    print(sys.argv[1:], session.run(answer), os.environ["TFMINI_KEYS"].split("/")[-2])
"""
"""Prints the arguments, 42, and the directory of the key."""

FAILS = """
import json, os, signal, sys
task = json.loads(os.environ["TF_CONFIG"])["task"]
sys.exit(7) if task == {"type": "worker", "index": 1} else signal.pause()
"""
"""Worker 1 ends with exit code 7; the others wait until they are stopped."""

EXAMPLES = [
    pytest.param("digits_async.py", ["--ps", "2", "--workers", "3"], marks=pytest.mark.ci),
    ("digits_sync.py", ["--ps", "2", "--workers", "3"]),
    ("digits_allreduce.py", ["--ps", "0", "--workers", "4"]),
]


def accuracies(text: str) -> list[float]:
    """What the examples print of their accuracy, in percent."""
    return [float(found) for found in re.findall(r"test accuracy ([\d.]+) %", text)]


def launched(folder: Path, program: str, *options: str) -> str:
    """What `tfmini launch` prints for a program, which must end well."""
    script = folder / "program.py"
    script.write_text(program)
    command = [sys.executable, "-m", "tfmini", "launch", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
