"""Hooks that feed every run (`FeedFnHook`) and that evaluate tensors at the end (`FinalOpsHook`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.export import export
from tfmini.train.hooks.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook

_log = logging.getLogger("tensorflow")


@export("tf.estimator.FinalOpsHook", "tf.train.FinalOpsHook")
class FinalOpsHook(SessionRunHook):
    """Evaluates tensors at the end of the session (``tf.train.FinalOpsHook``).

    Args:
      final_ops: fetches, in any structure that ``Session.run`` accepts.
      final_ops_feed_dict: feeds for the fetches.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values of the tensors; None before the end."""
        return self._final_ops_values

    def end(self, session: Any) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, feed_dict=self._final_ops_feed_dict)
        except (errors.OutOfRangeError, StopIteration):
            _log.warning(
                "The ops of a FinalOpsHook reached the end of the input: they depend on an input pipeline, which is"
                " exhausted at the end of a session. Use ops that only read variables, such as a metric's value_op, not"
                " its update_op."
            )
            raise


@export("tf.estimator.FeedFnHook", "tf.train.FeedFnHook")
class FeedFnHook(SessionRunHook):
    """Feeds every run with the result of a function (``tf.train.FeedFnHook``).

    Args:
      feed_fn: () -> {tensor: value}.
    """

    def __init__(self, feed_fn: Callable[[], Any]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
