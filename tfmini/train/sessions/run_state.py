"""The state that a run keeps beside the variables of its model, such as tokens: how it follows the model's values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from tfmini.graph.graph import Graph
from tfmini.runtime.process import current_process

STARTED = "a chief ends its run at exit"
NEXT_RUN_S = 10.0
"""Seconds for which a worker that finds a run ended waits for the next one."""


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

    def has_ended(self, session: Any, config: Any) -> bool:
        """Whether the run has ended, and no chief has begun another; False if something else waits for that."""
        ...

    def end(self, master: str, config: Any) -> None:
        """Tells the workers, also those that come later, that the run has ended in good order."""
        ...


def add_run_state(graph: Graph, state: RunState) -> None:
    """Makes the session managers of a graph take care of a state."""
    graph.attachments.setdefault(RunState, []).append(state)


def end_at_exit(graph: Graph, end_run: Callable[[], None]) -> None:
    """Calls ``end_run`` when the process of a chief ends without an exception, if the run has states.

    Many scripts with a supervisor neither stop it nor close their session.
    """

    def exiting() -> None:
        if not hasattr(sys, "last_type"):  # set by an exception that nobody has handled
            end_run()

    if run_states(graph) and STARTED not in graph.attachments:
        graph.attachments[STARTED] = current_process().at_exit(exiting)


def forget_exit(graph: Graph) -> None:
    """Takes back `end_at_exit`, which keeps the graph in memory: its run has ended."""
    forget = graph.attachments.pop(STARTED, None)
    if forget is not None:
        forget()


def run_states(graph: Graph) -> tuple[RunState, ...]:
    """The states of a graph."""
    return tuple(graph.attachments.get(RunState, ()))
