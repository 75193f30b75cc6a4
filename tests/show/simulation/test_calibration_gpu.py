"""The measured costs of a GPU; here XLA computes its work on the CPU."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.graph.device_types import FAKE_ENV
from tfmini.show.simulation.calibration_gpu import measure_gpu
from tfmini.show.simulation.profile import CLASSES

pytest.importorskip("jax")


def test_each_class_of_ops_gets_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_ENV, "1")
    gpu = measure_gpu(tf, sizes=(1 << 8, 1 << 12))
    assert set(CLASSES) - set(gpu.kernels) == {"view", "state"}  # neither is work of a GPU
    assert {"MatMul", "Conv2D", "Mul", "Sum", "AssignSub", "GatherV2", "Transpose", "RandomUniform"} <= set(gpu.kernels)
    assert all(seconds > 0 for curve in gpu.kernels.values() for _, seconds in curve.points)
    assert gpu.copy_s >= 0 and gpu.copy_bytes_per_s > 0
