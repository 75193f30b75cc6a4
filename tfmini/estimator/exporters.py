"""Exporters: write a model for serving after evaluations (``tf.estimator.LatestExporter`` and its kin)."""

from __future__ import annotations

import abc
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfmini.export import export

if TYPE_CHECKING:
    from tfmini.estimator.estimator import Estimator

_log = logging.getLogger("tensorflow")


@export("tf.estimator.Exporter")
class Exporter(metaclass=abc.ABCMeta):
    """Base class of exporters (``tf.estimator.Exporter``)."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name, which is that of a directory as well."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """Exports a checkpoint, or does not; returns the directory of the export.

        Args:
          estimator: has the model.
          export_path: directory of this exporter's exports.
          checkpoint_path: the checkpoint that was evaluated.
          eval_result: the values of its metrics.
          is_the_final_export: whether training has ended.
        """


class ServingExporter(Exporter):
    """Base class: exports with a receiver function.

    Args:
      name: names the directory of the exports.
      serving_input_receiver_fn: returns a `ServingInputReceiver`.
      assets_extra: path below ``assets.extra`` -> file to copy there.
      as_text: write the message as text.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        self._name = name
        self._serving_input_receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text

    @property
    def name(self) -> str:
        return self._name

    def _write(self, estimator: Estimator, export_path: str, checkpoint_path: str) -> bytes:
        return estimator.export_saved_model(
            export_path,
            self._serving_input_receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
        )


@export("tf.estimator.FinalExporter")
class FinalExporter(ServingExporter):
    """Exports once, when training has ended (``tf.estimator.FinalExporter``); see `ServingExporter`."""

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        if not is_the_final_export:
            return None
        _log.info("Performing the final export in the end of training.")
        return self._write(estimator, export_path, checkpoint_path)


@export("tf.estimator.LatestExporter")
class LatestExporter(ServingExporter):
    """Exports each evaluated checkpoint and keeps the latest exports (``tf.estimator.LatestExporter``).

    Args:
      name, serving_input_receiver_fn, assets_extra, as_text: see `ServingExporter`.
      exports_to_keep: number of exports to keep; None keeps all.

    Raises:
      ValueError: when that number is not positive.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        self._exports_to_keep = checked_number(exports_to_keep)

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        made = self._write(estimator, export_path, checkpoint_path)
        remove_old_exports(export_path, self._exports_to_keep)
        return made


def checked_number(exports_to_keep: int | None) -> int | None:
    """The number of exports to keep; ValueError when it is not positive."""
    if exports_to_keep is not None and exports_to_keep <= 0:
        raise ValueError(f"`exports_to_keep`, if provided, must be a positive number. Got {exports_to_keep}.")
    return exports_to_keep


def remove_old_exports(directory: str, keep: int | None) -> None:
    """Removes all but the latest exports; their names are their times."""
    if keep is None:
        return
    stamps = sorted(int(name) for name in os.listdir(directory) if re.fullmatch(r"\d{10,}", name))
    for stamp in stamps[:-keep]:
        try:
            shutil.rmtree(os.path.join(directory, str(stamp)))
        except OSError as error:  # somebody may be reading it; the training goes on
            _log.warning("Can not delete %s: %s", os.path.join(directory, str(stamp)), error)
