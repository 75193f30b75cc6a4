"""The processes of a simulation and their threads, of which one runs at any time."""

from __future__ import annotations

import collections
import itertools
import random
import threading
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from tfmini import errors
from tfmini.cluster import HostPort, parse_address
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.transport import Connection, Listener, Locate, OnClosed, OnParts, Transport
from tfmini.rpc.waiter import Timer, TimerHeap, Waiter
from tfmini.runtime.process import Process, set_current_process

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

    def call_soon(self, call: Callable[..., Any], *args: object) -> None:
        """Makes the call at the current virtual time, after the calls that are already due."""
        self.call_later(0.0, call, *args)

    def call_later(self, delay: float, call: Callable[..., Any], *args: object) -> Timer:
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

    def spawn(self, program: Callable[..., Any], *args: object) -> SimulatedThread:
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

    def run(self, function: Callable[..., Any], *args: object) -> Any:
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

    def submit(self, function: Callable[..., Any], *args: object) -> None:
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


# ---- simulated transport ----------------------------------------
# The transport of a simulated host: connections that keep the order of messages, as TCP does, until they break.


class SimulatedTransport(Transport):
    """Transport of a simulated host, at ``sim://name``; ``sim://*`` makes a new name.

    Attributes:
      connection: makes an end of a connection.
    """

    @property
    def connection(self) -> type[SimulatedConnection]:
        return SimulatedConnection

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host

    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        network = self.host.network
        if address.endswith("://*"):
            address = f"sim://{self.host.name}-{len(network.listeners)}"
        if address in network.listeners:
            raise errors.UnknownError.of(f"{address} is in use by {network.listeners[address].host.name}")
        network.listeners[address] = listener = SimulatedListener(self.host, address, on_connection)
        return listener

    def connect(self, address: str, locate: Locate | None = None) -> Connection:
        network, host = self.host.network, self.host
        found = locate() if locate is not None else ()
        address = found[0] if found else address
        listener = network.listeners.get(address)
        near = self.connection(host, address)
        fault = None if listener is None else network.severed(host.name, listener.host.name)
        if listener is None or fault is not None and not fault.silent:
            near.arrive("connection refused: no process listens there", network.latency_s[1])
            return near
        far = self.connection(listener.host, address)
        near.pair(far)
        listener.connections.append(far)
        wait = network.latency_s[0] + (0.0 if fault is None else fault.until - network.now())
        if wait < float("inf"):
            listener.host.call_later(wait, listener.on_connection, far)
        return near


class SimulatedListener(Listener):
    """A bound address of a simulated host."""

    def __init__(self, host: SimulatedHost, address: str, on_connection: Callable[[Connection], None]) -> None:
        self.host = host
        self.address = address
        self.on_connection = on_connection
        self.connections: list[SimulatedConnection] = []

    def close(self) -> None:
        if self.host.network.listeners.get(self.address) is self:
            del self.host.network.listeners[self.address]
        for connection in self.connections:
            connection.close("the listener was closed")


class SimulatedConnection(Connection):
    """One end of a connection. Messages and the end are queued in `_inbox` until `start`."""

    def __init__(self, host: SimulatedHost, address: str) -> None:
        self.host = host
        self.address = address
        self.peer_name = ""
        self._other: SimulatedConnection | None = None
        self._on_parts: OnParts | None = None
        self._on_closed: OnClosed | None = None
        # Short lists: an empty deque takes 0.8 kB, and of a thousand workers with a hundred ps there are many ends.
        self._inbox: list[list[bytes] | str] = []
        self._on_their_way: list[Timer] = []
        self._last_arrival = 0.0
        self._arrived = 0  # bytes
        self._sending = True
        self._closed_here = False
        host.network.connections[self] = None

    def pair(self, other: SimulatedConnection) -> None:
        """Connects two ends."""
        self._other, other._other = other, self
        self.peer_name, other.peer_name = other.host.name, self.host.name

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        self.host.call_soon(self._deliver)

    @property
    def backlog(self) -> int:
        return 0

    @property
    def activity(self) -> int:
        return self._arrived

    def send(self, parts: Sequence[Any]) -> None:
        if self._sending and self._other is not None and self.host.alive:
            delay = self.host.network.delay_of(self.host.name, self.peer_name, parts)
            if delay is not None:
                self._other.arrive([bytes(part) for part in parts], delay)

    def close(self, reason: str = "closed here") -> None:
        if self._sending:
            self._sending, self._closed_here = False, True
            self._tell_other(f"closed by the other side: {reason}")
            self.arrive(reason)

    def die(self) -> None:
        """Ends the connection because the host of this end was killed."""
        self._sending = False
        self.host.network.connections.pop(self, None)
        self._tell_other("the connection was closed")

    def _tell_other(self, reason: str) -> None:
        network = self.host.network
        fault = network.severed(self.host.name, self.peer_name)
        if self._other is not None and (fault is None or fault.silent and fault.until < float("inf")):
            wait = 0.0 if fault is None else fault.until - network.now()
            self._other.arrive(reason, network.latency_s[0] + wait)

    def cut(self, reason: str) -> None:
        """Ends the connection, as a router that goes down does; the messages on their way here are lost."""
        for timer in self._on_their_way:
            timer.cancel()
        self.arrive(reason)

    def arrive(self, item: list[bytes] | str, delay: float = 0.0) -> None:
        """Delivers a message, or the reason of the end, to this host after ``delay``, in order."""
        now = self.host.now()
        self._last_arrival = max(self._last_arrival, now + delay)
        self._on_their_way.append(self.host.call_later(self._last_arrival - now, self._push, item))

    def _push(self, item: list[bytes] | str) -> None:
        self._on_their_way.pop(0)
        self._inbox.append(item)
        self._arrived += sum(map(len, item))
        self._deliver()

    def _deliver(self) -> None:
        resume = self.host.network.wedged_until(self.host.name)
        if resume > self.host.now():
            if resume < float("inf"):
                self.host.call_later(resume - self.host.now(), self._deliver)
            return
        while self._inbox and self._on_closed is not None and self._on_parts is not None:
            item = self._inbox.pop(0)
            if isinstance(item, list):
                if not self._closed_here:
                    self._on_parts(item)
                continue
            on_closed, self._on_closed, self._sending = self._on_closed, None, False
            self.host.network.connections.pop(self, None)
            on_closed(item)


# ---- Processes and their network in virtual time: what clusters of tests and the simulator have in common ----------
# Each task is a `SimulatedHost`: a process (`runtime.process.Process`) and a reactor (`Clock`) with the network's
# clock. No real time passes: `drive` and `VirtualNetwork.run` jump from event to event. One thread of all processes
# runs at any time. A thread that waits makes the calls that are due, or hands over to the thread whose wait has
# ended.

_FOREVER = float("inf")


class LinkCut(Protocol):
    """What cuts a link: see `testing.Sever`."""

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

    def call_later(self, delay: float, call: Any, *args: object) -> Timer:
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
