"""The live page in headless Chromium (apt install chromium); without one these tests are skipped."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.show.dashboard.clusters import START, cluster, large, name_of, replaced, silent, task, working  # noqa: E402
from tests.show.dashboard.serving import TOKEN, Fake, serving, traced_step  # noqa: E402
from tests.show.inspection.browser import MEETINGS, Browser  # noqa: E402
from tfmini.runtime import snapshot as s  # noqa: E402

WAIT_S = 60


def until(browser: Browser, condition: str) -> None:
    """Waits, in the page, until an expression is true. (It is asked for by the page's own clock.)"""
    script = (
        "new Promise((done, failed) => { const since = performance.now(); const ask = () => {"
        f" if ({condition}) done(true); else if (performance.now() - since > {1000 * WAIT_S})"
        f" failed(new Error('never: ' + {json.dumps(condition)} + '; ' + document.body.innerText.slice(0, 2000)));"
        " else setTimeout(ask, 20); }; ask(); })"
    )
    browser.run(script)


def boxes(browser: Browser) -> list[str]:
    return sorted(browser.run("boxNames('.box')"))


def text(browser: Browser, selector: str) -> str:
    return str(browser.run(f"document.querySelector({selector!r}).innerText"))


@pytest.mark.slow
def test_the_page_shows_a_cluster_and_what_happens_to_it(browser) -> None:
    fake = Fake(working(2, 3))
    with serving(fake) as address:
        browser.requests.clear()
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage && updateTimes.length > 3")
        assert boxes(browser) == ["ps/0", "ps/1", "worker/0", "worker/1", "worker/2"]
        assert "10 steps/s" in browser.run("boxOf('worker/1').ariaLabel")
        assert browser.run("document.querySelectorAll('#graph .wire[data-from]').length") == 12  # six links, both ways
        assert "busiest link: ps/1 ↔ worker/0" in text(browser, "#headline")
        assert "joined worker/2" in text(browser, "#events") and text(browser, "#live") == "live"
        assert "steps per second" in text(browser, "#charts") and "loss" in text(browser, "#charts")
        blocked = s.LinkSnapshot(name_of("ps/0"), "connecting", why="timed out")
        fake.snapshot = replaced(working(2, 3), "worker/0", task("worker/0", links=(blocked,)))
        until(browser, "document.querySelectorAll('#graph [data-from].broken').length === 1")
        assert "worker/0 cannot reach ps/0: timed out" in text(browser, "#headline")
        fake.snapshot = silent(working(2, 3, START + 1), "ps/1")
        until(browser, "boxOf('ps/1').classList.contains('silent')")
        fake.snapshot = silent(working(2, 3, START + 4), "ps/1")
        until(browser, "/lost/.test(document.querySelector('#events').innerText)")
        assert "lost ps/1: connection refused" in text(browser, "#events")
        assert text(browser, "#headline").startswith("no answer: ps/1")
        assert all(url.startswith((address, "data:")) for url in browser.requests)


@pytest.mark.slow
def test_a_task_opens_and_a_step_is_traced_by_a_click(browser) -> None:
    fake = Fake(working(1, 2))
    asked = []
    fake.trace = lambda name: asked.append(name) or traced_step()
    with serving(fake) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
        browser.run("boxOf('worker/0').dispatchEvent(new MouseEvent('click', {bubbles: true})) && 0")
        until(browser, "document.querySelector('#trace')")
        assert "nothing waits" in text(browser, "#panel") and "localhost:1" in text(browser, "#panel")
        browser.run("document.querySelector('#trace').click()")
        until(browser, "!document.querySelector('#timeline').hidden")
        assert text(browser, "#timeline-title").startswith("A step of worker/0: ")
        until(browser, "/The step took/.test($('timeline-frame').contentDocument?.body?.innerText)")
        assert asked == ["/job:worker/replica:0/task:0"]


def key(browser: Browser, name: str, code: int) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)


@pytest.mark.slow
def test_the_keyboard_reaches_boxes_and_rows(browser) -> None:
    fake = Fake(working(2, 14))
    with serving(fake) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
        browser.run("$('span').focus()")
        seen = []
        for _ in range(3):
            key(browser, "Tab", 9)
            seen.append(browser.run("document.activeElement.dataset.id"))
        assert seen == ["ps/0", "ps/1", "worker/0…13 ×14"]
        before = browser.run("lastMessage.number")
        until(browser, f"lastMessage.number > {before} + 2")
        assert browser.run("document.activeElement.dataset.id") == seen[-1]  # newer numbers leave it where it is
        key(browser, "Enter", 13)
        until(browser, "/worker.13/.test(document.querySelector('#panel').innerText)")
        browser.run("document.querySelector('#panel .row.open').focus()")
        key(browser, "Enter", 13)
        until(browser, "document.querySelector('#trace')")
        key(browser, "Escape", 27)
        assert browser.run("$('panel').hidden")


@pytest.mark.slow
def test_a_task_has_one_colour_everywhere_on_a_light_and_on_a_dark_screen(browser) -> None:
    stroke = "getComputedStyle(document.querySelector('#graph [data-from=\"worker/1\"] .line')).stroke"
    chart = (
        "(() => { const { plot, labels } = drawnCharts.get('bytes'), i = labels.indexOf('worker/1') + 1;"
        " const probe = new Option(); probe.style.color = plot.series[i].stroke(plot, i);"
        " return probe.style.color; })()"
    )
    found = []
    with serving(Fake(working(2, 3))) as address:
        for scheme in ("light", "dark"):
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.go(f"{address}/?token={TOKEN}")
            until(browser, "lastMessage && drawnCharts.has('bytes')")
            assert browser.run(stroke) == browser.run(chart)
            paper = "getComputedStyle(document.body).backgroundColor"
            found.append((browser.run(stroke), browser.run(paper)))
        browser.call("Emulation.setEmulatedMedia", features=[])
    assert found[0][0] != found[1][0] and found[0][1] == "rgb(255, 255, 255)" != found[1][1]


@pytest.mark.slow
@pytest.mark.parametrize(("ps", "workers"), [(1, 1), (2, 2), (4, 4), (8, 8), (2, 14), (50, 50)])
def test_no_label_meets_another_and_no_line_a_box(browser, ps: int, workers: int) -> None:
    """Also while some tasks do not answer, one is slow, and a link cannot be made."""
    found = working(ps, workers)
    blocked = s.LinkSnapshot(name_of("ps/0"), "connecting", why="timed out")
    odd = replaced(found, "worker/0", task("worker/0", steps=9, steps_s=1.0, links=(blocked,)))
    for shown in (found, silent(odd, f"worker/{workers - 1}")):
        with serving(Fake(shown)) as address:
            browser.go(f"{address}/?token={TOKEN}")
            until(browser, "lastMessage")
            assert len(boxes(browser)) <= 8
            assert browser.run(MEETINGS) == []


@pytest.mark.slow
def test_the_picture_becomes_a_png_file(browser) -> None:
    with serving(Fake(working(2, 3))) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
        script = (
            "(async () => { const bits = await createImageBitmap(await pngOf($('graph').firstElementChild));"
            " const canvas = new OffscreenCanvas(bits.width, bits.height), pen = canvas.getContext('2d');"
            " pen.drawImage(bits, 0, 0); const seen = new Set(); const dots = pen.getImageData(0, 0, bits.width,"
            " bits.height).data; for (let i = 0; i < dots.length; i += 4) seen.add(dots.slice(i, i + 3).join());"
            " const box = $('graph').firstElementChild.viewBox.baseVal, wanted = ['31,119,180', '255,255,255'];"
            " return [bits.width / box.width, bits.height / box.height, wanted.every((c) => seen.has(c))]; })()"
        )
        assert browser.run(script) == [2, 2, True]  # the colours of ps/0 and of the paper


@pytest.mark.slow
def test_a_deadlock_and_a_culprit_are_told_at_first_sight(browser) -> None:
    """Two steps that wait for each other's queues, and a worker whose kernel a third step waits for."""
    waits = [s.WaitSnapshot(str(i), "", s.ELEMENT, f'queue "{on}"', 30.0, on=on) for i, on in ((1, "a"), (2, "b"))]
    pending = (s.PendingSnapshot("1", s.PUT, "b"), s.PendingSnapshot("2", s.PUT, "a"))
    ps = task("ps/0", waits=tuple(waits), pending=pending)
    tensor = s.WaitSnapshot("3", "", s.TENSOR, "W:0", 20.0, from_tasks=(name_of("ps/1"),))
    slow = task("ps/1", waits=(s.WaitSnapshot("3", "", s.COMPUTES, "computes PyFunc (node slow)", 20.0),))
    workers = [
        task(f"worker/{i}", running=(s.StepSnapshot(str(i + 1), "", "this process", 30.0),),
             waits=(tensor,) if i == 2 else ())
        for i in range(3)
    ]  # fmt: skip
    with serving(Fake(cluster(ps, slow, *workers))) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
        ring = "worker/0 ← worker/1 ← worker/0"
        assert f"deadlock: {ring}; ps/1 computes PyFunc (node slow)" in text(browser, "#headline")
        assert f"Deadlock: {ring}\nworker/0 waits for queue" in text(browser, "#why")
        labels = browser.run("['worker/0', 'worker/2', 'ps/1'].map((id) => boxOf(id).ariaLabel)")
        told = ["deadlock with worker/1", "waits for ps/1", "computes PyFunc (node slow)"]
        assert [line in label for line, label in zip(told, labels)] == [True] * 3, labels
        assert browser.run("boxNames('.culprit')") == ["ps/1", "worker/0", "worker/1"]


@pytest.mark.slow
def test_the_ledger_of_a_synchronous_update_and_names_that_look_like_markup(browser) -> None:
    bad = "<img src=x onerror=window.bad=1></script><b>"
    sent = tuple(s.ContributionSnapshot(name_of(f"worker/{i}"), 9 + i, i) for i in range(2))
    ledger = s.AccumulatorSnapshot(f"w{bad}", 1, 2, 17, 19, 1, sent, (name_of("worker/0"),))
    scalar, queue = s.ScalarSnapshot(f"loss{bad}", 1, 0.5, START), s.QueueSnapshot(f"q{bad}", "FIFOQueue", 1, 2)
    ps = task("ps/0", accumulators=(ledger,), scalars=(scalar,), queues=(queue,))
    with serving(Fake(cluster(ps, task("worker/0"), task("worker/1")))) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
        browser.run(f"openTask({name_of('ps/0')!r})")
        until(browser, "/FIFO|q</.test(document.querySelector('#panel').innerText)")
        shown = browser.run("document.querySelector('#ledgers').textContent")
        assert f"w{bad} on ps/0: 1 of 2 from worker/0; step 17" in shown
        assert "worker/1101" in shown  # worker/1: 10 taken, 1 dropped
        made = browser.run("document.querySelectorAll('main img, #charts img').length")
        assert made == 0 and browser.run("window.bad") is None


@pytest.mark.slow
def test_the_page_connects_again_by_itself(browser) -> None:
    fake = Fake(working(1, 2))
    with serving(fake) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
    until(browser, "document.querySelector('#live').innerText === 'connects again'")
    fake.snapshot = working(1, 3)
    with serving(fake, port=int(address.rpartition(":")[2])):
        until(browser, "boxNames('.box').length === 4")
        assert text(browser, "#live") == "live"


@pytest.mark.slow
def test_an_address_without_the_token_shows_nothing(browser) -> None:
    with serving(Fake(working(1, 2))) as address:
        browser.go(f"{address}/?token=wrong")
        assert "needs the token" in text(browser, "body")


@pytest.mark.slow
def test_a_hundred_tasks_are_a_few_boxes_and_an_update_is_quick(browser) -> None:
    """The history of the page is full: 400 readings. The panel of a ps with 1,000 variables is open."""
    fake = Fake(large(8, 92))
    with serving(fake, filled=400) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
        browser.run(f"openTask({name_of('ps/0')!r})")
        until(browser, "/layer_29/.test(document.querySelector('#panel').innerText)")
        for second in range(6):
            fake.snapshot = silent(large(8, 92, START + 2000 + second), f"worker/{second}")
            until(browser, f"lastMessage.time >= {START + 2000 + second}")
        assert "worker/5" in boxes(browser) and len(boxes(browser)) == 3
        times = sorted(browser.run("updateTimes.slice(1)"))
        assert times[len(times) // 2] <= 200, times
        folded = next(name for name in boxes(browser) if "×91" in name)
        browser.run(f"boxOf({folded!r}).dispatchEvent(new MouseEvent('click', {{bubbles: true}})) && 0")
        until(browser, "/worker.80/.test(document.querySelector('#panel').innerText)")


@pytest.mark.slow
def test_the_timeline_of_a_step_of_ten_thousand_ops_is_drawn_quickly(browser) -> None:
    fake, stats = Fake(working(1, 1)), traced_step(10_000)
    fake.trace = lambda name: stats
    with serving(fake) as address:
        browser.go(f"{address}/?token={TOKEN}")
        until(browser, "lastMessage")
        browser.run("traceStep('x', 'worker/0', document.createElement('button')) && 0")
        until(browser, "/The step took/.test($('timeline-frame').contentDocument?.body?.innerText)")
        assert int(text(browser, "#timeline-title").split(", ")[1].split()[0].replace(",", "")) > 10_000
        times = browser.run(
            "[1, 2, 3].map(() => { const since = performance.now(); $('timeline-frame').contentWindow.draw();"
            " return performance.now() - since; })"
        )
        assert min(times) <= 200, times
