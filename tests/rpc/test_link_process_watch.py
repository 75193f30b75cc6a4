"""A process that computes, one that is stopped, and one that is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tfmini.rpc.link import ProcessWatch

LIMIT_S = 60.0


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def ever(watch: ProcessWatch) -> bool:
    """Whether a look finds that the processor time grows, after looks that have found none."""
    for _ in range(100_000):
        watch.computes()
        if not watch.computes():
            break
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if watch.computes():
            return True
    return False


def test_a_process_that_computes_is_told_from_one_that_is_stopped_or_gone(busy: subprocess.Popen[str]) -> None:
    watch = ProcessWatch(busy.pid)
    assert ever(watch)
    busy.send_signal(signal.SIGSTOP)
    os.waitpid(busy.pid, os.WUNTRACED)
    assert not watch.computes()
    busy.send_signal(signal.SIGCONT)
    assert ever(watch)
    busy.kill()
    busy.wait()
    assert not watch.computes()


def test_a_process_that_waits_does_not_compute() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"x")
        process.stdin.flush()
        process.stdout.read(1)
        watch = ProcessWatch(process.pid)
        assert [watch.computes() for _ in range(10)][-1] is False


def test_an_unknown_process_does_not_compute() -> None:
    assert not any(ProcessWatch(0).computes() for _ in range(3))
