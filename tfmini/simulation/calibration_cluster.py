"""Measures what steps and messages cost between processes of this machine: two idle ps tasks and this process.

The figures come from differences: a step with k round trips more, with a part more, with a megabyte more. Times of CPU
are those of the two processes; what a round trip takes beyond them is latency.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tfmini.simulation.profile import Link

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_TRIPS, _MEGABYTES = 16, 4
_SECONDS = 1.2  # of each measurement: a process's CPU time counts in hundredths
_SEND_SHARE = 0.4  # of a message's CPU time: what the sender has, by a profile of both sides
_LANE = "TFMINI_LANE"
_SERVE = """
import json, sys
import tfmini as tf
cluster = json.loads(sys.argv[1])
servers = [tf.train.Server(cluster, job_name="ps", task_index=i) for i in range(len(cluster["ps"]))]
print("ready", flush=True)
servers[0].join()
"""


@dataclass(frozen=True)
class StepCosts:
    """Seconds of CPU, as in a `Machine`."""

    step_s: float
    part_s: float
    start_s: float
    segment_s: float


@dataclass(frozen=True)
class _Rates:
    """Of one step, in seconds: its time, and the CPU of this process and of the other."""

    wall: float
    here: float
    there: float

    def minus(self, other: _Rates) -> _Rates:
        return _Rates(self.wall - other.wall, self.here - other.here, self.there - other.there)


def measure_steps(stream: bool) -> tuple[StepCosts, Link]:
    """Measures the costs of steps, and the link between two processes.

    Args:
      stream: whether messages go over tcp, else over the lane of one machine.

    Raises:
      RuntimeError: the other process did not start.
    """
    with _cluster(stream) as (target, process), tf.Graph().as_default() as graph:
        steps = _graph()
        with tf.Session(target, graph=graph) as session:
            session.run(tf.global_variables_initializer())
            found = {name: _rates(partial(session.run, op), process.pid) for name, op in steps.items()}
    return _costs(found)


def _costs(found: dict[str, _Rates]) -> tuple[StepCosts, Link]:
    trip = found["trips"].minus(found["one trip"])
    trips = _TRIPS - 1
    message = max(1e-6, (trip.here + trip.there) / 2 / trips)  # one send, one receive and one segment
    latency = max(0.0, trip.wall / trips / 2 - message)
    segment = 0.15 * message
    send, receive = _SEND_SHARE * (message - segment), (1 - _SEND_SHARE) * (message - segment)
    big = found["large"].minus(found["one trip"])
    copy = max(0.0, (big.here + big.there) / 2 / (_MEGABYTES * 1e6))
    second = found["two parts"].minus(found["one part"])
    one = found["one part"]
    part = max(0.0, second.here - send - receive)
    step = max(0.0, one.here - part - send - receive)
    start = max(0.0, one.there - receive - send - segment)
    return StepCosts(step, part, start, segment), Link("local", latency_s=latency, send_s=send, receive_s=receive,
                                                       copy_s_per_byte=copy)  # fmt: skip


def _graph() -> dict[str, Any]:
    """The measured steps: parts that do nothing, round trips of a scalar, and one of a large tensor."""
    with tf.device("/job:ps/task:0"):
        one_part = tf.no_op()
        scalar = tf.get_variable("scalar", initializer=1.0)
        large = tf.get_variable("large", [_MEGABYTES * 250_000])
    with tf.device("/job:ps/task:1"):
        two_parts = tf.group(one_part, tf.no_op())
    return {"one part": one_part, "two parts": two_parts, "one trip": _trips(scalar, 1),
            "trips": _trips(scalar, _TRIPS), "large": _trips(large, 1)}  # fmt: skip


def _trips(value: Any, count: int) -> Any:
    """Sends a value of ps 0 to this process and back, as often."""
    for _ in range(count):
        with tf.device("/job:worker/task:0"):
            value = tf.slice(tf.reshape(value, [-1]), [0], [1])
        with tf.device("/job:ps/task:0"):
            value = tf.negative(value)
    return value.op


def _rates(step: Callable[[], Any], pid: int) -> _Rates:
    for _ in range(20):
        step()
    times = []
    here, there, begin = time.process_time(), _cpu_s(pid), time.perf_counter()
    while time.perf_counter() - begin < _SECONDS:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    count = len(times)
    return _Rates(statistics.median(times), (time.process_time() - here) / count, (_cpu_s(pid) - there) / count)


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _cluster(stream: bool) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    addresses = _addresses(3)
    cluster = {"ps": addresses[:2], "worker": addresses[2:]}
    before = os.environ.get(_LANE)
    if stream:
        os.environ[_LANE] = "off"
    command = [sys.executable, "-c", _SERVE, json.dumps(cluster)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the processes that are measured did not start; does `tfmini run` work here?")
        server = tf.train.Server(cluster, job_name="worker", task_index=0)
        try:
            yield server.target, process
        finally:
            server.stop()
    finally:
        process.kill()
        process.communicate()
        os.environ.pop(_LANE, None)
        if before is not None:
            os.environ[_LANE] = before


def _addresses(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("localhost", 0))
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()
