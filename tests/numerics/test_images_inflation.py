"""Small inputs that inflate to much."""

from __future__ import annotations

import zlib

import pytest

from tfmini import errors
from tfmini.numerics.images import LIMIT_ENV, inflate, inflate_limit


def test_a_value_that_inflates_to_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_ENV, "1000")
    assert inflate(zlib.compress(b"x" * 1000), 15, "A value") == b"x" * 1000
    with pytest.raises(errors.ResourceExhaustedError, match="A value .* more than 1000 bytes.*set TFMINI_INFLATE"):
        inflate(zlib.compress(b"x" * 1001), 15, "A value")


def test_a_stream_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(zlib.error, match="incomplete"):
        inflate(zlib.compress(b"x" * 1000)[:-1], 15, "A value")


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "-1", "1 GB"):
        monkeypatch.setenv(LIMIT_ENV, text)
        with pytest.raises(errors.InvalidArgumentError, match=LIMIT_ENV):
            inflate_limit()
