"""Regular expressions of TensorFlow's string ops: RE2's syntax and its rules for replacing.

RE2 takes time that is linear in the text, whatever the pattern: Python's ``re`` can take for ever, with the interpreter
held, so it never sees a pattern of a graph. RE2 is imported by the first pattern.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from tfmini.machine_memory import check_room

_LOOK_FROM = 64 << 20  # bytes of a result after which, and after each doubling, it is asked whether there is room


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


@functools.lru_cache(maxsize=256)
def compiled(pattern: bytes) -> Any:
    """The pattern as an object with `search`, `fullmatch` and ``groups``.

    Raises:
      PatternError: it is wrong.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def replaced(pattern: Any, text: bytes, rewrite: bytes, everywhere: bool) -> bytes:
    r"""``text`` with matches of a compiled pattern replaced.

    Args:
      rewrite: the new text; ``\0`` to ``\9`` stand for the match and its groups, ``\\`` for a backslash. It ends at
        another escape. With a group that the pattern does not have, the text stays.
      everywhere: whether to replace all matches or the first. An empty match directly after a match does not count.

    Raises:
      MemoryError: there is no room for the result.
    """
    pieces = re.split(rb"\\(.|$)", rewrite, flags=re.DOTALL)
    if any(code.isdigit() and int(code) > pattern.groups for code in pieces[1::2]):
        return text
    out, at, last, total, room = [], 0, -1, 0, _LOOK_FROM
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        start, end = match.span()
        if start == end == last:  # go on behind the next character
            step = _width(text, at)
            out.append(text[at : at + step])
            at, last = at + step, -1
            continue
        out += [text[at:start], _expanded(pieces, match)]
        at = last = end
        total += len(out[-1])
        if total > room:
            check_room((total,), 1)
            room = 2 * total
        if not everywhere:
            break
    out.append(text[at:])
    check_room((total,), 1)
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
    if at >= len(text) or text[at] < 0xC0:
        return 1
    return 2 if text[at] < 0xE0 else 3 if text[at] < 0xF0 else 4
