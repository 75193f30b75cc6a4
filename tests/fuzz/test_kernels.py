"""A slice of the fuzzed kernels; `tests.fuzz.kernels` runs as many cases as wanted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fuzz.guarded_memory import SUPPORTED
from tests.fuzz.kernel_cases import rows
from tests.fuzz.kernels import describe, findings

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="guarded memory is for Linux on x86_64")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["", "Conv|Pool|Patches|Dilation|BatchNorm"], ids=["all", "windows"])
def test_kernels_touch_what_they_were_given_or_refuse_it(pattern: str) -> None:
    wrong = [f"{found.kind}: {found.text}\n{describe(found.seed, pattern)}" for found in findings(0, 300, pattern)]
    assert wrong == [], "\n\n".join(wrong) + "\nReplay one by python -m tests.fuzz.kernels --only SEED [--ops PATTERN]"


def test_a_pattern_without_samples_is_refused() -> None:
    with pytest.raises(SystemExit, match="No sample in .* matches --ops NoSuchOp"):
        rows("NoSuchOp")


_PROGRAM = """
import ctypes, sys
import numpy as np
from numpy.lib.stride_tricks import as_strided
from tests.fuzz.guarded_memory import guard

memory, way = guard(), sys.argv[1]
memory.at_end = way != "before"
array = np.arange(1000.0)
if way == "behind":
    as_strided(array, (1001,))[1000]
if way == "before":
    as_strided(array, (2,), (-8,))[1]
if way == "beside":
    ctypes.memset(array.ctypes.data - 8, 0, 8)
    del array
    memory.collect()
    assert memory.written_outside == [8000]
if way == "unset":
    assert np.isnan(np.empty(3)).all()
    memory.pattern = 0x41
    assert (np.empty(3) > 0).all()
import os
os._exit(0)
"""


@pytest.mark.parametrize("way, code", [("inside", 0), ("behind", -11), ("before", -11), ("beside", 0), ("unset", 0)])
def test_accesses_outside_an_array_are_seen(way: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, way], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
