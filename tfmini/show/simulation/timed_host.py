"""A task whose code runs in virtual time and takes the CPU time of a profile.

One thread handles messages, timers and the client, one after the other, as the interpreter's lock has it; the pool
runs long segments. Each call runs at once in Python and is then played on the machine's cores (see `Recording`). The
next call of the same task begins after its last piece, so no code sees the result of work that has not been done.
"""

from __future__ import annotations

import threading
from _thread import get_ident
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgpack

from tfmini.rpc.codec import kind_of
from tfmini.rpc.messages import CollectiveData, Heartbeat, Hello, HelloReply, RunGraph, RunGraphReply, SendTensors
from tfmini.rpc.records import REGISTRY
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.process import set_current_process
from tfmini.show.simulation.cores import POOL, Cores, Lock, Piece, Stalls, Thread, coldness
from tfmini.show.simulation.prediction import Event, Nics, RecordedPiece, Recording, Topology
from tfmini.show.simulation.profile import Machine
from tfmini.show.simulation.simulated_process import (
    Killed,
    SimulatedConnection,
    SimulatedHost,
    SimulatedThread,
    SimulatedTransport,
    Turn,
    VirtualNetwork,
)


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

    def submit(self, function: Callable[..., Any], *args: object) -> None:
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


# ---- Connections that take time: the CPU of both sides, and the NICs between them ----------------------------------

_TENSORS = {cls.row.kind: 3 + [field.name for field in cls.row.fields].index(name) for cls, name in (
    (SendTensors, "values"), (RunGraph, "feed_values"), (RunGraphReply, "values"), (CollectiveData, "values"),
)}  # fmt: skip
_HANDSHAKE = (Hello, HelloReply)
_GROUP = 3 + [field.name for field in SendTensors.row.fields].index("group")


def payload_of(parts: Sequence[Any]) -> tuple[type[Any] | None, int, int]:
    """The kind of a message, the bytes of its tensors, and the group of a SendTensors (else -1).

    The header, and messages without tensors of a step, count as no bytes: their cost is that of a message.
    """
    kind = kind_of(parts)
    position = _TENSORS.get(kind)
    if position is None:
        return REGISTRY.get(kind), 0, -1
    header = msgpack.unpackb(parts[0], strict_map_key=False)
    nbytes = sum(len(part) for part in parts[1:])
    nbytes += sum(len(entry[1]) for entry in header[position] if type(entry[1]) is bytes)
    return REGISTRY[kind], nbytes, header[_GROUP] if kind == SendTensors.row.kind else -1


class TimedTransport(SimulatedTransport):
    """The transport of a `TimedHost`."""

    @property
    def connection(self) -> type[SimulatedConnection]:
        return TimedConnection


class _Message:
    """A message that has been sent; ``leave`` is called with the event after which it may leave, once that is known."""

    __slots__ = ("leave", "cause", "is_ready")

    def __init__(self, leave: Callable[[Event | None], None]) -> None:
        self.leave = leave
        self.cause: Event | None = None
        self.is_ready = False


class TimedConnection(SimulatedConnection):
    """One end of a connection."""

    host: TimedHost
    _under_way = 0

    def __init__(self, host: TimedHost, address: str) -> None:
        super().__init__(host, address)
        self._unsent: list[_Message] = []

    @property
    def activity(self) -> int:
        # A large message that is under way shows that its sender lives, as bytes of a real one do.
        return self._arrived + (round(self.host.network.now() * 1e3) if self._under_way else 0)

    def send(self, parts: Sequence[Any]) -> None:
        other = self._other
        if not self._sending or not isinstance(other, TimedConnection) or not self.host.alive:
            return
        kind, nbytes, group = payload_of(parts)
        host, network = self.host, self.host.network
        link = network.cluster.between(host.name, other.host.name)
        label = network.labels.get(group) or (kind.__name__ if kind is not None else "message")
        counts = kind is not Heartbeat
        other._under_way += 1
        network.under_way += counts
        network.work += counts
        leave = partial(self._leave, other, list(parts), nbytes, label, counts)
        # In a task with several threads, an earlier message may still wait for the work before it, and a receiver
        # counts on the order. Pieces of collectives have tags instead: they go on beside back-propagation.
        if kind is not CollectiveData:
            message = _Message(leave)
            self._unsent.append(message)
            leave = partial(self._ready, message)
        if host.recording is None:
            leave(None)
            return
        part_s = host.machine.part_s if kind is RunGraph else 0.0
        host.recording.charge(part_s + link.send_s + link.copy_s(nbytes), f"sends {label}")
        host.recording.then(leave)

    def _ready(self, message: _Message, cause: Event | None) -> None:
        """The work before a message has been done: it leaves, and those behind it whose work has been done."""
        message.cause, message.is_ready = cause, True
        while self._unsent and self._unsent[0].is_ready:
            first = self._unsent.pop(0)
            first.leave(first.cause)

    def _leave(
        self, other: TimedConnection, parts: list[Any], nbytes: int, label: str, counts: bool, cause: Event | None
    ) -> None:
        network = self.host.network
        event = Event(label, f"{self.host.name} -> {other.host.name}", network.now(), cause)
        arrived = partial(other._arrive, parts, nbytes, counts, event)
        if REGISTRY.get(kind_of(parts)) in _HANDSHAKE:
            # Its few bytes pass between those of other connections; behind gigabytes it would come too late.
            network.call_later(network.cluster.between(self.host.name, other.host.name).latency_s, arrived)
        else:
            network.nics.send(self.host.name, other.host.name, nbytes, arrived)

    def _arrive(self, parts: list[Any], nbytes: int, counts: bool, event: Event) -> None:
        self._under_way -= 1
        self.host.network.under_way -= counts
        event.end = self.host.network.now()
        if self.host.alive:
            self.host.submit(self.receive, (parts, nbytes, event), event)

    def receive(self, parts: list[Any], nbytes: int, event: Event) -> None:
        """Handles a message that has arrived, as an event of its host."""
        recording = self.host.recording
        assert recording is not None
        link = self.host.network.cluster.between(event.task.partition(" -> ")[0], self.host.name)
        recording.charge(link.receive_s + link.copy_s(nbytes), f"receives {event.label}")
        recording.then(None)
        self._inbox.append(parts)
        self._arrived += nbytes + 1
        self._deliver()


# ---- The tasks of a cluster in virtual time, with the machines and links of a profile ------------------------------
# Calls are made in order of time by one thread, which hands over to the threads of clients and of pools one at a time.


class TimedNetwork(VirtualNetwork):
    """See the module.

    Args:
      cluster: where the tasks are; hosts have the tasks' full names.
      model_for: the kernel model of a machine.
      seed: of the random numbers of processes.

    Attributes:
      labels: group -> a tensor in it, for people. ``running``: the process whose code runs now, or None.
      stalls: the waits of tasks that wake up on crowded machines.
      work: how many messages of steps have been sent. ``under_way``: messages that have not arrived.
    """

    def __init__(self, cluster: Topology, model_for: Callable[[TimedNetwork, Machine], Any], seed: int = 0) -> None:
        super().__init__(seed, (0.0, 0.0))
        self.cluster, self.nics = cluster, Nics(cluster, self)
        self.labels: dict[int, str] = {}
        self.running: TimedHost | None = None
        self.work = self.under_way = 0
        self._model_for = model_for
        self._models: dict[int, Any] = {}  # by machine
        self._cores = {host: Cores(self, machine.cores, machine.overload) for host, machine in cluster.machines.items()}
        self._tasks = Counter(cluster.hosts.values())
        self.stalls = Stalls()

    def _new_host(self, name: str, life: int) -> TimedHost:
        place = self.cluster.hosts[name]
        machine = self.cluster.machines[place]
        return TimedHost(self, name, machine, self._cores[place], self._tasks[place] > machine.cores)

    def timed_host(self, name: str) -> TimedHost:
        """The process of a task."""
        found = self.host(name)
        assert isinstance(found, TimedHost)
        return found

    def hosts(self) -> list[TimedHost]:
        """All processes."""
        return [host for host in self._hosts.values() if isinstance(host, TimedHost)]

    def kernel_model(self, machine: Machine) -> Any:
        """Returns the model of the kernels of a machine."""
        if id(machine) not in self._models:
            self._models[id(machine)] = self._model_for(self, machine)
        return self._models[id(machine)]

    @property
    def is_idle(self) -> bool:
        """Whether no core computes and no message is under way."""
        return not self.under_way and not any(cores.is_busy for cores in self._cores.values())

    def run_while(self, goes_on: Callable[[], bool], seconds: float) -> None:
        """Makes calls in order of time, as long as that is so, and for so many virtual seconds at most."""
        end = self._time + seconds
        while goes_on() and (due := self.heap.pop_due(end)) is not None:
            self._make(due)

    # ---- threads ----------------------------------------------------------------------------

    def drive(self, waiter: Waiter, deadline: float | None = None, host: SimulatedHost | None = None) -> bool:
        """Makes calls until the waiter is done; called by a process, lets its thread stand still until then."""
        if not isinstance(host, TimedHost):
            return super().drive(waiter, deadline)
        if not host.alive:
            raise Killed
        if self.turn is self._main_turn:  # a handler, which cannot wait for its own thread
            return waiter.done
        wait, expired = ThreadWait(host, self.turn), Waiter()
        wait.prepare(waiter)
        wait.prepare(expired)
        timer = None if deadline is None else host.call_later(deadline - host.now(), expired.set)
        while not (waiter.done or expired.done):
            wait.is_over = False
            self.suspend()
            if not host.alive:
                raise Killed
        if timer is not None:
            timer.cancel()
        return waiter.done

    def suspend(self) -> None:
        """The calling thread of a process stands still until the simulation hands over to it again."""
        self.hand_over(self._main_turn)

    def end(self) -> None:
        """Ends all processes and their threads."""
        for host in self.hosts():
            host.alive = False
        for host in self.hosts():
            for thread in list(host.threads):
                self.hand_over(thread.turn)
