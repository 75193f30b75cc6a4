"""What the launcher shows of its tasks' output: lines with prefixes, also those that have no end yet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini.launch.output import AGAIN_AFTER_S, SHOW_AFTER_S, OutputLines


class Shown:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.data = b""
        self.line_of: object | None = None

    def write(self, data: bytes, line_of: object | None = None) -> None:
        self.data += data
        self.line_of = line_of


def outputs(json_tasks: tuple[str, str] = ("", "")) -> tuple[Any, OutputLines, OutputLines]:
    shown: Any = Shown()
    return shown, OutputLines(b"[a] ", shown, json_tasks[0]), OutputLines(b"[b] ", shown, json_tasks[1])


def test_a_line_without_an_end_is_shown_after_a_moment() -> None:
    shown, task, _ = outputs()
    task.feed(b"name? ", now=1.0)
    assert shown.data == b"" and task.due == 1.0 + SHOW_AFTER_S
    task.show()
    assert shown.data == b"[a] name? " and task.due is None
    task.feed(b"x", now=2.0)
    assert shown.data == b"[a] name? x"
    task.feed(b"y\nnext\n", now=3.0)
    assert shown.data == b"[a] name? xy\n[a] next\n"
    assert task.last_lines() == ["name? xy", "next"]


def test_pieces_of_a_line_that_come_soon_are_one_line() -> None:
    shown, task, other = outputs()
    task.feed(b"loss ", now=0.0)
    other.feed(b"other\n", now=0.01)
    task.feed(b"0.5\n", now=0.02)
    assert shown.data == b"[b] other\n[a] loss 0.5\n" and task.due is None


def test_a_progress_bar_keeps_its_prefix() -> None:
    shown, task, _ = outputs()
    task.feed(b"\r 5 %", now=0.0)
    task.show()
    task.feed(b"\r10 %", now=1.0)
    task.feed(b"\r99 %\r", now=2.0)
    task.feed(b"\n", now=3.0)
    assert shown.data == b"[a]  5 %\r[a] 10 %\r[a] 99 %\r\n"
    assert task.last_lines() == ["99 %"]


def test_another_tasks_line_does_not_run_into_one_without_an_end() -> None:
    shown, task, other = outputs()
    task.feed(b"\r5 %", now=0.0)
    task.show()
    other.feed(b"line\n", now=1.0)
    assert shown.data == b"[a] 5 %\n[b] line\n"
    task.feed(b"\r10 %", now=2.0)
    assert task.due == 2.0 + AGAIN_AFTER_S  # bars of many tasks would show nothing else
    task.feed(b"\r15 %", now=3.0)
    assert task.due == 2.0 + AGAIN_AFTER_S
    task.show()
    assert shown.data == b"[a] 5 %\n[b] line\n[a] 10 %\r[a] 15 %"
    other.feed(b"more", now=4.0)
    other.show()
    task.feed(b"\n", now=5.0)
    assert shown.data == b"[a] 5 %\n[b] line\n[a] 10 %\r[a] 15 %\n[b] more"
    assert task.last_lines() == ["15 %"]
    task.end()
    other.end()
    assert shown.data.endswith(b"[b] more\n")


def test_characters_and_line_ends_are_not_cut() -> None:
    shown, task, _ = outputs()
    text = "5 € 😀".encode()
    for end in range(1, len(text) + 1):
        task.feed(text[end - 1 : end], now=0.0)
        task.show()
        shown.data.decode()
    task.feed(b"\r", now=0.0)
    task.show()
    assert shown.data == b"[a] " + text
    task.feed(b"\n", now=0.0)
    assert shown.data == b"[a] " + text + b"\r\n"
    task.feed(b"\xff\xfe", now=0.0)
    task.end()
    assert shown.data.endswith(b"[a] \xff\xfe\n")


def test_records_are_whole_and_show_lines_without_an_end() -> None:
    shown, task, other = outputs(("worker/0", "worker/1"))
    task.feed(b"\r5 %", now=0.0)
    task.show()
    other.feed(b"line\n", now=0.0)
    task.feed(b"\r9 %\n", now=0.0)
    found = [json.loads(line) for line in shown.data.splitlines()]
    assert [record["message"] for record in found] == ["5 %", "line", "9 %"]


@given(
    st.lists(st.tuples(st.booleans(), st.text("xy\r\n", min_size=1, max_size=4), st.booleans()), max_size=30),
)
def test_nothing_is_lost_and_each_line_is_of_one_task(pieces: list[tuple[bool, str, bool]]) -> None:
    shown, *tasks = outputs()
    for is_other, text, shows in pieces:
        task = tasks[is_other]
        task.feed((text.upper() if is_other else text).encode(), now=0.0)
        if shows:
            task.show()
    for task in tasks:
        task.end()
    for name, letters, is_other in (("[a] ", "xy", False), ("[b] ", "XY", True)):
        lines = [line for line in shown.data.decode().split("\n") if line.startswith(name)]
        written = "".join(text for other, text, _ in pieces if other is is_other)
        kept = [c for line in lines for c in line.replace(name, "") if c in letters]
        assert kept == [c for c in (written.upper() if is_other else written) if c in letters]
    for line in shown.data.decode().split("\n")[:-1]:
        assert line.startswith("[a] ") and not set("XY") & set(line) or line.startswith("[b] ")
        assert line.startswith("[a] ") or not set("xy") & set(line)


@pytest.mark.parametrize("size", [1, 100])
def test_output_without_line_ends_is_split(size: int) -> None:
    shown, task, _ = outputs()
    for _ in range((1 << 17) // size // 1024):
        task.feed(b"z" * 1024 * size, now=0.0)
    assert shown.data.count(b"\n") >= 1
