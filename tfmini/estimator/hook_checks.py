"""Checks of the arguments that several methods of an estimator share: hooks and numbers of steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.train.hooks.checkpoint_hook import CheckpointSaverListener
from tfmini.train.hooks.session_run_hook import SessionRunHook


def checked_hooks(hooks: Iterable[Any] | None) -> list[Any]:
    """A list of the hooks; TypeError for what is no hook."""
    found = list(hooks or [])
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook}")
    return found


def checked_listeners(listeners: Iterable[Any] | None) -> list[Any]:
    """A list of the listeners; TypeError for what is no listener."""
    found = list(listeners or [])
    for listener in found:
        if not isinstance(listener, CheckpointSaverListener):
            raise TypeError(f"saving_listeners must be a list of CheckpointSaverListener, given: {listener}")
    return found


def check_positive(name: str, steps: int | None) -> None:
    """ValueError for a number of steps that is not positive."""
    if steps is not None and steps <= 0:
        raise ValueError(f"Must specify {name} > 0, given: {steps}")
