"""Modes "async" and "sync": monitored training with checkpoints, through losses of any task.

The gradient of ``count`` says who computed it. That of ``decay`` is the value that it was computed from, and the
learning rate is a half. So after n updates from fresh gradients, each applied once, ``decay`` is exactly 2**-n, whoever
computed them.
"""

from __future__ import annotations

import math
import os
import tempfile
from typing import Any

import numpy as np

import tfmini as tf
from tests.virtual.plans import Plan
from tests.virtual.world import RETRIED, SETTLE_S, ScheduleError, World
from tfmini.runtime.process import current_process
from tfmini.testing import Kill

_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None
_EVERY = 2  # steps between checkpoints


class Training:
    """A schedule of these modes.

    Attributes:
      final: the global step, ``decay`` and ``count`` at the end; None if a lost ps took the model along.
    """

    def __init__(self, plan: Plan) -> None:
        self.world = World(plan, self.program, self._is_over)
        self._names = [name for name in plan.hosts() if name.startswith("w")]
        self._calls = dict.fromkeys(self._names, 0)
        self._returned = dict.fromkeys(self._names, 0)
        self._train_ops: dict[str, Any] = {}
        self._directory = ""
        self._ended: set[str] = set()
        self._has_chief_trained = False
        self._is_second_run = False
        self.final: tuple[int, float, np.ndarray] | None = None

    def run(self) -> None:
        """Runs it; raises ScheduleError."""
        with tempfile.TemporaryDirectory(dir=_FOLDER) as self._directory:
            try:
                self.world.run(self._read)
            finally:
                tf.summary.FileWriterCache.clear()
        plan, lost = self.world.plan, self._lost()
        if self.final is None:
            if not lost:
                raise ScheduleError("the model has no values, but no ps was lost")
            return
        step, decay, count = self.final
        if step < plan.steps:
            raise ScheduleError(f"training ended at step {step}, but should go on until {plan.steps}")
        if plan.mode == "sync":
            self._check_sync(step, decay, count, len(lost))
        elif not lost:
            self._check_async(step, count)

    def _lost(self) -> list[str]:
        """The ps tasks that were killed until now."""
        plan, now = self.world.plan, self.world.network.now()
        return [f.task for f in plan.faults if isinstance(f, Kill) and f.task.startswith("ps") and f.at <= now]

    def _is_over(self) -> bool:
        """A ps that is lost after the chief has ended takes the model along; the other workers wait for a new run."""
        chief = self.world.threads.get("w0")
        return chief is not None and not chief.is_alive() and not chief.was_killed and bool(self._lost())

    def _check_sync(self, step: int, decay: float, count: np.ndarray, losses: int) -> None:
        updates = -math.log2(decay) if decay > 0 else math.nan
        if updates != int(updates) or abs(updates - step) > losses:
            raise ScheduleError(f"after {step} steps the model is {decay!r}, which {updates} updates give")
        if abs(count.sum() - step * len(self._names)) > losses * len(self._names) + 1e-6:
            raise ScheduleError(f"after {step} steps the gradients of the workers count {count}")

    def _check_async(self, step: int, count: np.ndarray) -> None:
        """A call that has returned has made each of its updates once; of others nobody knows.

        A chief that was killed while it ended its run begins another one when it starts again. That restores the last
        checkpoint, without the updates that others have made since.
        """
        made = {**dict(zip(self._names, count)), "all": step}
        for name, applied in made.items():
            names = self._names if name == "all" else [name]
            calls, returned = sum(self._calls[n] for n in names), sum(self._returned[n] for n in names)
            if not (returned <= applied or self._is_second_run) or applied > calls:
                text = f"{returned} of {calls} calls of {name} returned, but {applied:g} updates were made"
                raise ScheduleError(text)

    # ---- the programs -----------------------------------------------------------------------

    def program(self, name: str, target: str) -> None:
        """Trains until the last step. It is run again if it fails after that, as a cluster engine would do."""
        self._is_second_run |= name == "w0" and name not in self._ended and self._has_chief_trained
        while name not in self._ended:  # a process that is killed afterwards comes back as a server only
            if self._train(name, target):
                self._ended.add(name)
            else:
                current_process().sleep(1.0)

    def _train(self, name: str, target: str) -> bool:
        """Trains until the last step; False if a task was lost at the end, or an outcome is unknown."""
        is_trained = False
        try:
            with tf.Graph().as_default(), self._session(name, target) as session:
                while not session.should_stop():
                    self._calls[name] += 1  # the session may repeat the step
                    session.run(self._train_ops[name])
                    self._returned[name] += 1
                    self.world.network.note("step", name)
                    self.world.pause(name)
                is_trained = True
                self._has_chief_trained |= name == "w0"
        except (*RETRIED, tf.errors.UnknownError) as error:
            # UnknownError: nobody knows which updates of a step were made, so the session does not repeat it.
            if not is_trained and isinstance(error, RETRIED):
                raise
            self.world.check_error(name, self.world.network.now(), error)
            return False
        return True

    def _session(self, name: str, target: str) -> Any:
        plan, rank = self.world.plan, int(name[1:])
        cluster = tf.train.ClusterSpec(self.world.cluster)
        setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{rank}")
        with tf.device(setter):
            self._train_ops[name], hooks = self._model(rank, is_chief=rank == 0)
        hooks += [tf.train.StopAtStepHook(last_step=plan.steps)]
        return tf.train.MonitoredTrainingSession(
            target, rank == 0, self._directory if rank == 0 else None, hooks=hooks, save_checkpoint_steps=_EVERY,
            save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
        )  # fmt: skip

    def _model(self, rank: int, is_chief: bool) -> tuple[Any, list[Any]]:
        workers = len(self._names)
        step = tf.train.get_or_create_global_step()
        decay = tf.get_variable("decay", initializer=np.float64(1.0))
        count = tf.get_variable("count", initializer=np.zeros(workers))
        who = np.eye(workers)[rank] * -2.0 * (workers if self.world.plan.mode == "sync" else 1)
        pairs = [(tf.identity(decay), decay), (tf.constant(who), count)]
        optimizer: Any = tf.train.GradientDescentOptimizer(0.5)
        hooks = []
        if self.world.plan.mode == "sync":
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, workers)
        train = optimizer.apply_gradients(pairs, global_step=step)
        if self.world.plan.mode == "sync":
            hooks.append(optimizer.make_session_run_hook(is_chief))
        return train, hooks

    def _read(self, name: str, target: str) -> None:
        """Reads the model when all workers have ended."""
        cluster = tf.train.ClusterSpec(self.world.cluster)
        with tf.Graph().as_default() as graph, tf.device(tf.train.replica_device_setter(cluster=cluster)):
            self._model(0, is_chief=True)
            model = [graph.get_tensor_by_name(name) for name in ("global_step:0", "decay:0", "count:0")]
            config = tf.ConfigProto(operation_timeout_in_ms=round(1000 * SETTLE_S))
            while self.final is None:
                try:
                    with tf.Session(target, config=config) as session:
                        step, decay, count = session.run(model)
                    self.final = int(step), float(decay), count
                except RETRIED:
                    current_process().sleep(1.0)
                except tf.errors.OpError:
                    return
