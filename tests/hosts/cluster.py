"""A cluster with each task on a host of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.network import Network

thorough = pytest.mark.skipif(not os.environ.get("TFMINI_TEST_HOSTS"), reason="it runs in `make test-hosts`")
"""Marks tests that are too long for every run of the whole suite."""
TASK = Path(__file__).with_name("task.py")
_ROOT = Path(__file__).parents[2]
_LIMIT_S = 200.0  # of a wait for a line that is certain to come: under load Python alone may start for a minute
PORT = 2222


class Cluster:
    """Starts tasks: the first host has ps 0, the next ones the workers.

    Args:
      jobs: job -> the indices of its tasks' hosts.
      environment: of all tasks, beside that of this process.
      program: what each task runs; see `task` for its arguments.
    """

    def __init__(
        self, network: Network, jobs: Mapping[str, list[int]], environment: Mapping[str, str] | None = None,
        program: Path = TASK,
    ) -> None:  # fmt: skip
        self.network, self._jobs, self.program = network, jobs, program
        self.environment = {"PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1", **(environment or {})}
        ports = {host: itertools.count(PORT) for indices in jobs.values() for host in indices}
        self.spec = {job: [f"{network[i].address}:{next(ports[i])}" for i in indices] for job, indices in jobs.items()}

    def start(self, job: str, index: int, what: str, *arguments: Any, **options: Any) -> Lines:
        """Starts a task on its host."""
        return self.start_on(self._jobs[job][index], self.spec, job, index, what, *arguments, **options)

    def start_on(self, host: int, spec: Any, job: str, index: int, what: str, *arguments: Any, **options: Any) -> Lines:
        """Starts a task on any host, with a ClusterSpec of its own."""
        words = [json.dumps(spec), job, str(index), what, *map(str, arguments)]
        environment = {**self.environment, **options.pop("environment", {})}
        command = [sys.executable, str(self.program), *words]
        process = self.network[host].start(command, environment, stdin=subprocess.PIPE, **options)
        return Lines(process, f"{job} {index}")


class Lines:
    """The lines of a task's output. They are read as they come, so that a full pipe holds nobody up."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self.process, self.name = process, name
        self.seen: list[str] = []
        self._more = threading.Condition()
        self._next = 0
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in iter(self.process.stdout.readline, ""):
                with self._more:
                    self.seen.append(line.strip())
                    self._more.notify_all()
        except ValueError:  # closed at the end of the test
            pass
        with self._more:
            self._ended = True
            self._more.notify_all()

    def until(self, word: str, limit_s: float = _LIMIT_S, there: str = "") -> list[str]:
        """Waits for the next line that begins with a word, and returns its other words.

        Args:
          there: the last word of the line; "": any.
        """
        for line in self._lines(limit_s, word):
            if line.split()[:1] == [word] and (not there or line.split()[-1] == there):
                return line.split()[1:]
        raise AssertionError(f"{self.name} ended without {word!r}; its last lines: {self.seen[-5:]}")

    def _lines(self, limit_s: float, word: str) -> Iterator[str]:
        while True:
            with self._more:
                there = self._more.wait_for(lambda: self._ended or self._next < len(self.seen), limit_s)
                if not there:
                    raise AssertionError(f"{self.name}: no {word!r} in {limit_s:g} s; last lines: {self.seen[-5:]}")
                if self._next >= len(self.seen):
                    return
                self._next += 1
                line = self.seen[self._next - 1]
            yield line

    def all(self) -> str:
        """The whole output of a task that ends."""
        self._reader.join(_LIMIT_S)
        return "\n".join(self.seen)

    def skip(self) -> None:
        """Forgets the lines that have come so far."""
        with self._more:
            self._next = len(self.seen)

    def tell(self, line: str = "go") -> None:
        """Writes a line to the task's input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, signum: int) -> int:
        """Sends a signal, waits for the end and returns the exit code."""
        self.process.send_signal(signum)
        return self.process.wait(_LIMIT_S)


def keys_in(directory: Path) -> dict[str, str]:
    """The environment of tasks that share a key of their own."""
    from tfmini.rpc.keys import KEYS_ENV, generate_keys

    os.makedirs(directory, exist_ok=True)
    return {KEYS_ENV: generate_keys(str(directory))}
