"""What a step costs more after another process has used its core: two processes take turns on one core."""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tfmini.simulation.calibration_models import dense

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_STEPS = 100
_OTHER = """
import os, sys
from tfmini.runtime.blas_threads import limit_threads
from tfmini.simulation.calibration_crowd import make_step
os.sched_setaffinity(0, {int(sys.argv[1])})
limit_threads(1)
step = make_step()
print("ready", flush=True)
for _ in sys.stdin:
    step()
    print("done", flush=True)
"""


def make_step() -> Callable[[], Any]:
    """A step of a model, in a session of its own."""
    with tf.Graph().as_default() as graph:
        train, feeds = dense(64, 200, 1)(tf)
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
    if not hasattr(os, "sched_setaffinity"):
        return 0.0
    before = os.sched_getaffinity(0)
    core = max(before)
    command = [sys.executable, "-c", _OTHER, str(core)]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        os.sched_setaffinity(0, {core})  # of this thread, which also runs the step
        if _line(other) != "ready":
            raise RuntimeError("the second process that is measured did not start.")
        step = make_step()

        def others_turn() -> None:
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()
            _line(other)

        return max(0.0, _median_s(step, others_turn) - _median_s(step, lambda: None))
    finally:
        os.sched_setaffinity(0, before)
        other.kill()
        other.communicate()


def _median_s(step: Callable[[], Any], between: Callable[[], None]) -> float:
    times = []
    for _ in range(_STEPS):
        between()
        begin = time.thread_time()  # without the time in which the other process still ends its turn
        step()
        times.append(time.thread_time() - begin)
    return statistics.median(times)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
