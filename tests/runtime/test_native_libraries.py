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


_MANY = """
import resource, numpy as np
from tfmini.runtime.native_libraries import keep_freed_memory
keep_freed_memory()
def step():
    arrays = [np.ones(size, np.float32) for size in [3 << 18] * 30 + [5 << 20]]  # 90 MB in pieces, and 20 in one
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults_per_step(script: str = _FAULTS, **settings: str) -> int:
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}, **settings}
    command = [sys.executable, "-c", script]
    return int(subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_step_finds_the_memory_of_the_step_before() -> None:
    """A result of 4 MB has a thousand pages."""
    assert faults_per_step() < 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_step_that_makes_a_hundred_mb_of_arrays_finds_them_again() -> None:
    """What a step frees at the end of the heap would go back to the system, for the next one to take and clear."""
    assert faults_per_step(_MANY) < 1000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_settings_of_the_environment_come_first() -> None:
    assert faults_per_step(MALLOC_MMAP_THRESHOLD_="131072", MALLOC_TOP_PAD_="0") > 200
