"""The names that are suggested for a wrong one, and those that are not."""

from __future__ import annotations

import pytest

from tfmini.text import similar

NAMES = ["w", "w/read", "scope/W", "Adagrad", "layer1/loss", "loss", "images_", "--cpus-per-task", "--ps", "--svg"]


@pytest.mark.parametrize("wrong, meant", [
    ("W", ["w", "scope/W"]),
    ("w/reed", ["w/read"]),
    ("Adagrat", ["Adagrad"]),
    ("los", ["loss"]),
    ("train/loss", ["loss"]),
    ("images", ["images_"]),
    ("--cpus", ["--cpus-per-task"]),
    ("--pss", ["--ps"]),
    ("--xyz", []),
    ("", []),
    ("ww", []),
])  # fmt: skip
def test_names_that_resemble_a_wrong_one_are_suggested(wrong: str, meant: list[str]) -> None:
    assert similar(wrong, NAMES) == meant


def test_the_best_few_are_suggested() -> None:
    assert similar("loss", [f"tower_{i}/loss" for i in range(9)] + ["loss_1", "Loss"]) == [
        "Loss", "tower_0/loss", "tower_1/loss",
    ]  # fmt: skip
