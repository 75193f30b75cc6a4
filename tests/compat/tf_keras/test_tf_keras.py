"""``tf.keras`` gives what that of TensorFlow 1.15.5 gave: see `keras_programs`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
ANSWERS = json.loads((Path(__file__).parent / "answers.json").read_text())


def assert_same(found: Any, wanted: Any, where: str = "") -> None:
    """Compares structures; numbers as closely as float32 in another order of sums can be the same."""
    assert type(found) is type(wanted) or isinstance(found, (int, float)), where
    if isinstance(wanted, dict):
        assert sorted(found) == sorted(wanted), where
        for key, value in wanted.items():
            assert_same(found[key], value, f"{where}[{key!r}]")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, (a, b) in enumerate(zip(found, wanted)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(wanted, float):
        np.testing.assert_allclose(found, wanted, rtol=5e-4, atol=1e-5, err_msg=where)
    else:
        assert found == wanted, where


@pytest.fixture(scope="module")
def found() -> Any:
    """What all programs return, in a process of their own: they clear the default graph, which a test may not."""
    command = [sys.executable, "-m", "tests.compat.tf_keras.keras_programs", "tfmini"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("program", sorted(ANSWERS))
def test_program_gives_what_it_gave_on_tensorflow_1_15(program: str, found: Any) -> None:
    assert_same(found[program], ANSWERS[program])


def test_a_saved_model_that_loses_its_optimizer_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(tf.train.AdamOptimizer(), "mse")
    tf.keras.experimental.export_saved_model(model, str(tmp_path / "model"))
    assert "saved without what compile() got" in caplog.text
    assert getattr(tf.keras.experimental.load_from_saved_model(str(tmp_path / "model")), "optimizer", None) is None
    tf.keras.backend.set_session(None)  # Keras keeps one for this graph
