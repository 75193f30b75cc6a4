"""Saves tables that grow, and is killed before each file that appears or goes; then restores what is there.

``python -m tests.train.checkpointing.killed_saves FOLDER`` prints how many kills it has survived. Each life is a fork,
since imports take longer than all else.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tfmini as tf
from tfmini.checkpoint import files

CHANGES = ("rename", "remove")  # by which files appear and go; what else a save does changes nothing for readers


class Model:
    """A graph with a table in two parts, which forgets ids, and a session."""

    def __init__(self) -> None:
        option = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(2), evict_option=tf.GlobalStepEvict(3))
        self.step = tf.train.get_or_create_global_step()
        self.table = tf.get_embedding_variable("t", 3, partitioner=tf.fixed_size_partitioner(2), ev_option=option)
        self.ids = tf.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(self.table, self.ids)
        self.train = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows * rows), self.step)
        self.exports = [part.export() for part in self.table]
        self.saver = tf.train.Saver(incremental_save_restore=True, sharded=True, max_to_keep=3)
        self.session = tf.Session()

    def content(self) -> dict[str, Any]:
        found = [np.concatenate(arrays) for arrays in zip(*self.session.run(self.exports))]
        order = np.argsort(found[0])
        return {name: array[order] for name, array in zip(("keys", "values", "freqs", "versions"), found)}


def train(folder: Path, kill: int) -> None:
    """Trains and saves; dies before the change of number ``kill`` of the last save."""
    model, random = Model(), np.random.default_rng(0)
    model.session.run(tf.global_variables_initializer())
    for turn in range(3):
        for _ in range(2):
            model.session.run(model.train, {model.ids: random.integers(0, 30, 12)})
        model.session.run([part.evict() for part in model.table])  # as the save will do
        step = model.session.run(model.step)
        np.savez(folder / f"expected-{step}.npz", **model.content())
        if turn == 2:
            die_before(kill)
        save = model.saver.save if turn == 0 else model.saver.incremental_save
        save(model.session, str(folder / "model"), model.step)
        (folder / "completed").write_text(str(step))


def die_before(number: int) -> None:
    left = [number]

    def counted(change: Any) -> Any:
        def run(*args: Any) -> Any:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return change(*args)

        return run

    for name in CHANGES:
        setattr(files.DISK, name, counted(getattr(files.DISK, name)))


def check(folder: Path) -> None:
    """Restores the latest checkpoint and compares it with what the trainer had then."""
    model = Model()
    path = tf.train.latest_checkpoint(str(folder))
    model.saver.restore(model.session, path)
    step, completed = int(model.session.run(model.step)), int((folder / "completed").read_text())
    assert step >= completed, f"{path} is older than step {completed}"
    expected = np.load(folder / f"expected-{step}.npz")
    for name, array in model.content().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=f"{path} {name}")
    model.session.run(model.train, {model.ids: np.arange(5)})


def life(function: Any, *args: Any) -> int:
    """Runs a function in a process of its own; returns how that ended."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            function(*args)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path) -> None:
    for kill in range(1000):
        here = folder / str(kill)
        here.mkdir()
        ended = life(train, here, kill)
        assert ended in (0, -signal.SIGKILL), f"kill {kill}: {ended}"
        assert life(check, here) == 0, f"kill {kill}"
        if ended == 0:
            print(f"survived {kill} kills")
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
