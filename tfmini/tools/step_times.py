"""How long the training steps of an unmodified script take; each task writes it at its end, for `launch --predict`.

The launcher sets an environment variable to a folder; `tfmini run`, in the process of the script, times the runs of all
sessions.
"""

from __future__ import annotations

import atexit
import json
import os
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfmini.inspection.train_op import trains
from tfmini.tools.tracing import Signature, watch_sessions

STEP_TIMES_ENV = "TFMINI_STEP_TIMES"
_WARM_UP = 10  # the first runs of a step compile it
_KEPT = 4096  # the latest runs


@dataclass(frozen=True)
class StepTimes:
    """The training steps of a task.

    Attributes:
      step_s: the median, without the first runs.
      steps: how many.
      batch: the largest first dimension of a fed value; None: nothing was fed.
    """

    step_s: float
    steps: int
    batch: int | None


@dataclass
class _Runs:
    graph: Any
    batch: int | None = None
    count: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))


class StepTimer:
    """Times the runs of all sessions of this process."""

    def __init__(self) -> None:
        self._runs: dict[Signature, _Runs] = {}

    def install(self) -> Callable[[], None]:
        """Begins; returns a function that ends it."""

        def execute(original: Any, session: Any, call: Any, values: list[Any], *more: Any) -> list[Any]:
            begin = time.perf_counter()
            results: list[Any] = original(session, call, values, *more)
            self._note(call.signature, session.graph, values, time.perf_counter() - begin)
            return results

        return watch_sessions(execute)

    def _note(self, signature: Signature, graph: Any, values: list[Any], seconds: float) -> None:
        runs = self._runs.get(signature)
        if runs is None:
            sizes = [value.shape[0] for value in values if getattr(value, "ndim", 0)]
            runs = self._runs[signature] = _Runs(graph, max(sizes, default=None))
        runs.count += 1
        if runs.count > _WARM_UP:
            runs.seconds.append(seconds)

    def times(self) -> StepTimes | None:
        """Of the training step that ran most often; None if none ran often enough."""
        found = [
            runs for (_, fetched, targets), runs in list(self._runs.items())
            if runs.seconds and trains(runs.graph, [*fetched, *targets])
        ]  # fmt: skip
        if not found:
            return None
        runs = max(found, key=lambda runs: runs.count)
        return StepTimes(statistics.median(runs.seconds), len(runs.seconds), runs.batch)


def install_if_requested() -> None:
    """Times this process's steps if `STEP_TIMES_ENV` is set, and writes the result at its end."""
    folder = os.environ.get(STEP_TIMES_ENV)
    if not folder:
        return
    timer = StepTimer()
    timer.install()

    def write() -> None:
        found = timer.times()
        if found is not None and os.path.isdir(folder):
            text = json.dumps({"step_s": found.step_s, "steps": found.steps, "batch": found.batch})
            Path(folder, f"{os.getpid()}-{time.time_ns()}.json").write_text(text)

    atexit.register(write)


def read_times(folder: str) -> StepTimes | None:
    """The steps of all tasks together: the median of their medians; None if no task has trained."""
    found: dict[str, list[Any]] = defaultdict(list)
    for path in Path(folder).glob("*.json"):
        for key, value in json.loads(path.read_text()).items():
            found[key].append(value)
    if not found:
        return None
    batches = [batch for batch in found["batch"] if batch is not None]
    return StepTimes(statistics.median(found["step_s"]), sum(found["steps"]), max(batches, default=None))
