"""``tf.train.basic_train_loop``: a supervised training loop around a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini import errors
from tfmini.train.supervisor import Supervisor


def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
) -> None:
    """Calls ``train_step_fn(session, *args, **kwargs)`` until the supervisor wants to stop.

    When a task of the cluster has been restarted (AbortedError), it goes on in a new session.

    Args:
      supervisor: makes the sessions and runs the services.
      train_step_fn: one step.
      args, kwargs: what it gets besides the session.
      master: the sessions' target.
    """
    while True:
        try:
            with supervisor.managed_session(master) as session:
                while not supervisor.should_stop():
                    train_step_fn(session, *(args or ()), **(kwargs or {}))
            return
        except errors.AbortedError:
            continue
