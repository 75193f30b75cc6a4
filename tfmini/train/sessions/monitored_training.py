"""``tf.train.MonitoredTrainingSession``: a monitored session with the standard hooks for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.train.hooks.checkpoint_hook import CheckpointSaverHook
from tfmini.train.hooks.logging_hooks import StepCounterHook
from tfmini.train.hooks.session_run_hook import SessionRunHook
from tfmini.train.hooks.summary_hooks import SummarySaverHook
from tfmini.train.sessions.monitored_session import MonitoredSession
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.sessions.session_creators import ChiefSessionCreator, WorkerSessionCreator

# Default of arguments for which None means "never".
USE_DEFAULT: Any = object()


@export("tf.train.MonitoredTrainingSession")
def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: float | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float | None = 7200,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    summary_dir: str | None = None,
) -> MonitoredSession:
    """A monitored session for training (``tf.train.MonitoredTrainingSession``).

    The chief initializes or restores the model, counts steps, writes summaries and saves checkpoints; the other
    workers wait until the model is ready. A period of None disables a service.

    Args:
      master: the session's target.
      is_chief: whether this is the chief.
      checkpoint_dir: directory of the chief's checkpoints; None for no checkpoints.
      scaffold: the scaffold; default: a new one.
      hooks: hooks for all workers, called after the standard ones.
      chief_only_hooks: hooks for the chief, called before the standard ones.
      save_checkpoint_secs: seconds between checkpoints; default 600, unless ``save_checkpoint_steps`` is given.
      save_summaries_steps: steps between summaries; default 100, unless ``save_summaries_secs`` is given.
      save_summaries_secs: seconds between summaries.
      config: the session's ConfigProto.
      stop_grace_period_secs: seconds that closing waits for threads.
      log_step_count_steps: steps between logs of the steps per second.
      max_wait_secs: seconds that a worker waits for the chief.
      save_checkpoint_steps: global steps between checkpoints.
      summary_dir: directory of the summaries; default: ``checkpoint_dir``.
    """
    scaffold = scaffold or Scaffold()
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(worker, hooks or [], stop_grace_period_secs)
    all_hooks = list(chief_only_hooks or ())
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir and _positive(log_step_count_steps):
        all_hooks.append(StepCounterHook(every_n_steps=log_step_count_steps, output_dir=summary_dir))
    steps, secs = _periods(save_summaries_steps, save_summaries_secs, (100, None))
    if summary_dir and (_positive(steps) or _positive(secs)):
        all_hooks.append(SummarySaverHook(steps, secs, summary_dir, scaffold=scaffold))
    steps, secs = _periods(save_checkpoint_steps, save_checkpoint_secs, (None, 600))
    if checkpoint_dir and (_positive(steps) or _positive(secs)):
        all_hooks.append(CheckpointSaverHook(checkpoint_dir, secs, steps, scaffold=scaffold))
    chief = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    return MonitoredSession(chief, all_hooks + list(hooks or ()), stop_grace_period_secs)


def _positive(period: float | None) -> bool:
    return bool(period and period > 0)


def _periods(steps: Any, secs: Any, default: tuple[int | None, float | None]) -> tuple[int | None, float | None]:
    """The periods in steps and in seconds; the default applies only if neither is given."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default
    return (None if steps is USE_DEFAULT else steps), (None if secs is USE_DEFAULT else secs)
