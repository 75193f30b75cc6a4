"""The processes of a simulation and their threads, of which one runs at any time."""

from __future__ import annotations

import itertools
import random
import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tfmini.cluster import HostPort, parse_address
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.timers import Timer
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.process import Process, set_current_process
from tfmini.simulation.simulated_transport import SimulatedTransport

if TYPE_CHECKING:
    from tfmini.simulation.virtual_network import VirtualNetwork


_EPOCH_S = 4e9  # the wall clock at the start of each simulation, after the times of all real files


class Killed(BaseException):
    """Ends a thread whose simulated process was killed."""


class Turn:
    """A thread's right to run. The thread waits for the lock when it is not its turn."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.lock.acquire()
        self.is_over = False


class SimulatedHost(Process):
    """One process of the simulation: a reactor whose calls stop when the host is killed or stopped.

    Attributes:
      threads: those that were started here.
    """

    is_real = False
    has_threads = False
    shares_memory = False

    def __init__(self, network: VirtualNetwork, name: str, life: int = 0) -> None:
        super().__init__()
        self.network = network
        self.name = name
        self.alive = True
        self.transport = SimulatedTransport(self)
        self.threads: list[SimulatedThread] = []
        self._random = random.Random(f"{network.seed} {name} {life}")
        self.randbits = self._random.getrandbits
        ids = itertools.count(self.randbits(55), self.randbits(55) | 1).__next__
        self.new_step_id = lambda: ids() & (1 << 56) - 1
        self.now = network.now

    # ---- the reactor ------------------------------------------------------------------------

    @property
    def reactor(self) -> SimulatedHost:
        return self

    def call_soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Makes the call at the current virtual time, after the calls that are already due."""
        self.call_later(0.0, call, *args)

    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> Timer:
        """Makes the call after ``delay`` virtual seconds, unless the host is killed before."""
        return self.network.heap.add(self.now() + max(0.0, delay), self._call, (call, args))

    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool:
        """Drives the whole network until the waiter is done; see `VirtualNetwork.drive`."""
        return waiter.done or self.network.drive(waiter, deadline, self)

    def wake(self) -> None:
        """Does nothing: whoever ends a wait wakes its thread."""

    def _call(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        resume = self.network.stopped_until(self.name)
        if resume == float("inf"):
            return
        if resume > self.now():
            self.network.heap.add(resume, self._call, (call, args))
            return
        before = set_current_process(self)
        try:
            call(*args)
        except Killed:
            if self.alive:  # it is the thread's own process that was killed
                raise
        except Exception as error:
            self.network.crashes.append(error)  # a reactor logs it and goes on
            raise
        finally:
            set_current_process(before)

    # ---- the process ------------------------------------------------------------------------

    def endpoint(self, task: str, incarnation: int, cluster: Mapping[str, str] | None = None) -> Endpoint:
        transports = {"tcp": self.transport, "sim": self.transport}
        return Endpoint(self, task, incarnation, cluster, transports=transports, randbits=self.randbits)

    @property
    def tasks_move(self) -> bool:
        return False

    def listen(self, endpoint: Endpoint, own: HostPort, others: Iterable[str]) -> HostPort:
        return parse_address(endpoint.listen(str(own)).removeprefix("tcp://"))

    def wall_time(self) -> float:
        return _EPOCH_S + self.now()

    def sleep(self, seconds: float) -> None:
        self.drive(Waiter(), self.now() + seconds)

    def event(self) -> Any:
        return SimulatedEvent(self)

    def thread(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), name: str | None = None, daemon: bool = False
    ) -> SimulatedThread:
        return SimulatedThread(self, target, args, name)

    def spawn(self, program: Callable[..., Any], *args: Any) -> SimulatedThread:
        """Starts a program in a thread of this process."""
        thread = self.thread(program, args, self.name)
        thread.start()
        return thread

    def pool(self, size: int, name: str) -> Any:
        return _Pool(self)

    def spare_threads(self, name: str) -> Any:
        return self.pool(0, name)

    def at_exit(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Never makes the call: a simulated process ends only when it is killed."""
        return lambda: None

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function as a part of this process, in the calling thread."""
        before = set_current_process(self)
        try:
            return function(*args)
        finally:
            set_current_process(before)


class _Pool:
    """The executor of a simulated process: it makes the calls from the reactor."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        self._host.call_soon(function, *args)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Does nothing."""


class SimulatedEvent:
    """A `threading.Event` in virtual time."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._is_set = False
        self._waiters: list[Waiter] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            waiter.set()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            waiter = Waiter()
            self._waiters.append(waiter)
            try:
                self._host.drive(waiter, None if timeout is None else self._host.now() + max(0.0, timeout))
            finally:
                self._waiters.remove(waiter)
        return self._is_set


class SimulatedThread(threading.Thread):
    """A thread of a simulated process. It runs only when it is its turn.

    Attributes:
      error: the exception that ended it, or None.
      was_killed: whether its process was killed before its end.
    """

    def __init__(
        self, host: SimulatedHost, target: Callable[..., Any], args: tuple[Any, ...], name: str | None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.host = host
        self.turn = Turn()
        self.error: BaseException | None = None
        self.was_killed = False
        self._program, self._program_args = target, args
        self._is_alive = False
        self._waiting: list[Waiter] = []

    def start(self) -> None:
        if self.host.alive:
            self._is_alive = True
            self.host.threads.append(self)
            super().start()
            self.host.call_soon(self.host.network.hand_over, self.turn)

    def run(self) -> None:
        self.turn.lock.acquire()
        set_current_process(self.host)
        try:
            if self.host.alive:
                self._program(*self._program_args)
            self.was_killed = not self.host.alive
        except Killed:
            self.was_killed = True
        except BaseException as error:  # whoever joins the thread looks at it
            self.error = error
        self._is_alive = False
        self.host.threads.remove(self)
        for waiter in self._waiting:
            waiter.set()
        self.host.network.leave()

    def is_alive(self) -> bool:
        return self._is_alive

    def join(self, timeout: float | None = None) -> None:
        """Waits, as a thread of its process, until the thread has ended."""
        if self._is_alive:
            waiter = Waiter()
            self._waiting.append(waiter)
            self.host.drive(waiter, None if timeout is None else self.host.now() + timeout)
