"""The documentation's links and paths lead somewhere, and its lists leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(page for place in ("*", "docs/**/*", "examples/*", "benchmarks/*") for page in ROOT.glob(place + ".md"))


def links(page: Path) -> set[Path]:
    """The files of this repository that a page links to."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("page", PAGES + NOTEBOOKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    assert [str(target) for target in links(page) if not target.exists()] == []


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, as GitHub derives it."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_sections_name_a_heading(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s:]*\.md)#([^)\s]+)\)", page.read_text())
    assert [f"{file}#{name}" for file, name in targets if name not in anchors((page.parent / file).resolve())] == []


def paths(page: Path) -> set[str]:
    """The files that a page names in backticks, relative to the repository, to tfmini or to docs."""
    return set(re.findall(r"`((?:[\w.]+/)+\w+\.\w+)`", page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_in_backticks_are_files(page: Path) -> None:
    places = ROOT, ROOT / "tfmini", ROOT / "docs", ROOT / "tests"
    assert [path for path in sorted(paths(page)) if not any((place / path).exists() for place in places)] == []


def test_the_table_of_new_things_names_files_and_each_once_in_a_cell() -> None:
    page = (ROOT / "docs" / "guides" / "contributing.md").read_text()
    text = page.partition("\n## Where a new thing goes\n")[2].partition("\n## ")[0]
    table = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    assert len(table) > 40
    cells = [re.findall(r"`([\w./]+(?:/|\.(?:py|md|txt)))`", cell) for row in table for cell in row.split(" | ")]
    assert [names for names in cells if len(set(names)) < len(names)] == []
    places = ROOT, ROOT / "tfmini"
    assert [name for names in cells for name in names if not any((place / name).exists() for place in places)] == []


def test_the_architecture_lists_every_package_and_room() -> None:
    package = ROOT / "tfmini"
    folders = {file.parent.relative_to(package).as_posix() for file in package.rglob("__init__.py")} - {"."}
    rows = re.findall(r"^\| `([\w/]+)` \|", (ROOT / "docs" / "concepts" / "architecture.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(folders)


def test_the_index_lists_every_page_and_decision() -> None:
    index = ROOT / "docs" / "index.md"
    assert set((ROOT / "docs").rglob("*.md")) - links(index) == {index}


def test_decisions_are_numbered() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert [page.read_text().split(".")[0] for page in pages] == [f"# {i + 1}" for i in range(len(pages))]


def test_the_readme_lists_the_examples() -> None:
    for listing in ((ROOT / "README.md").read_text(), (ROOT / "examples" / "README.md").read_text()):
        assert [path.name for path in (ROOT / "examples").glob("*.py") if path.name not in listing] == []


def test_the_changelog_keeps_its_form() -> None:
    """That of Keep a Changelog: what is unreleased, then releases with dates, in kinds of changes."""
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased, *releases = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert unreleased == "[Unreleased]"
    assert [line for line in releases if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line)] == []
    version = re.search(r'^__version__ = "(.*)"', (ROOT / "tfmini" / "_version.py").read_text(), re.MULTILINE)
    assert version is not None and releases[0].startswith(f"[{version[1]}]")
    for part in text.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.*)", part, re.MULTILINE)
        assert kinds == [k for k in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security") if k in kinds]
