"""A ps on a CPU and workers on fake GPUs, as real processes, by the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfmini.graph.device_types import FAKE_ENV, DeviceWishes

pytest.importorskip("jax")
REPOSITORY = Path(__file__).parents[2]


def test_a_ps_has_no_gpu_unless_it_asks_for_one() -> None:
    assert dict(DeviceWishes().of_task("ps", 1).counts) == {"GPU": 0, "TPU": 0}
    assert dict(DeviceWishes((("GPU", 1),)).of_task("ps", 1).counts) == {"GPU": 1, "TPU": 0}
    assert DeviceWishes().of_task("worker", 1) == DeviceWishes()
    assert DeviceWishes().of_task("worker", 2).allow_growth


@pytest.mark.cluster
@pytest.mark.parametrize(
    "script, ps, says",
    [
        ("digits_async.py", 1, "/job:worker/replica:0/task:0/device:GPU:0 -> "),  # by the inspector, at its end
        ("digits_sync.py", 1, r"total +\d\d+ applied"),
        ("digits_allreduce.py", 0, r"test accuracy 9\d\.\d %; largest difference to one process \d\.\de-0[789]"),
    ],
)
def test_examples_train_on_fake_gpus(script: str, ps: int, says: str) -> None:
    """Their ops that name no type of device go to the worker's GPU; variables of a ps stay on its CPU."""
    pytest.importorskip("sklearn")
    env = {
        **os.environ, FAKE_ENV: "1", "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1"
    }  # fmt: skip
    options = ["--ps", str(ps), "--workers", "2", f"examples/{script}", "--steps=200"]
    command = [sys.executable, "-m", "tfmini", "launch", *options]
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(says, done.stdout), done.stdout
