"""Parsing of Example messages and CSV: known values, errors, and real TensorFlow's answers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.expressions import check, check_error, outcome
from tests.ops.io.parsing_cases import ERRORS, NAMES, VALUES

CASES = VALUES | ERRORS


def evaluated(expression: str) -> Any:
    scope = {"tf": tf}
    exec(NAMES, scope)
    with tf.Session() as session:
        return session.run(eval(expression, scope))


EXPECTED = {
    "dense": [[4, 2], [0, 0]],
    "padded": [[1.5, 2.5], [3.5, 9.0]],
    "sparse_values": [b"x", b"y", b"z", b"w"],
    "sparse_indices": [[0, 0], [0, 1], [1, 0]],
    "sparse_shape": [2, 2],
    "merged": [[0, 0, 2.5, 0, 1.5, 0, 0, 0, 0]],
    "steps": [[1, 2], [3, 4]],
    "batched_steps": [[[1, 2], [3, 4]], [[5, 6], [0, 0]]],
    "batched_lengths": [2, 1],
    "csv": [1, 7],
    "csv_text": [b'a,"b', b"x"],
    "csv_float": [0.5, 3.0],
    "csv_columns": 3,
    "csv_na": 4,
    "json": 5,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_values_are_the_known_ones(name: str) -> None:
    assert np.asarray(evaluated(VALUES[name])).tolist() == EXPECTED[name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing", "Feature: i (data type: int64) is required but could not be found."),
        ("wrong_size", "Number of float values != expected.  Values size: 2 but output shape: [3]"),
        ("wrong_type", "Data types don't match. Expected type: int64, Actual type: float"),
        ("csv_short", "Expect 3 fields but have 2 in record 0"),
        ("csv_quote", "Unquoted fields cannot have quotes/CRLFs inside"),
        ("steps_missing", "Feature list 'n' is required but could not be found."),
    ],
)
def test_parsing_errors_have_tensorflows_text(name: str, text: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(text)):
        evaluated(ERRORS[name])


def test_invalid_messages_and_feature_specs_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse example input, value: 'bogus'"):
        evaluated('tf.parse_example(["bogus"], {"a": tf.VarLenFeature(tf.int64)})["a"].values')
    with pytest.raises(ValueError, match="Missing shape for feature a"):
        tf.parse_example([], {"a": tf.FixedLenFeature(None, tf.int64)})
    with pytest.raises(ValueError, match="First dimension of shape for feature a unknown"):
        tf.parse_example([], {"a": tf.FixedLenFeature([None], tf.int64)})
    with pytest.raises(ValueError, match="Missing"):
        tf.parse_example([], {})


@pytest.mark.oracle
@pytest.mark.parametrize("name", VALUES)
def test_values_are_tensorflows(name: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, VALUES[name], NAMES), theirs[name], rtol=0)


@pytest.mark.oracle
@pytest.mark.parametrize("name", [n for n in ERRORS if n not in ("steps_missing", "stride")])  # 2.x words them anew
def test_errors_are_tensorflows(name: str, theirs: dict[str, Any]) -> None:
    check_error(outcome(tf, ERRORS[name], NAMES), theirs[name])
