"""The state that a run keeps beside the variables of its model, such as tokens: how it follows the model's values."""

from __future__ import annotations

from typing import Any, Protocol

from tfmini.graph.graph import Graph


class RunState(Protocol):
    """State of a run on other tasks. Its methods are called on the chief.

    The methods take a session of the model and its ConfigProto, and raise the errors of a session.
    """

    def is_whole(self, session: Any, config: Any) -> bool:
        """Whether the state and the model belong together; False if a chief ended in the middle of an update."""
        ...

    def renew(self, session: Any, config: Any) -> None:
        """Begins anew, because the model has been initialised or restored."""
        ...


def add_run_state(graph: Graph, state: RunState) -> None:
    """Makes the session managers of a graph take care of a state."""
    graph.attachments.setdefault(RunState, []).append(state)


def run_states(graph: Graph) -> tuple[RunState, ...]:
    """The states of a graph."""
    return tuple(graph.attachments.get(RunState, ()))
