"""The notebooks of docs/tutorials run, show their pages, and print what they are stored with.

``python -m tests.notebook_runner docs/tutorials/*.ipynb`` writes the outputs after a change.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.notebook_runner import ROOT, VARIES, code_cells, outputs, shown

NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
PAGES = {
    "1-from-a-graph-to-a-cluster": ["Inspection", "StepTrace"],
    "2-what-training-sends": ["Inspection"],
    "3-finding-a-bottleneck": ["Inspection", "StepTrace"],
    "4-own-numpy-gradients": [],
}


def test_every_tutorial_is_tested_and_in_the_index() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(PAGES)
    index = (ROOT / "docs" / "index.md").read_text()
    assert all(f"tutorials/{path.name}" in index for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_format_of_jupyter_and_no_pages(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert all({"id", "cell_type", "metadata", "source"} <= set(cell) for cell in notebook["cells"])
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert path.stat().st_size < 60_000 and max(map(len, path.read_text().splitlines())) < 200


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_is_stored_with(path: Path) -> None:
    results = outputs(path)
    assert [result["page"] for result in results if result["page"]] == PAGES[path.stem]
    for number, (cell, result) in enumerate(zip(code_cells(path), results, strict=True), 1):
        if VARIES not in cell["metadata"].get("tags", ()):
            assert cell["outputs"] == shown(result, number), "".join(cell["source"])
