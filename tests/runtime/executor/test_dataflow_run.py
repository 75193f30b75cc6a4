"""Who asks for the outcome of a run that has failed gets it, whenever the last segment ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tfmini.runtime.executor import dataflow_run
from tfmini.runtime.executor.dataflow_run import DataflowRun


def test_a_segment_may_fail_while_somebody_asks_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    look: Any = DataflowRun.is_settled.fget  # type: ignore[attr-defined]
    threads: list[threading.Thread] = []

    def fails_after_the_look(run: DataflowRun) -> bool:
        found: bool = look(run)
        if not threads:
            threads.append(threading.Thread(target=run._leave, args=(0, dataflow_run._BROKEN)))
            threads[0].start()
            threads[0].join(0.2)  # it may wait for the lock
        return found

    monkeypatch.setattr(DataflowRun, "is_settled", property(fails_after_the_look))
    run = DataflowRun.__new__(DataflowRun)
    run.lock, run.asked = threading.Lock(), []
    run.unfinished, run.pending = {0}, [dataflow_run._RUNS]
    told = threading.Event()
    run.when_settled(told.set)
    assert told.wait(10.0) and not run.asked
