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
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tfmini.simulation.calibration_models import dense
from tfmini.simulation.calibration_processes import Measured, answer, measured
from tfmini.simulation.profile import Link

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_TRIPS = 16
_MEDIUM, _LARGE = 256_000, 16_000_000  # bytes of tensors: both in shared memory, where there is any
_SECONDS = 0.25  # of each step, in each turn
_MODEL = dense(64, 200, 1)
_AFTER_WAIT = "model after a wait"
_GAP_S = 300e-6  # about what a worker waits for its variables
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
    wake_s: float


@dataclass(frozen=True)
class _Rates:
    """Of one step, in seconds: its time, and the CPU of this process and of the other."""

    wall: float
    here: float
    there: float

    def minus(self, other: _Rates) -> _Rates:
        return _Rates(self.wall - other.wall, self.here - other.here, self.there - other.there)


class Steps:
    """Steps that are measured in turns.

    Args:
      stream: whether messages go over tcp, else over the lane of one machine.
      stack: ends the processes.

    Raises:
      RuntimeError: the other process did not start.
    """

    def __init__(self, stream: bool, stack: ExitStack) -> None:
        target, process = stack.enter_context(_cluster(stream))
        self._pid = process.pid
        with tf.Graph().as_default():
            graph_steps = _graph()
            session = stack.enter_context(tf.train.MonitoredSession(tf.train.ChiefSessionCreator(master=target)))
        plain = session._tf_sess()
        self._steps = {name: partial(plain.run, op, feeds) for name, (op, feeds) in graph_steps.items()}
        self._steps["monitored"] = partial(session.run, graph_steps["one part"][0])
        self._found: dict[str, list[_Rates]] = {name: [] for name in (*self._steps, _AFTER_WAIT)}

    def take_turn(self) -> None:
        """Makes each of the steps for some time."""
        for name, step in self._steps.items():
            self._found[name].append(_rates(step, self._pid))
        self._found[_AFTER_WAIT].append(_rates(self._steps["model"], self._pid, _GAP_S))

    def costs(self) -> tuple[StepCosts, Link]:
        """The costs of steps, and the link between two processes, from the median of the turns."""
        return _costs({
            name: sorted(rates, key=lambda rates: rates.wall)[len(rates) // 2] for name, rates in self._found.items()
        })  # fmt: skip


def _costs(found: dict[str, _Rates]) -> tuple[StepCosts, Link]:
    trip = found["trips"].minus(found["one trip"])
    trips = _TRIPS - 1
    message = max(1e-6, (trip.here + trip.there) / 2 / trips)  # one send, one receive and one segment
    latency = max(0.0, trip.wall / trips / 2 - message)
    segment = 0.15 * message
    send, receive = _SEND_SHARE * (message - segment), (1 - _SEND_SHARE) * (message - segment)
    big = found["large"].minus(found["medium"])
    copy = max(0.0, (big.here + big.there) / 2 / (_LARGE - _MEDIUM))
    medium = found["medium"].minus(found["one trip"])
    large = max(0.0, (medium.here + medium.there) / 2 - copy * _MEDIUM)
    second = found["two parts"].minus(found["one part"])
    one = found["one trip"]
    costs = StepCosts(
        step_s=max(0.0, one.here - 2 * message) + max(0.0, found["monitored"].wall - found["one part"].wall),
        part_s=max(0.0, second.here - send - receive),
        start_s=max(0.0, one.there - 2 * message),
        segment_s=segment,
        wake_s=max(0.0, found[_AFTER_WAIT].wall - found["model"].wall),
    )
    return costs, Link("local", latency_s=latency, send_s=send, receive_s=receive, copy_s_per_byte=copy, large_s=large)


def _graph() -> dict[str, tuple[Any, dict[Any, Any]]]:
    """The measured steps and what they feed: parts that do nothing, round trips of a scalar and of large tensors, and a
    model.
    """
    with tf.device("/job:ps/task:0"):
        one_part = tf.no_op()
        scalar = tf.get_variable("scalar", initializer=1.0)
        medium, large = (tf.get_variable(f"v{size}", [size // 4]) for size in (_MEDIUM, _LARGE))
    with tf.device("/job:ps/task:1"):
        two_parts = tf.group(one_part, tf.no_op())
    steps = {"one part": one_part, "two parts": two_parts, "one trip": _trips(scalar, 1),
             "trips": _trips(scalar, _TRIPS), "medium": _trips(medium, 1), "large": _trips(large, 1)}  # fmt: skip
    found: dict[str, tuple[Any, dict[Any, Any]]] = {name: (op, {}) for name, op in steps.items()}
    with tf.device("/job:worker/task:0"):
        found["model"] = _MODEL(tf)
    return found


def _trips(value: Any, count: int) -> Any:
    """Sends a value of ps 0 to this process and back, as often."""
    for _ in range(count):
        with tf.device("/job:worker/task:0"):
            value = tf.slice(tf.reshape(value, [-1]), [0], [1])
        with tf.device("/job:ps/task:0"):
            value = tf.negative(value)
    return value.op


def _rates(step: Callable[[], Any], pid: int, gap_s: float = 0.0) -> _Rates:
    """Of steps one after the other, or with waits between them."""
    for _ in range(20):
        step()
    times = []
    here, there, begin = time.process_time(), _cpu_s(pid), time.perf_counter()
    while time.perf_counter() - begin < _SECONDS:
        if gap_s:
            time.sleep(gap_s)
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    count = len(times)
    return _Rates(statistics.median(times), (time.process_time() - here) / count, (_cpu_s(pid) - there) / count)


def _cpu_s(pid: int) -> float:
    """CPU time of a process: of its living threads to the nanosecond, else to the hundredth."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        return total * 1e-9
    except OSError:  # a kernel without statistics of its scheduler
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _cluster(stream: bool) -> Iterator[tuple[str, Measured]]:
    addresses = free_addresses(3)
    cluster = {"ps": addresses[:2], "worker": addresses[2:]}
    command = [sys.executable, "-c", _SERVE, json.dumps(cluster)]
    with ExitStack() as stack:
        with _lanes(not stream):  # a server decides when it is made
            process = stack.enter_context(measured(command))
            answer(process)  # that it is ready
            server = tf.train.Server(cluster, job_name="worker", task_index=0)
        stack.callback(server.stop)
        yield server.target, process


@contextmanager
def _lanes(are_used: bool) -> Iterator[None]:
    """Lets the servers that are made meanwhile use the lanes of one machine, or not."""
    before = os.environ.get(_LANE)
    if not are_used:
        os.environ[_LANE] = "off"
    try:
        yield
    finally:
        os.environ.pop(_LANE, None)
        if before is not None:
            os.environ[_LANE] = before


def free_addresses(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("localhost", 0))
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()
