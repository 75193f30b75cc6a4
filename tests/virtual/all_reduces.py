"""Mode "all-reduce": ranks without a ps add up what each gives; all get the sum of what all gave.

A rank gives the number of its attempt, shifted to digits of its own, so a sum tells which attempts met.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tfmini as tf
from tests.virtual.plans import Plan
from tests.virtual.world import ScheduleError, World
from tfmini.runtime.process import current_process
from tfmini.train.replicas.elastic import Ranks

_RETRY_S = 0.2
_BASE = 10_000
_SIZE = 5


@functools.cache
def _graph(size: int, rank: int) -> tuple[tf.Graph, Any, Any]:
    with tf.Graph().as_default() as graph:
        fed = tf.placeholder(tf.float64, [_SIZE])
        return graph, fed, Ranks(size, rank).all_reduce(fed, "sum")


class AllReduces:
    """A schedule of this mode.

    Attributes:
      met: (rank, attempt) -> the attempts of all ranks in the sum that it got.
      has_parted: whether ranks were told that they have finished different steps, which ends a run without a hook.
    """

    def __init__(self, plan: Plan) -> None:
        self.world = World(plan, self.program, self._is_over)
        self._size = plan.workers
        self._attempts = [0] * plan.workers
        self._done = [0] * plan.workers
        self.has_parted = False
        self.met: dict[tuple[int, int], tuple[int, ...]] = {}

    def run(self) -> None:
        """Runs it; raises ScheduleError."""
        self.world.run()

    def _is_over(self) -> bool:
        return self.has_parted or min(self._done) >= self.world.plan.steps

    def program(self, name: str, target: str) -> None:
        """Adds up until all ranks have done so as often as the plan says."""
        rank = int(name[1:])
        graph, fed, total = _graph(self._size, rank)
        while True:
            try:
                with tf.Session(target, graph=graph) as session:
                    while not self._is_over():
                        self._step(name, rank, session, fed, total)
                        self.world.pause(name)
                    return
            except tf.errors.OpError as error:
                self.has_parted |= "are not at the same step" in error.message
                if self.has_parted:
                    return
                current_process().sleep(_RETRY_S)

    def _step(self, name: str, rank: int, session: tf.Session, fed: Any, total: Any) -> None:
        self._attempts[rank] = attempt = self._attempts[rank] + 1
        value = np.full(_SIZE, float(attempt * _BASE**rank))
        found = self.world.attempt(name, lambda: session.run(total, {fed: value}))
        if len(set(found)) != 1:
            raise ScheduleError(f"{name} got different sums: {found}")
        met = tuple(int(found[0]) // _BASE**r % _BASE for r in range(self._size))
        self.met[rank, attempt] = met
        self._done[rank] += 1
        for other, theirs in enumerate(met):
            if not 0 < theirs <= self._attempts[other] or met[rank] != attempt:
                raise ScheduleError(f"{name} got the attempts {met} in its attempt {attempt}")
            if self.met.get((other, theirs), met) != met:
                raise ScheduleError(f"{name} got the attempts {met}, w{other} got {self.met[other, theirs]}")
