"""Text from outside, made fit for a terminal, a log or a table: names, messages, addresses that others have chosen.

A control character could move the cursor, forge a line of a log, or set a terminal's title; a mark of direction could
show a name in another order than it has. `printable` shows them as Python writes them in a string: ``\x1b``,
``\n``, ``\u202e``.
"""

from __future__ import annotations

from collections.abc import Collection


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


# ---- suggestions ----------------------------------------
# The names that a user may have meant by a name that does not exist. Only error messages need this module.

_SIMILAR = 0.75  # of difflib's ratio: one letter more, less or other in four, two in eight
_SHORTEST_BEGINNING = 3


def similar(wrong: str, known: Collection[str], most: int = 3) -> list[str]:
    """The known names that resemble a wrong one, the most likely first.

    They differ from it in case or in a few letters, or one of the two names begins or ends with the other.
    Leading dashes, as options have them, do not count.
    """
    from difflib import get_close_matches  # takes a few ms to import

    plain = {name: _plain(name) for name in known}
    asked = _plain(wrong)
    ranks = {name: rank for name, own in plain.items() if (rank := _rank(asked, own)) is not None}
    close = get_close_matches(asked, set(plain.values()) - {plain[name] for name in ranks}, most, _SIMILAR)
    found = sorted(ranks, key=lambda name: (ranks[name], len(name)))
    return [*found, *(name for own in close for name in known if plain[name] == own)][:most]


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def _rank(asked: str, own: str) -> int | None:
    """0 for the same name, 1 if one name ends with the other as a word, 2 if it begins with it; else None."""
    if asked == own:
        return 0
    short, long = sorted((asked, own), key=len)
    if not short:
        return None
    if long.endswith(("/" + short, "_" + short)):
        return 1
    return 2 if len(short) >= _SHORTEST_BEGINNING and long.startswith(short) else None
