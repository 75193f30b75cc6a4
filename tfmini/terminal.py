"""What commands show on a terminal, by rich: tables and lines whose words may come from outside.

Rich takes a `str` for markup, in which ``[/x]`` is an error and ``[link=…]`` a link, and hands control characters on.
Here every word is shown as it is (`tfmini.text`).
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfmini.text import printable

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
