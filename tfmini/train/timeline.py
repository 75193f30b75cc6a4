"""``tensorflow.python.client.timeline``: the step stats of a run as a trace for a browser."""

from __future__ import annotations

from typing import Any

from tfmini.train.step_stats_trace import chrome_trace


class Timeline:
    """A step's stats, to be shown by ``chrome://tracing``.

    Args:
      step_stats: a StepStats message.
      graph: of no effect: the op types and inputs come from the stats.
    """

    def __init__(self, step_stats: Any, graph: Any = None) -> None:
        self._step_stats = step_stats

    def generate_chrome_trace_format(self, show_dataflow: bool = True, show_memory: bool = False) -> str:
        """The trace as JSON text, as `chrome_trace` makes it."""
        return chrome_trace(self._step_stats, show_dataflow, show_memory)
