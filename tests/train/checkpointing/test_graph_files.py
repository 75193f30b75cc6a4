"""The graph in a training directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.train.checkpointing import graph_files
from tfmini.train.checkpointing.graph_files import GRAPH_FILE, write_training_graph


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graph files that are written."""
    found: list[str] = []
    write = graph_files.write_graph

    def noted(graph: Any, directory: str, name: str, **more: Any) -> str:
        found.append(name)
        return write(graph, directory, name, **more)

    monkeypatch.setattr(graph_files, "write_graph", noted)
    return found


@pytest.mark.parametrize("with_hook", [True, False])
def test_a_fresh_chief_writes_its_graph_once(tmp_path: Path, written: list[str], with_hook: bool) -> None:
    with tf.Graph().as_default(), tf.train.Server.create_local_server() as server:
        step = tf.train.get_or_create_global_step()
        add = tf.assign_add(step, 1)
        if with_hook:
            with tf.train.MonitoredTrainingSession(server.target, checkpoint_dir=str(tmp_path)) as session:
                session.run(add)
        else:
            with tf.train.Supervisor(logdir=str(tmp_path)).managed_session(server.target) as session:
                session.run(add)
    assert written == [GRAPH_FILE]
    assert "_output_shapes" in (tmp_path / GRAPH_FILE).read_text()


def test_another_graph_or_file_is_written(tmp_path: Path, written: list[str]) -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(1.0, name="one")
        for _ in range(2):
            write_training_graph(graph, str(tmp_path))
        assert len(written) == 1
        tf.constant(2.0, name="two")
        write_training_graph(graph, str(tmp_path))
        assert len(written) == 2 and "two" in (tmp_path / GRAPH_FILE).read_text()
        tf.train.write_graph(tf.Graph(), str(tmp_path), GRAPH_FILE)  # by somebody else
        write_training_graph(graph, str(tmp_path))
        assert "two" in (tmp_path / GRAPH_FILE).read_text()
