"""Summary ops: their bytes are TensorFlow's, their names and collections too."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops import summary_cases as cases
from tfmini.ops.histogram import Histogram
from tfmini.ops.media_encoding import encode_png


def value(summary: Any) -> bytes:
    with tf.Session(graph=summary.graph) as session:
        return session.run(summary)


def summary_of(expression: str) -> bytes:
    with tf.Graph().as_default():
        return value(cases.build(tf, np, expression))


@pytest.fixture(scope="module")
def theirs(oracle: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("oracle")
    ours, answer = folder / "ours.json", folder / "answer.json"
    ours.write_text(json.dumps({e: summary_of(e).hex() for e in cases.EXPRESSIONS}))
    script = Path(__file__).with_name("oracle_summaries.py")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([oracle, str(script), str(ours), str(answer)], check=True, env=env, timeout=900)
    return json.loads(answer.read_text())


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


def test_histogram_counts_across_chunks_and_limits() -> None:
    whole = np.random.default_rng(0).standard_normal(100_000)
    histogram = Histogram()
    histogram.add(whole)
    proto = tf.HistogramProto()
    histogram.write(proto)
    edges = np.array([-np.inf, *proto.bucket_limit])
    counted = [np.count_nonzero((whole >= low) & (whole < high)) for low, high in zip(edges, edges[1:])]
    assert list(proto.bucket) == counted
    assert proto.num == len(whole)
    assert proto.sum == sum(whole.tolist())
    assert (proto.min, proto.max) == (whole.min(), whole.max())


def test_histogram_of_the_largest_number_stays_in_the_last_bucket() -> None:
    histogram = Histogram()
    with np.errstate(over="ignore"):  # the square
        histogram.add(np.array([np.finfo(np.float64).max]))
    proto = tf.HistogramProto()
    histogram.write(proto)
    assert list(proto.bucket) == [0, 1]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_decodes_to_the_pixels(dtype: Any, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (5, 7, channels)).astype(dtype)
    data = encode_png(pixels)
    start = data.index(b"IDAT")
    body = zlib.decompress(data[start + 4 : start + 4 + int.from_bytes(data[start - 4 : start])])
    lines = np.frombuffer(body, np.uint8).reshape(5, -1)
    rows = lines[:, 1:].reshape(5, 7, -1).cumsum(axis=1).astype(np.uint8)
    np.testing.assert_array_equal(rows.view(np.dtype(dtype).newbyteorder(">")).reshape(pixels.shape), pixels)


def test_names_tags_and_collections(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tfmini")
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


def test_audio_with_the_rate_as_attr() -> None:
    made = tf.raw_ops.AudioSummary(tag="t", tensor=[[0.5, -0.5]], sample_rate=100.0)
    audio = tf.Summary.FromString(value(made)).value[0].audio
    assert (audio.sample_rate, audio.num_channels, audio.length_frames) == (100.0, 1, 2)
    assert audio.encoded_audio_string[-4:] == np.array([2**14, -(2**14)], "<i2").tobytes()


def test_text_wants_strings() -> None:
    with pytest.raises(ValueError, match="to have dtype string"):
        tf.summary.text("t", tf.constant([1, 2]))


def test_description_of_a_tensor_summary() -> None:
    made = tf.raw_ops.TensorSummary(tensor=[1.0], description='{"typeHint": "x"}')
    assert tf.summary.get_summary_description(made.op.node_def).type_hint == "x"
    with pytest.raises(ValueError, match="Can't get_summary_description on ScalarSummary"):
        tf.summary.get_summary_description(tf.summary.scalar("a", 1.0).op.node_def)
