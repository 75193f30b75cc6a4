"""Takes the pictures of docs/ anew: ``python -m tests.screenshots [NAME...]``. It needs Chromium, and some minutes.

The live pages are those of real jobs of `tfmini launch`; the inspector's are those of an example and of the graphs of
``tests/show/inspection``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from tests.show.dashboard.test_server_page_html import until
from tests.show.inspection.browser import Browser, find_browser
from tests.show.inspection.cluster_graphs import towers
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.pages import page

ROOT = Path(__file__).parents[1]
WIDTH = 1280

_HEAD = """
import json, os, threading
import numpy as np
import tfmini as tf
config = json.loads(os.environ["TF_CONFIG"])
cluster, index = tf.train.ClusterSpec(config["cluster"]), config["task"]["index"]
server = tf.train.Server(cluster, job_name=config["task"]["type"], task_index=index)
if config["task"]["type"] == "ps":
    server.join()
    raise SystemExit
setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")
with tf.device(setter):
    step = tf.train.get_or_create_global_step()
"""
_TRAINING = f"""{_HEAD}
with tf.device(setter):
    x = tf.random_normal([50, 784])
    hidden = tf.layers.dense(x, 100, activation=tf.nn.relu)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 10)[:, 0] - x[:, 0]))
    tf.summary.scalar("loss", loss)
    train = tf.train.AdagradOptimizer(0.02).minimize(loss, global_step=step)
with tf.train.MonitoredTrainingSession(server.target, index == 0, os.environ["LOGS"], save_checkpoint_secs=15,
                                       save_summaries_steps=20, log_step_count_steps=100) as session:
    while not session.should_stop():
        session.run(train)
        threading.Event().wait(0.02)
"""
_STUCK = f"""{_HEAD}
calls = []
def data():
    calls.append(None)
    if index == 2 and len(calls) > 300:
        threading.Event().wait()
    return np.float32(1)
with tf.device(setter):
    w = tf.get_variable("w", [784, 10])
    loss = tf.reduce_mean(tf.square(w * tf.py_func(data, [], tf.float32, name="augment") - 1.0))
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 3)
    train = optimizer.minimize(loss, global_step=step)
hook = optimizer.make_session_run_hook(index == 0)
with tf.train.MonitoredTrainingSession(server.target, index == 0, hooks=[hook]) as session:
    while not session.should_stop():
        session.run(train)
"""


@contextlib.contextmanager
def launched(script: str, ps: int, workers: int) -> Iterator[str]:
    """The address of the page of a job that runs this script."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(script)
        job = subprocess.Popen(
            [sys.executable, "-m", "tfmini", "launch", "--dashboard", "--ps", str(ps), "--workers", str(workers),
             "--cpus-per-task", "1", str(path)],
            stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, env={**os.environ, "LOGS": f"{folder}/logs"},
        )  # fmt: skip
        try:
            assert job.stdout is not None
            yield next(found[0] for line in job.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            job.terminate()
            job.communicate()


Show = Callable[[Browser], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def live(browser: Browser) -> Iterator[None]:
    with launched(_TRAINING, ps=2, workers=3) as address:
        browser.go(address)
        browser.run("$('span').value = '300', $('span').onchange()")
        until(browser, "lastMessage && drawnCharts.has('scalar|loss') && drawnCharts.get('steps').data[0].length > 45")
        yield


@contextlib.contextmanager
def stuck(browser: Browser) -> Iterator[None]:
    with launched(_STUCK, ps=1, workers=3) as address:
        browser.go(address)
        until(browser, "lastMessage && lastMessage.why.headline.length && lastMessage.waits[0].since > 8")
        yield


def inspected(graph: object, script: str = "1", **cluster: int) -> Show:
    """The inspector's page of a graph, after a script has run in it."""

    @contextlib.contextmanager
    def show(browser: Browser) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "page.html")
            if isinstance(graph, str):
                counts = [text for job, count in cluster.items() for text in (f"--{job}", str(count))]
                command = [sys.executable, "-m", "tfmini", "inspect", graph, *counts, "--batch", "100"]
                subprocess.run([*command, "--html", str(file)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
            else:
                file.write_text(page(inspect(graph(), **cluster)))  # type: ignore[operator]
            browser.open(file)
            browser.run(f"void ({script})")
            browser.run("new Promise((done) => setTimeout(done, 300))")
            yield

    return show


_STEPS = "(() => { for (let i = 0; i < 4; i += 1) $('next').click(); fitAll(); })()"
PICTURES: dict[str, tuple[int, Show]] = {
    "inspector": (560, inspected("examples/digits_async.py", _STEPS, ps=2, workers=2)),
    "page-2": (720, inspected(lambda: towers(1, 1, layers=3), ps=1, workers=1)),
    "page-16-heat": (720, inspected(lambda: towers(8, 8, layers=48, greedy=5), ps=8, workers=8)),
    "page-16": (720, inspected(lambda: towers(8, 8, layers=48, greedy=5), "$('toTasks').click()", ps=8, workers=8)),
    "page-100": (720, inspected(lambda: towers(20, 80, layers=20, greedy=5), ps=20, workers=80)),
    "dashboard": (960, live),
    "dashboard-stuck": (600, stuck),
}
"""Name -> its height, and what shows it."""


def smaller(png: bytes) -> bytes:
    """The picture with 256 colours, a third of the bytes."""
    found = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(found, "PNG", optimize=True)
    return found.getvalue()


def take(names: list[str], folder: Path) -> None:
    """Writes the pictures, all if none is named."""
    path = find_browser()
    if path is None:
        raise SystemExit("No Chromium is on the PATH: apt install chromium, or set TFMINI_CHROMIUM.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(path, Path(profile))
        try:
            for name in names or PICTURES:
                height, show = PICTURES[name]
                size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
                browser.call("Emulation.setDeviceMetricsOverride", **size)
                with show(browser):
                    (folder / f"{name}.png").write_bytes(smaller(browser.screenshot()))
                print(f"{name}.png", flush=True)
        finally:
            browser.close()


if __name__ == "__main__":
    take(sys.argv[1:], ROOT / "docs" / "images")
