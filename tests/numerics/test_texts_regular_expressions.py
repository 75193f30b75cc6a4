"""Regular expressions: RE2's answers."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.session_run import run


def replaced(text: str, pattern: str, rewrite: str = r"<\0>", everywhere: bool = True) -> str:
    found: bytes = run(tf.strings.regex_replace(text, pattern, rewrite, everywhere))
    return found.decode()


# TensorFlow's answers.
@pytest.mark.parametrize(
    ("text", "pattern", "wanted"),
    [
        ("abc", "x*", "<>a<>b<>c<>"), ("abc", "", "<>a<>b<>c<>"), ("a12b", r"\d+", "a<12>b"), ("ab", "$", "ab<>"),
        ("abc", "(?:a|ab)c?", "<a>bc"), ("xabc", "(?i)ABC", "x<abc>"), ("\n", "(?s).", "<\n>"),
        ("b\n", "b$", "b\n"), ("$b\n", "[$]|\\$", "<$>b\n"), ("a\nb", "(?m)a$", "<a>\nb"),
        ("\\1", r"\\1", r"<\1>"), ("\\p", r"\\p", r"<\p>"), ("\\\\d", r"\\+d", r"<\\d>"),
    ],
)  # fmt: skip
def test_matches_are_replaced(text: str, pattern: str, wanted: str) -> None:
    assert replaced(text, pattern) == wanted


def test_rewrites_follow_re2() -> None:
    assert replaced("abcd", r"(\w)(\w)", r"\2\1") == "badc"
    assert replaced("abcd", r"(\w)(\w)", r"\2\1\3") == "badc"  # there is no third group: it is empty in 1.15.5
    assert replaced("abcd", "b", "\\q") == "acd"
    assert replaced("abab", "b", "x", everywhere=False) == "axab"


def test_what_re2_does_not_have_is_refused() -> None:
    for pattern in ("(?<!a)b", r"(a)\1", "(a"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid pattern: "):
            replaced("ab", pattern)


def test_unicode_and_posix_classes() -> None:
    cases = {
        r"\p{Greek}+": ("xαβγ", "x<αβγ>"), r"\p{Lu}": ("aÄb", "a<Ä>b"), "[[:alpha:]]+": ("ab1", "<ab>1"),
        r"\P{L}+": ("ab12", "ab<12>"), r"\Qa.b\E": ("a.b", "<a.b>"), r"\x{e9}": ("é", "<é>"),
        r"[^\p{L}]": ("a1", "a<1>"),
        "[[:^digit:]]": ("1a", "1<a>"), r"\z": ("a", "a<>"), "(?U)a+": ("aaa", "<a><a><a>"),
    }  # fmt: skip
    for pattern, (text, wanted) in cases.items():
        assert replaced(text, pattern) == wanted
    assert replaced("é", ".") == "<é>" and replaced("é", "[é]") == "<é>" and replaced("é", "x*") == "<>é<>"
    assert run(tf.strings.regex_full_match(["αβ", "a1"], r"\pL+")).tolist() == [True, False]


def test_a_pattern_that_makes_others_backtrack_is_matched_at_once() -> None:
    """Python's ``re`` would take longer than the universe exists."""
    assert replaced("a" * 200 + "!", "(a+)+$", "x") == "a" * 200 + "!"
    assert not run(tf.strings.regex_full_match("a" * 200 + "!", "(a|aa)+"))
