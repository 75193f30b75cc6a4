"""Text from outside on a terminal or in a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini.text import printable, printable_lines


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain, é, 漢字, 😀", "plain, é, 漢字, 😀"),
        ("a\x1b]0;x\x07\x1b[2J", r"a\x1b]0;x\x07\x1b[2J"), ("a\nb\r", r"a\nb\r"),
        ("a\u202eb\u2028\u200b", r"a\u202eb\u2028\u200b"), ("\x9b31m\x7f", r"\x9b31m\x7f"), ("\ud800", r"\ud800"),
        ("[/x]{0}%s\\", "[/x]{0}%s\\"),
    ],
)  # fmt: skip
def test_what_does_more_than_show_itself_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_one_line_stays_one_and_has_no_control_characters(text: str) -> None:
    assert printable(text).isprintable() and printable(printable(text)) == printable(text)
    assert all(line.replace("\t", "").isprintable() for line in printable_lines(text).split("\n"))


def test_lines_and_tabulators_may_stay() -> None:
    assert printable_lines("a\n\tb\x1b[1m\r\n") == "a\n\tb\\x1b[1m\\r\n"


def test_a_long_text_is_cut() -> None:
    assert printable("abcdef", 4) == "abc…" and printable("abcd", 4) == "abcd"
    assert printable("\x1b" * 3, 4) == "\\x1…" and len(printable("\x1b" * 3000, 300)) == 300
    assert printable(ValueError("odd\n")) == r"odd\n"
