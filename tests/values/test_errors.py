"""The text of errors."""

from __future__ import annotations

from tfmini import errors


def test_an_error_cannot_move_the_cursor_of_who_reads_it() -> None:
    """Its text may be that of a peer, a file or another client."""
    error = errors.InvalidArgumentError(None, None, "line 1\nline 2 \x1b]0;title\x07\r")
    assert error.message == str(error) == "line 1\nline 2 \\x1b]0;title\\x07\\r"
    assert errors.AbortedError.of("\x1b[2J").message == "\\x1b[2J"
