"""``tf.train.basic_train_loop``: a training loop with a `Supervisor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini import errors
from tfmini.export import export
from tfmini.train.sessions.supervisor import Supervisor


@export("tf.train.basic_train_loop")
def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
) -> None:
    """Calls ``train_step_fn(session, *args, **kwargs)`` until the supervisor stops.

    After a restart of a task of the cluster (AbortedError) the loop continues in a new session.

    Args:
      supervisor: makes the sessions and runs the services.
      train_step_fn: runs one step.
      args, kwargs: further arguments of ``train_step_fn``.
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
