"""A slice of the fuzzer of readers; `tests.fuzz.readers` reads as many inputs as wanted."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5])
def test_damaged_inputs_are_refused_with_clean_errors(seed: int) -> None:
    """In a process of its own, since its memory is limited."""
    command = [sys.executable, "-m", "tests.fuzz.readers", "--inputs", "2500", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len({line.split()[1] for line in done.stdout.splitlines() if line.startswith(" ")}) > 20  # formats
