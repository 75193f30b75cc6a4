"""Exporters: write a model for serving after evaluations (``tf.estimator.LatestExporter`` and its kin)."""

from __future__ import annotations

import abc
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfmini.checkpoint.files import local_path
from tfmini.estimator.early_stopping import evaluations
from tfmini.estimator.evaluation import LOSS_KEY
from tfmini.export import export

if TYPE_CHECKING:
    from tfmini.estimator.estimator import Estimator

_log = logging.getLogger("tensorflow")
Results = Mapping[str, Any]


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
        eval_result: Results,
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
        exports_to_keep: int | None = None,
    ) -> None:
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError(f"`exports_to_keep`, if provided, must be a positive number. Got {exports_to_keep}.")
        self._name = name
        self._serving_input_receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text
        self._exports_to_keep = exports_to_keep

    @property
    def name(self) -> str:
        return self._name

    def _is_due(self, estimator: Estimator, eval_result: Results, is_the_final_export: bool) -> bool:
        """Whether to export the checkpoint."""
        return True

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Results,
        is_the_final_export: bool,
    ) -> bytes | None:
        if not self._is_due(estimator, eval_result, is_the_final_export):
            return None
        made = estimator.export_saved_model(
            export_path,
            self._serving_input_receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
        )
        _remove_old_exports(export_path, self._exports_to_keep)
        return made


@export("tf.estimator.FinalExporter")
class FinalExporter(ServingExporter):
    """Exports once, when training has ended (``tf.estimator.FinalExporter``); see `ServingExporter`."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)

    def _is_due(self, estimator: Estimator, eval_result: Results, is_the_final_export: bool) -> bool:
        if is_the_final_export:
            _log.info("Performing the final export in the end of training.")
        return is_the_final_export


@export("tf.estimator.LatestExporter")
class LatestExporter(ServingExporter):
    """Exports each evaluated checkpoint and keeps the latest exports (``tf.estimator.LatestExporter``).

    Args:
      name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep: see `ServingExporter`.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)


def loss_smaller(best_eval_result: Results, current_eval_result: Results) -> bool:
    """Whether the current loss is smaller; ValueError when a loss is missing."""
    for label, result in (("best_eval_result", best_eval_result), ("current_eval_result", current_eval_result)):
        if not result or LOSS_KEY not in result:
            raise ValueError(f"{label} cannot be empty or no loss is found in it.")
    return bool(best_eval_result[LOSS_KEY] > current_eval_result[LOSS_KEY])


@export("tf.estimator.BestExporter")
class BestExporter(ServingExporter):
    """Exports when an evaluation is the best so far, and keeps the latest exports (``tf.estimator.BestExporter``).

    Args:
      name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep: see `ServingExporter`.
      event_file_pattern: below the model's directory, the event files with earlier evaluations: a training that goes
        on after an interruption is compared with them. None forgets them.
      compare_fn: called as ``compare_fn(best_eval_result=..., current_eval_result=...)``; returns whether the current
        one is better. Default: the smaller loss is.

    Raises:
      ValueError: when the function or the number of exports makes no sense.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Any = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., bool] = loss_smaller,
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        if compare_fn is None:
            raise ValueError("`compare_fn` must not be None.")
        self._compare_fn = compare_fn
        self._event_file_pattern = event_file_pattern
        self._model_dir: str | None = None
        self._best: Results | None = None

    def _is_due(self, estimator: Estimator, eval_result: Results, is_the_final_export: bool) -> bool:
        if self._model_dir != estimator.model_dir and self._event_file_pattern:
            self._model_dir = estimator.model_dir
            self._best = self._earlier(os.path.join(estimator.model_dir, self._event_file_pattern), eval_result)
        best = self._best
        if best is not None and not self._compare_fn(best_eval_result=best, current_eval_result=eval_result):
            return False
        _log.info("Performing best model export.")
        self._best = eval_result
        return True

    def _earlier(self, pattern: str, current: Results) -> Results | None:
        """The best of the evaluations in event files, but for the current one, which is in them already."""
        best: Results | None = None
        for step, result in evaluations(pattern).items():
            if step == int(current["global_step"]):
                continue
            if best is None or self._compare_fn(best_eval_result=best, current_eval_result=result):
                best = result
        return best


def _remove_old_exports(directory: str, keep: int | None) -> None:
    """Removes all but the latest exports; their names are their times."""
    if keep is None:
        return
    directory = local_path(directory)
    stamps = sorted(int(name) for name in os.listdir(directory) if re.fullmatch(r"\d{10,}", name))
    for stamp in stamps[:-keep]:
        try:
            shutil.rmtree(os.path.join(directory, str(stamp)))
        except OSError as error:  # somebody may be reading it; the training goes on
            _log.warning("Can not delete %s: %s", os.path.join(directory, str(stamp)), error)
