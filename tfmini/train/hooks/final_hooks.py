"""Hooks that feed every run, and that run something at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook

_log = logging.getLogger("tfmini")


class FinalOpsHook(SessionRunHook):
    """Evaluates tensors at the end of the session (``tf.train.FinalOpsHook``).

    Args:
      final_ops: tensors, in any structure that a run takes.
      final_ops_feed_dict: feeds for them.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """Their values; None before the end."""
        return self._final_ops_values

    def end(self, session: Any) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, feed_dict=self._final_ops_feed_dict)
        except (errors.OutOfRangeError, StopIteration):
            _log.warning(
                "The ops of a FinalOpsHook have met the end of the input: they depend on an input pipeline, which is"
                " exhausted by now. Give the hook ops that only read variables, such as a metric's value_op and not its"
                " update_op."
            )
            raise


class FeedFnHook(SessionRunHook):
    """Feeds every run with what a function returns (``tf.train.FeedFnHook``).

    Args:
      feed_fn: () -> {tensor: value}.
    """

    def __init__(self, feed_fn: Callable[[], Any]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
