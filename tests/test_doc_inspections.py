"""What the documents show of `tfmini inspect` is what it prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tfmini.tools.cli import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```\n\$ tfmini (inspect examples/.*)\n((?:.*\n)*?)```$", re.MULTILINE)
SHOWN = [
    pytest.param(command, output, id=f"{path.stem} {number}")
    for path in (ROOT / "docs" / "concepts" / "what-each-task-does.md",)
    for number, (command, output) in enumerate(BLOCK.findall(path.read_text()))
]


def test_there_are_examples() -> None:
    assert len(SHOWN) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("command, output", SHOWN)
def test_a_document_shows_what_the_inspector_prints(command: str, output: str, monkeypatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, shlex.split(command))
    printed = [line.rstrip() for line in result.output.splitlines()]
    assert printed == output.splitlines()
