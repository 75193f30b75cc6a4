"""Summary ops: their bytes are TensorFlow's, their names and collections too."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.summary import summary_cases as cases
from tests.oracle import Oracle


def value(summary: Any) -> bytes:
    with tf.Session(graph=summary.graph) as session:
        return session.run(summary)


def summary_of(expression: str) -> bytes:
    return cases.run(tf, np, expression)


@pytest.fixture(scope="module")
def theirs(oracle: Oracle) -> Any:
    return oracle.call(cases.differences, {e: summary_of(e) for e in cases.EXPRESSIONS})


@pytest.mark.oracle
@pytest.mark.parametrize("expression", cases.EXPRESSIONS)
def test_bytes_are_tensorflows(theirs: Any, expression: str) -> None:
    assert expression not in theirs["differences"]


@pytest.mark.oracle
@pytest.mark.parametrize("expression", cases.ERRORS)
def test_errors_are_tensorflows(theirs: Any, expression: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        summary_of(expression)
    first = caught.value.message.splitlines()[0]
    # Two wordings are 1.15's, not those of the release with which we compare.
    wanted = theirs["errors"][expression].replace("values are not", "values not")
    assert first in wanted.replace("Infinity in Histogram", "Infinity in summary histogram")


def test_summaries_have_tensorflows_names_tags_and_collections(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tensorflow")
    with tf.name_scope("outer"):
        first = tf.summary.scalar("a b", 1.0)
        second = tf.summary.scalar("a b", 1.0, family="fam", collections=["mine"])
    assert first.op.name == "outer/a_b"
    assert "Summary name a b is illegal; using a_b instead." in caplog.text
    assert second.op.name == "outer/fam/a_b"
    assert [v.tag for v in tf.Summary.FromString(value(first)).value] == ["outer/a_b"]
    assert [v.tag for v in tf.Summary.FromString(value(second)).value] == ["fam/outer/fam/a_b"]
    assert tf.get_collection(tf.GraphKeys.SUMMARIES) == [first]
    assert tf.get_collection("mine") == [second]
    assert tf.summary.merge_all("nothing here") is None


def test_the_rate_of_audio_may_be_an_attr() -> None:
    made = tf.raw_ops.AudioSummary(tag="t", tensor=[[0.5, -0.5]], sample_rate=100.0)
    audio = tf.Summary.FromString(value(made)).value[0].audio
    assert (audio.sample_rate, audio.num_channels, audio.length_frames) == (100.0, 1, 2)
    assert audio.encoded_audio_string[-4:] == np.array([2**14, -(2**14)], "<i2").tobytes()


def test_text_summaries_refuse_numbers() -> None:
    with pytest.raises(ValueError, match="to have dtype string"):
        tf.summary.text("t", tf.constant([1, 2]))


def test_the_description_of_a_tensor_summary_is_read_back() -> None:
    made = tf.raw_ops.TensorSummary(tensor=[1.0], description='{"typeHint": "x"}')
    assert tf.summary.get_summary_description(made.op.node_def).type_hint == "x"
    with pytest.raises(ValueError, match="Can't get_summary_description on ScalarSummary"):
        tf.summary.get_summary_description(tf.summary.scalar("a", 1.0).op.node_def)
