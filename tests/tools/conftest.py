"""What tests of the command get."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.launched import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Runs `tfmini launch`; fails the test if a process is left behind."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("waits for foreign processes through pidfds")
    cluster = Cluster(tmp_path)
    yield cluster
    with contextlib.suppress(AssertionError):
        cluster.wait_until_none_is_left()
    left = cluster.left()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"
