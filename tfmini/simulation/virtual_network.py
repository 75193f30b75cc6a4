"""Processes and their network in virtual time: what clusters of tests and the simulator have in common.

Each task is a `SimulatedHost`: a process (`runtime.process.Process`) and a reactor (`Clock`) with the network's clock.
No real time passes: `drive` and `VirtualNetwork.run` jump from event to event. One thread of all processes runs at any
time. A thread that waits makes the calls that are due, or hands over to the thread whose wait has ended.
"""

from __future__ import annotations

import collections
from _thread import get_ident
from collections.abc import Sequence
from typing import Any, Protocol

from tfmini.rpc.timers import Timer, TimerHeap
from tfmini.rpc.waiter import Waiter
from tfmini.simulation.simulated_process import Killed, SimulatedHost, Turn
from tfmini.simulation.simulated_transport import SimulatedConnection, SimulatedListener

_FOREVER = float("inf")


class LinkCut(Protocol):
    """What cuts a link: see `testing.simulated.Sever`."""

    @property
    def silent(self) -> bool: ...
    @property
    def until(self) -> float: ...


class VirtualNetwork:
    """The network, its clock and its hosts, where nothing fails.

    Args:
      seed: of the random numbers of processes.
      latency_s: smallest and largest delay of a message, in virtual seconds.

    Attributes:
      crashes: exceptions of calls that a reactor would have logged.
    """

    def __init__(self, seed: int = 0, latency_s: tuple[float, float] = (50e-6, 200e-6)) -> None:
        self.seed = seed
        self.latency_s = latency_s
        self._time = 0.0
        self.heap = TimerHeap()
        self._hosts: dict[str, SimulatedHost] = {}
        self._lives: collections.Counter[str] = collections.Counter()
        self.listeners: dict[str, SimulatedListener] = {}
        self.connections: dict[SimulatedConnection, None] = {}
        self.turn = self._main_turn = Turn()  # the thread that runs
        self.crashes: list[BaseException] = []

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._time

    def host(self, name: str) -> SimulatedHost:
        """Returns the host of a name; a new host if it was killed."""
        if name not in self._hosts or not self._hosts[name].alive:
            self._lives[name] += 1
            self._hosts[name] = self._new_host(name, self._lives[name])
        return self._hosts[name]

    def _new_host(self, name: str, life: int) -> SimulatedHost:
        return SimulatedHost(self, name, life)

    def run(self, until: float) -> None:
        """Makes all calls that are due until that time."""
        self.drive(Waiter(), until)

    def drive(self, waiter: Waiter, deadline: float | None = None, host: SimulatedHost | None = None) -> bool:
        """Makes calls in order of time until the waiter is done or the deadline passes.

        Args:
          host: the process that waits; None: the simulation itself.

        Raises:
          RuntimeError: no call is left, and the waiter is not done.
          Killed: the process that waits was killed.
        """
        mine, expired = self.turn, Waiter()
        for each in (waiter, expired):
            each.attach(get_ident(), _Waker(self, mine, host))
        timer = None
        if deadline is not None:
            call_later = self.call_later if host is None else host.call_later
            timer = call_later(deadline - self._time, expired.set)
        try:
            while not waiter.done and not expired.done:
                if host is not None and not host.alive:
                    raise Killed
                due = self.heap.pop_due(_FOREVER)
                if due is None:
                    raise RuntimeError(f"no event is left at {self._time:.3f} s, but the waiter is not done")
                self._make(due)
        finally:
            if timer is not None:
                timer.cancel()
        if host is not None and not host.alive:
            raise Killed
        return waiter.done

    def call_later(self, delay: float, call: Any, *args: Any) -> Timer:
        """Makes the call after ``delay`` virtual seconds, on no host."""
        return self.heap.add(self._time + max(0.0, delay), call, args)

    def hand_over(self, turn: Turn) -> None:
        """Lets another thread run; returns when a thread hands over to this one."""
        mine = self.turn
        if turn is not mine and not turn.is_over:
            self.turn = turn
            turn.lock.release()
            mine.lock.acquire()

    def leave(self) -> None:
        """Ends the turn of a thread that ends."""
        self.turn.is_over = True
        self.turn = self._main_turn
        self._main_turn.lock.release()

    # -- what may fail -------------------------------------------------------------------

    def stopped_until(self, name: str) -> float:
        """The time when the host continues, if it is stopped now; else the current time."""
        return self._time

    def wedged_until(self, name: str) -> float:
        """The time when the host handles messages again, if it does not now; else the current time."""
        return self._time

    def severed(self, one: str, other: str) -> LinkCut | None:
        """What cuts the link between two hosts now, or None."""
        return None

    def delay_of(self, source: str, target: str, parts: Sequence[Any]) -> float | None:
        """The delay of a message; None if it is lost."""
        return self.latency_s[0]

    def _make(self, timer: Timer) -> None:
        self._time = max(self._time, timer.when)
        timer.fire()


class _Waker:
    """Wakes a thread that waits: the ``reactor`` of its `Waiter`."""

    def __init__(self, network: VirtualNetwork, turn: Turn, host: SimulatedHost | None) -> None:
        self._call_later = network.call_later if host is None else host.call_later
        self._network, self._turn = network, turn

    def wake(self) -> None:
        self._call_later(0.0, self._network.hand_over, self._turn)
