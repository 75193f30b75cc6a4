"""The page as one document, with all that it needs; the pictures are drawn by cytoscape and uPlot."""

from __future__ import annotations

import functools
from importlib import resources

# The inspector's page has the other libraries.
_STYLES = (("dashboard", "uPlot.min.css"), ("dashboard", "dashboard.css"))
_LIBRARIES = (
    *(("dashboard", "LICENSES.txt"), ("inspection", "LICENSES.txt")),
    *(("dashboard", "uPlot.iife.min.js"), ("inspection", "cytoscape.min.js")),
)
_SCRIPTS = ("words.js", "picture.js", "charts.js", "panel.js", "page.js")


@functools.cache
def page() -> str:
    """The page's text."""
    parts = {
        "/*STYLES*/": "\n".join(_file(*each) for each in _STYLES),
        "/*LIBRARIES*/": "\n".join(_file(*each) for each in _LIBRARIES),
        "/*SCRIPT*/": "\n".join(_file("dashboard", name) for name in _SCRIPTS),
    }
    text = _file("dashboard", "dashboard.html")
    for mark, content in parts.items():
        before, _, after = text.partition(mark)
        text = before + content + after
    return text


def _file(package: str, name: str) -> str:
    text = resources.files(f"tfmini.{package}").joinpath("page", name).read_text()
    return f"/*\n{text}\n*/" if name.endswith(".txt") else text
