"""Variables that move from one task to another while a job runs: the task that has them drives the move.

1. The masters of its sessions hold the steps that use the variables (`runtime.master.holding`), and say which others
   are colocated with them. Graphs that are to be registered here wait.
2. The values are copied to the new tasks, which have got the memory before; no step finds them there yet
   (`ResourceManager.staged`).
3. **The move happens in one moment, here**: if no variable has been changed since it was copied, all of them become
   tombstones (`ops.variables.state.move_away`). Otherwise nothing has happened.
4. The new tasks let steps use them. If this task cannot tell them, the masters do when they learn of the move.
5. The masters go on. A graph that still names a tombstone is refused, and its session follows the variables
   (`runtime.master.following`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.devices import parse
from tfmini.locks import Guarded
from tfmini.ops.variables.state import VariableState, move_away
from tfmini.rpc import messages as m
from tfmini.rpc.calls import Outcome
from tfmini.rpc.fan_out import FanOut, fan_out, first_error
from tfmini.rpc.peer import Peer
from tfmini.runtime.master.following import VariableGroup, closed_under
from tfmini.runtime.master.master import Master
from tfmini.runtime.native_libraries import give_back_freed_memory
from tfmini.runtime.resources import ResourceManager, SessionOwners
from tfmini.runtime.worker.departures import NewPlace, VariableKey, key_from_wire
from tfmini.runtime.worker.worker import Worker

if TYPE_CHECKING:
    from tfmini.rpc.calls import Responder

_LEASE_S = 30.0  # for so long steps wait at most when this task dies in the middle
_COPY_S = 20.0  # how long the new tasks may take; less than the lease
_REACH_S = 10.0
_REHEARSAL_S = 120.0
_MESSAGE_BYTES = 32 << 20
_LARGE = 1 << 20  # bytes of a variable whose memory is worth a message of its own
_AT_ONCE = 2  # messages with values on their way to a task
_PATIENCE_S = 0.5  # of the first hold; it doubles, since steps that run must end, and others wait meanwhile
_MOST_PATIENCE_S = 8.0
_PAUSE_S = 0.2  # between two holds
_DROP_S = 60.0  # a new task that is cut off keeps its copies if it does not come back so soon
_GRACE_S = 2.0  # a master says better than this task which steps it waits for

Ask = Callable[[Callable[[Outcome[list[VariableGroup]]], None]], Any]


def moving_handlers(worker: Worker, master: Master, owners: SessionOwners) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""
    service = MovingService(worker, master, owners)
    return {
        m.MoveVariables: service.move_variables,
        m.ListVariables: service.list_variables,
        m.HoldSteps: service.hold_steps,
        m.ReleaseSteps: service.release_steps,
        m.StoreVariables: service.store_variables,
        m.SettleVariables: service.settle_variables,
    }


class MovingService:
    """The answers of a task to the messages of moves."""

    def __init__(self, worker: Worker, master: Master, owners: SessionOwners) -> None:
        self.worker, self.master, self._owners = worker, master, owners

    # ---- the task that has the variables ------------------------------------------------------

    def move_variables(self, peer: Peer, request: m.MoveVariables, respond: Responder) -> None:
        """Begins a move."""
        wanted = {key_from_wire(row): str(row[2]) for row in request.variables}
        for task, address in request.tasks:
            if task not in self.master.addresses():
                self.master.set_address(str(task), str(address))
        VariableMove(self, wanted, request.rest, peer, request.patience_ms / 1000, respond).begin()

    def list_variables(self, peer: Peer, request: m.ListVariables, respond: Responder) -> None:
        """Says what is here, and what must stay together."""
        departures = self.worker.departures

        def told(outcomes: Mapping[str, Outcome[list[VariableGroup]]]) -> None:
            groups = [group for found in outcomes.values() if isinstance(found, list) for group in found]
            held = [[*key, state.extent()[1]] for key, state in departures.variables().items()]
            others = tuple(departures.others())
            wire = [group.to_wire() for group in groups]
            respond(m.ListVariablesReply(held, wire, others, departures.forwarding().to_wire()))

        fan_out(self.ask_masters(0, set(), False, 0.0, _GRACE_S), told)

    def ask_masters(
        self, move: int, keys: Iterable[VariableKey], whole: bool, lease_s: float, patience_s: float
    ) -> dict[str, Ask]:
        """How to ask each master that has a session here to hold its steps; `StepHolds.hold` has the arguments."""
        task = self.worker.task
        own = partial(self.master.holds.hold, move, task, list(keys), whole, lease_s, patience_s)
        request = m.HoldSteps(
            move, task, [list(key) for key in keys], whole, round(lease_s * 1000), round(patience_s * 1000)
        )
        limit_s = patience_s + _GRACE_S
        others = {str(peer.identity): partial(_ask_master, peer, request, limit_s) for peer in self.masters()}
        return {"": own, **others}

    def masters(self) -> list[Peer]:
        """The connections to the other tasks whose masters have sessions here.

        One that is not connected now has probably died. If not, its steps that use what has moved fail with
        AbortedError, as those fail that the loss of the connection has cut off.
        """
        found: dict[Any, Peer] = {}
        for handle, session in list(self.worker.sessions.items()):
            if handle in self.master.sessions or isinstance(session.resources, ResourceManager):
                continue
            for peer in self._owners.peers_of(handle)[:1]:
                found.setdefault(peer.identity, peer)
        return list(found.values())

    # ---- a master -----------------------------------------------------------------------------

    def hold_steps(self, peer: Peer, request: m.HoldSteps, respond: Responder) -> None:
        """Holds steps of this task's sessions, for the task that has the variables and for no longer than it lives."""
        if peer.task != request.task or peer.task in ("", self.worker.task):  # this task holds its own without messages
            text = f"{peer} cannot hold steps that use variables of {request.task}: only that task can."
            respond(errors.PermissionDeniedError.of(text))
            return

        def held(outcome: Outcome[list[VariableGroup]]) -> None:
            if isinstance(outcome, errors.OpError):
                respond(outcome)
            else:
                respond(m.HoldStepsReply([group.to_wire() for group in outcome]))

        keys = [key_from_wire(row) for row in request.variables]
        lease_s, patience_s = min(request.lease_ms / 1000, _LEASE_S), request.patience_ms / 1000
        self.master.holds.hold(request.move, request.task, keys, request.whole, lease_s, patience_s, held)

    def release_steps(self, peer: Peer, request: m.ReleaseSteps, respond: None) -> None:
        """Ends a hold."""
        self.master.holds.release(request.move, request.changed)

    # ---- the task that gets the variables -----------------------------------------------------

    def store_variables(self, peer: Peer, request: m.StoreVariables, respond: Responder) -> None:
        """Takes in variables; copying them takes long."""
        if not self.worker.threads.run_in_pool(self._store, peer, request, respond):
            respond(errors.shutting_down(self.worker.task))

    def _store(self, peer: Peer, request: m.StoreVariables, respond: Responder) -> None:
        try:
            values = iter(request.values)
            for row in request.variables:
                self.worker.departures.check_room_for(key_from_wire(row), peer.task, peer.incarnation)
                self._take_in(request.move, peer, row, values)
            respond(m.Acknowledged())
        except errors.OpError as error:
            respond(error)
        except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and the other task wait
            respond(errors.InternalError.of(f"the variables cannot be stored: {type(error).__name__}: {error}"))

    def _take_in(self, move: int, sender: Peer, row: Sequence[Any], values: Iterator[Any]) -> None:
        container, name, dtype, static, text, shape, start, origins, reserved = row
        static = None if static is None else tuple(static)
        make = partial(VariableState, name, dtype, static, container=container, message=text)
        chain = tuple((str(task), int(incarnation)) for task, incarnation in origins)
        state = self.worker.resources.staged(move, sender.identity, container, name, make, chain)
        if shape is None:
            state.clear()
        elif reserved:
            state.reserve(tuple(shape), start, reserved)
        else:
            state.fill(tuple(shape), start, next(values))

    def settle_variables(self, peer: Peer, request: m.SettleVariables, respond: Responder) -> None:
        """Lets steps use them, or drops them."""
        self.worker.resources.unstage(request.move, request.keep)
        respond(m.Acknowledged())


def _ask_master(
    peer: Peer, request: m.HoldSteps, timeout_s: float, answered: Callable[[Outcome[list[VariableGroup]]], None]
) -> None:
    def told(answer: Any) -> None:
        if isinstance(answer, errors.UnavailableError):  # see `MovingService.masters`
            answered([])
            return
        if not isinstance(answer, errors.OpError):
            answer = [VariableGroup.from_wire(group) for group in answer.groups]
        answered(answer)

    peer.call(request, told, timeout_s)


class _Outbox:
    """The messages to a task that have not left. Pure, but for the locks of the variables whose values it takes."""

    def __init__(self, messages: Iterator[m.StoreVariables], at_once: int) -> None:
        self._messages, self._under_way = messages, at_once
        self.failure: errors.OpError | None = None

    def answered(self, answer: Any) -> tuple[m.StoreVariables | None, bool]:
        """A message was answered, or (None) the first are to leave: returns the next one, and whether all is over."""
        if isinstance(answer, errors.OpError):
            self.failure = self.failure or answer
        message = None if self.failure is not None else next(self._messages, None)
        self._under_way -= message is None
        return message, not self._under_way


def _ask_status(peer: Peer, is_needed: bool, answered: Callable[[Any], None]) -> None:
    peer.call(m.GetStatus(), answered, _REACH_S if is_needed else _GRACE_S, wait_for_ready=is_needed)


_States = Sequence[tuple[VariableKey, VariableState]]


class VariableMove:
    """One attempt of a task to give variables away; see the module.

    Args:
      wanted: variable -> the task that is to have it.
      rest: see `m.MoveVariables`.
      asker: who waits for the answer. Once it has given the request up, or is gone, nothing moves any more.
      search_s: for how long to look for a moment without steps that use the variables.
    """

    def __init__(
        self,
        service: MovingService,
        wanted: Mapping[VariableKey, str],
        rest: str,
        asker: Peer,
        search_s: float,
        respond: Responder,
    ) -> None:
        self._service, self._worker, self._master = service, service.worker, service.master
        self._wanted, self._rest, self._respond, self._asker = dict(wanted), rest, respond, asker
        self._search_s, self._until, self._patience_s = search_s, 0.0, _PATIENCE_S
        self._number = self._worker.process.randbits(62) | 1
        self._pinned: dict[VariableState, Any] = {}
        self._targets: dict[str, Peer] = {}
        self._incarnations: dict[str, int] = {}
        self._known: dict[str, int] = {}
        self._reserved: set[VariableKey] = set()  # for which the new tasks have memory without values
        self._holders: list[Peer] = []
        self._began = 0.0
        self._has_moved = self._is_over = False

    def _check(self) -> None:
        departures, own = self._worker.departures, self._worker.task
        here = departures.variables()
        for key in self._wanted:
            if key not in here:
                there = departures.forwarding().moved.get(key)
                where = f"; it is on {there.task}" if there is not None else ""
                raise errors.NotFoundError.of(f"{own} has no variable {key[1]} (container {key[0]}){where}.")
        for task in {*self._wanted.values(), *([self._rest] if self._rest else ())}:
            if task == own or parse(task).job != parse(own).job:
                raise errors.InvalidArgumentError.of(
                    f"{own} gives variables to other tasks of its job only, not to {task}."
                )
            self._targets[task] = self._master.peer(task)
        fixed = (
            departures.others()
            if self._rest
            else [key[1] for key in self._wanted if type(here[key]) is not VariableState]
        )
        if fixed:
            raise _cannot_move(own, fixed)

    def begin(self) -> None:
        """Begins the move, which answers when it has ended."""
        if self._worker.departures.begin_move():
            self._going_on(self._reach)()
        else:
            self._respond(errors.AbortedError.of(f"Other variables of {self._worker.task} are moving."))

    def _going_on(self, method: Callable[..., None]) -> Callable[..., None]:
        """A method that goes on with the move unless it is over. Whatever it raises ends the move.

        Nobody else would open the gate: later moves would be refused, and graphs wait, for ever.
        """

        def go_on(*args: Any) -> None:
            if self._is_over:
                return
            try:
                self._check_wanted()
                method(*args)
            except errors.OpError as error:
                self._end(error)
            except BaseException as error:  # also Ctrl-C; raised in a callback nobody would hear of it
                self._end(errors.InternalError.of(f"the move has failed: {type(error).__name__}: {error}"))
                if not isinstance(error, Exception):
                    raise

        return go_on

    @property
    def _is_given_up(self) -> bool:
        return self._respond.cancelled and not self._has_moved

    def _check_wanted(self) -> None:
        if self._is_given_up:
            text = f"{self._asker.describe()}, which asked for the move, has given it up or is gone: nothing has moved."
            raise errors.AbortedError.of(text)

    def _reach(self) -> None:
        """Asks the new tasks whether they are there."""
        self._check()
        resources, own = self._worker.resources, self._worker.task
        keys = {*self._wanted, *(self._worker.departures.variables() if self._rest else ())}
        origins = {task for key in keys for task, _ in resources.origins.get(key, ())} - {own}
        asked = {task: self._master.peer(task) for task in origins if task in self._master.addresses()}
        calls = {
            task: partial(_ask_status, peer, task in self._targets) for task, peer in (asked | self._targets).items()
        }
        fan_out(calls, self._going_on(self._reached))

    def _reached(self, outcomes: Mapping[str, Outcome[Any]]) -> None:
        """The new tasks are there, so nobody waits for them from now on. What nobody can find here does not move."""
        error = first_error({task: outcomes[task] for task in self._targets})
        if error is not None:
            raise error
        self._known = {
            task: answer.incarnation for task, answer in outcomes.items() if not isinstance(answer, errors.OpError)
        }
        for key in list(self._wanted):
            if self._worker.departures.forsake(key, self._known):
                del self._wanted[key]
        self._incarnations = {task: peer.incarnation for task, peer in self._targets.items()}
        self._rehearse()

    def _begin_hold(self) -> None:
        self._began = self._worker.now()
        self._hold()

    def _hold(self) -> None:
        self._worker.departures.shut_gate()
        self._holders = self._service.masters()
        asked = self._service.ask_masters(self._number, set(self._wanted), bool(self._rest), _LEASE_S, self._patience_s)
        FanOut(asked, self._going_on(self._quiet), until_error=True).begin()

    def _quiet(self, outcomes: Mapping[str, Outcome[list[VariableGroup]]]) -> None:
        """No step runs that uses the variables: takes in what is colocated with them, and copies."""
        error = first_error(outcomes)
        if isinstance(error, errors.DeadlineExceededError) and self._worker.now() < self._until:
            self._hold_later()
            return
        if error is not None:
            raise error
        groups = [group for found in outcomes.values() if isinstance(found, list) for group in found]
        if self._complete(groups) or self._complete_rest():
            self._hold()  # further variables, whose steps run
            return
        self._copy()

    def _hold_later(self) -> None:
        """Lets all go on for a moment, since steps do not end. The new tasks keep the memory that they have got."""
        self._let_go(is_over=False)
        self._patience_s = min(2 * self._patience_s, _MOST_PATIENCE_S)
        self._worker.reactor.call_later(_PAUSE_S, self._going_on(self._begin_hold))

    def _complete(self, groups: Sequence[VariableGroup]) -> bool:
        """Adds all that is colocated with a variable that moves; returns whether there was any."""
        fixed = [name for group in groups if not group.keys.isdisjoint(self._wanted) for name in group.fixed]
        if fixed:
            raise _cannot_move(self._worker.task, fixed)
        before = len(self._wanted)
        for key, task in list(self._wanted.items()):
            for other in closed_under([key], groups):
                if self._wanted.setdefault(other, task) != task:
                    text = (
                        f"{key[1]} and {other[1]} are colocated, so they cannot go to {task} and {self._wanted[other]}."
                    )
                    raise errors.InvalidArgumentError.of(text)
        return len(self._wanted) > before

    def _complete_rest(self) -> bool:
        """Adds, when all is to go, the variables that whoever asked does not know; returns whether there was any."""
        new = self._worker.departures.variables().keys() - self._wanted.keys() if self._rest else ()
        found = [key for key in sorted(new) if not self._worker.departures.forsake(key, self._known)]
        self._wanted |= dict.fromkeys(found, self._rest)
        return bool(found)

    # ---- the copies ---------------------------------------------------------------------------

    def _rehearse(self) -> None:
        """Has the new tasks get their memory while steps run, since new memory is slow to get.

        They get little at a time, for the arrays of steps are new memory, too. The values stay out of it: to have one
        makes the next update copy it, and that step would wait as long.
        """
        here = self._worker.departures.variables()
        states = {key: here[key] for key in self._wanted if key in here}
        self._reserved = set(states)
        self._send_all(states, self._reservations, 1, _REHEARSAL_S, self._rehearsed)

    def _rehearsed(self, outcomes: Mapping[str, Outcome[Any]]) -> None:
        error = first_error(outcomes)
        if error is not None:
            raise error
        self._until = self._worker.now() + self._search_s
        self._begin_hold()

    def _copy(self) -> None:
        here = self._worker.departures.variables()
        states = {key: here[key] for key in self._wanted if key in here}
        if fixed := [key[1] for key, state in states.items() if type(state) is not VariableState]:
            raise _cannot_move(self._worker.task, fixed)
        self._pinned = {state: state.pinned() for state in states.values()}
        self._check_whole()
        self._send_all(states, self._copies, _AT_ONCE, _COPY_S, self._copied)

    def _check_whole(self) -> None:
        """Refuses to leave anything behind that sessions would look for elsewhere from now on, or to send no value.

        Raises:
          OpError: it would be left, or a variable has gone meanwhile, as by `tf.Session.reset`.
        """
        departures = self._worker.departures
        if gone := self._reserved - departures.variables().keys():
            names = ", ".join(sorted(name for _, name in gone)[:5])
            raise errors.AbortedError.of(f"{names} no longer exists on {self._worker.task}: nothing has moved.")
        if self._rest and (others := departures.others()):
            raise _cannot_move(self._worker.task, others)
        left = [
            key[1] for key, state in departures.variables().items()
            if state not in self._pinned and (self._rest or key in self._wanted)
        ]  # fmt: skip
        if left:
            names = ", ".join(sorted(left)[:5])
            raise errors.AbortedError.of(f"A step has made {names} while variables were copied: nothing has moved.")

    def _send_all(
        self, states: Mapping[VariableKey, VariableState], messages: Callable[[_States], Iterator[m.StoreVariables]],
        at_once: int, limit_s: float, done: Callable[[dict[str, Outcome[Any]]], None],
    ) -> None:  # fmt: skip
        """Sends what there is of variables to their new tasks; each of these gets at least one message.

        Args:
          at_once: messages on their way to a task.
        """
        calls = {}
        for task, peer in self._targets.items():
            own = [(key, state) for key, state in states.items() if self._wanted[key] == task]
            calls[task] = partial(self._send, peer, messages(own), at_once)
        wait = FanOut(calls, self._going_on(done), until_error=True)
        late = errors.DeadlineExceededError.of(f"The variables could not be copied within {limit_s:g} s.")
        wait.begin()
        wait.limit(self._worker.reactor, limit_s, lambda: late)

    def _reservations(self, states: _States) -> Iterator[m.StoreVariables]:
        """Messages that get memory for the large values, each for `_MESSAGE_BYTES` at most."""
        for key, state in states:
            shape, size = state.extent()
            count = math.prod(shape)
            step = max(1, _MESSAGE_BYTES * count // max(size, 1))
            for start in range(0, count if size >= _LARGE else 0, step):
                rows = [self._row(key, state, shape, start, min(step, count - start))]
                yield m.StoreVariables(self._number, rows, ())
        yield m.StoreVariables(self._number, [], ())

    def _copies(self, states: _States) -> Iterator[m.StoreVariables]:
        """Messages with the values, of about `_MESSAGE_BYTES` each; a large value is cut into several."""
        rows: list[list[Any]] = []
        values: list[Any] = []
        size = 0
        for key, state in states:
            value = self._pinned[state]
            if value is None:
                rows.append(self._row(key, state, None))
                continue
            flat = value.reshape(-1)
            step = max(1, _MESSAGE_BYTES // value.itemsize)
            for start in range(0, max(1, flat.size), step):
                part = flat[start : start + step]
                rows.append(self._row(key, state, value.shape, start))
                values.append(part)
                size += part.nbytes
                if size >= _MESSAGE_BYTES:
                    yield m.StoreVariables(self._number, rows, tuple(values))
                    rows, values, size = [], [], 0
        yield m.StoreVariables(self._number, rows, tuple(values))

    def _row(
        self, key: VariableKey, state: VariableState, shape: Sequence[int] | None, start: int = 0, reserved: int = 0
    ) -> list[Any]:
        """A row of `m.StoreVariables`."""
        static = None if state.shape is None else list(state.shape)
        chain = [list(origin) for origin in self._worker.departures.origins_on(key, self._wanted[key])]
        whole = None if shape is None else list(shape)
        return [*key, state.dtype, static, state.uninitialized_message, whole, start, chain, reserved]

    def _send(
        self, peer: Peer, messages: Iterator[m.StoreVariables], at_once: int, answered: Callable[[Any], None]
    ) -> None:
        """Sends messages to a task. With two at a time it takes in one while this task copies another."""
        outbox = Guarded("moving", _Outbox(messages, at_once))

        def stored(answer: Any) -> None:
            if self._is_over or self._is_given_up:  # the task drops the copies
                answer = errors.AbortedError.of("The move has ended.")
            message, is_over = outbox(_Outbox.answered, answer)
            if message is not None:
                peer.call(message, stored, _COPY_S, self._incarnations[peer.task])
            elif is_over:
                answered(outbox.state.failure)

        for _ in range(at_once):
            stored(None)

    def _copied(self, outcomes: Mapping[str, Outcome[Any]]) -> None:
        error = first_error(outcomes)
        if error is not None:
            raise error
        self._depart()
        # The targets may be cut off at this very moment; the masters tell them then.
        calls = {task: partial(self._settle, peer, True) for task, peer in self._targets.items()}
        fan_out(calls, self._going_on(lambda settled: self._end(first_error(settled))))

    def _depart(self) -> None:
        """The moment of the move."""
        self._check_whole()
        addresses = self._master.addresses()
        places = {
            key: NewPlace(task, addresses[task], self._incarnations[task], self._number)
            for key, task in self._wanted.items()
        }
        texts = {state: places[key].text(key[1]) for key, state in self._worker.departures.variables().items()
                 if state in self._pinned}  # fmt: skip
        changed = move_away(self._pinned, texts)
        self._pinned = {}
        if changed:
            names = ", ".join(sorted(state.name for state in changed)[:5])
            raise errors.AbortedError.of(f"A step has changed {names} while it was copied: nothing has moved.")
        self._has_moved = True
        self._worker.resources.note_moved(places)
        if self._rest:
            rest = NewPlace(self._rest, addresses[self._rest], self._incarnations[self._rest], self._number)
            self._worker.departures.rest = rest

    def _settle(self, peer: Peer, keep: bool, answered: Callable[[Any], None]) -> None:
        limit_s = _GRACE_S if keep else _DROP_S  # nobody waits until copies are dropped
        incarnation = self._incarnations.get(peer.task)
        peer.call(m.SettleVariables(self._number, keep), answered, limit_s, incarnation, wait_for_ready=True)

    def _let_go(self, is_over: bool) -> None:
        """Lets the steps and the graphs go on that wait, and another move begin if this one is over."""
        self._master.holds.release(self._number, self._has_moved)
        release = m.ReleaseSteps(self._number, self._has_moved)
        for peer in self._holders:
            peer.send(release)
        self._worker.departures.open_gate(is_over)

    def _end(self, error: errors.OpError | None) -> None:
        """Lets everybody go on, and answers."""
        if self._is_over:  # it was cut off, and the cause of that is told
            return
        self._is_over = True
        self._pinned = {}
        if not self._has_moved:
            for task in self._incarnations:
                self._settle(self._targets[task], False, lambda _: None)
        self._let_go(is_over=True)
        if error is not None and not self._has_moved:
            self._respond(error)
            return
        moved = [[*key, task] for key, task in sorted(self._wanted.items())]
        self._respond(m.MoveVariablesReply(moved, round((self._worker.now() - self._began) * 1000)))
        self._worker.threads.run_in_pool(give_back_freed_memory)


def _cannot_move(task: str, what: Sequence[str]) -> errors.OpError:
    shown = ", ".join(sorted(what)[:8]) + (f" and {len(what) - 8} more" if len(what) > 8 else "")
    return errors.FailedPreconditionError.of(
        f"{task} has state that cannot move: {shown}. Only variables move; queues, accumulators, tables, iterators and"
        " the variables of devices that compile stay where they are."
    )
