"""What commands show on a terminal, by rich: tables and lines whose words may come from outside.

Rich takes a `str` for markup, in which ``[/x]`` is an error and ``[link=…]`` a link, and hands control characters on.
Here every word is shown as it is (`tfmini.text`).
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tfmini.text import printable

_PIPED_WIDTH = 120
_LEAST = 8  # columns of the terminal that a text keeps
_GAP = 2  # between two columns of a table
_MARKS = ">=~-"  # of a column's head; see `Rows.of`


class Rows(Table):
    """A table without frames whose cells are plain text, each on one line.

    In a narrow terminal texts become shorter, or fold. Numbers, and texts that are of use only as a whole, never do:
    columns are left out instead.
    """

    def __init__(self, *headers: str, **options: Any) -> None:
        super().__init__(*headers, **{"box": None, "pad_edge": False, **options})
        self._cells: dict[int, type[Text]] = {}
        self._spare: Sequence[str] = ()

    @classmethod
    def of(cls, *columns: str, one_line: bool = False, spare: Sequence[str] = (), **options: Any) -> Rows:
        """A table whose columns fold long texts.

        Args:
          columns: their heads; those of columns of numbers begin with ``>``, those whose texts stay whole with ``=``,
            and those that fold in any case with ``~``.
          one_line: texts that are too long for their column lose their middle instead, those of prose (``-``) their
            end.
          spare: heads of the columns to leave out where the terminal is too narrow for all, the first ones first.
        """
        table = cls(**options)
        table._spare = spare
        for index, column in enumerate(columns):
            mark, head = column[:1], column.lstrip(_MARKS)
            side: Any = "right" if mark == ">" else "left"
            table.add_column(head, justify=side, overflow="fold", no_wrap=mark in (">", "="))
            if one_line and mark not in (">", "=", "~"):
                table._cells[index] = _Prose if mark == "-" else _Name
        return table

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Adds a row; a cell may be a `Text` as well."""
        kinds = (self._cells.get(index, Text) for index in range(len(cells)))
        super().add_row(
            *(kind(printable(cell)) if isinstance(cell, str) else cell for kind, cell in zip(kinds, cells)), **options
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = copy.copy(self)
        missing = [str(column.header) for column in self._left_out(options.max_width)]
        kept = [column for column in self.columns if column.header not in missing]
        narrow.columns = [replace(column, _index=index) for index, column in enumerate(kept)]
        yield from super(Rows, narrow).__rich_console__(console, options)
        if missing:
            yield plain(f"(this terminal is too narrow for: {', '.join(missing)})", style="dim")

    def _left_out(self, width: int) -> list[Any]:
        """The spare columns for which there is no room."""
        least = [_least_width(column, [cell_len(str(cell)) for cell in column.cells]) for column in self.columns]
        missing: list[Any] = []
        for head in self._spare:
            if sum(least) + _GAP * (len(least) - 1) > width:
                index = next(i for i, column in enumerate(self.columns) if column.header == head)
                missing.append(self.columns[index])
                least[index] = -_GAP
        return missing


def _least_width(column: Any, widths: Sequence[int]) -> int:
    whole = max([cell_len(str(column.header)), *widths])
    return whole if column.no_wrap else min(whole, _LEAST)


class _Prose(Text):
    """A text on one line that loses its end where it is too long."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        text = Text(self._fitting(options.max_width), self.style, no_wrap=True, overflow="ellipsis")
        return console.render(text, options)

    def _fitting(self, room: int) -> str:
        return self.plain


class _Name(_Prose):
    """A text on one line that loses its middle where it is too long."""

    def _fitting(self, room: int) -> str:
        if self.cell_len <= room:
            return self.plain
        left = room // 2
        tail = self.plain
        while tail and cell_len(tail) > room - left - 1:
            tail = tail[1:]
        return f"{set_cell_size(self.plain, left)}…{tail}"


class IfWide:
    """Shows one of two things: the first one in a terminal of at least so many columns."""

    def __init__(self, columns: int, wide: RenderableType, narrow: RenderableType) -> None:
        self._columns, self._wide, self._narrow = columns, wide, narrow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._wide if options.max_width >= self._columns else self._narrow


def plain(*lines: str, style: str = "", **options: Any) -> Text:
    """Lines of text without markup."""
    return Text("\n".join(map(printable, lines)), style, **options)


def as_text(shown: RenderableType, width: int = 120) -> str:
    """A table as plain text, lines of at most ``width`` characters."""
    screen = console(width=width, no_color=True, legacy_windows=False, force_terminal=False, force_jupyter=False)
    with screen.capture() as capture:
        screen.print(shown)
    return capture.get()


def console(piped_width: int | None = _PIPED_WIDTH, **options: Any) -> Console:
    """The terminal of a command's answer; what is not a terminal has a fixed width, or that of COLUMNS."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else piped_width
    return Console(**{"highlight": False, "markup": False, "emoji": False, "width": width, **options})
