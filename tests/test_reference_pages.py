"""The tables of the reference are those of the code: exit codes, environment variables, fields of the messages."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import tfmini as tf
from tfmini.exit_codes import ExitCode

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
SETTINGS = (REFERENCE / "settings.md").read_text()
# Where messages are read whose fields have an effect; `wrapped_session.py` merges messages of hooks, field by field.
READERS = ("runtime/options.py", "runtime/server.py", "runtime/native_libraries.py", "runtime/master/master.py",
           "runtime/client/session.py")  # fmt: skip


@functools.cache
def trees() -> dict[str, ast.Module]:
    sources = sorted((ROOT / "tfmini").rglob("*.py"))
    return {str(path.relative_to(ROOT / "tfmini")): ast.parse(path.read_text()) for path in sources}


# ---- exit codes -----------------------------------------------------------------------------


def test_the_page_has_every_exit_code() -> None:
    page = (REFERENCE / "exit-codes.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\w+) \| \S", page, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(code.value, code.name) for code in ExitCode]


def test_clicks_own_exit_codes_are_ours() -> None:
    assert click.ClickException.exit_code == ExitCode.FAILED and click.UsageError.exit_code == ExitCode.REFUSED


def test_an_exit_code_is_written_by_its_name() -> None:
    """A number in `sys.exit(3)` would be one that the page does not have."""
    numbers = [
        f"{path}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "SystemExit", "os._exit")
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int) and argument.value
    ]
    assert numbers == []


# ---- environment variables ------------------------------------------------------------------


def test_the_page_has_every_environment_variable_and_no_other() -> None:
    read = {
        node.value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"TFMINI_[A-Z_]*[A-Z]", node.value)
    }
    of_tests = set(
        re.findall(r"TFMINI_\w+", next(row for row in SETTINGS.splitlines() if "for tests and benchmarks" in row))
    )
    of_tests |= {"TFMINI_TEST_ENGINE", "TFMINI_CRDS"}
    assert set(re.findall(r"\bTFMINI_[A-Z_]*[A-Z]\b", SETTINGS)) - of_tests == read
    assert "TFMINI_KEYS" in read and "TFMINI_LAUNCH_REPORT" in read


# ---- messages -------------------------------------------------------------------------------


def fields(message: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path as the page writes it, name) of the fields of a message's descriptor, and inside some of them."""
    for field in message.fields:
        here = f"{path}.{field.name}"
        if field.name in ("graph_options", "optimizer_options", "experimental"):
            yield from fields(field.message_type, here)
        else:
            yield here, field.name


@pytest.mark.parametrize("message", [tf.ConfigProto, tf.RunOptions], ids=lambda message: message.__name__)
def test_the_page_has_every_field_that_is_read_and_no_other(message: Any) -> None:
    shown = set(re.findall(rf"^\| `({message.__name__}\.[\w.]+)` \|", SETTINGS, re.MULTILINE))
    read = {node.attr for path in READERS for node in ast.walk(trees()[path]) if isinstance(node, ast.Attribute)}
    assert shown == {path for path, name in fields(message.DESCRIPTOR, message.__name__) if name in read}


# ---- the messages that the page on symptoms quotes ------------------------------------------


def text_of(node: ast.AST) -> str | None:
    """The text of a literal with … for what is filled in; None for other expressions."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%[-.\d]*[a-z]", "…", node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) or "…" if isinstance(value, ast.Constant) else "…" for value in node.values)
    return None


@functools.cache
def messages() -> tuple[str, ...]:
    """All texts of the library except docstrings."""
    docstrings = {id(node.value) for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = (node for tree in trees().values() for node in ast.walk(tree) if id(node) not in docstrings)
    return tuple(text for node in nodes if (text := text_of(node)) and len(text) > 10)


def quotes() -> list[str]:
    """What the tables of the page quote in their first cells."""
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    cells = (row.split(" | ")[0] for row in re.findall(r"^\| (`.*)\|$", page, re.MULTILINE))
    return [cell.strip().strip("`") for cell in cells]


def test_there_are_symptoms() -> None:
    assert len(quotes()) > 25


@pytest.mark.parametrize("quote", quotes())
def test_a_message_on_the_page_of_symptoms_is_one_of_the_library(quote: str) -> None:
    parts = [re.escape(part.strip()) for part in re.split("…", quote) if part.strip(" .,:'()[")]
    assert sum(map(len, parts)) > 10
    pattern = re.compile(".*".join(parts), re.DOTALL)
    assert any(pattern.search(message) for message in messages())
