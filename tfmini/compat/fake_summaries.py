"""What tests read of summaries, and a writer that keeps them in memory (``tf.contrib.testing``)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from typing import Any

import numpy as np

from tfmini import protos
from tfmini.export import export
from tfmini.train.summary_writer import summary_iterator


@export("tf.contrib.testing.assert_summary")
def assert_summary(
    expected_tags: Iterable[str], expected_simple_values: Mapping[str, float], summary_proto: Any
) -> None:
    """Checks what a summary has (``tf.contrib.testing.assert_summary``).

    Args:
      expected_tags: all tags.
      expected_simple_values: tag -> number, for some of them.
      summary_proto: the Summary.

    Raises:
      ValueError: for other tags.
      AssertionError: for another number, to two decimals.
    """
    tags = {value.tag for value in summary_proto.value}
    if set(expected_tags) != tags:
        raise ValueError(f"Expected tags {set(expected_tags)}, got {tags}.")
    for value in summary_proto.value:
        if value.tag in expected_simple_values:
            np.testing.assert_almost_equal(value.simple_value, expected_simple_values[value.tag], 2, value.tag)


@export("tf.contrib.testing.to_summary_proto")
def to_summary_proto(summary_str: bytes) -> Any:
    """The Summary of its bytes (``tf.contrib.testing.to_summary_proto``)."""
    return protos.Summary.FromString(summary_str)


@export("tf.contrib.testing.latest_event_file")
def latest_event_file(base_dir: str) -> str | None:
    """The newest file of events in a directory, or None (``tf.contrib.testing.latest_event_file``)."""
    found = glob(os.path.join(base_dir, "events.*"))
    return max(found, key=os.path.getctime) if found else None


@export("tf.contrib.testing.latest_events")
def latest_events(base_dir: str) -> Iterable[Any]:
    """The Events of `latest_event_file`; none if there is no file (``tf.contrib.testing.latest_events``)."""
    path = latest_event_file(base_dir)
    return [] if path is None else summary_iterator(path)


@export("tf.contrib.testing.latest_summaries")
def latest_summaries(base_dir: str) -> list[Any]:
    """Those of `latest_events` that have a summary (``tf.contrib.testing.latest_summaries``)."""
    return [event for event in latest_events(base_dir) if event.HasField("summary")]


@export("tf.contrib.testing.simple_values_from_events")
def simple_values_from_events(events: Iterable[Any], tags: Sequence[str]) -> dict[str, float]:
    """The numbers of tags, the last of each (``tf.contrib.testing.simple_values_from_events``).

    Args:
      events: Events with summaries.
      tags: the tags.

    Raises:
      ValueError: when one of them is of something else.
    """
    found = {}
    for value in (value for event in events for value in event.summary.value):
        if value.tag in tags:
            if not value.HasField("simple_value"):
                raise ValueError(f"Summary for {value.tag} is not a simple_value.")
            found[value.tag] = value.simple_value
    return found


@export("tf.contrib.testing.FakeSummaryWriter")
class FakeSummaryWriter:
    """A writer of summaries that writes nothing (``tf.contrib.testing.FakeSummaryWriter``)."""

    def __init__(self, logdir: Any, graph: Any = None) -> None:
        """A writer.

        Args:
          logdir: the directory, for `assert_summaries`.
          graph: the graph, for `assert_summaries`.
        """
        self._logdir, self._graph = logdir, graph
        self._summaries: dict[Any, list[Any]] = {}
        self._added_graphs: list[Any] = []
        self._added_meta_graphs: list[Any] = []
        self._added_session_logs: list[Any] = []
        self._added_run_metadata: dict[Any, Any] = {}

    @property
    def summaries(self) -> dict[Any, list[Any]]:
        """Step -> the Summaries that were added."""
        return self._summaries

    def assert_summaries(
        self, test_case: Any, expected_logdir: Any = None, expected_graph: Any = None,
        expected_summaries: Mapping[Any, Mapping[str, float]] | None = None, expected_added_graphs: Any = None,
        expected_added_meta_graphs: Any = None, expected_session_logs: Any = None,
    ) -> None:  # fmt: skip
        """Checks what the writer got, as far as it is given.

        Args:
          test_case: the ``unittest.TestCase`` whose assertions fail.
          expected_summaries: step -> tag -> number, all of each step.
        """
        if expected_logdir is not None:
            test_case.assertEqual(expected_logdir, self._logdir)
        if expected_graph is not None:
            test_case.assertTrue(expected_graph is self._graph)
        for step, expected in (expected_summaries or {}).items():
            test_case.assertIn(step, self._summaries)
            values = (value for summary in self._summaries[step] for value in summary.value)
            test_case.assertEqual(dict(expected), {value.tag: value.simple_value for value in values})
        if expected_added_graphs is not None:
            test_case.assertEqual(expected_added_graphs, self._added_graphs)
        if expected_added_meta_graphs is not None:
            test_case.assertEqual(len(expected_added_meta_graphs), len(self._added_meta_graphs))
            for wanted, added in zip(expected_added_meta_graphs, self._added_meta_graphs):
                test_case.assertEqual(wanted, added)
        if expected_session_logs is not None:
            test_case.assertEqual(expected_session_logs, self._added_session_logs)

    def add_summary(self, summ: Any, current_global_step: Any) -> None:
        """Keeps a Summary, or its bytes."""
        summary = protos.Summary.FromString(summ) if isinstance(summ, bytes) else summ
        self._summaries.setdefault(current_global_step, []).append(summary)

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
        """Keeps a graph; raises ValueError for a step below zero or a ``graph_def``."""
        _check_step(global_step)
        if graph_def is not None:
            raise ValueError(f"Unexpected graph_def {graph_def}.")
        self._added_graphs.append(graph)

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Keeps a MetaGraphDef; raises ValueError for a step below zero."""
        _check_step(global_step)
        self._added_meta_graphs.append(meta_graph_def)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Keeps a SessionLog."""
        self._added_session_logs.append(session_log)

    def add_run_metadata(self, run_metadata: Any, tag: Any, global_step: Any = None) -> None:
        """Keeps a RunMetadata by its tag; raises ValueError for a step below zero."""
        _check_step(global_step)
        self._added_run_metadata[tag] = run_metadata

    def flush(self) -> None:
        """Does nothing."""

    def reopen(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


def _check_step(global_step: Any) -> None:
    if global_step is not None and global_step < 0:
        raise ValueError(f"Invalid global_step {global_step}.")
