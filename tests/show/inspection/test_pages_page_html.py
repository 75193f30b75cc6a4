"""The HTML page as a person uses it, in headless Chromium (apt install chromium); without one these tests are skipped.

TFMINI_CHROMIUM names a browser that is not on the PATH.
"""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.show.inspection.browser import Browser
from tests.show.inspection.cluster_graphs import towers
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.pages import page

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def model(layers: int, flat: int = 0) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default(), tf.device(tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")):
        x = tf.placeholder(tf.float32, [8, 4], name="x")
        for i in range(layers):
            with tf.variable_scope(f"layer_{i}"):
                x = tf.nn.relu(tf.matmul(x, tf.get_variable("W", [4, 4])))
        for i in range(flat):
            x = tf.tanh(x, name=f"flat_{i}")
        tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(x, name="loss"))
    return graph


@pytest.fixture
def opened(browser, tmp_path):
    def opening(graph: tf.Graph, **cluster: int) -> Browser:
        file = tmp_path / "page.html"
        file.write_text(page(inspect(graph, **(cluster or {"ps": 2, "workers": 1}))))
        browser.requests.clear()
        browser.open(file)
        return browser

    return opening


def drawn(browser: Browser) -> set[str]:
    return set(browser.run("cy.nodes().map((n) => n.id())"))


def press(browser: Browser, selector: str) -> None:
    """A real click into the middle of an element of the document."""
    box = browser.run(
        f"(() => {{ const r = document.querySelector({selector!r}).getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    browser.click(*box)


def spot(browser: Browser, node: str) -> tuple[float, float]:
    """Where a drawn node is on the screen: just inside its upper edge, where an open box has no children."""
    x, y = browser.run(
        f"(() => {{ const b = cy.getElementById({node!r}).renderedBoundingBox({{includeLabels: false}});"
        " return [(b.x1 + b.x2) / 2, b.y1 + 5]; })()"
    )
    return x, y


@pytest.mark.slow
def test_the_page_opens_without_a_network(opened) -> None:
    browser = opened(model(2))
    assert len(browser.requests) == 1 and browser.requests[0].startswith("file:")
    assert {f"task:{PS}", f"task:{WORKER}"} <= drawn(browser)
    assert "the step runs Adagrad" in browser.run("document.querySelector('#details').textContent")


@pytest.mark.slow
def test_search_opens_the_scopes_around_an_op_and_gives_its_reasons(opened) -> None:
    browser = opened(model(2))
    press(browser, "#collapse")
    assert "op:layer_1/MatMul" not in drawn(browser)
    press(browser, "#search")
    browser.type("layer_1/matm")
    assert "op:layer_1/MatMul" in drawn(browser)
    assert browser.run("cy.nodes('.found').map((n) => n.id())") == ["op:layer_1/MatMul"]
    text = browser.run("document.querySelector('#details').textContent")
    assert f"MatMul on {WORKER}" in text and "explicit request '/job:worker/task:0'" in text
    press(browser, "#search")
    browser.run("document.querySelector('#search').value = ''")
    browser.type("no such thing")
    assert "no op called no such thing" in browser.run("document.querySelector('#details').textContent")


@pytest.mark.slow
def test_a_double_click_opens_a_scope(opened) -> None:
    browser = opened(model(2))
    press(browser, "#collapse")
    scope = f"task:{WORKER}|layer_0"
    assert scope in drawn(browser) and "op:layer_0/MatMul" not in drawn(browser)
    browser.click(*spot(browser, scope), times=2)
    assert "op:layer_0/MatMul" in drawn(browser)


@pytest.mark.slow
def test_a_double_click_closes_a_scope(opened) -> None:
    browser = opened(model(2))
    browser.run("showOp(byName.get('layer_0/MatMul'))")
    scope = f"task:{WORKER}|layer_0"
    browser.click(*spot(browser, scope), times=2)
    assert scope in drawn(browser) and "op:layer_0/MatMul" not in drawn(browser)


@pytest.mark.slow
def test_a_send_is_followed_to_its_recv_and_back(opened) -> None:
    browser = opened(model(2))
    browser.run("showOp(byName.get('layer_0/W/read'))")
    assert "Send (click to follow it to its Recv)" in browser.run("document.querySelector('#details').textContent")
    press(browser, "#details .row")
    text = browser.run("document.querySelector('#details').textContent")
    assert "layer_0/W/read:0" in text and "variable read, float32[4,4], 64 B" in text and "layer_0/MatMul" in text
    found = browser.run("cy.nodes('.found').map((n) => n.id())")
    assert {"op:layer_0/W/read", "op:layer_0/MatMul"} <= set(found)
    assert browser.run("cy.edges('.wire.found').length") >= 1
    x, y = spot(browser, "op:layer_0/MatMul")
    assert 0 < x < 880 and 0 < y < 800  # the Recv's end is in view
    wire = browser.run(
        "(() => { const m = cy.edges('.wire').filter((e) => e.source().id() === 'op:layer_0/W/read')[0];"
        " cy.fit(m, 200); const p = m.renderedMidpoint(); return [p.x, p.y]; })()"
    )
    browser.click(*wire)
    assert "computed by layer_0/W/read" in browser.run("document.querySelector('#details').textContent")


@pytest.mark.slow
def test_the_messages_of_a_step_are_shown_one_by_one(opened) -> None:
    browser = opened(model(2))
    count = browser.run("DATA.messages.length")
    seen = []
    for _ in range(count):
        press(browser, "#next")
        seen.append(browser.run("document.querySelector('.row.now').textContent"))
        assert browser.run("cy.elements('.found').length") > 0 or "client" in seen[-1]
    assert seen[0].startswith("1. client → worker/0: run Adagrad")
    assert any("ps/0 → worker/0: variable read (64 B)" in text for text in seen)
    assert any("gradient of layer_0/W" in text for text in seen) and "worker/0 → client" in seen[-1]
    press(browser, "#back")
    assert browser.run("document.querySelector('.row.now').textContent") == seen[-2]


@pytest.mark.slow
def test_a_flat_graph_of_thousands_of_ops_is_divided(opened) -> None:
    browser = opened(model(1, flat=2500))
    assert browser.run("DATA.ops.length") > 5000
    assert browser.run("Math.max(...[...nodes.values()].map((n) => n.children.length))") <= 32
    assert browser.run("cy.nodes().length") < 200
    browser.run("showOp(byName.get('flat_1234'))")
    assert "op:flat_1234" in drawn(browser) and browser.run("cy.nodes().length") < 500


@pytest.mark.slow
def test_names_of_the_graph_are_text_and_never_markup(opened) -> None:
    graph_def = model(1).as_graph_def()
    node = graph_def.node.add(name="a", op="</script><script>window.bad=1</script><b>Mine", device="/job:worker/task:0")
    node.attr["T"].type = 1
    user = graph_def.node.add(name="user", op="Neg", input=["a"], device="/job:ps/task:0")
    user.attr["T"].type = 1
    browser = opened(graph_def)
    assert browser.run("window.bad") is None and browser.run("DATA.ops.length") > 0


@pytest.fixture(scope="module")
def sixteen(browser, tmp_path_factory):
    """8 ps and 8 workers, with about 3,900 ops: ps/0 is overloaded, worker/5 is fed most."""
    file = tmp_path_factory.mktemp("pages") / "sixteen.html"
    file.write_text(page(inspect(towers(8, 8, layers=48, greedy=5), ps=8, workers=8)))

    def open_again() -> Browser:
        browser.open(file)
        return browser

    return open_again


def side(browser: Browser) -> str:
    return str(browser.run("document.querySelector('#details').textContent"))


@pytest.mark.slow
def test_many_tasks_begin_with_a_heat_map_that_names_the_ps_and_the_link(sixteen) -> None:
    browser = sixteen()
    assert browser.run("$('main').className") == "heat"
    assert "ps/0 is overloaded" in browser.run("document.querySelector('#details .alarm').textContent")
    assert "The busiest link is worker/0 → worker/5: 524,292 B." in side(browser)
    assert set(browser.run("[...document.querySelectorAll('#heat .over')].map((n) => n.textContent)")) == {"ps/0"}
    press(browser, "#hottest")  # the ring lets the click through, to its cell
    assert "worker/0 → worker/5: 524,292 B" in side(browser) and "model_5/tower_5/x_5:0" in side(browser)
    press(browser, "#details .row")
    assert browser.run("$('main').className") == "tasks"
    assert "op:model_5/tower_5/layer_0/MatMul" in drawn(browser)


@pytest.mark.slow
def test_equal_tasks_are_one_box_and_links_between_two_boxes_one_line(sixteen) -> None:
    browser = sixteen()
    press(browser, "#toGraph")
    labels = set(browser.run("cy.nodes().map((n) => n.data('label').split('\\n')[0])"))
    assert labels == {"ps/0  overloaded ×1.9", "ps/1…7 ×7", "worker/0", "worker/1…4, 6, 7 ×6", "worker/5"}
    assert browser.run("cy.edges('.link').length") == 8 == browser.run("cy.edges().length")
    widths = browser.run("cy.edges().map((e) => [e.data('width'), e.data('label')]).sort((a, b) => b[0] - a[0])")
    assert [label for _, label in widths[:2]] == ["524 kB", "426 kB"] and widths[0][0] > widths[1][0] > widths[-1][0]
    assert {"426 kB × 6", "197 kB × 42"} <= {label for _, label in widths}


@pytest.mark.slow
def test_a_box_of_equal_tasks_opens_and_its_tasks_open_to_their_ops(sixteen) -> None:
    browser = sixteen()
    press(browser, "#toGraph")
    browser.click(*spot(browser, "fold:0"), times=2)
    task = PS.replace("task:0", "task:3")
    assert f"task:{task}" in drawn(browser) and "fold:0" not in drawn(browser)
    assert browser.run("cy.edges('.link').length") == 8 * 3 + 2  # from each ps to the workers' boxes, and among these
    browser.click(*spot(browser, f"task:{task}"), times=2)
    assert f"task:{task}|model" in drawn(browser)
    press(browser, "#collapse")
    assert browser.run("cy.nodes().length") == 5


@pytest.mark.slow
def test_a_hundred_tasks_have_room(browser, tmp_path) -> None:
    file = tmp_path / "hundred.html"
    file.write_text(page(inspect(towers(20, 80, layers=3), ps=20, workers=80)))
    browser.open(file)
    assert browser.run("$('heat').scrollWidth - $('heat').clientWidth") == 0
    assert browser.run("$('heat').scrollHeight - $('heat').clientHeight") == 0
    press(browser, "#toGraph")
    assert browser.run("cy.nodes().length") <= 16
