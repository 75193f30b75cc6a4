"""A process with a session keeps the memory of the last step's arrays, and the user's own settings come first."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_FAULTS = """
import resource, numpy as np, tfmini as tf
with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [1 << 20])
    y = x + 1.0
    with tf.Session() as session:
        fed = np.ones(1 << 20, np.float32)
        for _ in range(5):
            session.run(y, {x: fed})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            session.run(y, {x: fed})
        print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


def faults_per_step(**settings: str) -> int:
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}, **settings}
    command = [sys.executable, "-c", _FAULTS]
    return int(subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_step_finds_the_memory_of_the_step_before() -> None:
    """A result of 4 MB has a thousand pages."""
    assert faults_per_step() < 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_settings_of_the_environment_come_first() -> None:
    assert faults_per_step(MALLOC_MMAP_THRESHOLD_="131072", MALLOC_TOP_PAD_="0") > 200
