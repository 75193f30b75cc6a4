"""The tests lie like the modules that they test: tests/<package>/<room>/test_<module>.py, or test_<room>.py.

An aspect may follow the name, as in test_server_processes.py. Tests of the modules at the root are in tests/values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "tfmini"
# What is tested by more than one module or by none.
OTHERS = {"ops/test_samples.py"}
# Folders that test the whole system.
WHOLE = {"chaos", "soak", "fuzz", "virtual", "hosts", "programs"}


def folders_of_tests() -> Iterator[tuple[Path, Path]]:
    """(a folder of tests, the folder of the modules that it tests)."""
    for folder in sorted({path.parent for path in TESTS.rglob("test_*.py")} - {TESTS}):
        inner = folder.relative_to(TESTS)
        if inner.parts[0] not in WHOLE:
            yield folder, PACKAGE if inner == Path("values") else PACKAGE / inner


def names_in(folder: Path) -> set[str]:
    """The names of a package, of its modules and of its rooms."""
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return {folder.name} | modules - {"__init__"}


def test_each_folder_of_tests_is_one_of_the_package() -> None:
    assert [str(folder) for folder, tested in folders_of_tests() if not (tested / "__init__.py").exists()] == []


def test_each_test_file_has_the_name_of_what_it_tests() -> None:
    nameless = []
    for folder, tested in folders_of_tests():
        names = names_in(tested)
        for path in folder.glob("test_*.py"):
            words = path.stem.removeprefix("test_").split("_")
            if not names & {"_".join(words[:n]) for n in range(1, len(words) + 1)}:
                nameless.append(str(path.relative_to(TESTS)))
    assert sorted(nameless) == sorted(OTHERS)
