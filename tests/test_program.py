"""Which file `-m MODULE` names, beside what Python runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfmini.program import ProgramModule, words

FILES = (
    *("package/__init__.py", "package.py", "folder/__main__.py", "folder.py"),
    *("main/__init__.py", "main/__main__.py", "main/part.py", "main.py", "space/below/part.py"),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        text = "" if file.endswith("__init__.py") else "print(__file__, __package__, __spec__.name, sep='|')\n"
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name, file",
    [
        ("package", None),  # it has no __main__; the module of that name beside it counts for nothing
        ("folder", "folder.py"),  # a module comes before a folder that is no package
        ("main", "main/__main__.py"),
        ("main.part", "main/part.py"),
        ("space.below.part", "space/below/part.py"),
        ("space/below/part", None),
        ("..main", None),
        ("math", None),
    ],
)
def test_the_module_is_the_one_that_python_runs(place: Path, name: str, file: str | None) -> None:
    shown = ""
    if file is None:
        with pytest.raises(ModuleNotFoundError, match=re.escape(f"there is no module {name}, and no package")):
            ProgramModule.named(name)
    else:
        found = ProgramModule.named(name)
        assert found == str(place / file)
        shown = f"{found}|{found.package}|{found.name}\n"
    assert subprocess.run([sys.executable, "-m", name], capture_output=True, text=True, timeout=60).stdout == shown


def test_a_module_knows_its_folder_and_the_words_of_a_command(place: Path) -> None:
    found = ProgramModule.named("main")
    assert found.folder == str(place) and words(found) == ["-m", "main.__main__"]
    assert words("main.py") == ["main.py"]
