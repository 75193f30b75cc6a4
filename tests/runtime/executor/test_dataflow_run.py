"""Runs that events drive: their outcome is told whenever the last segment ends, and their kernels warn nobody."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.runtime.executor import dataflow_run
from tfmini.runtime.executor.dataflow_run import DataflowRun


def test_a_segment_may_fail_while_somebody_asks_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    look: Any = DataflowRun.is_settled.fget  # type: ignore[attr-defined]
    threads: list[threading.Thread] = []

    def fails_after_the_look(run: DataflowRun) -> bool:
        found: bool = look(run)
        if not threads:
            threads.append(threading.Thread(target=run._leave, args=(0, dataflow_run.BROKEN)))
            threads[0].start()
            threads[0].join(0.2)  # it may wait for the lock
        return found

    monkeypatch.setattr(DataflowRun, "is_settled", property(fails_after_the_look))
    run = DataflowRun.__new__(DataflowRun)
    run.lock, run.asked = threading.Lock(), []
    run.unfinished, run.pending = {0}, [dataflow_run.RUNS]
    told = threading.Event()
    run.when_settled(told.set)
    assert told.wait(10.0) and not run.asked


def test_kernels_give_infinity_without_a_warning() -> None:
    queue, fed = tf.FIFOQueue(1, [tf.float32], shapes=[[]]), tf.placeholder(tf.float32, [])
    with tf.control_dependencies([queue.enqueue(1.0 / fed)]):
        result = tf.log(0.0 * queue.dequeue())
    before = np.geterr()
    with tf.Session() as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(session.run(result, {fed: 0.0}))
    assert np.geterr() == before
