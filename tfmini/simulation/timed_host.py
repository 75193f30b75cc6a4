"""A task whose code runs in virtual time and takes the CPU time of a profile.

One thread handles messages, timers and the client, one after the other, as the interpreter's lock has it; the pool
runs long segments. Each call runs at once in Python and is then played on the machine's cores (see `recordings`). The
next call of the same task begins after its last piece, so no code sees the result of work that has not been done.
"""

from __future__ import annotations

import threading
from _thread import get_ident
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfmini.rpc.waiter import Waiter
from tfmini.runtime.process import set_current_process
from tfmini.simulation.cores import POOL, Cores, Lock, Piece, Thread, coldness
from tfmini.simulation.prediction import Event
from tfmini.simulation.profile import Machine
from tfmini.simulation.recordings import RecordedPiece, Recording
from tfmini.simulation.simulated_process import Killed, SimulatedHost, SimulatedThread, Turn
from tfmini.simulation.timed_transport import TimedTransport

if TYPE_CHECKING:
    from tfmini.simulation.timed_network import TimedNetwork


class TimedHost(SimulatedHost):
    """See the module.

    Attributes:
      machine, cores: where it runs. ``is_crowded``: whether the machine has more tasks than cores.
      latest: its latest event.
      recording: of the code that runs now, if it is this host's.
    """

    has_threads = True
    network: TimedNetwork

    def __init__(self, network: TimedNetwork, name: str, machine: Machine, cores: Cores, is_crowded: bool) -> None:
        super().__init__(network, name)
        self.transport = TimedTransport(self)
        self.machine, self.cores, self.is_crowded = machine, cores, is_crowded
        self.main, self._pool_threads = Thread(network, cores, machine.threads), Thread(network, cores, POOL)
        self.latest: Event | None = None
        self._locks: dict[str, Lock] = defaultdict(Lock)
        self._is_cold = False
        self.recording: Recording | None = None
        self.now = self._now
        self.kernel_model = network.kernel_model(machine)

    @property
    def busy_s(self) -> float:
        """Seconds of CPU so far."""
        return self.main.busy_s + self._pool_threads.busy_s

    def _now(self) -> float:
        recording = self.recording
        return self.network.now() + (recording.elapsed if recording is not None else 0.0)

    def runs_here(self) -> bool:
        """Whether a segment of unknown time would hold up a handler: the model knows their times."""
        return False

    # ---- costs ------------------------------------------------------------------------------

    def charge(self, seconds: float, label: str = "") -> None:
        """Spends CPU in the code that runs now."""
        if self.recording is not None:
            self.recording.charge(seconds, label)

    def begin_segment(self, seconds: float, is_long: bool) -> None:
        """A segment begins that takes so long on a warm machine: sets how much longer it takes now."""
        recording = self.recording
        if recording is not None:
            beside = self.machine.beside if is_long and self.cores.is_busy else 1.0
            recording.factor = (1.0 + self._coldness(seconds)) * beside

    def _coldness(self, seconds: float) -> float:
        if not self._is_cold or not seconds:
            return 0.0
        self._is_cold = False
        return coldness(seconds, self.machine, self.is_crowded)

    # ---- calls ------------------------------------------------------------------------------

    def _call(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.alive:
            self.submit(call, args, self.latest)

    def submit(self, call: Callable[..., Any], args: tuple[Any, ...], cause: Event | None) -> None:
        """Queues a call of the task's thread, which is due now."""
        # The thread is still awake at the moment when its last work ends.
        is_idle = self.main.is_idle and self._pool_threads.is_idle and self.main.ended < self.network.now()
        self._is_cold |= is_idle
        stalls = is_idle and self.is_crowded and self.cores.is_half_idle
        delay_s = self.network.stalls.next_s(self.machine) if stalls else 0.0
        self.main.submit(self._job(call, args, self.network.now(), cause), delay_s)

    def _job(
        self, call: Callable[..., Any], args: tuple[Any, ...], ready: float, cause: Event | None
    ) -> Iterator[Piece]:
        if self.alive:
            yield from self._played(self._recorded(Recording(), call, args), ready, cause)

    def _recorded(self, recording: Recording, call: Callable[..., Any], args: tuple[Any, ...]) -> list[RecordedPiece]:
        """Makes a call now; returns what it costs."""
        before, self.recording = self.recording, recording
        running, self.network.running = self.network.running, self
        process = set_current_process(self)
        try:
            call(*args)
        except Killed:
            if self.alive:
                raise
        except Exception as error:
            self.network.crashes.append(error)
            raise
        finally:
            set_current_process(process)
            self.recording, self.network.running = before, running
        return recording.take()

    def _played(self, pieces: list[RecordedPiece], ready: float, cause: Event | None) -> Iterator[Piece]:
        for seconds, label, effect, lock in pieces:
            if lock:
                yield self._locks[lock], None
            latest, now = self.latest, self.network.now()
            if latest is not None and now > ready and latest.end > ready:
                cause = latest  # the thread was busy when the work became ready
            event = Event(label, self.name, now, cause)
            yield seconds, None
            event.end = ready = self.network.now()
            if lock:
                self._locks[lock].release()
            if seconds:
                self.latest = event
            else:  # what takes no time is no part of the path
                event = cause or event
            cause = event
            if effect is not None:
                effect(event)

    # ---- threads of clients -----------------------------------------------------------------

    def settle(self) -> None:
        """The calling thread goes on when its work so far has been done."""
        waiter = Waiter()
        self.call_soon(waiter.set)
        self.drive(waiter)

    # ---- the pool ---------------------------------------------------------------------------

    def pool(self, size: int, name: str) -> Any:
        return _TimedPool(self, name)

    def play_in_pool(self, job: Iterator[Piece]) -> None:
        """Plays pieces in a thread of the pool."""
        self._pool_threads.submit(job)

    def segment_over(self) -> None:
        """The running segment has ended. In the pool, what follows waits until it has been played."""
        recording = self.recording
        if recording is not None and recording.is_pool:
            self.network.suspend()
            if not self.alive:
                raise Killed


class _TimedPool:
    """The threads for long segments."""

    def __init__(self, host: TimedHost, name: str) -> None:
        self._host, self._name = host, name

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        task = _PoolTask(self._host, function, args, self._name)
        self._host.network.call_later(0.0, task.go_on)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Does nothing."""


class _PoolTask:
    """A call in the pool. It runs in a thread of its own, which stands still while its segments are played.

    What follows a segment needs the interpreter's lock, so it waits until the task's thread has none of its own work.
    """

    def __init__(self, host: TimedHost, function: Callable[..., Any], args: tuple[Any, ...], name: str) -> None:
        self._host = host
        self._thread = _PoolThread(host, function, args, name)
        self._recording = Recording(is_pool=True)

    def go_on(self) -> None:
        """The task's thread lets it run up to the end of the next segment."""
        if self._host.alive:
            self._host.main.submit(self._resumed())

    def _resumed(self) -> Iterator[Piece]:
        host, thread = self._host, self._thread
        pieces = host._recorded(self._recording, thread.resume, ())
        host.play_in_pool(self._played(pieces, host.latest))
        return
        yield  # a generator: it takes no time of the task's thread

    def _played(self, pieces: list[RecordedPiece], cause: Event | None) -> Iterator[Piece]:
        yield from self._host._played(pieces, self._host.network.now(), cause)
        if not self._thread.turn.is_over:
            self.go_on()


class _PoolThread(SimulatedThread):
    """A thread that runs when `resume` is called, until it waits or ends."""

    def __init__(self, host: TimedHost, target: Callable[..., Any], args: tuple[Any, ...], name: str) -> None:
        super().__init__(host, target, args, name)
        self._was_started = False

    def resume(self) -> None:
        """Runs it up to its next wait."""
        if not self._was_started:
            self._was_started = self._is_alive = True
            self.host.threads.append(self)
            threading.Thread.start(self)
        self.host.network.hand_over(self.turn)
        if self.error is not None:
            raise self.error


class ThreadWait:
    """A thread of a client that waits: the ``reactor`` of its `Waiter`. It goes on once for each wait."""

    def __init__(self, host: TimedHost, turn: Turn) -> None:
        self._host, self._turn = host, turn
        self.is_over = True

    def wake(self) -> None:
        """The wait has ended: the thread goes on when the task's thread is free."""
        self._host.network.call_later(0.0, self._due)

    def _due(self) -> None:
        if self._host.alive:
            self._host.submit(self._resume, (), self._host.latest)

    def _resume(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._host.network.hand_over(self._turn)

    def prepare(self, waiter: Waiter) -> None:
        """Makes the end of the waiter wake this thread."""
        waiter.attach(get_ident(), self)
