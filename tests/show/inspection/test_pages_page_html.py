"""The HTML page as a person uses it, in headless Chromium (apt install chromium); without one these tests are skipped.

TFMINI_CHROMIUM names a browser that is not on the PATH.
"""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.show.inspection.browser import MEETINGS, PASSED, Browser
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
    press(browser, "#toOps")
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
    press(browser, "#toOps")
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
        assert browser.run("document.querySelectorAll('#picture .found').length") > 0 or "client" in seen[-1]
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
    assert browser.run("$('main').className") == "ops"
    assert "op:model_5/tower_5/layer_0/MatMul" in drawn(browser)


def names(browser: Browser) -> list[str]:
    """The boxes of the picture of tasks."""
    return list(browser.run("boxNames('.box')"))


def middle(browser: Browser, box: str) -> tuple[float, float]:
    x, y = browser.run(
        f"(() => {{ const r = boxOf({box!r}).getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    return x, y


@pytest.mark.slow
def test_equal_tasks_are_one_box_and_links_between_two_boxes_one_line(sixteen) -> None:
    browser = sixteen()
    press(browser, "#toTasks")
    assert names(browser) == ["ps/0", "ps/1…7 ×7", "worker/0", "worker/1…4, 6, 7 ×6", "worker/5"]
    assert "overloaded ×1.9" in browser.run("boxOf('ps/0').ariaLabel")
    lines = browser.run(
        "[...document.querySelectorAll('#picture [data-from]')].map((n) => n.dataset.from + ' ' + n.dataset.to)"
    )
    assert len(lines) == 14 == len(set(lines))  # between each ps and each worker, both ways, and two among workers
    widths = browser.run(
        "[...document.querySelectorAll('#picture .wire[data-from] .line')].map((n) => +n.getAttribute('stroke-width'))"
    )
    assert max(widths) == 6.0 and widths.count(6.0) == 1
    labels = browser.run("[...document.querySelectorAll('#picture .label')].map((n) => n.textContent)")
    assert labels.count("524 kB") == 1 and {"213 kB × 6", "98 kB × 42"} <= set(labels)


@pytest.mark.slow
def test_a_box_of_equal_tasks_opens_and_its_tasks_open_to_their_ops(sixteen) -> None:
    browser = sixteen()
    press(browser, "#toTasks")
    browser.click(*middle(browser, "ps/1…7 ×7"))
    assert "ps/3: " in side(browser)
    browser.click(*middle(browser, "ps/1…7 ×7"), times=2)
    assert len(names(browser)) == 16
    browser.click(*middle(browser, "ps/3"), times=2)
    assert browser.run("$('main').className") == "ops"
    task = PS.replace("task:0", "task:3")
    assert f"task:{task}|model" in drawn(browser) and f"task:{PS}" not in drawn(browser)  # it sends nothing to ps/0
    assert browser.run("cy.edges('.wire').length") >= 2
    press(browser, "#toTasks")
    press(browser, "#collapse")
    assert len(names(browser)) == 5


@pytest.mark.slow
def test_the_keyboard_reaches_boxes_ops_and_messages(sixteen) -> None:
    browser = sixteen()

    def press_key(name: str, *, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, text=text if kind == "keyDown" else ""
            )

    press(browser, "#toTasks")
    browser.run("boxOf('worker/5').focus()")
    press_key("Enter")
    assert side(browser).startswith("worker/5")
    browser.run("document.querySelector('#details .row').focus()")
    press_key("Enter")  # opens the task among all ops
    assert browser.run("$('main').className") == "ops" and browser.run("cy.nodes('.found').length") == 1
    browser.run("$('graph').focus()")
    seen = []
    for name in ("ArrowUp", "ArrowDown", "ArrowRight"):
        press_key(name)
        seen += browser.run("cy.nodes('.found').map((n) => n.id())")
    assert seen[0] == "fold:0" and len(set(seen)) == 3
    browser.run("rows[0].focus()")
    press_key("ArrowDown")
    press_key("ArrowDown")
    assert browser.run("[now, document.activeElement === rows[now]]") == [1, True]


@pytest.mark.slow
@pytest.mark.parametrize(("ps", "workers"), [(1, 1), (2, 2), (4, 4), (8, 8), (2, 14)])
def test_on_the_screen_too_no_label_meets_another_and_no_line_a_box(browser, tmp_path, ps: int, workers: int) -> None:
    """With the letters of the browser's own font."""
    file = tmp_path / "page.html"
    file.write_text(page(inspect(towers(ps, workers, layers=3), ps=ps, workers=workers)))
    browser.open(file)
    press(browser, "#toTasks")
    assert browser.run(MEETINGS) == []
    if browser.run("DATA.unfolded !== ''"):
        browser.run("isUnfolded = true; drawTasks()")
        assert len(names(browser)) == ps + workers
        assert browser.run(MEETINGS) == []


@pytest.mark.slow
def test_the_pictures_become_png_files(sixteen) -> None:
    browser = sixteen()
    for view in ("heat", "tasks", "ops"):
        browser.run(f"show({view!r})")
        script = (
            "new Promise((done) => { saveBlob = async (blob, name) => {"
            " const bits = await createImageBitmap(blob); done([name, blob.type, bits.width > 300]); };"
            " $('save').click(); })"
        )
        assert browser.run(script) == ["tfmini-inspect.png", "image/png", True]


@pytest.mark.slow
def test_a_hundred_tasks_have_room(browser, tmp_path) -> None:
    file = tmp_path / "hundred.html"
    file.write_text(page(inspect(towers(20, 80, layers=3), ps=20, workers=80)))
    browser.open(file)
    assert browser.run("$('heat').scrollWidth - $('heat').clientWidth") == 0
    assert browser.run("$('heat').scrollHeight - $('heat').clientHeight") == 0
    press(browser, "#toTasks")
    assert len(names(browser)) <= 16 and browser.run(MEETINGS) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "cluster", "opening"),
    [
        (lambda: model(3), {"ps": 2, "workers": 1}, ""),
        (lambda: model(2), {"ps": 2, "workers": 1}, "showOp(byName.get('gradients/layer_1/MatMul_grad/MatMul'))"),
        (lambda: towers(2, 3, layers=2), {"ps": 2, "workers": 3}, ""),
        (lambda: towers(8, 8, layers=8), {"ps": 8, "workers": 8}, "openTask(devices[0]), openTask(devices[9])"),
    ],
    ids=["three tasks", "scopes in scopes", "five tasks", "two of sixteen tasks"],
)
def test_lines_among_all_ops_run_at_right_angles_and_behind_no_box(opened, graph, cluster, opening: str) -> None:
    browser = opened(graph(), **cluster)
    browser.run("void $('toOps').click()")
    if opening:
        browser.run(f"void ({opening})")
    assert browser.run("cy.edges('[leaves]').length") == browser.run("cy.edges().length") > 5
    assert browser.run(PASSED) == []
    browser.run("void ($('collapse').click(), $('toOps').click())")
    assert browser.run(PASSED) == []
    assert browser.run("cy.edges('.wire').filter((edge) => edge.data('label')).length") > 0 or "devices" in opening


@pytest.mark.slow
def test_labels_among_all_ops_say_what_is_sent_again_and_what_is_unknown(opened) -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.device("/job:worker/task:0"):
        rows = tf.placeholder(tf.float32, [None, 4], name="rows")

        def body(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.device("/job:ps/task:0"):
                x = x * 2.0
            return tf.add(i, 1), tf.identity(x)

        tf.while_loop(lambda i, x: i < 3, body, [tf.constant(0), tf.constant([1.0] * 100)])
        with tf.device("/job:ps/task:0"):
            tf.square(rows, name="squares")
    browser = opened(graph, ps=1, workers=1)
    browser.run("void $('toOps').click()")
    labels = set(browser.run("cy.edges('.wire').map((edge) => edge.data('label'))")) - {""}
    assert {"400 B an iteration", "? B"} <= labels
    assert browser.run(PASSED) == []


def test_a_printed_page_has_the_whole_picture_and_all_messages_in_light_colours(opened) -> None:
    page = opened(model(3))
    assert page.run("$('picture').scrollWidth <= $('picture').clientWidth")  # on the screen it is not cut, either
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    page.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    try:
        shown = "(id) => { const s = getComputedStyle($(id)); return [s.display !== 'none', s.overflowY]; }"
        assert page.run(f"['picture', 'messages'].map({shown})") == [[True, "visible"]] * 2
        assert page.run("[$('tabs'), $('save').parentElement].map((e) => getComputedStyle(e).display)") == ["none"] * 2
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    finally:
        page.call("Emulation.setEmulatedMedia", media="", features=[])
