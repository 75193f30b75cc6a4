"""Runs of `tfmini launch` with tiny scripts, and the processes that they leave. Every wait has a limit."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 120

# The beginning of the scripts in these tests: JOB and TASK, and the ps side of a cluster.
PREAMBLE = """
import json, os, signal, socket, subprocess, sys
config = json.loads(os.environ["TF_CONFIG"])
JOB, TASK = config["task"]["type"], config["task"]["index"]
def address(job, task):
    host, port = config["cluster"][job][task].split(":")
    return host, int(port)
def listener(job, task):
    from tfmini import listen_fd
    listener = socket.socket(fileno=listen_fd.claim(address(job, task)[1]))
    listener.settimeout(100)
    return listener
def wait_for_ever():
    print("ready", flush=True)
    while True:
        signal.pause()
"""
# A script whose ps joins its server.
# A server that is joined, and for clients in the other tasks.
SERVER = """
import tfmini as tf
server = tf.train.Server(config["cluster"], job_name=JOB, task_index=TASK)
"""


class Cluster:
    """Runs `tfmini launch` on scripts, and finds whatever processes that leaves."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "script.py"
        self._mark = f"TFMINI_TEST={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        ours = ("NO_COLOR", "FORCE_COLOR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self.env = {key: text for key, text in os.environ.items() if key not in ours}
        self.env |= {name: value, "PYTHONPATH": str(REPOSITORY)}

    def command(self, body: str, *options: str, args: tuple[str, ...] = ()) -> list[str]:
        self.script.write_text(PREAMBLE + textwrap.dedent(body))
        # The usual grace time may be too short for a task that has to share its core with others.
        grace = [] if "--grace" in options else ["--grace", "100"]
        return [sys.executable, "-m", "tfmini", "launch", *grace, *options, str(self.script), *args]

    def run(self, body: str, *options: str, args: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
        with self.start(body, *options, args=args, **env) as launcher:
            out, err = launcher.communicate(timeout=LIMIT_S)
            return subprocess.CompletedProcess(launcher.args, launcher.returncode, out, err)

    @contextlib.contextmanager
    def start(
        self, body: str, *options: str, args: tuple[str, ...] = (), **env: str
    ) -> Iterator[subprocess.Popen[str]]:
        command = self.command(body, *options, args=args)
        with subprocess.Popen(
            command,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as launcher:
            try:
                yield launcher
            finally:
                launcher.kill()

    def left(self) -> list[int]:
        """The processes of this test that exist."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def wait_until_none_is_left(self) -> None:
        """Returns as soon as every process of this test has ended; they are not children of ours."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                try:
                    assert select.select([fd], [], [], LIMIT_S)[0], f"process {pid} was left behind"
                finally:
                    os.close(fd)


def read_until(launcher: subprocess.Popen[str], done: Callable[[list[str]], bool]) -> list[str]:
    """Lines of the launcher's output until `done` of them is true. (The test's time limit bounds it.)"""
    assert launcher.stdout is not None
    lines: list[str] = []
    for line in launcher.stdout:
        lines.append(line.rstrip("\n"))
        if done(lines):
            return lines
    raise AssertionError(f"the launcher ended; it wrote {lines}")


def ready(count: int) -> Callable[[list[str]], bool]:
    # Two processes of a task may write into one line: unbuffered, the text and the end of the line are two writes.
    return lambda lines: sum(line.count("ready") for line in lines) == count
