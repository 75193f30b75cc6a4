"""Each promise of docs/reference/promises.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reference" / "promises.md"


def rows() -> list[list[str]]:
    """The cells of every row of every table, without heads and rules."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "promise" and set(row[0]) != {"-"}]


def test_every_promise_has_a_bound_and_a_test() -> None:
    wrong = []
    for promise, bound, test in rows():
        named = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", test)
        if not bound or not promise.endswith(".") or named is None:
            wrong.append(f"{promise} has no bound or no test")
        elif named[2] not in functions(TESTS / named[1]):
            wrong.append(f"{promise} names a test that does not exist: {test}")
    assert wrong == []


def functions(path: Path) -> set[str]:
    """The names of the functions and methods of a test file."""
    if not path.exists():
        return set()
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
