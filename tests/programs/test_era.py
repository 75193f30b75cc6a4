"""Programs of TensorFlow 1's time answer as on TensorFlow 1.15.5 (`tests.programs.era`)."""

from __future__ import annotations

import json
from collections.abc import Iterator

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
    assert era.answers(tf, [name])[name] == json.loads(era.ANSWERS.read_text())[name]


@pytest.mark.oracle_1x
def test_the_answers_are_those_of_tensorflow_1_15(oracle_1x: Oracle) -> None:
    assert oracle_1x.call(era.answers, list(era.programs())) == json.loads(era.ANSWERS.read_text())
