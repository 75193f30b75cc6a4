"""Mode "counts": sessions add one to counters on every ps, each client to its own; every update is accounted for."""

from __future__ import annotations

import functools
from typing import Any

import tfmini as tf
from tests.virtual.plans import Plan
from tests.virtual.world import RETRIED, ScheduleError, World
from tfmini.runtime.process import current_process

_RETRY_S = 0.2


@functools.cache
def _graph(ps: int, names: tuple[str, ...]) -> tuple[tf.Graph, dict[str, list[tuple[Any, ...]]]]:
    """A graph with a counter per client and ps: its initializer, its increment, itself, and whether it is set."""
    made: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
    with tf.Graph().as_default() as graph:
        for index in range(ps):
            with tf.device(f"/job:ps/task:{index}"):
                for name in names:
                    v = tf.Variable(0.0, name=f"{name}_{index}")
                    made[name].append((v.initializer, v.assign_add(1.0), v, tf.is_variable_initialized(v)))
    return graph, made


class Account:
    """The knowledge of a client about one counter.

    Attributes:
      known: the updates that were applied for certain.
      open: the updates whose outcome is unknown.
      life: the life of its ps, counted from 1, in which it was initialized, or an earlier one.
      is_set: whether it was initialized for certain.
    """

    def __init__(self, life: int = 0) -> None:
        self.known = 0
        self.open = 0
        self.life = life
        self.is_set = False

    def begin(self) -> None:
        """An update begins; until its result is there, it may be applied or not, now or later."""
        self.open += 1

    def check(self, value: float, updates: int) -> None:
        """``value`` was read, after ``updates`` updates that are certain.

        Raises:
          ScheduleError: an update is missing, or was applied twice.
        """
        known = self.known
        if not known + updates <= value <= known + self.open:
            raise ScheduleError(f"{value:g}, but {known + updates} updates were acknowledged and {self.open} are open")
        self.open -= int(value) - known
        self.known = int(value)


class Counts:
    """A schedule of this mode."""

    def __init__(self, plan: Plan) -> None:
        self.world = World(plan, self.program)
        names = tuple(name for name in plan.hosts() if not name.startswith("ps"))
        self._graph, self._ops = _graph(plan.ps, names)
        self._accounts = {name: [Account() for _ in range(plan.ps)] for name in names}
        self._done = dict.fromkeys(names, 0)

    def run(self) -> None:
        """Runs it; raises ScheduleError."""
        self.world.run()

    def program(self, name: str, target: str) -> None:
        """Runs the steps of a client that are left, and then reads its counters."""
        while True:
            try:
                with tf.Session(target, graph=self._graph) as session:
                    self._initialize(name, session)
                    while self._done[name] < self.world.plan.steps:
                        self._step(name, session)
                        self.world.pause(name)
                    self._check_end(name, session)
                    return
            except RETRIED:
                current_process().sleep(_RETRY_S)

    def _initialize(self, name: str, session: tf.Session) -> None:
        """Gives the counters of new ps tasks their value. No old step can change them: it belonged to the old ps."""
        ops, accounts = self._ops[name], self._accounts[name]
        are_set = self.world.attempt(name, lambda: session.run([op[3] for op in ops]))
        lost = [index for index, is_set in enumerate(are_set) if not is_set]
        for index in lost:
            if accounts[index].is_set and accounts[index].life == self.world.life(f"ps{index}"):
                raise ScheduleError(f"{ops[index][2].name} has lost its value {accounts[index].known}")
            accounts[index] = Account(self.world.life(f"ps{index}"))
        if lost:
            self.world.attempt(name, lambda: session.run([ops[index][0] for index in lost]))
        for account in accounts:
            account.is_set = True

    def _step(self, name: str, session: tf.Session) -> None:
        for account in self._accounts[name]:
            account.begin()
        values = self.world.attempt(name, lambda: session.run([op[1] for op in self._ops[name]]))
        for account, value in zip(self._accounts[name], values):
            account.check(float(value), 1)
        self._done[name] += 1

    def _check_end(self, name: str, session: tf.Session) -> None:
        values = self.world.attempt(name, lambda: session.run([op[2] for op in self._ops[name]]))
        for account, value in zip(self._accounts[name], values):
            account.check(float(value), 0)
