"""A slice of the random programs; `tests.programs.random_programs` runs as many as wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.programs.random_programs import ANSWERS, FROZEN, Form, difference, forms


@pytest.fixture(scope="module")
def ways() -> Iterator[dict[str, Form]]:
    with forms() as ways:
        yield ways


@pytest.mark.parametrize("first", range(0, len(FROZEN), 10))
def test_programs_compute_what_tensorflow_computes(ways: dict[str, Form], first: int) -> None:
    answers = json.loads(ANSWERS.read_text())
    assert len(answers) == len(FROZEN)
    told = {seed: difference(ways, seed, answers[str(seed)]) for seed in FROZEN[first : first + 10]}
    assert {seed: text for seed, text in told.items() if text is not None} == {}
