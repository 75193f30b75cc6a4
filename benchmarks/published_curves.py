"""The simulator beside published curves: TensorFlow's null step on 16 ps tasks, and rings beside parameter servers.

    python benchmarks/published_curves.py

The machines are described below, since neither paper describes its machines completely; see docs/simulation.md.
"""

from __future__ import annotations

import sys
import tomllib
from typing import Any

import tfmini as tf
from tfmini.simulation.links import Cluster
from tfmini.simulation.prediction import Prediction
from tfmini.simulation.predictor import StepModel, tasks_of
from tfmini.simulation.profile import parse_profile

PROFILE = parse_profile(tomllib.loads("""
[machines.server]
cores = 8
step_us = 300
part_us = 20
start_us = 50
segment_us = 20

[machines.server.kernels]
elementwise = [[100, 2], [1000000, 100]]
update = [[100, 2], [1000000, 100]]
rows = [[100, 2], [1000000, 100]]

[links.local]
send_us = 20
receive_us = 20
us_per_mb = 100

[links.tcp]
gbit_per_s = 16
latency_us = 50
send_us = 20
receive_us = 20
us_per_mb = 100
"""))
WORKERS = (1, 2, 5, 10, 25, 50, 100)
_PS, _WIDTH = 16, 64
_MODEL_BYTES, _COMPUTE_S = 100_000_000, 0.3  # about Inception's: 25 million parameters; a step of 64 images on one GPU


def null_step(nbytes: int, workers: int, sparse: bool = False) -> Prediction:
    """Workers that fetch a model of ``nbytes`` from 16 ps tasks (0: a scalar from each; sparse: two rows), and send
    an update of the same size.
    """
    count = max(1, nbytes // 4 // _PS)
    setter = tf.train.replica_device_setter(ps_tasks=_PS, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, tf.device(setter):
        updates = [_update(i, count, sparse) for i in range(_PS)]
        train = tf.group(*updates)
        found = tf.inspect(graph, ps=_PS, workers=workers, fetches=train)
    return _predicted(found, workers, "16Gbit")


def _update(index: int, count: int, sparse: bool) -> Any:
    shape = [count // _WIDTH, _WIDTH] if sparse else [count]
    variable = tf.get_variable(f"v{index}", shape, use_resource=False)
    rows = tf.constant([1, 2])
    with tf.device(variable.device):
        value = tf.gather(variable, rows) if sparse else variable
    change = tf.negative(value)
    with tf.device(variable.device):
        return (tf.scatter_sub(variable, rows, change) if sparse else tf.assign_sub(variable, change)).op


def efficiency(workers: int, ring: bool) -> float:
    """The share of a worker's time in which it computes, with a model of 100 MB: on rings, or with a ps per worker."""
    ps = 0 if ring else workers
    device = "/job:worker/task:0"
    setter = device if ring else tf.train.replica_device_setter(ps_tasks=ps, worker_device=device)
    with tf.Graph().as_default() as graph, tf.device(setter):
        parts = 32
        variables = [tf.get_variable(f"v{i}", [_MODEL_BYTES // 4 // parts]) for i in range(parts)]
        loss = tf.add_n([tf.reduce_sum(tf.square(v)) for v in variables], name="loss")
        plain: Any = tf.train.GradientDescentOptimizer(0.1)
        made = tf.train.AllReduceOptimizer(plain, workers, 0) if ring else plain
        train = made.minimize(loss)
        found = tf.inspect(graph, ps=ps, workers=workers, fetches=train)
    return _COMPUTE_S / (_COMPUTE_S + _predicted(found, workers, "25Gbit").step_s)


def _predicted(found: Any, workers: int, link: str) -> Prediction:
    cluster = Cluster.on_own_machines(tasks_of(found), PROFILE, link)
    return StepModel(found, cluster, PROFILE, workers, steps=4).predict()


def main() -> None:
    print("| null step, ms | " + " | ".join(f"{n} w" for n in WORKERS) + " |\n|---|" + "---:|" * len(WORKERS))
    kinds = [("scalar", 0, False), ("dense 100 MB", 10**8, False), ("dense 1 GB", 10**9, False)]
    for name, nbytes, sparse in [*kinds, ("sparse 1 GB", 10**9, True)]:
        times = [f"{1e3 * null_step(nbytes, n, sparse).step_s:.1f}" for n in WORKERS]
        print(f"| {name} | " + " | ".join(times) + " |", flush=True)
    for ring in (True, False):
        shares = [f"{n}: {efficiency(n, ring):.0%}" for n in (2, 8, 32, 64)]
        print("ring" if ring else "ps as many as workers", *shares, sep=", ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
