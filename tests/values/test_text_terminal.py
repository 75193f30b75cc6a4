"""Tables and lines of words from outside."""

from __future__ import annotations

import io

from rich.console import Console, Group

from tfmini.terminal import Rows, console, plain

EVIL = "a[/b] [link=file:///etc/passwd]x :smile: \x1b]0;OWNED\x07\x1b[2J\nFORGED"
SHOWN = r"a[/b] [link=file:///etc/passwd]x :smile: \x1b]0;OWNED\x07\x1b[2J\nFORGED"


def rendered(*what: object, terminal: Console | None = None) -> str:
    terminal = terminal or Console(file=io.StringIO(), width=300, force_terminal=True, color_system=None)
    terminal.print(Group(*what))  # type: ignore[arg-type]
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue()


def test_cells_and_lines_show_every_character_on_any_terminal() -> None:
    table = Rows("name", "value")
    table.add_row(EVIL, plain(EVIL, style="bold"))
    table.caption = plain(EVIL, "second")
    text = rendered(table, plain("head", EVIL))
    assert text.count(SHOWN) == 4 and "\x1b]" not in text and "\x07" not in text
    assert not any(line.startswith("FORGED") for line in text.splitlines())


def test_the_terminal_of_commands_knows_no_markup() -> None:
    text = rendered("[/x] [b]y[/b] :smile:", terminal=console(file=io.StringIO()))
    assert text == "[/x] [b]y[/b] :smile:\n"
