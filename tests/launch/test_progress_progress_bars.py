"""Bars for long work: what they show, when, and that they leave nothing on the screen."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tfmini as tf
from tfmini import progress
from tfmini.launch import progress as progress_bars
from tfmini.launch.progress import Bars, amount, shown
from tfmini.show.inspection.api import inspect


class Timer:
    """A timer whose function the test calls."""

    def __init__(self, seconds: float, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.is_due = True
        self._function, self._args = function, args
        TIMERS.append(self)

    def start(self) -> None:
        """It has nothing to start."""

    def cancel(self) -> None:
        self.is_due = False

    def fire(self) -> None:
        self._function(*self._args)


TIMERS: list[Timer] = []


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> tuple[Bars, io.StringIO]:
    monkeypatch.setattr("threading.Timer", Timer)
    TIMERS.clear()
    text = io.StringIO()
    return Bars(Console(file=text, force_terminal=True, width=100), delay_s=1000), text


@pytest.mark.parametrize(
    ("done", "total", "unit", "text"),
    [(3, 16, "tasks", "3 of 16 tasks"), (500, 999, "B", "500 of 999 B"), (1, 2, "", "1 of 2"),
     (1_500_000_000, 4_000_000_000, "B", "1.5 of 4.0 GB"), (0, 12_345, "B", "0.0 of 12.3 kB")],
)  # fmt: skip
def test_amounts_for_people(done: int, total: int, unit: str, text: str) -> None:
    assert amount(done, total, unit) == text


def test_a_bar_is_drawn_after_the_delay_and_gone_at_the_end(screen: tuple[Bars, io.StringIO]) -> None:
    bars, text = screen
    bar = bars.begin("saving [model]", 4_000_000, "B")
    bar.advance(1_000_000)
    assert text.getvalue() == ""  # it may be short
    TIMERS[0].fire()
    bar.advance(1_000_000)
    with bars.cleared():
        before = text.getvalue()
        assert "saving [model]" in before and "2.0 of 4.0 MB" in before
    bar.end()
    assert text.getvalue().endswith("\r\x1b[2K\x1b[?25h\r")  # the line erased, the cursor shown
    shown = text.getvalue()
    TIMERS[0].fire()
    with bars.cleared():
        assert text.getvalue() == shown  # no bar is left


def test_work_that_ends_before_the_delay_draws_nothing(screen: tuple[Bars, io.StringIO]) -> None:
    bars, text = screen
    bar = bars.begin("short")
    bar.end()
    assert not TIMERS[0].is_due
    TIMERS[0].fire()  # all the same
    assert text.getvalue() == ""


def test_nothing_is_shown_and_rich_is_not_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress_bars, "Bars", lambda *_: pytest.fail("bars without a terminal"))
    with shown(), progress.work("anything") as advance:
        advance(1)


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.works: list[list[object]] = []

    def __call__(self, text: str, total: int | None, unit: str) -> Heard:
        self.works.append([text, total, unit, 0])
        return self

    def advance(self, amount: int) -> None:
        self.works[-1][3] += amount  # type: ignore[operator]

    def end(self) -> None:
        self.works[-1].append("ended")


@pytest.fixture
def heard() -> object:
    listener = Heard()
    progress.listen(listener)
    yield listener
    progress.listen(None)


def test_saving_and_restoring_say_how_far_they_are(heard: Heard, tmp_path: Path) -> None:
    tf.get_variable("a", [100, 10])
    tf.get_variable("b", [50])
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = saver.save(session, str(tmp_path / "model"))
        saver.restore(session, path)
    assert heard.works == [
        [f"saving {path}", 4200, "B", 4200, "ended"], [f"restoring {path}", 2, "tensors", 2, "ended"],
    ]  # fmt: skip


def test_a_save_that_fails_ends_its_bar(heard: Heard, tmp_path: Path) -> None:
    op = tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "x"), tensor_names=["a", "a"], shape_and_slices=["", ""], tensors=[np.ones(2), np.ones(2)]
    )
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(op)
    assert heard.works[-1][-1] == "ended"


def test_an_inspection_says_what_it_does(heard: Heard) -> None:
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.get_variable("a", [3])))
    inspect(ps=1, workers=1)._repr_html_()
    assert [str(text).split()[0] for text, *_ in heard.works] == ["placing", "cutting", "listing", "drawing"]
    assert all(work[-1] == "ended" for work in heard.works)
