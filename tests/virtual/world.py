"""A cluster in virtual time that follows a plan, and the checks that all modes share."""

from __future__ import annotations

import collections
import random
import re
import traceback
from collections.abc import Callable
from typing import Any

import tfmini as tf
from tests.virtual.plans import Plan
from tfmini.memory import current_frames
from tfmini.runtime.process import current_process
from tfmini.show.simulation.simulated_process import SimulatedThread
from tfmini.testing import FaultPlan, Kill, Sever, SimulatedNetwork

PORT = 2222
# Seconds: a silent peer is lost after 4 s, a handshake or an attempt to connect may take 5 s more.
SETTLE_S = 12.0
RETRIED = (tf.errors.UnavailableError, tf.errors.AbortedError)
_LINES = 3  # of a traceback, in reports
_JOBS = {"ps": "ps", "worker": "w"}


class ScheduleError(AssertionError):
    """A schedule did not end as promised."""


class World:
    """The cluster of a plan.

    Args:
      program: what each worker and client runs, in a thread of its process: it gets the process's name and the
        target of its sessions. It is started again with its process.
      is_over: whether the schedule may end although programs still run.

    Attributes:
      has_met_fault: whether a fault came before all programs had ended.
    """

    has_met_fault = False

    def __init__(
        self, plan: Plan, program: Callable[[str, str], None], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self.plan = plan
        self.network = SimulatedNetwork(FaultPlan(plan.faults, plan.seed), plan.delay_s)
        self.cluster = {"worker": [f"w{i}:{PORT}" for i in range(plan.workers)]}
        if plan.ps:
            self.cluster["ps"] = [f"ps{i}:{PORT}" for i in range(plan.ps)]
        self.failures: list[str] = []
        self._program = program
        self._is_over = is_over
        self._starts: collections.Counter[str] = collections.Counter()
        self.threads: dict[str, SimulatedThread] = {}
        self._pauses = {name: random.Random(f"{plan.seed} {name}") for name in plan.hosts()}

    def run(self, at_end: Callable[[str, str], None] | None = None) -> None:
        """Runs the schedule.

        Args:
          at_end: what the first worker runs when all programs have ended.

        Raises:
          ScheduleError: saying what did not hold.
        """
        network, plan = self.network, self.plan
        for name in plan.hosts():
            self._start(name)
        restarts = [network.call_later(restart.at, self._start, restart.task) for restart in plan.restarts]
        # A training session makes up to a hundred calls, one after the other, before its first step.
        limit = plan.calm_at + SETTLE_S + 2.0 * plan.steps * (plan.pause_s + 1.0) + 300.0 * plan.delay_s[1]
        network.run(0.001)
        late = self._wait(self._late, limit)
        self.has_met_fault = any(fault.at < network.now() for fault in plan.faults)
        network.end_faults()
        for timer in restarts:
            timer.cancel()
        if at_end is not None and not late:
            self._serve("w0")
            reader = network.host("w0").spawn(at_end, "w0", f"grpc://localhost:{PORT}")
            late = self._wait(lambda: [reader] if reader.is_alive() else [], network.now() + 2 * SETTLE_S)
            self.threads["reader"] = reader
        self.failures += [f"{t.host.name} has not ended at {network.now():.1f} s:\n{_stack(t)}" for t in late]
        self._end()
        for name, thread in self.threads.items():
            if thread.error is not None:
                self.failures.append(f"{name} failed: {_text(thread.error)}")
        self.failures += [f"a handler failed: {_text(error)}" for error in network.crashes]
        if self.failures:
            raise ScheduleError("\n".join(self.failures))

    def _wait(self, late: Callable[[], list[SimulatedThread]], limit: float) -> list[SimulatedThread]:
        """Lets the cluster run until no program is late; returns those that are at the limit."""
        while late() and self.network.now() < limit:
            self.network.run(self.network.now() + 0.25)
        return late()

    def _late(self) -> list[SimulatedThread]:
        """The programs that have not come to their end; those that were killed are started again."""
        threads = self.threads.values()
        return [] if self._is_over() else [thread for thread in threads if thread.is_alive() or thread.was_killed]

    def _start(self, name: str) -> None:
        host = self.network.host(name)
        if name in self.threads and self.threads[name].is_alive():
            return  # it was killed twice, and started in between
        self.network.note("started", name)
        self._starts[name] += 1
        self._serve(name)
        if not name.startswith("ps"):
            index = int(name[-1])
            target = f"grpc://w{index % self.plan.workers}:{PORT}" if name[0] == "c" else f"grpc://localhost:{PORT}"
            self.threads[name] = host.spawn(self._program, name, target)

    def _serve(self, name: str) -> None:
        """Makes the server of a task, unless it has one."""
        host, job = self.network.host(name), "ps" if name.startswith("ps") else "worker"
        if not name.startswith("c") and not host.servers:
            host.run(lambda: tf.train.Server(self.cluster, job, int(name[-1])))

    def _end(self) -> None:
        for name in self.plan.hosts():
            self.network.kill(name)
        self.network.run(self.network.now() + 0.001)

    def life(self, name: str) -> int:
        """How often a process has been started."""
        return self._starts[name]

    # ---- for programs -----------------------------------------------------------------------

    def pause(self, name: str, shortest_s: float = 0.0) -> None:
        """Sleeps for a random time."""
        current_process().sleep(shortest_s + self._pauses[name].uniform(0.0, self.plan.pause_s))

    def attempt(self, name: str, call: Callable[[], Any], limit_s: float = 0.0) -> Any:
        """Makes a call of a session, and checks its duration and its error.

        Args:
          limit_s: the deadline of the call; 0: none.

        Raises:
          OpError: of the call.
        """
        network, began = self.network, self.network.now()
        try:
            found = call()
        except tf.errors.OpError as error:
            network.note(f"error {type(error).__name__}", name)
            self._check_end(name, began)
            if not limit_s or not isinstance(error, tf.errors.DeadlineExceededError):
                self.check_error(name, began, error)
            raise
        network.note("result", name)
        self._check_end(name, began)
        return found

    def _check_end(self, name: str, began: float) -> None:
        took = self.network.now() - max(began, self.plan.calm_at)
        if took > SETTLE_S:
            self.failures.append(f"{name}: a call took {took:.1f} s after the last fault had ended")

    def check_error(self, name: str, began: float, error: tf.errors.OpError) -> None:
        """Checks that an error of a call that began at that time names a process that had failed."""
        suspects = self.suspects(began, self.network.now())
        named = named_processes(error.message)
        if not suspects:
            self.failures.append(f"{name}: nothing had failed at {self.network.now():.2f} s, but: {_text(error)}")
        elif name not in suspects and not named & suspects:
            self.failures.append(
                f"{name} at {self.network.now():.2f} s: {sorted(suspects)} had failed, but the error names"
                f" {sorted(named) or 'nobody'}: {_text(error)}"
            )

    def suspects(self, began: float, ended: float) -> set[str]:
        """The processes that a fault concerned at any time from `SETTLE_S` before ``began`` until ``ended``."""
        found: set[str] = set()
        restarts = dict(self.plan.restarts)
        for fault in self.plan.faults:
            until = restarts.get(fault.task, 0.0) if isinstance(fault, Kill) else fault.until
            if fault.at <= ended and began <= until + SETTLE_S:
                found |= {*fault.link} if isinstance(fault, Sever) else {fault.task}
        return found


def named_processes(text: str) -> set[str]:
    """The processes that a text names by task or by address."""
    tasks = {f"{_JOBS[job]}{index}" for job, index in re.findall(r"/job:(ps|worker)/replica:0/task:(\d+)", text)}
    return tasks | set(re.findall(rf"\b((?:ps|w)\d+):{PORT}", text))


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)[-_LINES:]).strip()


def _stack(thread: SimulatedThread) -> str:
    frame = current_frames().get(thread.ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-14:])
