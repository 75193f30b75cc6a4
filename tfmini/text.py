"""Text from outside, made fit for a terminal, a log or a table: names, messages, addresses that others have chosen.

A control character could move the cursor, forge a line of a log, or set a terminal's title; a mark of direction could
show a name in another order than it has. `printable` shows them as Python writes them in a string: ``\x1b``,
``\n``, ``\u202e``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


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


# ---- What commands show on a terminal, by rich: tables and lines whose words may come from outside -----------------
# Rich takes a `str` for markup, in which ``[/x]`` is an error and ``[link=…]`` a link, and hands control characters on.
# Here every word is shown as it is (`tfmini.text`).

_PIPED_WIDTH = 120


class Rows(Table):
    """A table without frames whose cells are plain text, each on one line."""

    def __init__(self, *headers: str, **options: Any) -> None:
        super().__init__(*headers, **{"box": None, "pad_edge": False, **options})

    @classmethod
    def of(cls, *columns: str, one_line: bool = False, **options: Any) -> Rows:
        """A table whose columns fold long texts.

        Args:
          columns: their heads; those of columns of numbers begin with ``>``.
          one_line: texts that are too long for their column are cut off instead.
        """
        table = cls(**options)
        for column in columns:
            head = column.removeprefix(">")
            side: Any = "left" if head == column else "right"
            table.add_column(head, justify=side, overflow="ellipsis" if one_line else "fold", no_wrap=one_line)
        return table

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Adds a row; a cell may be a `Text` as well."""
        super().add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells), **options)


def plain(*lines: str, style: str = "", **options: Any) -> Text:
    """Lines of text without markup."""
    return Text("\n".join(map(printable, lines)), style, **options)


def console(piped_width: int | None = _PIPED_WIDTH, **options: Any) -> Console:
    """The terminal of a command's answer; what is not a terminal has a fixed width."""
    width = None if sys.stdout.isatty() else piped_width
    return Console(**{"highlight": False, "markup": False, "emoji": False, "width": width, **options})
