"""Hooks that stop or delay a training loop: at a step, at a NaN loss, until other workers have started."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.runtime.process import current_process
from tfmini.train.global_steps import _get_or_create_global_step_read
from tfmini.train.hooks.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

_log = logging.getLogger("tensorflow")
# How often a waiting worker reads the global step, and the number of steps after which it logs again.
_POLL_S = 0.1
_LOG_EVERY_STEPS = 1000


def global_step_read(hook: str) -> Any:
    """The tensor with which a hook reads the global step.

    Raises:
      RuntimeError: when the graph has no global step; the message names ``hook``.
    """
    read = _get_or_create_global_step_read()
    if read is None:
        raise RuntimeError(f"Global step should be created to use {hook}.")
    return read


@export("tf.estimator.StopAtStepHook", "tf.train.StopAtStepHook")
class StopAtStepHook(SessionRunHook):
    """Requests a stop when the global step reaches a value (``tf.train.StopAtStepHook``).

    Args:
      num_steps: number of steps after the creation of the first session; all workers' steps count.
      last_step: the value of the global step.

    Raises:
      ValueError: unless exactly one is given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    def begin(self) -> None:
        self._global_step_tensor = global_step_read("StopAtStepHook")

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = int(session.run(self._global_step_tensor)) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        if run_values.results + 1 < self._last_step:
            return
        # The fetched value is from before the step, so read the step again.
        if run_context.session.run(self._global_step_tensor) >= self._last_step:
            run_context.request_stop()


@export("tf.estimator.NanLossDuringTrainingError", "tf.train.NanLossDuringTrainingError")
class NanLossDuringTrainingError(RuntimeError):
    """Raised when the loss is NaN (``tf.train.NanLossDuringTrainingError``)."""

    def __str__(self) -> str:
        return "NaN loss during training."


@export("tf.estimator.NanTensorHook", "tf.train.NanTensorHook")
class NanTensorHook(SessionRunHook):
    """Ends training when the loss is NaN (``tf.train.NanTensorHook``).

    Args:
      loss_tensor: the loss.
      fail_on_nan_loss: raise NanLossDuringTrainingError rather than request a stop.
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not np.isnan(run_values.results):
            return
        failure_message = "Model diverged with loss = NaN."
        if self._fail_on_nan_loss:
            _log.error(failure_message)
            raise NanLossDuringTrainingError
        _log.warning(failure_message)
        run_context.request_stop()


@export("tf.estimator.GlobalStepWaiterHook", "tf.train.GlobalStepWaiterHook")
class GlobalStepWaiterHook(SessionRunHook):
    """Delays the first run until the global step reaches a value (``tf.train.GlobalStepWaiterHook``).

    The wait also ends when a stop of the session's coordinator is requested.

    Args:
      wait_until_step: the global step to wait for; no wait if it is not positive.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._coord: Any = None

    def begin(self) -> None:
        self._worker_is_started = False
        self._global_step_tensor = global_step_read("_GlobalStepWaiterHook")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._coord = coord

    def before_run(self, run_context: SessionRunContext) -> None:
        if not self._worker_is_started:
            if self._wait_until_step > 0:
                self._wait(run_context.session)
            self._worker_is_started = True

    def _wait(self, session: Any) -> None:
        _log.info("Waiting for global step %d before starting training.", self._wait_until_step)
        last_logged_step = 0
        while (step := int(session.run(self._global_step_tensor))) < self._wait_until_step:
            if step - last_logged_step > _LOG_EVERY_STEPS:
                _log.info(
                    "Waiting for global step %d before starting training. Current step is %d.",
                    self._wait_until_step, step,
                )  # fmt: skip
                last_logged_step = step
            if self._pause():
                return

    def _pause(self) -> bool:
        """Pauses until the next poll; returns True if a stop was requested."""
        if self._coord is not None:
            return bool(self._coord.wait_for_stop(_POLL_S))
        current_process().sleep(_POLL_S)
        return False
