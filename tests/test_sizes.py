"""No file is longer than 700 lines and no function longer than 60.

`python tests/test_sizes.py` prints what is longer; the two lists of exceptions only get
shorter: an entry goes when its file or function has become short enough, and no entry is added.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tfmini", "benchmarks", "examples")
MAX_FILE, MAX_FUNCTION = 700, 60
# Files with one long table and nothing else, and files that protoc writes: their length makes nothing harder to read.
DATA = {"tfmini/public_names.py", "tfmini/compat/exported_names.py"}
GENERATED = "_pb2.py"
# file -> how many lines it may have
LONG_FILES: dict[str, int] = {}
# file:function -> how many lines it may have
LONG_FUNCTIONS: dict[str, int] = {}


def sources() -> Iterator[tuple[str, str]]:
    """(path relative to the repository, text) of all that is written by hand."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.endswith(GENERATED) and name not in DATA:
                yield name, path.read_text()


@functools.cache
def long_files() -> dict[str, int]:
    """Lines of each file that has more than 700."""
    lines = {name: len(text.splitlines()) for name, text in sources()}
    return {name: count for name, count in lines.items() if count > MAX_FILE}


@functools.cache
def long_functions() -> dict[str, int]:
    """Lines of each function that has more than 60, the longest one where several share a name."""
    found: dict[str, int] = {}
    for name, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                key, count = f"{name}:{node.name}", node.end_lineno - node.lineno + 1
                if count > MAX_FUNCTION:
                    found[key] = max(count, found.get(key, 0))
    return found


def test_no_file_is_too_long() -> None:
    too_long = [
        f"{name} has {lines} lines; allowed are {LONG_FILES.get(name, MAX_FILE)}"
        for name, lines in long_files().items()
        if lines > LONG_FILES.get(name, MAX_FILE)
    ]
    assert too_long == []


def test_no_function_is_too_long() -> None:
    too_long = [
        f"{name} has {lines} lines; allowed are {LONG_FUNCTIONS.get(name, MAX_FUNCTION)}"
        for name, lines in long_functions().items()
        if lines > LONG_FUNCTIONS.get(name, MAX_FUNCTION)
    ]
    assert too_long == []


def test_every_exception_is_still_needed() -> None:
    unneeded = [
        f"take {name} out of tests/test_sizes.py: it is short enough, or gone"
        for name in [*LONG_FILES, *LONG_FUNCTIONS]
        if name not in long_files() and name not in long_functions()
    ]
    unneeded += [f"{name} is gone" for name in DATA if not (ROOT / name).exists()]
    assert unneeded == []


if __name__ == "__main__":
    for name, lines in (long_files() | long_functions()).items():
        print(f"{lines:5d} lines  {name}")
