"""Layers, losses, metrics and recurrent cells: names, values, gradients and averages against TensorFlow's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import layer_cases as cases
import numpy as np
import pytest

import tfmini as tf

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def expected(oracle: str) -> dict[str, Any]:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    env.pop("PYTHONPATH", None)
    script = Path(__file__).with_name("oracle_layers.py")
    done = subprocess.run([oracle, str(script)], env=env, capture_output=True, text=True, timeout=900)
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    assert lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("OUTCOME "))
    return found


@pytest.mark.parametrize(("group", "name"), [(g, n) for g, table in cases.GROUPS.items() for n in table])
def test_like_tensorflow(group: str, name: str, expected: dict[str, Any]) -> None:
    wanted = expected[group][name]
    found = cases.outcome(tf, cases.GROUPS[group][name])
    assert found["names"] == wanted["names"]
    assert len(found["values"]) == len(wanted["values"])
    for mine, theirs in zip(found["values"], wanted["values"]):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)
