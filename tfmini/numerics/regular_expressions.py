"""Regular expressions of TensorFlow's string ops: RE2's syntax and its rules for replacing.

The binding ``google-re2`` (the extra ``tfmini[regex]``) is used where it is installed. Without it Python's ``re``
serves: it treats text as bytes, and refuses patterns in the syntax that only one of the two has.
"""

from __future__ import annotations

import functools
import re
from typing import Any

# What RE2 has and Python's re does not: Unicode classes, POSIX classes, quoted text, other escapes and flags.
_ONLY_RE2 = re.compile(rb"\\[pPCQz]|\\x\{|\[\[?\^?\[?:[\^a-z]+:\]|\(\?[a-z]*U")
_ONLY_PYTHON = re.compile(rb"\(\?<?[=!]|\(\?P=|\(\?\(|\\[1-9]")


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


@functools.lru_cache(maxsize=256)
def compiled(pattern: bytes) -> Any:
    """The pattern as an object with `search`, `fullmatch` and ``groups``.

    Raises:
      PatternError: it is wrong, or needs RE2.
    """
    engine = _engine()
    if engine is not None:
        options = engine.Options()
        options.log_errors = False
        try:
            return engine.compile(pattern, options)
        except engine.error as error:
            reason = error.args[0] if error.args else b""
            raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    plain = pattern.replace(b"\\\\", b"")  # behind an escaped backslash begins no escape
    if _ONLY_RE2.search(plain):
        raise PatternError("it needs RE2's syntax: pip install google-re2 (or tfmini[regex])")
    if _ONLY_PYTHON.search(plain):
        raise PatternError("RE2's syntax has no look-around and no back-references")
    try:
        return re.compile(_with_ends(pattern))
    except re.error as error:
        raise PatternError(str(error)) from None


_DOLLAR = re.compile(rb"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\$", re.DOTALL)
_MULTILINE = re.compile(rb"\(\?[a-zA-Z]*m")


def _with_ends(pattern: bytes) -> bytes:
    r"""The pattern with ``\Z`` for ``$``, which in Python also matches before a newline at the end."""
    if _MULTILINE.search(pattern):
        return pattern
    return _DOLLAR.sub(lambda match: rb"\Z" if match[0] == b"$" else match[0], pattern)


@functools.cache
def _engine() -> Any:
    try:
        import re2
    except ImportError:
        return None
    return re2


def replaced(pattern: Any, text: bytes, rewrite: bytes, everywhere: bool) -> bytes:
    r"""``text`` with matches of a compiled pattern replaced.

    Args:
      rewrite: the new text; ``\0`` to ``\9`` stand for the match and its groups, ``\\`` for a backslash. It ends at
        another escape. With a group that the pattern does not have, the text stays.
      everywhere: whether to replace all matches or the first. An empty match directly after a match does not count.
    """
    pieces = re.split(rb"\\(.|$)", rewrite, flags=re.DOTALL)
    if any(code.isdigit() and int(code) > pattern.groups for code in pieces[1::2]):
        return text
    out, at, last = [], 0, -1
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        start, end = match.span()
        if start == end == last:  # go on behind the next character
            step = _width(text, at)
            out.append(text[at : at + step])
            at, last = at + step, -1
            continue
        out += [text[at:start], _expanded(pieces, match)]
        at = last = end
        if not everywhere:
            break
    out.append(text[at:])
    return b"".join(out)


def _expanded(pieces: list[bytes], match: Any) -> bytes:
    out = [pieces[0]]
    for code, rest in zip(pieces[1::2], pieces[2::2]):
        if code == b"\\":
            out.append(code)
        elif code.isdigit():
            out.append(match.group(int(code)) or b"")
        else:
            break
        out.append(rest)
    return b"".join(out)


def _width(text: bytes, at: int) -> int:
    """The bytes of the UTF-8 character at a place; at least 1."""
    if at >= len(text) or text[at] < 0xC0 or _engine() is None:
        return 1
    return 2 if text[at] < 0xE0 else 3 if text[at] < 0xF0 else 4
