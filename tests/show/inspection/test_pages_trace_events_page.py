"""The page of a traced step: its data, and the page as a person uses it."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest

from tests.show.inspection.browser import Browser
from tests.show.inspection.test_pages_page_html_notebook import traced
from tfmini.show.inspection import pages as module
from tfmini.show.inspection.pages import sentences, trace_page, trace_page_data
from tfmini.show.inspection.trace import ClockFit, Span, StepTrace

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def made() -> StepTrace:
    spans = [
        Span("step", "step 1", "", WORKER, 0.0, 100.0),
        Span("send", "w", "_Send", PS, 10.0, 12.0, 64, WORKER, "edge_1_w"),
        Span("wire", "w", "", WORKER, 10.0, 40.0, 64, PS, "edge_1_w"),
        Span("wait", "w from ps/0", "", WORKER, 5.0, 40.0),
        Span("receive", "w", "_Recv", WORKER, 40.0, 41.0, 64, PS, "edge_1_w"),
        Span("op", "mul", "Mul", WORKER, 41.0, 99.0, 64),
        Span("exchange", "sum", "all-reduce", WORKER, 50.0, 60.0, 32, PS, messages=2, way="messages"),
    ]
    return StepTrace(spans, {PS: ClockFit(0.0, 1.0)}, 0.0, 100.0)


def test_what_is_worth_knowing_is_said() -> None:
    assert sentences(made()) == [
        "The step took 0.100 ms; 89.0% of it is attributed.",
        "worker/0 waited 0.035 ms in all, longest for w from ps/0 (0.035 ms).",
        "Tensors between tasks: 64 B.",
        "Collectives: 32 B sent to other ranks.",
    ]


def test_of_very_many_spans_the_longest_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BARS", 3)
    data = trace_page_data(made())
    bars = [bar["title"] for task in data["tasks"] for track in task["tracks"] for bar in track["bars"]]
    assert bars == ["step 1", "Mul", "waits for w from ps/0"] and data["arrows"] == []
    assert data["sentences"][-1] == "The 4 shortest spans are not shown."


@pytest.mark.slow
def test_a_click_shows_a_bar_and_the_wheel_zooms(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "trace.html"
    file.write_text(trace_page(made()))
    browser.requests.clear()
    browser.open(file)
    assert len(browser.requests) == 1 and browser.run("DATA.arrows.length") == 1
    x, y = browser.run(
        "(() => { const row = rows.find((r) => r.bars && r.bars[0] && r.bars[0].title === 'Mul');"
        " const box = canvas.getBoundingClientRect(); return [box.left + xOf(70), box.top + row.y + 8]; })()"
    )  # fmt: skip
    browser.click(x, y)
    text = browser.run("document.querySelector('#details').textContent")
    assert text.startswith("Mulop on worker/0from 41.0 µs, for 58.0 µs") and "bytes: 64" in text
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-400)
    assert browser.run("to - from") < 50
    browser.run("document.querySelector('#about .row').click()")  # the longest: it zooms to it
    assert browser.run("chosen.title") == "Mul"
    assert browser.run("from < chosen.start && to > chosen.start + chosen.duration")
    browser.run("$('whole').click()")
    assert browser.run("[from, to]") == [0, 100]


@pytest.mark.slow
def test_a_page_that_gets_its_width_later_is_drawn_then(browser: Browser, tmp_path: Path) -> None:
    """A notebook's frame has none while its cell is hidden; it was blank until a click (U5)."""
    file = tmp_path / "notebook.html"
    file.write_text(
        '<div id="cell" style="display:none"><iframe sandbox="allow-scripts" style="width:900px;height:500px"'
        f' srcdoc="{escape(trace_page(made()))}"></iframe></div>'
    )
    browser.open(file)
    context, _ = browser.innermost()
    assert browser.run("canvas.clientWidth", context) == 0
    browser.run("document.querySelector('#cell').style.display = ''")
    browser.run(
        "new Promise((done, failed) => { const since = performance.now(); const ask = () => { if (canvas.width > 300)"
        " done(); else if (performance.now() - since > 30000) failed(new Error('blank')); else setTimeout(ask, 20); };"
        " ask(); })",
        context,
    )
    drawn = "new Set(canvas.getContext('2d').getImageData(130, 0, canvas.width - 130, canvas.height).data).size"
    assert browser.run(drawn, context) > 10


@pytest.mark.slow
def test_arrow_keys_choose_bars(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "trace.html"
    file.write_text(trace_page(made()))
    browser.open(file)
    browser.run("canvas.focus()")
    seen = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowLeft"):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
        seen.append(browser.run("[chosen.kind, chosen.task]"))
    ps, worker = ["send", "ps/0"], ["step", "worker/0"]
    assert seen == [ps, worker, ["op", "worker/0"], worker, worker]
    assert browser.run("document.querySelector('#details').textContent").startswith("step 1")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="+", text="+")
    assert browser.run("to - from") == pytest.approx(70)


@pytest.mark.slow
def test_names_are_text_and_never_markup(browser: Browser, tmp_path: Path) -> None:
    trace = traced()
    name = "</script><script>window.bad=1</script>"
    trace.spans.append(Span("op", name, "<b>Mine", WORKER, trace.start, trace.end))
    file = tmp_path / "trace.html"
    file.write_text(trace_page(trace))
    browser.open(file)
    assert browser.run("window.bad") is None
    assert "<b>Mine" in browser.run("document.querySelector('#about').textContent")
