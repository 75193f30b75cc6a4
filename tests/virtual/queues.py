"""Mode "queue": all clients put elements into a queue on a ps and take elements out; none is doubled or lost."""

from __future__ import annotations

import functools
from typing import Any

import tfmini as tf
from tests.virtual.plans import Plan
from tests.virtual.world import RETRIED, ScheduleError, World
from tfmini.runtime.process import current_process

_RETRY_S = 0.2
_LIMIT_S = 3.0
_BASE = 1000


@functools.cache
def _graph(ps: int) -> tuple[tf.Graph, Any, Any, Any]:
    with tf.Graph().as_default() as graph, tf.device(f"/job:ps/task:{ps - 1}"):
        queue = tf.FIFOQueue(100, tf.int64, shapes=[[]], shared_name="elements")
        fed = tf.placeholder(tf.int64, [])
        return graph, fed, queue.enqueue(fed), queue.dequeue()


class Queues:
    """A schedule of this mode.

    Attributes:
      put: the elements whose enqueue was acknowledged.
      tried: all elements.
      taken: element -> who has taken it.
      open: how many attempts to take an element failed and may have taken one.
    """

    def __init__(self, plan: Plan) -> None:
        self.world = World(plan, self.program)
        self._graph, self._fed, self._put, self._take = _graph(plan.ps)
        self._names = [name for name in plan.hosts() if not name.startswith("ps")]
        self._count = dict.fromkeys(self._names, 0)
        self._done = dict.fromkeys(self._names, 0)
        self._latest: dict[tuple[str, int], int] = {}  # the last acknowledged element of a producer, per consumer
        self.put: set[int] = set()
        self.tried: set[int] = set()
        self.taken: dict[int, str] = {}
        self.open = 0

    def run(self) -> None:
        """Runs it; raises ScheduleError."""
        self.world.run()
        missing = self.put - set(self.taken)
        if self.world.life(f"ps{self.world.plan.ps - 1}") == 1 and len(missing) > self.open:
            raise ScheduleError(f"{sorted(missing)} were lost; {self.open} attempts to take one failed")

    def program(self, name: str, target: str) -> None:
        """Puts and takes elements; in the end takes what is left."""
        while True:
            try:
                with tf.Session(target, graph=self._graph) as session:
                    while self._done[name] < self.world.plan.steps:
                        self._step(name, session)
                        self.world.pause(name)
                    while self._dequeue(name, session):
                        pass
                    return
            except RETRIED:
                current_process().sleep(_RETRY_S)

    def _step(self, name: str, session: tf.Session) -> None:
        self._count[name] += 1  # an element that failed may still come, so it is not tried again
        element = self._names.index(name) * _BASE + self._count[name]
        self.tried.add(element)
        self.world.attempt(name, lambda: session.run(self._put, {self._fed: element}))
        self.put.add(element)
        self._done[name] += 1
        self._dequeue(name, session)

    def _dequeue(self, name: str, session: tf.Session) -> bool:
        """Takes an element; False if none came in time."""
        self.open += 1
        options = tf.RunOptions(timeout_in_ms=round(1000 * _LIMIT_S))
        try:
            element = int(self.world.attempt(name, lambda: session.run(self._take, options=options), _LIMIT_S))
        except tf.errors.DeadlineExceededError:
            return False
        self.open -= 1
        if element not in self.tried or element in self.taken:
            who = self.taken.get(element, "nobody")
            raise ScheduleError(f"{name} took {element}, which {who} has taken before")
        self.taken[element] = name
        producer = element // _BASE
        if element in self.put:
            if element < self._latest.get((name, producer), 0):
                raise ScheduleError(f"{name} took {element} after {self._latest[name, producer]}")
            self._latest[name, producer] = element
        return True
