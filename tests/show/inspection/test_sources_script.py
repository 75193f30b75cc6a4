"""Errors of an inspected script: they name a line of the user, and a server's cluster is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.sources import ScriptError

SERVER = 'tf.train.Server({"ps": ["a:1"], "worker": ["b:1"]}, '


@pytest.mark.parametrize("lines, said", [
    (['with tf.device("/nonsense"):', "  pass"], 'line 2 (with tf.device("/nonsense"):): ValueError: Unknown'),
    (['with tf.name_scope("no name!"):', "  pass"], 'line 2 (with tf.name_scope("no name!"):): ValueError'),
    (["import json", 'json.loads("{")'], 'line 3 (json.loads("{")): JSONDecodeError'),
    (["import numpy", "numpy.linalg.inv(numpy.zeros([2, 3]))"], "line 3 (numpy.linalg.inv(numpy.zeros([2, 3])))"),
    (["import helper", "helper.build()"], "helper.py, line 2 (raise KeyError"),
    ([SERVER + '"wroker", 0)'], 'Job "wroker" was not defined in cluster. The jobs of this cluster: '),
    ([SERVER + '"worker", 3)'], 'Task 3 was not defined in job "worker". The tasks of this job: 0'),
    ([SERVER + '"worker", task_index=0, protocol="http")'], 'protocol "http"'),
    (['tf.train.Server({"a": ["h:1"], "b": ["h:1"]}, "a", 0)'], "have the same address"),
])  # fmt: skip
def test_the_users_line_is_blamed(tmp_path: Path, monkeypatch, lines: list[str], said: str) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "script.py").write_text("\n".join(["import tensorflow as tf", *lines]))
    (tmp_path / "helper.py").write_text("def build():\n  raise KeyError('x')\n")
    try:
        with pytest.raises(ScriptError) as caught:
            inspect(tmp_path / "script.py")
    finally:
        __import__("sys").modules.pop("helper", None)
    assert said in str(caught.value)
