"""What every test gets: a fresh default graph, the oracle, and a check for what it left running."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.oracle import Oracle

# Before tfmini is imported, and for the processes that tests start: see runtime/compiler/kernels.py.
os.environ.setdefault("TFMINI_CHECK_KERNELS", "1")
# The key of this user (rpc/keys.py) is one of this run, for the processes that tests start as well.
_CONFIGURATION = tempfile.TemporaryDirectory(prefix="tfmini-tests-")
os.environ["XDG_CONFIG_HOME"] = _CONFIGURATION.name
for _name in ("TFMINI_KEYS", "TFMINI_INSECURE", "COLUMNS"):  # pytest-xdist sets the width of its own terminal
    os.environ.pop(_name, None)
# A process that must compile all modules first needs a second of its core for that, and tests start thousands.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import tfmini as tf  # noqa: E402
from tfmini.runtime.client import master_clients  # noqa: E402

# A server in another process may take long to come up where many share a core.
master_clients.TARGET_TIMEOUT_S = 250.0

# A slow machine is no failure: examples have no deadline of their own and may be slow to make; tests have a timeout.
# The examples are the same in every run, so that nobody's work is refused for what another run would not have found;
# `--hypothesis-profile=explore` tries others.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tfmini", parent=settings.get_profile("explore"), derandomize=True)
settings.load_profile("tfmini")

_ORACLE_S = 1000  # a test that is the first of its file to ask TensorFlow may wait for all of its file's answers
_CLUSTER_S = 600  # processes start, are killed and start again
_ENDING_S = 60.0  # how long threads and processes that are on their way out may take


_ORACLES = {"oracle": "TFMINI_ORACLE", "oracle_1x": "TFMINI_ORACLE_1X"}  # mark -> environment variable
_LACKING = "{} does not name a Python that has TensorFlow"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for keyword, setting in _ORACLES.items():
            if keyword in item.keywords:
                missing = pytest.mark.skip(reason=_LACKING.format(setting))
                item.add_marker(pytest.mark.timeout(_ORACLE_S) if oracle_python(setting) else missing)
        if "oracle" not in item.keywords and "cluster" in item.keywords:
            item.add_marker(pytest.mark.timeout(_CLUSTER_S))


def oracle_python(setting: str = "TFMINI_ORACLE") -> str | None:
    """The Python with TensorFlow that the environment variable names, if it is there."""
    python = os.environ.get(setting)
    return python if python and os.access(python, os.X_OK) else None


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """TensorFlow, in a Python of its own; the test is skipped where there is none."""
    yield from _oracle("TFMINI_ORACLE")


@pytest.fixture(scope="session")
def oracle_1x() -> Iterator[Oracle]:
    """TensorFlow 1.15, for what TensorFlow 2 answers in another way; the test is skipped where there is none."""
    yield from _oracle("TFMINI_ORACLE_1X")


def _oracle(setting: str) -> Iterator[Oracle]:
    python = oracle_python(setting)
    if python is None:
        pytest.skip(_LACKING.format(setting))
    with contextlib.closing(Oracle(python)) as oracle:
        yield oracle


@pytest.fixture(autouse=True)
def fresh_default_graph() -> Iterator[None]:
    """Each test builds into a graph of its own, which is the default one."""
    with tf.Graph().as_default():
        yield


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """What a test does to the library's loggers is undone; else the tests after it could not see what is logged."""
    both = [logging.getLogger(name) for name in ("tensorflow", "tfmini")]
    before = [(logger, logger.level, list(logger.handlers), logger.propagate) for logger in both]
    yield
    for logger, level, handlers, propagate in before:
        logger.setLevel(level)
        logger.handlers[:], logger.propagate = handlers, propagate


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C and the end of the terminal interrupt this process and the processes that the test starts.

    A shell starts a background job (``nohup make test &``) with both signals ignored, and children inherit that.
    """
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, inherited[0])
    signal.signal(signal.SIGHUP, inherited[1])


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fails the test that leaves a non-daemon thread or a child process behind, and names it."""
    threads, children = set(threading.enumerate()), child_processes()
    yield
    left = _wait_until_gone(
        lambda: [
            *(t.name for t in threading.enumerate() if t not in threads and _should_have_ended(t, threads)),
            *(f"process {pid}: {name}" for pid, name in child_processes().items() if pid not in children),
        ]
    )
    assert not left, f"left running: {', '.join(left)}"


def _should_have_ended(thread: threading.Thread, before: set[threading.Thread]) -> bool:
    """A server of before the test may have found a step long enough to want its pool of threads; it keeps that."""
    of_a_server = thread.name.startswith("tfmini-kernels") and any(t.name == "tfmini-reactor" for t in before)
    return thread.is_alive() and not thread.daemon and not of_a_server


def child_processes() -> dict[int, str]:
    """pid -> command line of this process's living children."""
    multiprocessing.active_children()  # reaps those that have ended
    found = {}
    for listing in Path("/proc/self/task").glob("*/children") if sys.platform == "linux" else ():
        try:
            pids = [int(pid) for pid in listing.read_text().split()]
        except OSError:  # the thread ended while we looked
            continue
        for pid in pids:
            command = _command_of(pid)
            # Both live to the end: multiprocessing's own, and TensorFlow.
            if command and "resource_tracker" not in command and "-m tests.oracle" not in command:
                found[pid] = command
    return found


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _wait_until_gone(look) -> list[str]:
    deadline = time.monotonic() + _ENDING_S
    left = look()
    while left and time.monotonic() < deadline:
        gc.collect()  # a thread may live as long as an object that nobody uses
        time.sleep(0.02)
        left = look()
    return left
