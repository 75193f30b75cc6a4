"""Measures how much longer a step takes while another core computes: both share the memory and the last cache."""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tfmini.simulation.calibration_models import convolutions, dense
from tfmini.simulation.calibration_processes import Measured, answer, measured, tell

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_STEPS = 5  # of each half of a turn
_LONG = (convolutions(48, 26, 24, 3), dense(160, 640, 0), dense(24, 1400, 1))  # steps of 10 to 20 ms
_OTHER = """
import os, select, sys
from tfmini.runtime.blas_threads import limit_threads
from tfmini.simulation.calibration_beside import make_step
os.sched_setaffinity(0, {int(sys.argv[1])})
limit_threads(1)
step = make_step(int(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    print("begun", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        step()
    sys.stdin.readline()
    print("done", flush=True)
"""


def make_step(number: int) -> Callable[[], Any]:
    """A step of one of the models, in a session of its own."""
    with tf.Graph().as_default() as graph:
        train, feeds = _LONG[number](tf)
        session = tf.Session(graph=graph)
        session.run(tf.global_variables_initializer())
    for _ in range(5):
        session.run(train, feeds)
    return lambda: session.run(train, feeds)


class Beside:
    """Long steps that are measured in turns, alone and while another core computes as well.

    Where cores cannot be chosen, or there is only one, nothing is measured.

    Args:
      stack: ends the other processes.

    Raises:
      RuntimeError: another process did not start.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._found: list[float] = []
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        if len(cores) < 2:
            self._pairs: list[tuple[Callable[[], Any], Measured]] = []
            return
        self._core = cores[-2]
        self._pairs = [
            (make_step(number), stack.enter_context(_other(cores[-1], number))) for number in range(len(_LONG))
        ]

    def take_turn(self) -> None:
        """Makes each of the steps some times, alone and beside the other process."""
        for step, other in self._pairs:
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {self._core})  # of this thread, which also runs the step
            try:
                alone = _median_s(step)
                tell(other, "")
                answer(other)  # else it could read this line and the next one at once
                self._found.append(_median_s(step) / alone)
                tell(other, "")
                answer(other)
            finally:
                os.sched_setaffinity(0, before)

    def factor(self) -> float:
        """How many times longer a long step takes beside another one; 1 where it was not measured."""
        return max(1.0, statistics.median(self._found or [1.0]))


@contextmanager
def _other(core: int, number: int) -> Iterator[Measured]:
    """A process on a core, which makes steps from one line that it is told to the next."""
    with measured([sys.executable, "-c", _OTHER, str(core), str(number)]) as other:
        answer(other)  # that it is ready
        yield other


def _median_s(step: Callable[[], Any]) -> float:
    """Seconds of CPU, without the time in which the other process still ends its turn."""
    times = []
    for _ in range(_STEPS):
        begin = time.thread_time()
        step()
        times.append(time.thread_time() - begin)
    return statistics.median(times)
