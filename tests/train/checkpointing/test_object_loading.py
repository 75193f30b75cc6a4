"""Objects in SavedModels; what is expected is what TensorFlow 1.15.5 does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.oracle import Oracle, sent
from tests.train.checkpointing import object_exchange as exchange
from tfmini import protos


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


def _child_before_the_first(objects: Any) -> None:
    objects.nodes[0].children[0].node_id = -1


def _child_behind_the_last(objects: Any) -> None:
    objects.nodes[0].children[0].node_id = len(objects.nodes)


def _captures(number: int, objects: Any) -> None:
    (function,) = objects.concrete_functions.values()
    function.bound_inputs[:] = [number]


@pytest.mark.parametrize(
    "change, said",
    [
        (_child_before_the_first, "is not valid: The SavedModel names item -1 of"),
        (_child_behind_the_last, "is not valid: The SavedModel names item"),
        (functools.partial(_captures, -2), "The SavedModel names item -2 of"),
        (functools.partial(_captures, 0), "uses an object of which it can use nothing"),
    ],
)
def test_numbers_of_objects_that_a_file_does_not_have_are_refused(
    tmp_path: Path, change: Callable[[Any], None], said: str
) -> None:
    class Scaled(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = tf.Variable(2.0, use_resource=True)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def scaled(self, x: Any) -> Any:
            return x * self.factor

    with tf.Graph().as_default(), tf.Session() as session:
        module = Scaled()
        session.run(module.factor.initializer)
        tf.saved_model.save(module, str(tmp_path), signatures={})
    file = tmp_path / "saved_model.pb"
    model = protos.SavedModel.FromString(file.read_bytes())
    change(model.meta_graphs[0].object_graph_def)
    file.write_bytes(model.SerializeToString())
    with tf.Graph().as_default(), pytest.raises(ValueError, match=said):
        tf.saved_model.load_v2(str(tmp_path)).scaled(1.0)
