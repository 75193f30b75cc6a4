"""``tf.train.CheckpointManager``: saves numbered checkpoints and deletes old ones."""

from __future__ import annotations

import logging
import os
from glob import escape, glob
from typing import Any

import numpy as np

from tfmini.checkpoint import files
from tfmini.export import export
from tfmini.graph.default_session import get_default_session
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing import state_file as checkpoint_state
from tfmini.train.checkpointing.checkpoint import Checkpoint
from tfmini.train.checkpointing.load_status import session_or_default
from tfmini.train.global_steps import global_step as value_of_step

_log = logging.getLogger("tensorflow")


@export("tf.train.CheckpointManager", "tf.contrib.checkpoint.CheckpointManager")
class CheckpointManager:
    """Saves a `Checkpoint` under numbered names and deletes old ones (``tf.train.CheckpointManager``).

    The directory's state file holds the manager's state, so a new manager continues where another one stopped.

    Args:
      checkpoint: the checkpoint to save.
      directory: the directory of the files.
      max_to_keep: number of checkpoints to keep; None for all.
      keep_checkpoint_every_n_hours: preserve one of the checkpoints to delete at this interval.
      checkpoint_name: first part of the files' names.

    Raises:
      ValueError: when ``max_to_keep`` is below 1.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(f"Expected a positive integer or `None` for `max_to_max_to_keep`, got {max_to_keep}.")
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        self._max_to_keep = max_to_keep
        self._keep_every_n_hours = keep_checkpoint_every_n_hours
        self._prefix = os.path.join(self._directory, checkpoint_name)
        self._latest: str | None = None
        # One second back, so that checkpoints of a manager that ended just before are later than this time.
        self._last_preserved = current_process().wall_time() - 1.0
        self._kept: dict[str, float] = {}
        state = checkpoint_state.get_checkpoint_state(self._directory)
        if state is not None:
            self._recover(state)

    def _recover(self, state: Any) -> None:
        """Takes over the checkpoints of an earlier manager or saver."""
        now = current_process().wall_time()
        self._latest = state.model_checkpoint_path
        self._last_preserved = state.last_preserved_timestamp
        if now < self._last_preserved:
            _log.warning(
                "time.time() returned a value %f seconds behind the last preserved checkpoint timestamp.",
                self._last_preserved - now,
            )
            self._last_preserved = now
        paths = state.all_model_checkpoint_paths
        times = list(state.all_model_checkpoint_timestamps) or [self._last_preserved] * len(paths)
        for path, made in zip(paths, times):
            if min(made, now) > self._last_preserved:
                self._kept[path] = min(made, now)

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest checkpoint, or None; for `Checkpoint.restore`."""
        return self._latest

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of the kept checkpoints, oldest first, without the preserved ones."""
        return list(self._kept)

    def save(self, checkpoint_number: Any = None) -> str:
        """Saves a checkpoint with the default session and deletes excess ones.

        Args:
          checkpoint_number: an integer, or a variable or tensor that holds one; default: the checkpoint's
            save_counter, which is incremented in any case.

        Returns:
          The checkpoint's prefix.
        """
        session = session_or_default(get_default_session())
        number = self._checkpoint._next_number(session)
        if checkpoint_number is not None:
            is_number = isinstance(checkpoint_number, (int, np.integer))
            number = int(checkpoint_number) if is_number else value_of_step(session, checkpoint_number)
        path = self._checkpoint.write(f"{self._prefix}-{number}")
        self._kept.pop(path, None)  # a rewritten checkpoint becomes the newest
        self._kept[path] = current_process().wall_time()
        self._latest = path
        # Written before and after the deletion: a process that is killed in between leaves a valid state file.
        self._write_state()
        self._sweep()
        self._write_state()
        return path

    def _sweep(self) -> None:
        while self._max_to_keep and len(self._kept) > self._max_to_keep:
            path = next(iter(self._kept))
            made = self._kept.pop(path)
            if self._keep_every_n_hours and made - self._keep_every_n_hours * 3600.0 >= self._last_preserved:
                self._last_preserved = made
                continue
            if not checkpoint_state.is_removable(path, os.path.dirname(self._prefix)):
                continue
            files.DISK.remove(files.index_file(path))
            for data in glob(f"{escape(files.local_path(path))}.data-?????-of-?????"):
                files.DISK.remove(data)

    def _write_state(self) -> None:
        assert self._latest is not None
        checkpoint_state.update_checkpoint_state(
            self._directory,
            self._latest,
            list(self._kept),
            all_model_checkpoint_timestamps=list(self._kept.values()),
            last_preserved_timestamp=self._last_preserved,
            save_relative_paths=True,
        )
