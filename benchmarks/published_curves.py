"""The simulator beside published measurements: TensorFlow's null step, and rings beside parameter servers.

    python benchmarks/published_curves.py [--charts docs/images]

The machines are profiles in benchmarks/published_profiles; docs/lab-book/published-curves.md names all sources and
discusses the differences. Each run prints the same figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from published_charts import line_chart
from published_layers import NETWORKS, Layer

import tfmini as tf
from tfmini.show.simulation.prediction import Prediction, Topology
from tfmini.show.simulation.predictor import StepModel, tasks_of
from tfmini.show.simulation.profile import Profile, read_profile

WORKER = "/job:worker/task:0"
_PROFILES = Path(__file__).parent / "published_profiles"
_WIDTH, _ROWS, _PS = 64, 32, 16

# ---------------------------------------------------------------------------------------------
# The null step: figure 6 of the OSDI '16 paper
# ---------------------------------------------------------------------------------------------

WORKERS = (1, 2, 5, 10, 25, 50, 100)
NULL_STEPS = {  # name -> bytes of the model, whether it is read by rows, and published milliseconds by workers
    "scalar": (0, False, {1: 1.8, 100: 8.8}),
    "dense 100 MB": (10**8, False, {1: 147.0, 100: 613.0}),
    "dense 1 GB": (10**9, False, {1: 1010.0, 100: 7160.0}),
    "sparse 1 GB": (10**9, True, {1: 5.0, 100: 20.0}),
    "sparse 16 GB": (16 * 10**9, True, {1: 5.0, 100: 20.0}),
}


def null_step(nbytes: int, sparse: bool, workers: int) -> Prediction:
    """Synchronous workers that fetch a model from 16 ps tasks and send an update of what they fetched.

    Args:
      nbytes: of the model; 0: a scalar on each ps.
      sparse: each worker fetches 32 rows of an embedding.
    """
    profile = read_profile(_PROFILES / "google_2016.toml")
    count = max(1, nbytes // 4 // _PS)
    setter = tf.train.replica_device_setter(ps_tasks=_PS, worker_device=WORKER)
    with tf.Graph().as_default() as graph, tf.device(setter):
        step = tf.train.get_or_create_global_step()
        shape = [count // _WIDTH, _WIDTH] if sparse else [count]
        variables = [tf.get_variable(f"v{i}", shape, use_resource=False) for i in range(_PS)]
        plain: Any = tf.train.GradientDescentOptimizer(0.1)
        optimizer = tf.train.SyncReplicasOptimizer(plain, workers, workers)
        if sparse:
            rows = tf.nn.embedding_lookup(variables, tf.constant(range(_ROWS)))
            train = optimizer.minimize(tf.reduce_sum(rows), global_step=step)
        else:
            train = optimizer.apply_gradients([(tf.negative(v), v) for v in variables], global_step=step)
        found = tf.inspect(graph, ps=_PS, workers=workers, fetches=train)
    cluster = Topology.on_own_machines(tasks_of(found), profile, "tcp")
    return StepModel(found, cluster, profile, workers, steps=4).predict()


# ---------------------------------------------------------------------------------------------
# Training of networks
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Synchronous training of a network.

    Attributes:
      network: a key of `NETWORKS`.
      compute_s: of a step of one worker that sends nothing.
      workers, ps: how many; 0 ps: a ring.
      link: of the profile.
      per_host: workers on a host. Host i also has ps task i.
    """

    network: str
    compute_s: float
    workers: int
    ps: int
    link: str
    per_host: int

    def efficiency(self) -> float:
        """The share of a step in which a worker computes."""
        return self.compute_s / self.predict().step_s

    def predict(self) -> Prediction:
        """Simulates the steps."""
        layers = NETWORKS[self.network]
        device = tf.train.replica_device_setter(ps_tasks=self.ps, worker_device=WORKER) if self.ps else WORKER
        with tf.Graph().as_default() as graph, tf.device(device):
            train = self._train_op(layers)
            found = tf.inspect(graph, ps=self.ps, workers=self.workers, fetches=train)
        profile = self._timed(read_profile(_PROFILES / "uber_2017.toml"), layers)
        hosts = {task: self._host(task) for task in tasks_of(found)}
        machines = dict.fromkeys(hosts.values(), profile.machine)
        cluster = Topology(hosts, machines, profile.local, profile.link(self.link))
        return StepModel(found, cluster, profile, self.workers, steps=3).predict()

    def _host(self, task: str) -> str:
        number = int(task.rsplit(":", 1)[1])
        return f"host{number // self.per_host if '/job:worker' in task else number}"

    def _train_op(self, layers: list[Layer]) -> Any:
        """A graph with one op per layer and direction. Gradients exist as soon as their layer's op has run."""
        variables, pairs = [], []
        activation = tf.constant(0.0)
        for i, layer in enumerate(layers):
            variables.append(tf.get_variable(f"v{i}", [layer.parameters], use_resource=False))
            activation = tf.add(activation, tf.reduce_sum(variables[i], name=f"uses{i}"), name=f"forward{i}")
        loss = activation
        for i in reversed(range(len(layers))):
            activation = tf.negative(activation, name=f"backward{i}")
            pairs.append((tf.fill([layers[i].parameters], activation, name=f"gradient{i}"), variables[i]))
        optimizer: Any = tf.train.GradientDescentOptimizer(0.1)
        optimizer.compute_gradients = lambda *args, **kwargs: pairs
        if self.workers > 1:
            if self.ps:
                optimizer = tf.train.SyncReplicasOptimizer(optimizer, self.workers, self.workers)
            else:  # Horovod fuses 64 MB
                optimizer = tf.train.AllReduceOptimizer(optimizer, self.workers, 0, bucket_bytes=64 << 20)
        return optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())

    def _timed(self, profile: Profile, layers: list[Layer]) -> Profile:
        """The profile with the times of the ops: back-propagation takes two thirds."""
        work = sum(layer.work for layer in layers)
        ops = {}
        for i, layer in enumerate(layers):
            seconds = self.compute_s * layer.work / work
            ops |= {f"forward{i}": seconds / 3, f"backward{i}": seconds * 2 / 3, f"uses{i}": 0.0, f"gradient{i}": 0.0}
        return replace(profile, ops=ops)


GPUS = (1, 4, 8, 16, 32, 64, 128)
_RATES = {"Inception V3": 142.0, "ResNet-101": 129.0, "VGG-16": 154.0}  # images per second of one P100, batch 64
HOROVOD = (  # network, GPUs, link, published efficiency
    ("Inception V3", 128, "ring", 0.88),
    ("ResNet-101", 128, "ring", 0.88),
    ("Inception V3", 512, "rdma", 0.90),
    ("ResNet-101", 512, "rdma", 0.90),
    ("VGG-16", 512, "rdma", 0.68),
    ("Inception V3", 128, "ps", 0.5),
    ("ResNet-101", 128, "ps", 0.5),
)
AMAZON = (  # network, batch of a GPU, images per second of 8 K80 and of 64 K80, ps tasks on the 8 instances
    ("Inception V3", 64, 229.0, 1783.0, 6),
    ("ResNet-50", 64, 378.0, 2744.0, 8),
    ("ResNet-152", 32, 146.0, 981.0, 4),
)


def horovod_job(network: str, gpus: int, way: str) -> Job:
    """Training on servers with four P100 and 25 Gbit/s.

    Args:
      way: a ring over the link ``ring`` (TCP) or ``rdma``; ``ps``: parameter servers, one on each server.
    """
    ps = -(-gpus // 4) if way == "ps" else 0
    return Job(network, 64 / _RATES[network], gpus, ps, "tcp" if ps else way, 4)


def amazon_rate(network: str, batch: int, alone: float, ps: int) -> float:
    """Images per second of 8 instances with 8 GPUs each. An instance sends one gradient, the sum over its GPUs."""
    job = Job(network, 8 * batch / alone, 8, ps, "10Gbit", 1)
    return 8 * alone * job.efficiency()


# ---------------------------------------------------------------------------------------------
# Tables
# ---------------------------------------------------------------------------------------------


def _null_step_tables(charts: Path | None) -> Iterator[str]:
    times = {
        name: {n: 1e3 * null_step(nbytes, sparse, n).step_s for n in WORKERS}
        for name, (nbytes, sparse, _) in NULL_STEPS.items()
    }
    yield "| null step, ms | " + " | ".join(f"{n}" for n in WORKERS) + " |\n|---|" + "---:|" * len(WORKERS)
    for name, row in times.items():
        yield f"| {name} | " + " | ".join(f"{ms:,.1f}" for ms in row.values()) + " |"
    yield "\n| null step | workers | published ms | simulated ms | ratio |\n|---|---:|---:|---:|---:|"
    for name, (_, _, published) in NULL_STEPS.items():
        for n, wanted in published.items():
            yield f"| {name} | {n} | {wanted:,g} | {times[name][n]:,.1f} | {times[name][n] / wanted:.2f} |"
    if charts is not None:
        lines = {name: list(row.items()) for name, row in times.items() if name != "sparse 16 GB"}
        marks = {name: list(published.items()) for name, (_, _, published) in NULL_STEPS.items()}
        text = line_chart("Null step, ms: simulated lines, published circles", "workers", lines, marks, log_y=True)
        (charts / "published-null-step.svg").write_text(text)


def _training_tables(charts: Path | None) -> Iterator[str]:
    yield "\n| network | GPUs | way | published efficiency | simulated | ratio |\n|---|---:|---|---:|---:|---:|"
    for network, gpus, way, wanted in HOROVOD:
        found = horovod_job(network, gpus, way).efficiency()
        yield f"| {network} | {gpus} | {way} | {wanted:.0%} | {found:.0%} | {found / wanted:.2f} |"
    curves = {
        f"{network}, {way}": [(float(n), horovod_job(network, n, way).efficiency()) for n in GPUS]
        for network in _RATES
        for way in ("ring", "ps")
    }
    yield "\n| efficiency | " + " | ".join(f"{n}" for n in GPUS) + " |\n|---|" + "---:|" * len(GPUS)
    for name, points in curves.items():
        yield f"| {name} | " + " | ".join(f"{share:.0%}" for _, share in points) + " |"
    if charts is not None:
        marks = {f"{network}, {way}": [(float(n), share)] for network, n, way, share in HOROVOD if n <= GPUS[-1]}
        text = line_chart("Efficiency: simulated lines, published circles", "GPUs", curves, marks, log_y=False)
        (charts / "published-all-reduce.svg").write_text(text)
    yield "\n| network, 64 K80 | published images/s | simulated | ratio |\n|---|---:|---:|---:|"
    for network, batch, alone, wanted, ps in AMAZON:
        rate = amazon_rate(network, batch, alone, ps)
        yield f"| {network} | {wanted:,.0f} | {rate:,.0f} | {rate / wanted:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--charts", type=Path, help="a folder for two SVG files")
    charts = parser.parse_args().charts
    for tables in (_null_step_tables, _training_tables):
        for line in tables(charts):
            print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
