"""Names of TensorFlow's private module ``training.evaluation``."""

from __future__ import annotations

from tfmini.train.loops import evaluation

__all__: list[str] = []

_StopAfterNEvalsHook = evaluation.StopAfterNEvalsHook
_evaluate_once = evaluation.evaluate_once
_get_or_create_eval_step = evaluation.get_or_create_eval_step
