"""Programs of TensorFlow 1's time answer as on TensorFlow 1.15.5 (`tests.programs.era`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import tfmini as tf
from tests.oracle import Oracle
from tests.programs import era
from tfmini.compat import internals


@pytest.fixture(autouse=True)
def tensorflow_is_tfmini() -> Iterator[None]:
    internals.install()
    yield
    internals.uninstall()


@pytest.mark.parametrize("name", era.programs())
def test_a_program_answers_as_on_tensorflow_1_15(name: str) -> None:
    ours, theirs = era.answers(tf, [name])[name], json.loads(era.ANSWERS.read_text())[name]
    assert is_near(ours, theirs), f"{ours}, TensorFlow {theirs}"


@pytest.mark.oracle_1x
def test_the_answers_are_those_of_tensorflow_1_15(oracle_1x: Oracle) -> None:
    now, kept = oracle_1x.call(era.answers, list(era.programs())), json.loads(era.ANSWERS.read_text())
    assert [name for name in kept if not is_near(now[name], kept[name])] == []


def is_near(one: Any, other: Any) -> bool:
    """Whether two answers are the same but for the rounding of their floats."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_near, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 2e-4 * max(1.0, abs(other))
    return type(one) is type(other) and bool(one == other)
