"""The driver of any partition: it reacts to events and never blocks a thread.

The events are the start, the arrival of a group of tensors, the answer of a node, and an abort. Each runs the segments
that it makes ready. Between two events a `DataflowRun` is a few counters. Tensors may arrive before the step has begun
here: the worker then keeps them and delivers them before `start`.

`dispatch` chooses the thread that runs a segment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import errors
from tfmini.runtime.compiler.kernels import kernel_error, not_reached
from tfmini.runtime.compiler.levels import WaitingLoop
from tfmini.runtime.compiler.lowering import DEAD
from tfmini.runtime.executor.dispatch import WaitingThread, dispatch, drive, this_thread
from tfmini.runtime.executor.registered_graph import Aborted, Done, Path, RunOwner, StepOutcome
from tfmini.runtime.executor.waiting_run import RunContext, WaitingRun
from tfmini.runtime.trace import clock

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer
    from tfmini.runtime.executor.registered_graph import RegisteredGraph

RUNS, BROKEN = -1, -2  # `pending` of a segment that runs, or has run and is in `unfinished` no more; that has failed
_TURN = 64  # iterations of a loop in one handler
_OVER = Aborted(errors.CancelledError.of("The step has ended.", derived=True))


class Activation(RunContext):
    """One run of one level: of the whole program, or of one iteration of a loop.

    Attributes:
      pending: per segment, how many arrivals and other segments it still needs; below 0 once it has begun.
      unfinished: the segments that have not run.
    """

    __slots__ = ()
    slots: list[Any]
    pending: list[int]
    unfinished: set[int]

    @property
    def run(self) -> DataflowRun:
        raise NotImplementedError

    # ---- for generated code -----------------------------------------------------------------

    def send(self, group: int, values: tuple[Any, ...]) -> None:
        """Sends a group of tensors, which is complete now."""
        run = self.run
        run.owner.send_group(run, group, values, self.path)

    def sent_array(self, group: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Memory for a result that is sent with a group and that nobody else takes."""
        return self.run.graph.sent_array(group, shape, dtype)

    def begin_loop(self, key: int, entry: int, arguments: tuple[Any, ...]) -> None:
        """Starts a loop that has to wait on its way, or gives it the values of another entry."""
        run = self.run
        place = (key, self.path)
        with run.lock:
            loop_run = run.loops.get(place)
            is_new = loop_run is None
            if loop_run is None:
                loop_run = _LoopRun(self, key, run.program.loops[key])
                if len(loop_run.loop.entries) > 1:
                    run.loops[place] = loop_run
        if is_new and run.trace is not None:
            run.trace.begun(key, self.path)
        loop_run.enter(entry, arguments)

    # ---- events -----------------------------------------------------------------------------

    def complete(self, key: int, values: Sequence[Any] | None) -> bool:
        run = self.run
        with run.lock:  # for both: an abort in between would lose the values, which nobody would give back
            if not run.is_running or isinstance(run.stopped, Aborted):
                return False
            ready = self.arrived(key, values)
        if ready:
            dispatch(self, ready)
        return True

    def arrived(self, key: int, values: Sequence[Any] | None) -> list[int]:
        """Stores what has come; returns the segment that has waited for it if that is ready. The caller holds the lock.

        Args:
          values: None if the slots have them already, or need none.
        """
        run = self.run
        if run.trace is not None:
            run.trace.completed(key, self.path, values)
        slots, segment = self.level.arrivals[key]
        if values is not None:
            for slot, value in zip(slots, values, strict=True):
                self.slots[slot] = value
        self.pending[segment] -= 1
        return [segment] if self.pending[segment] == 0 and run.is_running else []

    def run_segment(self, index: int) -> list[int]:
        """Runs one segment; returns the segments that are ready now."""
        run = self.run
        self.pending[index] = RUNS  # before the look at `is_running`, so that `outcome` misses no segment that begins
        if not run.is_running:
            self._leave(index, 0)
            return []
        segment = self.level.segments[index]
        begin = time.perf_counter()
        try:
            segment.run(self, self.slots)
        except BaseException as error:  # whatever a kernel raises ends this step, not the server
            run.note_broken(self, index, error)
            self._leave(index, BROKEN)
            if not isinstance(error, Exception):
                raise
            run.abort(kernel_error(error, run.owner.task))
            return []
        segment.note(time.perf_counter() - begin)
        ready = []
        with run.lock:
            for successor in segment.successors:
                self.pending[successor] -= 1
                if self.pending[successor] == 0:
                    ready.append(successor)
            self.unfinished.discard(index)
            finished = not self.unfinished
        if finished:
            self.over()
        if run.asked:
            run.settle()
        return ready

    def _leave(self, index: int, count: int) -> None:
        """A segment has not come to its end. ``count`` is its pending from now on."""
        self.pending[index] = count
        if self.run.asked:
            self.run.settle()

    def run_later(self, segment: int) -> None:
        """Runs a segment in the worker's pool, and the segments that it makes ready."""
        drive(self, [segment], scheduled=True)

    def over(self) -> None:
        """All segments have run."""
        raise NotImplementedError


class DataflowRun(WaitingRun, Activation):
    """A run that is driven by events, and the activation of its outermost level.

    Attributes:
      missing: groups that have not arrived, outside loops.
      is_running: between `start` and the end.
      home: the thread that waits for a run of a worker without a network, or None.
      asked: calls that wait for the end of segments which an abort could not stop.
      loops: (event, path) -> a loop under way whose inputs come one by one.
    """

    __slots__ = ("level", "path", "pending", "unfinished", "missing", "is_running", "home", "asked", "loops", "_broken",
                 "_early", "_iterations", "_on_done")  # fmt: skip
    is_blocking = False

    def __init__(
        self,
        owner: RunOwner,
        graph: RegisteredGraph,
        step_id: int,
        feeds: Sequence[Any],
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(owner, graph, step_id, feeds, timeout_s)
        self.level, self.path = self.program, ()
        self.pending = self.program.pending.copy()
        self.unfinished = set(range(len(self.pending)))
        self.missing = {key for key in self.program.arrivals if key >= 0}
        self.is_running = False
        self.home: WaitingThread | None = None
        self.asked: list[Callable[[], None]] = []
        self._broken: dict[int, tuple[set[str], set[str]]] = {}
        self._early: dict[tuple[int, Path], Sequence[Any]] = {}
        self._iterations: dict[tuple[int, Path], Activation] = {}
        self.loops: dict[tuple[int, Path], _LoopRun] = {}
        self._on_done: Done | None = None

    @property
    def run(self) -> DataflowRun:  # an attribute would be a cycle that keeps the tensors until a garbage collection
        return self

    def start(self, on_done: Done) -> None:
        if self.owner.reactor is None:
            self.home = this_thread()
        with self.lock:
            self._on_done = on_done
            self.is_running = True
            aborted = self.stopped if isinstance(self.stopped, Aborted) else None
            ready = [i for i, count in enumerate(self.pending) if count == 0]
        if aborted is not None:
            self._finish(aborted)
        elif not self.unfinished:
            self.over()
        else:
            # At once, even inside another step's segment: a py_func may run a session and wait for it.
            drive(self, ready)

    def deliver(self, group: int, values: Sequence[Any], path: Path = (), arrived_ns: int = 0) -> None:
        if self.trace is not None:
            self.trace.arrived(group, path, arrived_ns or clock())
        if group not in (self.program.loop_groups if path else self.program.arrivals):
            super().deliver(group, values, path)
        with self.lock:
            activation: Activation | None = self
            if path:
                activation = self._iterations.pop((group, path), None)
            elif group in self.missing:
                self.missing.discard(group)
            else:
                raise errors.InternalError.of(f"step {self.step_id} got group {group} twice")
            if activation is None:  # the iteration has not begun
                self._early[group, path] = values
                return
            ready = activation.arrived(group, values)
        if ready:
            dispatch(activation, ready)

    def expect(self, activation: Activation) -> None:
        """An iteration begins: takes the groups that came early, and expects the others. The caller holds the lock."""
        for key in activation.level.arrivals if self.program.loop_groups else ():
            place = (key, activation.path)
            if place in self._early:
                activation.arrived(key, self._early.pop(place))
            elif key >= 0:
                self._iterations[place] = activation

    def abort(self, error: errors.OpError) -> None:
        """Ends the run with an error, from any thread; running segments end later, without effect."""
        with self.lock:
            if not self.is_running:
                super().abort(error)  # `start` will find it
                return
        self._finish(Aborted(error))

    def over(self) -> None:
        try:
            values = self.fetched()
        except errors.OpError as error:
            self._finish(Aborted(error))
        else:
            self._finish(_OVER, values)

    def outcome(self) -> StepOutcome:
        with self.lock:
            unfinished, pending = set(self.unfinished), list(self.pending)
        made: set[str] = set()
        uncertain: set[str] = set()
        for index, segment in enumerate(self.program.segments):
            if pending[index] <= 0:
                made.update(segment.taken)
            if index not in unfinished:
                made.update(segment.updates)
            elif pending[index] < 0:  # it has failed half-way, or is still running; see `is_settled`
                done, unreached = self._broken.get(index, (set(), set()))
                made.update(name for node, names in segment.marks for name in names if node in done)
                uncertain.update(name for node, names in segment.marks for name in names if node not in unreached)
            if pending[index] < 0:  # a loop that has been started may be anywhere on its way, unless it has ended
                uncertain.update(segment.begins)
        return StepOutcome(frozenset(made), frozenset(uncertain - made))

    def is_computing(self) -> bool:
        # An iteration of a loop keeps its counters to itself.
        return bool(self.program.loops) or any(self.pending[index] <= 0 for index in self.unfinished)

    def note_broken(self, activation: Activation, index: int, error: BaseException) -> None:
        """Notes which updates a segment has made that has raised: a loop between them may have been told to end."""
        marks = activation.level.segments[index].marks
        if activation is self and marks:
            self._broken[index] = not_reached(error, [node for node, _ in marks])

    def end_soon(self, error: errors.OpError) -> None:
        with self.lock:
            # Nothing stops kernels that run, and what the run has taken from a queue would be lost with its result.
            is_last = all(self.pending[index] <= 0 for index in self.unfinished) and not self.program.loops
            may_end = is_last and self.is_running and bool(self.answered) and not (self.waits or self.missing)
            if self.is_running and not isinstance(self.stopped, Aborted):
                # No answer is taken any more. A run that may end does so if it has to wait again, and so does a loop.
                self.stopped = Aborted(error)
        if not may_end:
            self.abort(error)

    @property
    def is_settled(self) -> bool:
        return not any(self.pending[index] == RUNS for index in list(self.unfinished))

    def when_settled(self, call: Callable[[], None]) -> None:
        self.asked.append(call)  # before the look: a segment that ends looks for it afterwards
        self.settle()

    def settle(self) -> None:
        """A segment has ended, perhaps the last one that somebody waits for."""
        while self.asked and self.is_settled:
            try:
                call = self.asked.pop()
            except IndexError:  # another thread has taken the last one
                return
            call()

    def missing_groups(self) -> list[int]:
        return [*self.missing, *(group for group, _ in list(self._iterations))]

    def needs(self, task: str, peer: Peer | None) -> bool:
        graph = self.graph
        return (
            task in self.program.sends.values()
            or peer is not None
            and peer in graph.peers.values()  # a session may give the task another name
            or self.awaits_from(task, peer)
        )

    def awaits_from(self, task: str, peer: Peer | None) -> bool:
        return any(self.graph.comes_from(group, task, peer) for group in self.missing | self.program.loop_groups)

    def _finish(self, why: Aborted, values: Sequence[Any] = ()) -> None:
        with self.lock:
            done, self._on_done = self._on_done, None
            if done is None:
                return
            self.stopped, self.is_running = why, False
            # Emptied after the lock: the destructor of a value may release a mutex, which answers waits.
            held: tuple[dict[Any, Any], ...] = self._iterations, self._early, self.loops
            self._iterations, self._early, self.loops = {}, {}, {}
        for each in held:
            each.clear()
        if self.waits:
            self.release()
        if why is _OVER:
            done(None, list(values))
        else:
            # Tensors may still arrive or be computed: they find slots, but not those with this step's tensors.
            self.slots = self.program.template.copy()
            done(why.error, [])


class _LoopRun:
    """A loop that is under way.

    Attributes:
      wanted: the number of iterations that have been decided.
      begun: the number of those that have begun.
    """

    __slots__ = ("outer", "key", "loop", "exits", "left_at", "entered", "wanted", "begun", "iterations", "early")

    def __init__(self, outer: Activation, key: int, loop: WaitingLoop) -> None:
        self.outer, self.key, self.loop = outer, key, loop
        self.exits: list[Any] = [DEAD] * len(loop.exits)
        self.left_at = [-1] * len(loop.exits)  # the iteration that gave the value
        self.entered: dict[int, tuple[Any, ...]] = {}
        self.wanted = self.begun = 0
        self.iterations: dict[int, Iteration] = {}  # under way
        # Iteration that has not begun -> (round, values) that have come for it.
        self.early: dict[int, list[tuple[int, Sequence[Any]]]] = {}

    # ---- events -----------------------------------------------------------------------------

    def enter(self, number: int, arguments: tuple[Any, ...]) -> None:
        """The values of an entry have come."""
        self._event(self._enter, number, arguments)

    def hand_on(self, count: int, number: int, values: Sequence[Any]) -> None:
        """An iteration hands the values of a round to the one with this number."""
        self._event(self._hand_on, count, number, values)

    def iteration_over(self, iteration: Iteration) -> None:
        """All segments of an iteration have run; completes the loop after the last one."""
        if self._event(self._leave, iteration):
            self.outer.complete(self.key, self.exits)

    def _event(self, event: Callable[..., _Ready | None], *args: object) -> bool:
        """Runs an event under the lock, then what it makes ready; returns whether the loop is over.

        It begins the next iteration if that is wanted and not too many are under way.
        """
        run = self.outer.run
        must_end, begun = False, None
        with run.lock:
            ready = event(*args)
            if self.begun < self.wanted:
                must_end = bool(run.stopped)  # it may never come to a wait that would find this out
                if not must_end and len(self.iterations) < self.loop.window:
                    begun = self._next()
        if must_end:
            run.end_stopped("runs a while loop")
            return False
        if ready:
            for each in ready:
                dispatch(*each)
        if begun is not None:
            # A loop that finds every answer there already would never leave the handler that it runs in.
            is_turn = not (begun[0].path[-1] + 1) % _TURN
            if not is_turn or not run.owner.threads.run_beside(drive, *begun):
                dispatch(*begun)
        return ready is None

    # ---- what they change. The caller holds the lock -----------------------------------------

    def _enter(self, number: int, arguments: tuple[Any, ...]) -> _Ready:
        entry = self.loop.entries[number]
        first = [(i, [DEAD if p < 0 else arguments[p] for p in positions]) for i, positions in entry.initial]
        self.entered[number] = arguments
        ready = []
        for iteration in self.iterations.values():
            ready.append((iteration, iteration.store_entry(number, arguments)))
            if iteration.path[-1] == 0:
                ready += [(iteration, iteration.store_round(i, values)) for i, values in first]
        if not self.begun:
            self.early.setdefault(0, []).extend(first)
            if not self.loop.leads or any(i == 0 for i, _ in entry.initial):
                self.wanted = max(self.wanted, 1)
        return [each for each in ready if each[1]]

    def _hand_on(self, count: int, number: int, values: Sequence[Any]) -> _Ready:
        iteration = self.iterations.get(count)
        if iteration is not None:
            segments = iteration.store_round(number, values)
            return [(iteration, segments)] if segments else []
        if count >= self.begun:
            self.early.setdefault(count, []).append((number, values))
            if self.wanted <= count and (number == 0 or not self.loop.leads):
                for value in values:
                    if value is not DEAD:
                        self.wanted = count + 1
                        break
        return []

    def _leave(self, iteration: Iteration) -> _Ready | None:
        """An iteration is over; None: the loop is, too."""
        count, slots = iteration.path[-1], iteration.slots
        for i, slot in enumerate(self.loop.exits):
            if slots[slot] is not DEAD and count > self.left_at[i]:
                self.exits[i], self.left_at[i] = slots[slot], count
        del self.iterations[count]
        if self.iterations or self.begun < self.wanted:
            return []
        self.outer.run.loops.pop((self.key, self.outer.path), None)
        return None

    def _next(self) -> tuple[Iteration, list[int]]:
        """Makes the next iteration, with what has come for it."""
        count = self.begun
        self.begun += 1
        iteration = self.iterations[count] = Iteration(self, (*self.outer.path, count))
        for number, arguments in self.entered.items():
            iteration.store_entry(number, arguments)
        for number, values in self.early.pop(count, ()):
            iteration.store_round(number, values)
        self.outer.run.expect(iteration)
        return iteration, [i for i, pending in enumerate(iteration.pending) if pending == 0]


_Ready = list[tuple["Iteration", list[int]]]
"""Iterations, each with segments that are ready."""


class Iteration(Activation):
    """One iteration of a loop."""

    __slots__ = ("level", "slots", "path", "pending", "unfinished", "run", "loop_run")
    run: DataflowRun

    def __init__(self, loop_run: _LoopRun, path: Path) -> None:
        self.run = loop_run.outer.run
        self.loop_run = loop_run
        self.level, self.path = loop_run.loop.level, path
        self.slots = self.level.template.copy()
        self.pending = self.level.pending.copy()
        self.unfinished = set(range(len(self.pending)))

    def hand_on(self, number: int, values: tuple[Any, ...]) -> None:
        """For generated code: the values of a round have been computed."""
        self.loop_run.hand_on(self.path[-1] + 1, number, values)

    def over(self) -> None:
        self.loop_run.iteration_over(self)

    # ---- what comes in ----------------------------------------------------------------------

    def store_entry(self, number: int, arguments: Sequence[Any]) -> list[int]:
        """Stores the values of an entry; returns the segment that they make ready. The caller holds the lock."""
        entry = self.loop_run.loop.entries[number]
        for position, slot in entry.constants:
            self.slots[slot] = arguments[position]
        for position, slot in entry.once:
            self.slots[slot] = DEAD if self.path[-1] else arguments[position]
        return self._stored(entry.key)

    def store_round(self, number: int, values: Sequence[Any]) -> list[int]:
        """Stores the values of a round, likewise."""
        around = self.loop_run.loop.rounds[number]
        for slot, value in zip(around.slots, values, strict=True):
            self.slots[slot] = value
        return self._stored(around.key)

    def _stored(self, key: int | None) -> list[int]:
        return [] if key is None or key not in self.level.arrivals else self.arrived(key, None)
