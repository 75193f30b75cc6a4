"""Soak: a worker trains on a ps for many steps beside idle clients and clients that are killed.

``python -m tests.soak.soak --steps 1000000 --clients 50`` runs it, prints a table and writes a plot (SVG) of the
memory, threads and descriptors of both tasks. It fails where one of them has grown after the first tenth of the
steps by more than `ALLOWED`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from tfmini.launch.supervision import TaskId
from tfmini.testing import ProcessCluster

SAMPLES = 100
# Memory in MB; the medians of the second and the last tenth of the samples are compared.
ALLOWED = {"memory": 2.0, "threads": 1.0, "descriptors": 4.0}
_SILENCE_S = 120.0  # without progress
_TASK = """
import json, sys
import numpy as np
import tfmini as tf
cluster, job, index, steps, every = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:])
server = tf.train.Server(cluster, job_name=job, task_index=index)
print("ready", flush=True)
if job == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=cluster)):
    x = tf.placeholder(tf.float32, [None, 20], name="x")
    w = tf.get_variable("w", [20, 10])
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    train = tf.train.AdamOptimizer(1e-3).minimize(loss, global_step=step)
with tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    batch = np.ones((8, 20), np.float32)
    for done in range(1, steps + 1):
        session.run([train, loss], {x: batch})
        if done % every == 0:
            print("step", done, flush=True)
    assert session.run(step) == steps, session.run(step)
    print("end", flush=True)
server.join()
"""
_CLIENT = """
import sys
import tfmini as tf
target, kind = sys.argv[1:]
with tf.device("/job:ps/task:0"):
    v = tf.Variable(tf.zeros([1000]), collections=[], name="client")
    again = tf.assign_add(v, tf.ones([1000]))
with tf.Session(target) as session:
    session.run(v.initializer)
    session.run(again)
    print("ready", flush=True)
    while kind == "killed":
        session.run(again)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Sample:
    """Both tasks after some steps; memory in MB."""

    step: int
    job: str
    memory: float
    threads: float
    descriptors: float


def sample(step: int, job: str, pid: int) -> Sample:
    """What the operating system says about a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    memory = int(status["VmRSS"].split()[0]) / 1024
    return Sample(step, job, memory, int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd")))


class Clients:
    """Clients of a server: some idle ones, and one after another that is killed while it runs steps."""

    def __init__(self, target: str, idle: int) -> None:
        self._target = target
        self._idle = [self._start("idle") for _ in range(idle)]
        self._over = threading.Event()
        self._churn = threading.Thread(target=self._kill_one_after_another)
        self.killed = 0

    def __enter__(self) -> Clients:
        for client in self._idle:
            _expect(client.stdout, "ready")
        self._churn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._churn.ident is not None:
            self._churn.join()
        for client in self._idle:
            _kill(client)

    def _start(self, kind: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _CLIENT, self._target, kind]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _kill_one_after_another(self) -> None:
        while not self._over.is_set():
            client = self._start("killed")
            _expect(client.stdout, "ready")
            _kill(client)
            self.killed += 1
            self._over.wait(1.0)  # most of the machine is the worker's


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _expect(stdout: TextIO | None, word: str) -> None:
    assert stdout is not None
    line = stdout.readline().strip()
    if line != word:
        raise RuntimeError(f'a process said "{line}" instead of "{word}"')


def soak(steps: int, idle_clients: int, report: Callable[[str], object] = print) -> list[Sample]:
    """Runs it; returns the samples of both tasks.

    Raises:
      RuntimeError: a task ended, or a worker made no progress.
    """
    every = max(1, steps // SAMPLES)
    found: list[Sample] = []
    with ProcessCluster(ps=1, workers=1, program=_TASK, arguments=(str(steps), str(every))) as cluster:
        cluster.wait_ready("worker", 0)
        worker = cluster.processes[TaskId("worker", 0)]
        silence = threading.Timer(_SILENCE_S, worker.kill)
        with Clients(cluster.target("worker", 0), idle_clients) as clients:
            begun = time.monotonic()
            assert worker.stdout is not None
            for line in iter(worker.stdout.readline, ""):
                silence.cancel()
                if line == "end\n":
                    break
                silence = threading.Timer(_SILENCE_S, worker.kill)
                silence.start()
                step = int(line.split()[1])
                found += [sample(step, task.job, process.pid) for task, process in cluster.processes.items()]
            else:
                raise RuntimeError(f"the worker ended, or was silent for {_SILENCE_S:g} s, after {len(found)} samples")
            seconds = time.monotonic() - begun
            report(f"{steps} steps in {seconds:.0f} s beside {idle_clients} idle clients; {clients.killed} were killed")
    return found


def growth(samples: Sequence[Sample], job: str, quantity: str) -> tuple[float, float]:
    """Medians of a quantity in the second and in the last tenth of a task's samples."""
    values = [getattr(item, quantity) for item in samples if item.job == job]
    tenth = max(1, len(values) // 10)
    return statistics.median(values[tenth : 2 * tenth]), statistics.median(values[-tenth:])


def verdict(samples: Sequence[Sample]) -> list[str]:
    """A line per task and quantity; those that have grown too much end with a mark."""
    lines = []
    for job in ("ps", "worker"):
        for quantity, allowed in ALLOWED.items():
            early, late = growth(samples, job, quantity)
            mark = "  GROWN" if late - early > allowed else ""
            lines.append(f"{job:7s}{quantity:12s}{early:9.1f} ->{late:9.1f}{mark}")
    return lines


def plot(samples: Sequence[Sample]) -> str:
    """An SVG: a panel per quantity, a line per task."""
    width, height, colors = 640, 150, {"ps": "#c0392b", "worker": "#2c3e88"}
    parts = []
    for row, quantity in enumerate(ALLOWED):
        top = 1.1 * max(getattr(item, quantity) for item in samples)
        base = (row + 1) * (height + 30)
        parts.append(f'<text x="5" y="{base - height - 5}">{quantity}, 0 to {top:.0f}</text>')
        parts.append(f'<path d="M5 {base} H{width + 5}" stroke="#999"/>')
        for job, color in colors.items():
            points = " ".join(
                f"{5 + width * item.step / samples[-1].step:.1f},{base - height * getattr(item, quantity) / top:.1f}"
                for item in samples
                if item.job == job
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
    legend = ", ".join(f'<tspan fill="{color}">{job}</tspan>' for job, color in colors.items())
    parts.append(f'<text x="{width - 300}" y="20">{legend}; {samples[-1].step} steps</text>')
    size = f'width="{width + 10}" height="{3 * (height + 30) + 10}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{"".join(parts)}</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--plot", default="soak.svg")
    args = parser.parse_args()
    samples = soak(args.steps, args.clients)
    Path(args.plot).write_text(plot(samples))
    lines = verdict(samples)
    print("\n".join([*lines, f"plot: {args.plot}"]))
    sys.exit(any(line.endswith("GROWN") for line in lines))


if __name__ == "__main__":
    main()
