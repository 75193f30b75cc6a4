"""An inspection and a trace show themselves in a notebook, also inside JupyterLab's sandbox."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.show.inspection.browser import Browser
from tests.show.inspection.cluster_graphs import towers
from tfmini import protos
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.pages import framed, page
from tfmini.show.inspection.text import show
from tfmini.show.inspection.trace import StepTrace


def traced() -> StepTrace:
    metadata = tf.RunMetadata()
    options = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)
    with tf.Graph().as_default(), tf.Session() as session:
        product = tf.matmul(tf.random_uniform([9, 9]), tf.random_uniform([9, 9]), name="product")
        session.run(product, None, options, metadata)
    return StepTrace.of(metadata.step_stats)


class _Frames(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append({"tag": tag, **dict(attrs)})


def test_the_whole_page_is_in_the_frame_and_may_only_run_scripts() -> None:
    found = inspect(towers(1, 1), ps=1, workers=1)
    (frame,) = _Frames(found._repr_html_()).found
    assert frame["tag"] == "iframe" and frame["srcdoc"] == page(found)
    assert frame["sandbox"].split() == ["allow-scripts", "allow-downloads"]  # the button PNG saves a file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "says", "draws"),
    [
        (lambda: inspect(towers(8, 8), ps=8, workers=8), "ps/0 is overloaded", "#heat .cell"),
        (lambda: inspect(towers(1, 1), ps=1, workers=1), "the step runs Adagrad", "#picture .op"),
        (traced, "of it is attributed", "#canvas"),
    ],
)
def test_the_page_works_inside_the_sandbox_of_jupyterlab(
    make: Any, says: str, draws: str, browser: Browser, tmp_path: Path
) -> None:
    """JupyterLab shows HTML that it does not trust in an iframe with ``sandbox="allow-scripts"``."""
    output = f"<html><body><p>Out[1]:</p>{make()._repr_html_()}</body></html>"
    file = tmp_path / "lab.html"
    lab = '<iframe sandbox="allow-scripts" style="width:1200px;height:760px" srcdoc="'
    file.write_text(f'{lab}{escape(output)}"></iframe>')
    browser.requests.clear()
    browser.open(file)
    context, depth = browser.innermost()
    assert depth == 2
    assert says in browser.run("document.body.textContent", context)
    assert browser.run(f"document.querySelectorAll({draws!r}).length", context) > 0
    assert browser.run("self.origin", context) == "null"  # it has no access to the notebook's
    assert [url for url in browser.requests if not url.startswith(("file:", "about:", "data:"))] == []


def test_a_table_as_text_shows_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Jupyter, rich displayed an empty box beside it."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("displayed"))
    assert show(inspect(towers(1, 1), ps=1, workers=1), "tasks").startswith("task")


def test_the_title_is_text() -> None:
    (frame,) = _Frames(framed("<p>\"&'</p>", 'a "title" <b>')).found
    assert frame["title"] == 'a "title" <b>' and frame["srcdoc"] == "<p>\"&'</p>"
