"""The fitted costs: those with which the simulator predicts what clusters have measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tfmini as tf
from tests.show.simulation.profiles import plain
from tfmini.show.simulation.calibration import Trained, fitted, with_machine, with_slower_kernels
from tfmini.show.simulation.calibration_tasks import CORES, TRAINED, Workload


def test_clusters_are_predicted_as_the_machine_that_was_measured_has_them() -> None:
    known = plain()
    real = with_machine(with_slower_kernels(known, 1.3), overload=1.25, stall_s=100e-6, cores=CORES)
    clusters = []
    for name in ("short one", "short two", "short sync", "recurrent one", "recurrent four", "recurrent allreduce"):
        cluster = Trained.of(tf, TRAINED[name], 1.0)
        clusters.append(replace(cluster, seconds=cluster.predicted_s(real)))
    found = fitted(known, clusters)
    own = with_machine(found, cores=CORES)
    for cluster in clusters:
        assert cluster.predicted_s(own) == pytest.approx(cluster.seconds, rel=0.08)
    assert found.machine.kernels["matmul"](1e6) == pytest.approx(1.3 * known.machine.kernels["matmul"](1e6), rel=0.1)
    assert found.machine.cores == known.machine.cores


@pytest.mark.parametrize("workload", TRAINED.values(), ids=TRAINED)
def test_all_models_train_in_all_ways(workload: Workload) -> None:
    found = Trained.of(tf, workload, 1.0).found
    tasks = {summary.device.rpartition("/device")[0] for summary in found.devices}
    assert len([task for task in tasks if "job:ps" in task]) == workload.ps
    ops = {node.op for node in found.nodes.values()}
    assert any("ConditionalAccumulator" in op for op in ops) == (workload.mode == "sync")
    assert any(op.startswith("Collective") for op in ops) == (workload.mode == "allreduce")
