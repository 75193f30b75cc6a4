"""``tf.estimator.BestExporter``: exports a model when it is better than all before it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfmini.estimator.evaluation import LOSS_KEY
from tfmini.estimator.evaluation_records import evaluations
from tfmini.estimator.exporters import ServingExporter, checked_number, remove_old_exports
from tfmini.export import export

if TYPE_CHECKING:
    from tfmini.estimator.estimator import Estimator

_log = logging.getLogger("tensorflow")
Results = Mapping[str, Any]


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
      name, serving_input_receiver_fn, assets_extra, as_text: see `ServingExporter`.
      event_file_pattern: below the model's directory, the event files with earlier evaluations: a training that goes
        on after an interruption is compared with them. None forgets them.
      compare_fn: called as ``compare_fn(best_eval_result=..., current_eval_result=...)``; returns whether the current
        one is better. Default: the smaller loss is.
      exports_to_keep: number of exports to keep; None keeps all.

    Raises:
      ValueError: when the function or that number makes no sense.
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
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        if compare_fn is None:
            raise ValueError("`compare_fn` must not be None.")
        self._compare_fn = compare_fn
        self._event_file_pattern = event_file_pattern
        self._exports_to_keep = checked_number(exports_to_keep)
        self._model_dir: str | None = None
        self._best: Results | None = None

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Results,
        is_the_final_export: bool,
    ) -> bytes | None:
        if self._model_dir != estimator.model_dir and self._event_file_pattern:
            self._model_dir = estimator.model_dir
            self._best = self._earlier(os.path.join(estimator.model_dir, self._event_file_pattern), eval_result)
        if self._best is not None and not self._compare_fn(
            best_eval_result=self._best, current_eval_result=eval_result
        ):
            return None
        _log.info("Performing best model export.")
        self._best = eval_result
        made = self._write(estimator, export_path, checkpoint_path)
        remove_old_exports(export_path, self._exports_to_keep)
        return made

    def _earlier(self, pattern: str, current: Results) -> Results | None:
        """The best of the evaluations in event files, but for the current one, which is in them already."""
        best: Results | None = None
        for step, result in evaluations(pattern).items():
            if step == int(current["global_step"]):
                continue
            if best is None or self._compare_fn(best_eval_result=best, current_eval_result=result):
                best = result
        return best
