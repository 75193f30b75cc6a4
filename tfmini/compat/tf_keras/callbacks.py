"""Callbacks of ``tf.keras`` that do more than those of Keras 2.3."""

from __future__ import annotations

import functools
import os
import re
from types import ModuleType
from typing import Any

from tfmini.train.checkpointing.graph_files import latest_checkpoint


def apply(root: ModuleType) -> None:
    """Gives the copy TensorFlow's `ModelCheckpoint`, and `TensorBoard` the method that libraries' subclasses call."""
    board = root.callbacks.TensorBoard
    own = board.__init__

    @functools.wraps(own)
    def made(self: Any, *args: Any, profile_batch: Any = 2, **kwargs: Any) -> None:
        own(self, *args, **kwargs)  # nothing is profiled

    board.__init__ = made
    board._write_custom_summaries = lambda self, step, logs=None: self._write_logs(logs or {}, step)
    root.callbacks.ModelCheckpoint = _model_checkpoint(root.callbacks.ModelCheckpoint)  # whose module needs its own


def _model_checkpoint(base: Any) -> type:
    class ModelCheckpoint(base):
        """Saves the model after epochs, or whenever it has seen a number of examples.

        Args:
          save_freq: "epoch", or the number of examples after which the model is saved.
          period: the epochs from one file to the next.
          load_weights_on_restart: whether training begins with the newest file whose name fits ``filepath``.
          filepath, monitor, verbose, save_best_only, save_weights_only, mode: as in Keras.

        Raises ValueError for another ``save_freq``, TypeError for other arguments.
        """

        def __init__(
            self, filepath: Any, monitor: str = "val_loss", verbose: int = 0, save_best_only: bool = False,
            save_weights_only: bool = False, mode: str = "auto", save_freq: Any = "epoch", **kwargs: Any,
        ) -> None:  # fmt: skip
            self.load_weights_on_restart = kwargs.pop("load_weights_on_restart", False)
            period = kwargs.pop("period", 1)
            if kwargs:
                raise TypeError(f"ModelCheckpoint got arguments that it does not have: {sorted(kwargs)}")
            if save_freq != "epoch" and not isinstance(save_freq, int):
                raise ValueError(f"Unrecognized save_freq: {save_freq!r}; it is 'epoch' or a number of examples.")
            super().__init__(filepath, monitor, verbose, save_best_only, save_weights_only, mode, period)
            self.save_freq = save_freq
            self._epoch = self._examples = 0

        def on_train_begin(self, logs: Any = None) -> None:
            """Loads the newest file, if the callback is to go on from there."""
            newest = _newest(self.filepath) if self.load_weights_on_restart else None
            if newest is not None:
                self.model.load_weights(newest)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """Notes the epoch, which the names of files have."""
            self._epoch = epoch

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            """Saves the model if it has seen so many examples."""
            if isinstance(self.save_freq, int):
                self._examples += (logs or {}).get("size", 1)
                if self._examples >= self.save_freq:
                    self._examples, self.epochs_since_last_save = 0, self.period
                    self._save(self._epoch, logs)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Saves the model if it is to be saved after epochs."""
            if self.save_freq == "epoch":
                self._save(epoch, logs)

        def _save(self, epoch: int, logs: Any) -> None:
            _refuse_folder(self.filepath.format(epoch=epoch + 1, **(logs or {})))
            super().on_epoch_end(epoch, logs)

        def _get_most_recently_modified_file_matching_pattern(self, pattern: str) -> str | None:
            """The checkpoint that the folder's state names, or the newest file, whose name fits a pattern."""
            return _newest(pattern)

    return ModelCheckpoint


def _refuse_folder(path: str) -> None:
    if os.path.isdir(path) and path.endswith((".h5", ".hdf5", ".keras")):
        raise IsADirectoryError(f"Please specify a non-directory filepath for ModelCheckpoint, not {path!r}.")


def _newest(pattern: str) -> str | None:
    """The checkpoint that a folder's state names, or its newest file, whose name fits a pattern (``{epoch}.h5``)."""
    folder, name = os.path.split(pattern)
    fits = re.compile(".*".join(re.escape(part) for part in re.split(r"\{.*?\}", name)) + "$")
    named = latest_checkpoint(folder)
    if named is not None and fits.match(os.path.basename(named)):
        return str(named)
    names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    found = [os.path.join(folder, one) for one in names if fits.match(one)]
    return max(found, key=lambda path: (os.path.getmtime(path), path), default=None)
