"""The page as one document, with all that it needs; the pictures are drawn by cytoscape and uPlot."""

from __future__ import annotations

import functools

from tfmini.inspection.page_html import assembled

_SCRIPTS = ("words.js", "picture.js", "charts.js", "panel.js", "page.js")
# The inspector's page has the other libraries.
_LIBRARIES = ("dashboard:LICENSES.txt", "LICENSES.txt", "dashboard:uPlot.iife.min.js", "cytoscape.min.js")
_STYLES = ("dashboard:uPlot.min.css", "dashboard:dashboard.css")


@functools.cache
def page() -> str:
    """The page's text."""
    scripts = [f"dashboard:{name}" for name in _SCRIPTS]
    return assembled("dashboard:dashboard.html", scripts, _LIBRARIES, _STYLES)
