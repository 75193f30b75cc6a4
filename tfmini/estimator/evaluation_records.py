"""The metrics of earlier evaluations, read from their event files."""

from __future__ import annotations

import glob
import os

from tfmini.export import export
from tfmini.train.summaries.event_file_reader import summary_iterator


def evaluations(pattern: str) -> dict[int, dict[str, float]]:
    """Global step -> metrics that are numbers, of the event files whose paths match a pattern."""
    found: dict[int, dict[str, float]] = {}
    for path in sorted(glob.glob(pattern)):
        for event in summary_iterator(path):
            numbers = {v.tag: v.simple_value for v in event.summary.value if v.HasField("simple_value")}
            if numbers:
                found.setdefault(event.step, {}).update(numbers)
    return dict(sorted(found.items()))


@export("tf.contrib.estimator.read_eval_metrics")
def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """`evaluations` of a directory (``tf.contrib.estimator.read_eval_metrics``)."""
    return evaluations(os.path.join(eval_dir, "*.tfevents.*"))
