"""A job whose tasks come and go: what its tasks run, and how tests read what they print.

Arguments of a task: what to do ("async", "sync", "count", "ranks", "shards"), a directory for checkpoints, and a file
that ends it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import tfmini as tf
from tests.hosts import task
from tests.tools.launched import LIMIT_S, REPOSITORY

SHARDS = 3000
SCRIPT = "from tests.tools import comers; comers.main(*sys.argv[1:])"


def train(server: Any, cluster: Any, index: int, directory: str, go: str) -> None:
    """Counts on the ps, asynchronously, until the file is there; the chief saves every 20 steps."""
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        count = tf.assign_add(step, 1)
    is_chief = index == 0
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, directory if is_chief else None, save_checkpoint_steps=20, save_checkpoint_secs=None,
        save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
    ) as session:  # fmt: skip
        while not Path(go).exists():
            print("step", session.run(count), flush=True)
            time.sleep(0.02)
    print("done", flush=True)


def count(server: Any, cluster: Any, index: int, go: str) -> None:
    """Counts on two ps, asynchronously, until the file is there; says how often, and the chief at the end what came."""
    is_chief = index == 0
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        counters = [tf.get_variable(f"counter{i}", [64 << i], tf.int64, tf.zeros_initializer()) for i in range(4)]
        add = [tf.assign_add(each, tf.ones_like(each)) for each in counters]
        ended = tf.get_variable("ended", [], tf.int64, tf.zeros_initializer())
        end = tf.assign_add(ended, 1)
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
    ) as session:  # fmt: skip
        done = 0
        while not Path(go).exists():
            session.run([each.op for each in add])
            done += 1
            if done % 50 == 0:
                print("step", done, flush=True)
        print("added", done, flush=True)
        session.run([end, step])
        while is_chief and session.run(ended) < len(cluster["worker"]):
            time.sleep(0.02)
        if is_chief:
            print("found", *sorted({int(n) for each in session.run(counters) for n in each}), flush=True)


def train_together(server: Any, cluster: Any, index: int, go: str) -> None:
    """Elastic synchronous training; the chief prints how many gradients the last whole update had."""
    is_chief = index == 0
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        weight = tf.Variable(0.0)
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.01), 2, elastic=True)
        train_op = optimizer.minimize(tf.square(weight - 1.0), global_step=step)
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, hooks=[optimizer.make_session_run_hook(is_chief, 0)], save_summaries_steps=None,
        save_summaries_secs=None, log_step_count_steps=None,
    ) as session:  # fmt: skip
        while not session.should_stop() and not (is_chief and Path(go).exists()):
            session.run(train_op)
            if is_chief:
                whole = optimizer.ledger(session).steps[-3:-1]
                print("step", session.run(step), *[sum(each.applied.values()) for each in whole[-1:]], flush=True)
    print("done", flush=True)


def train_on_shards(server: Any, index: int, go: str) -> None:
    """Counts on the ps how often each of `SHARDS` rows was seen; slowly, until the file is there."""
    with tf.ParameterStore(server, timeout_s=LIMIT_S) as store:
        store.declare("seen", [SHARDS], tf.int64)
        print("pid", os.getpid(), flush=True)
        for rows in store.shards("rows", SHARDS, num_slices=SHARDS, shuffle=False, lease_s=LIMIT_S):
            print("has", rows.start, flush=True)
            store.push({"seen": tf.IndexedSlices(np.ones(1, np.int64), [rows.start])})
            print("saw", rows.start, flush=True)
            if not Path(go).exists():
                time.sleep(0.1)  # so that the shards last until the test has seen enough
        store.barrier()  # of those who are there
        print("seen", *np.bincount(store.pull("seen"), minlength=3), flush=True)
    print("done", flush=True)


def main(what: str, directory: str, go: str) -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(config["cluster"], job_name=job, task_index=index)
    if job == "ps":
        print("ps", os.getpid(), config["cluster"]["ps"][index], flush=True)
        server.join()
    elif what == "sync":
        train_together(server, config["cluster"], index, go)
    elif what == "shards":
        train_on_shards(server, index, go)
    elif what == "count":
        count(server, config["cluster"], index, go)
    elif what == "ranks":
        task.ranks(server, index, go, "2")
    else:
        train(server, config["cluster"], index, directory, go)


class Output:
    """What a launcher prints. It is read as it comes: a launcher that waits for its reader takes no orders.

    Args:
      limit_s: of each wait.
    """

    def __init__(self, launcher: subprocess.Popen[str], limit_s: float = LIMIT_S) -> None:
        self._launcher, self._limit_s = launcher, limit_s
        self._lines: list[str] = []
        self._errors = ""
        self._next = 0
        self._ended = False
        self._more = threading.Condition()
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._launcher.stdout is not None
        for line in self._launcher.stdout:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def _read_errors(self) -> None:
        assert self._launcher.stderr is not None
        for line in self._launcher.stderr:
            self._errors += line

    def until(self, *words: str) -> list[str]:
        """The words of the next line that begins with these; "*" is any. A line begins with the name of its task."""
        until = time.monotonic() + self._limit_s
        while True:
            with self._more:
                left = until - time.monotonic()
                came = self._more.wait_for(lambda: self._ended or self._next < len(self._lines), left)
                assert came, self._said(words)
                assert self._next < len(self._lines), self._said(words)
                line = self._lines[self._next].split()
                self._next += 1
            if _fits(line, words):
                return line

    def _said(self, words: tuple[str, ...]) -> str:
        return f"no {words} came; {''.join(self._lines[-5:])}{self._errors}"

    def step(self, worker: int, after: int = 0) -> int:
        """The next step of a worker behind another one."""
        while (found := int(self.until(f"[worker/{worker}]", "step", "*")[2])) <= after:
            pass
        return found

    def end(self) -> tuple[str, str]:
        """All that it has printed, when it has ended in good order."""
        assert self._launcher.wait(self._limit_s) == 0, self._said(())
        for reader in self._readers:
            reader.join()
        return "".join(self._lines), self._errors


def _fits(line: list[str], words: tuple[str, ...]) -> bool:
    return len(line) >= len(words) and all(word in ("*", found) for word, found in zip(words, line))


def scale(
    workers: int, job: str = "", option: str = "--workers", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `tfmini scale`."""
    return subprocess.run(
        [sys.executable, "-m", "tfmini", "scale", option, str(workers), *([job] if job else [])],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
