"""Where variables are that have moved away from a task, as that task knows it, and as it tells masters.

No table of the whole cluster exists. A task that has given a variable away refuses each graph that still names it
there, before anything of it runs, and answers with a `Forwarding`: where all that it has given away is now. The master
follows it (`runtime.master.following`), so a session that begins later finds the way, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.graph.op_types import VARIABLE_OPS
from tfmini.locks import Guarded
from tfmini.ops.variables.state import VariableState
from tfmini.runtime.resources import Origins, ResourceManager

VariableKey = tuple[str, str]
"""Container and name of a variable on its task."""


def key_from_wire(row: Any) -> VariableKey:
    """The key at the start of a row of a message.

    Raises:
      ValueError, TypeError: there is none.
    """
    container, name, *_ = row
    return str(container), str(name)


class NewPlace(NamedTuple):
    """Where a variable is now.

    Attributes:
      task, address, incarnation: of the process that has it.
      move: the number of the move that brought it there.
    """

    task: str
    address: str
    incarnation: int
    move: int

    def text(self, name: str) -> str:
        """The error of who still looks for the variable at its old place."""
        return (
            f"The variable {name} has moved to {self.task} at {self.address}. A step that began before it moved cannot"
            " go on: make a new session, as a monitored session does by itself."
        )


@dataclass(frozen=True)
class Forwarding:
    """What a task tells of the variables that it has given away.

    Attributes:
      moved: where each is.
      kept: those that it still has, with a value.
      rest: where everything else that names this task is to go, once it is drained; else None.
    """

    moved: Mapping[VariableKey, NewPlace]
    kept: frozenset[VariableKey]
    rest: NewPlace | None = None

    def to_wire(self) -> list[Any]:
        """As a message carries it."""
        return [
            [[*key, *place] for key, place in self.moved.items()], sorted(map(list, self.kept)), list(self.rest or ())
        ]  # fmt: skip

    @staticmethod
    def from_wire(wire: Any) -> Forwarding:
        """The inverse of `to_wire`.

        Raises:
          ValueError, TypeError: it is none.
        """
        moved, kept, rest = wire
        places = {key_from_wire(row): _place(row[2:]) for row in moved}
        return Forwarding(places, frozenset(map(key_from_wire, kept)), _place(rest) if rest else None)


def _place(row: Any) -> NewPlace:
    task, address, incarnation, move = row
    if not (type(task) is type(address) is str and type(incarnation) is type(move) is int):
        raise TypeError(f"{row} is no place")
    return NewPlace(task, address, incarnation, move)


class VariablesMoved(errors.AbortedError):
    """A graph is refused since it names variables that have moved.

    Attributes:
      forwarding: where to.
      source: the task that has told it, and ``incarnation`` its incarnation.
    """

    forwarding: Forwarding
    source: str
    incarnation: int

    @staticmethod
    def from_task(source: str, incarnation: int, forwarding: Forwarding) -> VariablesMoved:
        """The error that a task answers with."""
        names = sorted(name for _, name in forwarding.moved)
        text = f"{source} has given away {', '.join(names[:5]) or 'its variables'}{', …' if len(names) > 5 else ''}."
        error = VariablesMoved(None, None, text)
        error.source, error.incarnation, error.forwarding = source, incarnation, forwarding
        return error


def key_of(node: Node, default_container: str) -> VariableKey:
    """The key of the variable that a node holds."""
    container, name = node.attrs.get("container") or b"", node.attrs.get("shared_name") or b""
    return container.decode() or default_container, name.decode() or node.name


def keys_of(nodes: Iterable[Node], default_container: str) -> set[VariableKey]:
    """The keys of all variables among nodes."""
    return {key_of(node, default_container) for node in nodes if node.op in VARIABLE_OPS}


class _Gate:
    """Whether variables of a task move, and the graphs that wait for their end. Pure."""

    def __init__(self) -> None:
        self.is_moving = self.is_shut = False
        self.waiting: list[Callable[[], None]] = []

    def begin(self) -> bool:
        """A move begins; False if another one has not ended."""
        before, self.is_moving = self.is_moving, True
        return not before

    def shut(self) -> None:
        """From now on graphs wait."""
        self.is_shut = True

    def wait(self, admit: Callable[[], None]) -> bool:
        """Keeps a graph if it has to wait; returns whether it has to."""
        if self.is_shut:
            self.waiting.append(admit)
        return self.is_shut

    def open(self, is_over: bool) -> list[Callable[[], None]]:
        """Graphs need not wait any more, or the move has ended; returns the graphs that have waited."""
        waiting, self.waiting = self.waiting, []
        self.is_moving, self.is_shut = not is_over, False
        return waiting


class Departures:
    """What a task has given away, of the variables that its sessions share.

    Attributes:
      rest: see `Forwarding`.
    """

    def __init__(self, task: str, incarnation: int, resources: ResourceManager) -> None:
        self._task, self._incarnation, self._resources = task, incarnation, resources
        self.rest: NewPlace | None = None
        self._gate = Guarded("moving", _Gate())

    def begin_move(self) -> bool:
        """A move begins, if no other one is under way; returns whether it may."""
        return self._gate(_Gate.begin)

    def shut_gate(self) -> None:
        """Lets graphs that are to be registered wait."""
        self._gate(_Gate.shut)

    def open_gate(self, is_over: bool = True) -> None:
        """Ends a move, or lets go for a moment, and admits the graphs that have waited for that."""
        for admit in self._gate(_Gate.open, is_over):
            admit()

    def admit_or_wait(self, admit: Callable[[], None]) -> None:
        """Admits a graph that is to be registered, now or when `open_gate` is called."""
        if not self._gate(_Gate.wait, admit):
            admit()

    def check(self, resources: Any, nodes: Iterable[Node]) -> None:
        """Refuses a graph that names variables which are elsewhere.

        Args:
          resources: those of the graph's session.

        Raises:
          VariablesMoved: it does.
        """
        if isinstance(resources, ResourceManager):  # an isolated session's own, of which nothing moves
            return
        moved = resources.moved
        if self.rest is None and (not moved or moved.keys().isdisjoint(keys_of(nodes, resources.default_container))):
            return
        raise VariablesMoved.from_task(self._task, self._incarnation, self.forwarding())

    def forwarding(self) -> Forwarding:
        """What this task tells now."""
        moved = dict(self._resources.moved)
        kept = {key for key, state in self.variables().items() if key not in moved and state.is_initialized}
        return Forwarding(moved, frozenset(kept), self.rest)

    def variables(self) -> dict[VariableKey, VariableState]:
        """The variables that are here, with a value or without."""
        return {
            (container, name): state
            for container, kind, name, state in self._resources.contents()
            if kind == "variable" and not state.moved_text
        }

    def origins_on(self, key: VariableKey, target: str) -> Origins:
        """The tasks that a variable will depend on when it has gone from here to another task.

        A graph asks the first one of them, which tells of the second, and so on. One that gets back what it has had
        before is asked itself.
        """
        chain = (*self._resources.origins.get(key, ()), (self._task, self._incarnation))
        at = next((i for i, (task, _) in enumerate(chain) if task == target), len(chain))
        return chain[:at]

    def forsake(self, key: VariableKey, known: Mapping[str, int]) -> bool:
        """Drops a variable whose origin has been restarted, so that no session can find it here; whether it was one.

        Args:
          known: task -> its incarnation now.
        """
        gone = [task for task, then in self._resources.origins.get(key, ()) if known.get(task, then) != then]
        state = self.variables().get(key)
        if not gone or state is None:
            return False
        state.give_up(f"The variable {key[1]} is lost, as {gone[0]}, from which it came, was restarted.")
        self._resources.origins.pop(key, None)
        self._resources.delete(key[0], "variable", key[1])
        return True

    def check_room_for(self, key: VariableKey, sender: str, incarnation: int) -> None:
        """Refuses a variable that is here already, unless it came from an earlier incarnation of the sender.

        Raises:
          FailedPreconditionError: it is.
        """
        if self.rest is not None:
            raise errors.FailedPreconditionError.of(f"{self._task} is drained, and takes no variables.")
        state = self.variables().get(key)
        if state is None or not state.is_initialized or self.forsake(key, {sender: incarnation}):
            return
        raise errors.FailedPreconditionError.of(
            f"{self._task} has another variable {key[1]}, which the one of {sender} would replace."
        )

    def others(self) -> list[str]:
        """What else is here and cannot move, such as ``queue input``."""
        return sorted(
            f"{kind} {name}"
            for _, kind, name, state in self._resources.contents()
            if kind != "variable" or type(state) is not VariableState
        )
