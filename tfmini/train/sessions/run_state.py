"""The state that a run keeps beside the variables of its model, such as tokens: how it follows the model's values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from tfmini import errors
from tfmini.graph.graph import Graph
from tfmini.runtime.process import current_process
from tfmini.train.sessions import leaving, repetition

RUN_HAS_ENDED = "The synchronous run has ended"
"""The beginning of the reason for an OutOfRangeError that is no failure of the worker."""
STARTED = "a chief ends its run at exit"
NEXT_RUN_S = 10.0
"""Seconds for which a worker that finds a run ended waits for the next one."""


_LONGEST_CAUSE = 1000  # characters of an error's text; the task that failed shows all of it


def fails_run(error: BaseException | None) -> bool:
    """Whether an exception that ends a worker's part of a run is a failure of its script.

    A worker that has lost a task, or was told to end, may come back and go on.
    """
    if isinstance(error, SystemExit):
        return error.code not in (None, 0, leaving.EXIT_CODE)
    # The rest are KeyboardInterrupt and the end of a generator.
    return isinstance(error, Exception) and not isinstance(error, repetition.PREEMPTION_ERRORS)


def cause_of(error: BaseException) -> str:
    """One text that names an exception, its op and its message, for the tasks where it was not raised."""
    text = error.message if isinstance(error, errors.OpError) else str(error)
    op = getattr(error, "op", None)
    kind = type(error).__name__ if op is None else f"{type(error).__name__} in op {op.name!r}"
    return f"{kind}: {text if len(text) <= _LONGEST_CAUSE else text[:_LONGEST_CAUSE] + ' …'}"


class RunState(Protocol):
    """State of a run on other tasks. Its methods are called on the chief, but for `fail` and `has_ended`.

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

    def fail(self, master: str, config: Any, is_chief: bool, error: BaseException) -> None:
        """Tells the workers that this one has failed, with an error for which `fails_run` holds."""
        ...

    def leave(self, session: Any) -> None:
        """This worker goes before its end: a run that goes on does not wait for what it has."""
        ...


def add_run_state(graph: Graph, state: RunState) -> None:
    """Makes the session managers of a graph take care of a state."""
    graph.attachments.setdefault(RunState, []).append(state)


def end_at_exit(graph: Graph, end_run: Callable[[], None], fail_run: Callable[[BaseException], None]) -> None:
    """Calls one of both when the process ends, without an exception or with one, if the run has states.

    Many scripts with a supervisor neither stop it nor close their session.
    """

    def exiting() -> None:
        # Set by an exception that nobody has handled.
        error = getattr(sys, "last_value", None)
        if error is not None:
            fail_run(error)
        else:
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
