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


_PINNED = """
import numpy as np
from tfmini.runtime.native_libraries import give_back_freed_memory, keep_freed_memory
def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 >> 10
keep_freed_memory()
before = resident_mb()
arrays = [np.ones(20 << 20, np.uint8) for _ in range(20)]
above = np.ones(200_000, np.uint8)
del arrays
give_back_freed_memory()
print(resident_mb() - before)
"""


def printed_by(script: str = _FAULTS, **settings: str) -> int:
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}, **settings}
    command = [sys.executable, "-c", script]
    return int(subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_step_finds_the_memory_of_the_step_before() -> None:
    """A result of 4 MB has a thousand pages."""
    assert printed_by() < 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_step_that_makes_a_hundred_mb_of_arrays_finds_them_again() -> None:
    """What a step frees at the end of the heap would go back to the system, for the next one to take and clear."""
    assert printed_by(_MANY) < 1000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_memory_below_an_array_that_lives_goes_back_when_no_step_wants_it() -> None:
    assert printed_by(_PINNED) < 50  # MB, of 400


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_settings_of_the_environment_come_first() -> None:
    assert printed_by(MALLOC_MMAP_THRESHOLD_="131072", MALLOC_TOP_PAD_="0") > 200
