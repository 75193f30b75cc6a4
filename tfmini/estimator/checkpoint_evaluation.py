"""Evaluates and exports new checkpoints: between training steps, or in a task of its own."""

from __future__ import annotations

import logging
import os
from typing import Any

from tfmini.estimator.estimator import Estimator
from tfmini.estimator.training_specs import EvalSpec
from tfmini.graph.keys import GraphKeys
from tfmini.runtime.process import current_process
from tfmini.train.hooks.checkpoint_hook import CheckpointSaverListener
from tfmini.train.hooks.timers import SecondOrStepTimer

_log = logging.getLogger("tensorflow")
_POLL_S = 1.0  # with throttle_secs=0, the directory is read once a second
_WARNING_PERIOD_S = 600.0


class CheckpointEvaluator:
    """Evaluates the latest checkpoint, if it is new, and calls the exporters.

    Args:
      estimator: has the model.
      spec: how to evaluate.
      max_steps: the step with which training ends; None: it is not known.
    """

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator = estimator
        self.spec = spec
        self._max_steps = max_steps
        self._last: str | None = None
        self._exported_finally = False
        self._warned = 0.0

    def evaluate(self) -> tuple[dict[str, Any], list[Any]] | None:
        """(metrics, results of the exporters); None if there is no new checkpoint."""
        path = self._estimator.latest_checkpoint()
        if path is None:
            self._warn("Estimator is not trained yet. Will start an evaluation when a checkpoint is ready.")
            return None
        if path == self._last:
            self._warn("No new checkpoint ready for evaluation. Skip the current evaluation pass.")
            return None
        spec = self.spec
        metrics = self._estimator.evaluate(
            spec.input_fn, steps=spec.steps, name=spec.name, checkpoint_path=path, hooks=spec.hooks
        )
        self._last = path
        is_final = self.is_final(metrics)
        exports = self._export(path, metrics, is_final)
        if is_final:
            _log.info("Calling exporter with the `is_the_final_export=True`.")
        return metrics, exports

    def is_final(self, metrics: dict[str, Any]) -> bool:
        """Whether training ends with the checkpoint of these metrics."""
        return bool(self._max_steps) and int(metrics[GraphKeys.GLOBAL_STEP]) >= (self._max_steps or 0)

    def _export(self, path: str, metrics: dict[str, Any], is_final: bool) -> list[Any]:
        if self._exported_finally:  # training may end with two checkpoints beyond its last step
            return []
        self._exported_finally = is_final
        base = os.path.join(self._estimator.model_dir, "export")
        return [
            exporter.export(self._estimator, os.path.join(base, exporter.name), path, metrics, is_final)
            for exporter in self.spec.exporters
        ]

    def _warn(self, text: str) -> None:
        now = current_process().now()
        if not self._warned or now - self._warned > _WARNING_PERIOD_S:  # an evaluator asks every few seconds
            self._warned = now
            _log.warning("%s", text)


class EvaluateNewCheckpoints(CheckpointSaverListener):
    """Evaluates after a checkpoint, unless the last evaluation was short ago, and after the last one.

    Attributes:
      metrics: those of the latest evaluation; None without any.
      exports: the results of its exporters.
    """

    def __init__(self, evaluator: CheckpointEvaluator) -> None:
        self._evaluator = evaluator
        self.metrics: dict[str, Any] | None = None
        self.exports: list[Any] = []

    def begin(self) -> None:
        self._timer = SecondOrStepTimer(every_secs=self._evaluator.spec.throttle_secs)
        self._is_first = True

    def after_save(self, session: Any, global_step_value: int) -> None:
        if self._is_first:  # the checkpoint before the first step
            self._is_first = False
        elif self._timer.should_trigger_for_step(global_step_value):
            self._evaluate(global_step_value)
        else:
            _log.info(
                "Skip the current checkpoint eval due to throttle secs (%d secs).", self._evaluator.spec.throttle_secs
            )

    def end(self, session: Any, global_step_value: int) -> None:
        if global_step_value != self._timer.last_triggered_step():
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        found = self._evaluator.evaluate()
        if found is None:
            raise RuntimeError(
                "There was no new checkpoint after the training: another process may have removed it, or written one"
                " to the same directory."
            )
        self.metrics, self.exports = found


def evaluate_until_end(evaluator: CheckpointEvaluator) -> None:
    """Evaluates each new checkpoint until training has ended; without ``max_steps``, without end."""
    process, spec = current_process(), evaluator.spec
    if spec.start_delay_secs:
        _log.info("Waiting %f secs before starting eval.", spec.start_delay_secs)
        process.sleep(spec.start_delay_secs)
    while True:
        begin = process.now()
        found = evaluator.evaluate()
        if found is not None and evaluator.is_final(found[0]):
            step = found[0][GraphKeys.GLOBAL_STEP]
            _log.info("Exiting evaluation, global_step=%s is the last one of the training.", step)
            return
        rest = max(begin + spec.throttle_secs - process.now(), 0 if found else _POLL_S)
        if rest > 0:
            if found is not None:
                _log.info("Waiting %f secs before starting next eval run.", rest)
            process.sleep(rest)
