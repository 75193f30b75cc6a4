"""Assembles the source of the site: ``python -m docs.site.assemble FOLDER``.

The site has the pages of `docs`, and in ``project`` those pages and files outside of it to which they link. The index
becomes the first page; each of its sections becomes a page of its own, which lists the pages of the section. The API
reference and the command-line reference are generated. A file is written only if its text has changed, so that Sphinx
reads only what is new.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from docs.site import pages
from tfmini import namespace

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")


def main(folder: Path) -> None:
    """Writes the source of the site into a folder, and removes what does not belong there."""
    texts, files = written_pages()
    texts |= {f"reference/api/{page}.rst": text for page, text in api_pages().items()}
    texts["reference/command-line.rst"] = COMMAND_LINE
    for path, text in texts.items():
        _write(folder / path, text)
    for path, file in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, folder / path)
    for old in folder.rglob("*"):
        if old.is_file() and str(old.relative_to(folder)) not in texts.keys() | files.keys():
            old.unlink()


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def api_pages() -> dict[str, str]:
    """The API reference: page -> text."""
    found = pages.pages(namespace.public_names())
    return {"index": pages.index_text(found)} | {page: pages.page_text(page, names) for page, names in found.items()}


COMMAND_LINE = """Command line
============

:doc:`Exit codes <exit-codes>` and :doc:`settings` have pages of their own; :doc:`/guides/shell-completion` says how a
shell completes commands and options.

.. click:: tfmini.tools.cli:main
   :prog: tfmini
   :nested: full
"""

# ---- the pages that are written by hand -----------------------------------------------------


def written_pages() -> tuple[dict[str, str], dict[str, Path]]:
    """(site's path -> text of each page, site's path -> each other file that a page links to)."""
    texts: dict[str, str] = {}
    files: dict[str, Path] = {}
    todo = [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page.suffix != ".md":
            files[site_path(page)] = page
        elif site_path(page) not in texts:
            texts[site_path(page)] = with_links_of_the_site(page)
            todo += linked(page)
    texts |= sections(texts["index.md"])
    return texts, files


def linked(page: Path) -> list[Path]:
    """The files of the repository that a page links to or shows."""
    targets = [
        (page.parent / target).resolve() for _, target, _ in LINK.findall(page.read_text()) if "://" not in target
    ]
    return [target for target in targets if target.is_file()]


def site_path(file: Path) -> str:
    """Where the site has a file of the repository."""
    return str(file.relative_to(DOCS)) if file.is_relative_to(DOCS) else f"project/{file.relative_to(ROOT)}"


def with_links_of_the_site(page: Path) -> str:
    """The text of a page; its links lead to where the site has their targets."""
    here = Path(site_path(page)).parent

    def moved(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        if "://" in link[2] or not target.is_file():
            return link[0]
        return f"{link[1]}{os.path.relpath(site_path(target), here)}{link[3]}"

    return LINK.sub(moved, page.read_text())


def sections(index: str) -> dict[str, str]:
    """The index with a table of contents, and a page for each of its sections."""
    title, *parts = re.split(r"^## ", index, flags=re.MULTILINE)
    found = {}
    for part in parts:
        heading, _, text = part.partition("\n")
        folder = heading.lower().replace(" ", "-")
        listed = [target for _, target, _ in LINK.findall(text) if target.endswith((".md", ".ipynb"))]
        generated = GENERATED.get(folder, [])
        contents = "\n".join(f"/{target}" for target in [*generated, *listed])
        own = _seen_from(folder, text)
        found[f"{folder}/index.md"] = f"# {heading}\n{own}\n```{{toctree}}\n:hidden:\n\n{contents}\n```\n"
    chapters = "\n".join(path.removesuffix(".md") for path in found)
    return {"index.md": f"{index}\n```{{toctree}}\n:hidden:\n\n{chapters}\n```\n"} | found


def _seen_from(folder: str, text: str) -> str:
    """A text of the index for a page in a folder."""
    return LINK.sub(lambda link: f"{link[1]}{os.path.relpath(link[2], folder)}{link[3]}", text)


GENERATED = {"reference": ["reference/api/index", "reference/command-line"]}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
