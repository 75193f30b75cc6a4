"""Programs of TensorFlow 1's time answer as on TensorFlow 1.15.5 (`tests.programs.era`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
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
    """Those of programs that are as they were when it gave them are not asked for again."""
    names, kept = era.unchecked(), json.loads(era.ANSWERS.read_text())
    now = oracle_1x.call(era.answers, names) if names else {}
    assert [name for name in names if not is_near(now[name], kept[name])] == []


def test_a_program_or_an_answer_that_has_changed_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads(era.ANSWERS.read_text())
    assert kept.keys() == era.programs().keys() and len(era.unchecked()) < len(kept)
    monkeypatch.setattr(era, "CHECKED", tmp_path / "checked.json")
    monkeypatch.setattr(era, "ANSWERS", tmp_path / "answers.json")
    checked = {name: era.stamp(name, kept[name]) for name in kept}
    era.CHECKED.write_text(json.dumps(checked))
    era.ANSWERS.write_text(json.dumps({**kept, "custom_getter": "another"}))
    assert era.unchecked() == ["custom_getter"]
    source = era.source

    def other(path: Path) -> tuple[list[str], dict[str, str]]:
        shared, own = source(path)
        return shared, {name: text + "#" * (name == "bases_of_optimizers") for name, text in own.items()}

    monkeypatch.setattr(era, "source", other)
    assert era.unchecked() == ["bases_of_optimizers", "custom_getter"]
    monkeypatch.setattr(era, "source", lambda path: ([*source(path)[0], "more"], source(path)[1]))
    assert era.unchecked() == list(kept)


def is_near(one: Any, other: Any) -> bool:
    """Whether two answers are the same but for the rounding of their floats."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_near, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 2e-4 * max(1.0, abs(other))
    return type(one) is type(other) and bool(one == other)
