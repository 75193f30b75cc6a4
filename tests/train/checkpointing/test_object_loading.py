"""Objects in SavedModels; what is expected is what TensorFlow 1.15.5 does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.oracle import Oracle, sent
from tests.train.checkpointing import object_exchange as exchange


@pytest.mark.oracle
def test_tensorflow_reads_our_objects_and_we_read_its(oracle_1x: Oracle, tmp_path: Path) -> None:
    (tmp_path / "vocabulary.txt").write_text("a\nb\nc\n")
    with tf.Graph().as_default():
        exchange.write(tf, tmp_path / "ours", str(tmp_path / "vocabulary.txt"))
    theirs = oracle_1x.call(exchange.exchange, str(tmp_path))
    (tmp_path / "vocabulary.txt").unlink()  # a model has its files
    for side in ("ours", "theirs"):
        with tf.Graph().as_default():
            assert _same(sent(exchange.serve(tf, tmp_path / side)), theirs["serve"])
        with tf.Graph().as_default():
            assert _same(sent(exchange.load(tf, tmp_path / side)), theirs["load"])
    with tf.Graph().as_default():
        assert sent(exchange.refusals(tf, tmp_path / "tried")) == theirs["refusals"]


def _same(ours: Any, theirs: Any) -> bool:
    """Whether two structures have equal values, whatever the kinds of arrays and numbers."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(_same(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return repr(getattr(ours, "tolist", lambda: ours)()) == repr(getattr(theirs, "tolist", lambda: theirs)())
