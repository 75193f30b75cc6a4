"""Polling a directory for new checkpoints (``tf.train.checkpoints_iterator``), for a task that evaluates them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from tfmini.export import export
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.state_file import latest_checkpoint

_log = logging.getLogger("tensorflow")
_INTERVAL_S = 1.0


@export("tf.contrib.training.wait_for_new_checkpoint", "tf.contrib.slim.evaluation.wait_for_new_checkpoint")
def wait_for_new_checkpoint(
    checkpoint_dir: str,
    last_checkpoint: str | None = None,
    seconds_to_sleep: float = _INTERVAL_S,
    timeout: float | None = None,
) -> str | None:
    """Waits for a newest checkpoint other than ``last_checkpoint``; returns None after ``timeout`` seconds."""
    _log.info("Waiting for new checkpoint at %s", checkpoint_dir)
    process = current_process()
    deadline = None if timeout is None else process.now() + timeout
    while True:
        found = latest_checkpoint(checkpoint_dir)
        if found is not None and found != last_checkpoint:
            return found
        # Polling, since not every file system supports notifications of changes.
        if deadline is not None and process.now() + seconds_to_sleep > deadline:
            return None
        process.sleep(seconds_to_sleep)


@export(
    "tf.train.checkpoints_iterator",
    "tf.contrib.training.checkpoints_iterator",
    "tf.contrib.slim.evaluation.checkpoints_iterator",
)
def checkpoints_iterator(
    checkpoint_dir: str,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the newest checkpoint whenever it changes; some may be skipped (``tf.train.checkpoints_iterator``).

    Args:
      checkpoint_dir: the directory.
      min_interval_secs: the minimum time between two checkpoints.
      timeout: seconds to wait for a checkpoint; None for no limit.
      timeout_fn: called at a timeout; the iteration ends when it returns True or is None.
    """
    last: str | None = None
    while True:
        found = wait_for_new_checkpoint(checkpoint_dir, last, timeout=timeout)
        if found is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        process = current_process()
        begin = process.now()
        last = found
        yield found
        rest = begin + min_interval_secs - process.now()
        if rest > 0:
            process.sleep(rest)
