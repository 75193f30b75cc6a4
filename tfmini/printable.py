"""Text from outside, made fit for a terminal, a log or a table: names, messages, addresses that others have chosen.

A control character could move the cursor, forge a line of a log, or set a terminal's title; a mark of direction could
show a name in another order than it has. `printable` shows them as Python writes them in a string: ``\\x1b``,
``\\n``, ``\\u202e``.
"""

from __future__ import annotations


def printable(text: object, most: int = 0) -> str:
    """``str(text)`` on one line, without characters that do more than show themselves.

    Args:
      most: the number of characters beyond which it is cut, with "…"; 0: any number.
    """
    found = str(text)
    whole = found[:most] if most else found
    shown = whole if whole.isprintable() else "".join(map(_shown, whole))
    return f"{shown[: most - 1]}…" if most and max(len(found), len(shown)) > most else shown


def printable_lines(text: object) -> str:
    """As `printable`, of a text that may have several lines and tabulators."""
    found = str(text)
    if found.isprintable():
        return found
    return "".join(char if char in "\n\t" else _shown(char) for char in found)


def _shown(char: str) -> str:
    return char if char.isprintable() else ascii(char)[1:-1]
