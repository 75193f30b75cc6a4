"""Regular expressions: RE2's answers where it is installed, and what Python's ``re`` may answer without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import tfmini as tf
from tests.ops.session_run import run
from tfmini.numerics import regular_expressions


@pytest.fixture(params=["re2", "re"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "re2":
        pytest.importorskip("re2")
    else:
        monkeypatch.setitem(sys.modules, "re2", None)
    for cached in (regular_expressions._engine, regular_expressions.compiled):
        cached.cache_clear()
    yield request.param
    for cached in (regular_expressions._engine, regular_expressions.compiled):
        cached.cache_clear()


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
def test_matches_are_replaced(engine: str, text: str, pattern: str, wanted: str) -> None:
    assert replaced(text, pattern) == wanted


def test_rewrites_follow_re2(engine: str) -> None:
    assert replaced("abcd", r"(\w)(\w)", r"\2\1") == "badc"
    assert replaced("abcd", r"(\w)(\w)", r"\2\1\3") == "abcd"  # there is no third group
    assert replaced("abcd", "b", "\\q") == "acd"
    assert replaced("abab", "b", "x", everywhere=False) == "axab"


def test_what_re2_does_not_have_is_refused(engine: str) -> None:
    for pattern in ("(?<!a)b", r"(a)\1", "(a"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid pattern: "):
            replaced("ab", pattern)


def test_unicode_and_posix_classes(engine: str) -> None:
    cases = {
        r"\p{Greek}+": ("xαβγ", "x<αβγ>"), r"\p{Lu}": ("aÄb", "a<Ä>b"), "[[:alpha:]]+": ("ab1", "<ab>1"),
        r"\P{L}+": ("ab12", "ab<12>"), r"\Qa.b\E": ("a.b", "<a.b>"), r"\x{e9}": ("é", "<é>"),
        r"[^\p{L}]": ("a1", "a<1>"),
        "[[:^digit:]]": ("1a", "1<a>"), r"\z": ("a", "a<>"), "(?U)a+": ("aaa", "<a><a><a>"),
    }  # fmt: skip
    for pattern, (text, wanted) in cases.items():
        if engine == "re":
            with pytest.raises(tf.errors.InvalidArgumentError, match="pip install google-re2"):
                replaced(text, pattern)
        else:
            assert replaced(text, pattern) == wanted
    if engine == "re2":
        assert replaced("é", ".") == "<é>" and replaced("é", "[é]") == "<é>" and replaced("é", "x*") == "<>é<>"
        assert run(tf.strings.regex_full_match(["αβ", "a1"], r"\pL+")).tolist() == [True, False]
