"""Collects which of TensorFlow's names libraries of its time use, and says what tfmini has of each.

    python -m tests.programs.library_names collect FOLDER   # a folder per library; writes `NAMES`
    python -m tests.programs.library_names page             # writes `PAGE`

`collect` needs TFMINI_ORACLE_1X: a name is what TensorFlow 1.15 has at that path. Libraries come from a package index
or from git; nothing of them is kept but the names.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

NAMES = Path(__file__).parent / "library_names.txt"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "libraries.md"


class Name(NamedTuple):
    """A name below ``tensorflow``, and the number of libraries that use it."""

    dotted: str
    libraries: int


def read_names() -> tuple[list[str], list[Name]]:
    """(the libraries, the names that they use in order)."""
    first, *lines = NAMES.read_text().splitlines()
    return first.split(), [Name(dotted, int(count)) for dotted, count in (line.split() for line in lines)]


# ---- what a source uses --------------------------------------------------------------------------------------------


def used_paths(source: str) -> set[str]:
    """The dotted paths below ``tensorflow`` that a source imports or reads, as far as it writes them in one piece."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # of Python 2
        return set()
    aliases: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        for name, path in _imported(node):
            aliases[name] = path
            found.add(path)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            root, *names = _chain(node)
            if root in aliases:
                found.add(".".join([aliases[root], *names]))
    return {path for path in found if path.partition(".")[0] == "tensorflow" and path != "tensorflow"}


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(name in the source, path) of each import of a node."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.partition(".")[0] == "tensorflow":
                yield (alias.asname, alias.name) if alias.asname else ("tensorflow", "tensorflow")
                if not alias.asname:
                    yield f"import {alias.name}", alias.name
    if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "tensorflow":
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _chain(node: ast.expr) -> list[str]:
    """``["tf", "nn", "relu"]`` for ``tf.nn.relu``; an empty root for what is no plain path."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *names]


# ---- what there is at a path: this part runs in TensorFlow 1.15, too -----------------------------------------------


def resolved(path: str) -> tuple[str, str]:
    """(a path up to the first thing that is no module, the error that ended it before that or "")."""
    names = path.split(".")
    here: Any = import_module(names[0])
    for i, name in enumerate(names[1:], 2):
        if not isinstance(here, ModuleType):
            return ".".join(names[: i - 1]), ""
        try:
            here = getattr(here, name)
        except AttributeError as error:
            try:
                here = import_module(".".join(names[:i]))
            except Exception as other:
                return ".".join(names[: i - 1]), str(other if isinstance(other, ImportError) else error)
    return path, ""


def _print_resolved() -> None:
    for line in sys.stdin:
        part, error = resolved(line.strip())
        print("FOUND", part if not error else "-")


# ---- the two commands ----------------------------------------------------------------------------------------------


def collect(folder: Path) -> None:
    """Writes the names that the libraries of a folder use and TensorFlow 1.15 has."""
    users: dict[str, set[str]] = defaultdict(set)
    libraries = sorted(path.name for path in folder.iterdir())
    for library in libraries:
        for source in (folder / library).rglob("*.py"):
            for path in used_paths(source.read_text(errors="replace")):
                users[path].add(library)
    paths = sorted(users)
    done = subprocess.run(
        [os.environ["TFMINI_ORACLE_1X"], "-m", "tests.programs.library_names", "resolve"], input="\n".join(paths),
        capture_output=True, text=True, check=True, cwd=NAMES.parents[2],
    )  # fmt: skip
    counted: dict[str, set[str]] = defaultdict(set)
    for path, line in zip(paths, (line for line in done.stdout.splitlines() if line.startswith("FOUND "))):
        if not line.endswith(" -"):
            counted[line.split()[1].partition(".")[2]] |= users[path]
    rows = [f"{dotted} {len(counted[dotted])}" for dotted in sorted(counted) if dotted]
    NAMES.write_text("\n".join([" ".join(libraries), *rows]) + "\n")


def absent(names: list[Name]) -> dict[str, str]:
    """Name -> what tfmini says of it, for the names that tfmini does not have."""
    from tfmini.compat import internals

    internals.install()
    try:
        errors = {name.dotted: resolved("tensorflow." + name.dotted)[1] for name in names}
    finally:
        internals.uninstall()
    return {dotted: error for dotted, error in errors.items() if error}


def page(libraries: list[str], names: list[Name], errors: dict[str, str]) -> str:
    """The text of the page."""
    counts = {name.dotted: name.libraries for name in names}
    here = [name.dotted for name in names if name.dotted not in errors]
    private = [name for name in here if _is_private(name)]
    lines = [
        "# Names that libraries of the time use",
        "",
        _INTRODUCTION.format(
            libraries=len(libraries), names=len(names), private=sum(map(_is_private, counts)), here=len(here),
            private_here=len(private), names_of_libraries=", ".join(sorted(map(_shown, libraries), key=str.lower)),
        ),
        "## Absent on purpose",
        "",
        "| instead | names |",
        "|---|---|",
        *(f"| {way} | {_listed(of_it, counts)} |" for way, of_it in sorted(_by_remedy(errors).items())),
        "",
        "## Private names that tfmini has",
        "",
        "| module | names |",
        "|---|---|",
        *(f"| `{home}` | {_listed(of_it, counts, home + '.')} |" for home, of_it in _by_module(private).items()),
        "",
        "## Public names that tfmini has",
        "",
        "| namespace | names |",
        "|---|---|",
        *(
            f"| `{f'tf.{home}'.rstrip('.')}` | {_listed(of_it, counts, home and home + '.')} |"
            for home, of_it in _by_module([name for name in here if not _is_private(name)]).items()
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


_INTRODUCTION = """\
The sources of {libraries} libraries and collections of programs of TensorFlow 1's time name {names} things of
TensorFlow 1.15, in imports and as attributes; {private} of them are private. tfmini has {here} of them, and
{private_here} of the private ones. Each of the others is absent on purpose, and the error at its import says what to
use instead. The number after a name is that of the libraries that use it.
`python -m tests.programs.library_names page` writes this page.

The libraries: {names_of_libraries}.
"""


def _shown(library: str) -> str:
    return library.partition("+")[2] or library


def _is_private(dotted: str) -> bool:
    parts = dotted.split(".")
    return "python" in parts or parts[0] in ("core", "lite") or any(part.startswith("_") for part in parts)


def _listed(dotted: list[str], counts: dict[str, int], prefix: str = "") -> str:
    return ", ".join(f"`{name[len(prefix) :]}` {counts[name]}" for name in dotted)


def _by_module(dotted: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in dotted:
        found[name.rpartition(".")[0]].append(name)
    return dict(sorted(found.items()))


def _by_remedy(errors: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, error in errors.items():
        found[remedy(error)].append(name)
    return found


def remedy(error: str) -> str:
    """What the error for a missing name says to use instead; "" if it says nothing."""
    if "is made of Keras 2.3" in error:
        return "what Keras 2.3 has: tf.keras is made of it"
    said = re.search(r"out of tfmini's scope; use (.*?)\.?$|in TensorFlow 1 use (.*?)\.?$", error)
    return (said[1] or said[2]).replace("|", "\\|") if said else ""


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        collect(Path(sys.argv[2]))
    elif sys.argv[1] == "resolve":
        _print_resolved()
    elif sys.argv[1] == "page":
        used, found = read_names()
        PAGE.write_text(page(used, found, absent(found)))
