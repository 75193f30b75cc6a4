"""Tables and lines of words from outside."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console, Group

from tfmini.terminal import IfWide, Rows, console, plain

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


def narrow(table: Rows, width: int) -> list[str]:
    terminal = Console(file=io.StringIO(), width=width, color_system=None)
    return rendered(table, terminal=terminal).splitlines()


def test_names_lose_their_middle_and_numbers_and_addresses_stay_whole() -> None:
    table = Rows.of("variable", "=address", ">bytes", "-because", one_line=True)
    table.add_row(
        "layer/with/a/long/name/W", "ip-10-0-12-33.internal:2222", "16,384,000", "it was asked for by the user"
    )
    for width in (200, 80, 64):
        (_, row) = narrow(table, width)
        assert "ip-10-0-12-33.internal:2222  16,384,000" in row and len(row) <= width
    assert row == "layer…me/W  ip-10-0-12-33.internal:2222  16,384,000  it was ask…"


def test_columns_of_less_weight_are_left_out_of_a_narrow_terminal_and_named() -> None:
    table = Rows.of("task", "=address", ">pid", ">up", ">steps", one_line=True, spare=("up", "pid"))
    table.add_row("worker/0", "127.0.0.1:12345", "4711", "3.0 s", "1,000")
    assert "4711" in narrow(table, 60)[1]
    head, row, note = narrow(table, 42)
    assert head.split() == ["task", "address", "pid", "steps"] and row.split()[-1] == "1,000"
    assert note == "(this terminal is too narrow for: up)"
    assert narrow(table, 36)[1].split() == ["worker/0", "127.0.0.1:12345", "1,000"]


def test_a_wide_name_is_cut_by_its_columns_on_the_terminal() -> None:
    table = Rows.of("name", ">bytes", one_line=True)
    table.add_row("変数の名前はとても長いです", "7")
    (_, row) = narrow(table, 20)
    assert cell_len(row) <= 20 and row.startswith("変数") and "…" in row and row.endswith("です      7")


def test_of_two_forms_the_one_that_fits_is_shown() -> None:
    both = IfWide(40, plain("a wide one"), plain("a narrow one"))
    shown = [rendered(both, terminal=Console(file=io.StringIO(), width=width)).strip() for width in (40, 39)]
    assert shown == ["a wide one", "a narrow one"]


def test_what_is_no_terminal_has_the_width_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console(file=io.StringIO()).width == 120
    monkeypatch.setenv("COLUMNS", "80")
    assert console(file=io.StringIO()).width == 80
