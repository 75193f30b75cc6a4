"""What other processes cost: one that has used the same core before, and one that computes on another core.

The first has used the caches of the core; with the second a model that does not fit into them shares the memory.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.simulation.calibration_models import convolutions, dense

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_TURNS, _STEPS, _LONG_STEPS = 8, 12, 5  # a machine's speed may change from second to second
_SMALL = dense(64, 200, 1)
_LONG = (convolutions(48, 26, 24, 3), dense(160, 640, 0), dense(24, 1400, 1))  # steps of 10 to 20 ms
_OTHER = """
import os, select, sys
from tfmini.runtime.blas_threads import limit_threads
from tfmini.simulation.calibration_crowd import make_step
os.sched_setaffinity(0, {int(sys.argv[1])})
limit_threads(1)
step = make_step(int(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    step()
    if line == "on\\n":
        print("begun", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            step()
        sys.stdin.readline()
    print("done", flush=True)
"""


def make_step(long: int = -1) -> Callable[[], Any]:
    """A step of the small model, or of one of the long ones, in a session of its own."""
    with tf.Graph().as_default() as graph:
        train, feeds = (_SMALL if long < 0 else _LONG[long])(tf)
        session = tf.Session(graph=graph)
        session.run(tf.global_variables_initializer())
    for _ in range(20):
        session.run(train, feeds)
    return lambda: session.run(train, feeds)


def crowded_wake_s() -> float:
    """Seconds that a step takes longer after another process's step on the same core; 0 where cores cannot be chosen.

    Raises:
      RuntimeError: the other process did not start.
    """
    cores = _cores()
    if not cores:
        return 0.0
    with _other(cores[-1], cores[-1]) as other:
        step = make_step()

        def others_turn() -> None:
            _tell(other, "once")
            _line(other)

        crowded, alone = [], []
        for _ in range(_TURNS):
            crowded += _seconds(step, _STEPS, others_turn)
            alone += _seconds(step, _STEPS)
        return max(0.0, statistics.median(crowded) - statistics.median(alone))


def beside() -> float:
    """How many times longer a long step takes while another core computes as well; 1 where cores cannot be chosen.

    Raises:
      RuntimeError: the other process did not start.
    """
    cores = _cores()
    if len(cores) < 2:
        return 1.0
    found = []
    for number in range(len(_LONG)):
        with _other(cores[-2], cores[-1], number) as other:
            step = make_step(number)
            for _ in range(_TURNS):
                alone = statistics.median(_seconds(step, _LONG_STEPS))
                _tell(other, "on")
                _line(other)  # else it could read this line and the next one at once
                found.append(statistics.median(_seconds(step, _LONG_STEPS)) / alone)
                _tell(other, "off")
                _line(other)
    return max(1.0, statistics.median(found))


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []


@contextmanager
def _other(own_core: int, core: int, long: int = -1) -> Iterator[subprocess.Popen[str]]:
    """A process on a core, which makes a step whenever it is told to; this thread has its own core meanwhile."""
    before = os.sched_getaffinity(0)
    command = [sys.executable, "-c", _OTHER, str(core), str(long)]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        os.sched_setaffinity(0, {own_core})  # of this thread, which also runs the step
        if _line(other) != "ready":
            raise RuntimeError("the second process that is measured did not start.")
        yield other
    finally:
        os.sched_setaffinity(0, before)
        other.kill()
        other.communicate()


def _tell(process: subprocess.Popen[str], what: str) -> None:
    assert process.stdin is not None
    process.stdin.write(what + "\n")
    process.stdin.flush()


def _seconds(step: Callable[[], Any], count: int, between: Callable[[], None] = lambda: None) -> list[float]:
    times = []
    for _ in range(count):
        between()
        begin = time.thread_time()  # without the time in which the other process still ends its turn
        step()
        times.append(time.thread_time() - begin)
    return times


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
