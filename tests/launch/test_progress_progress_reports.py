"""A launched task tells its launcher about its progress, and the launcher shows it."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from tfmini import library_log
from tfmini.launch.progress import Bar, Bars, LaunchProgress, ReportedWork, reporter
from tfmini.launch.supervision import TaskId

TASKS = [TaskId("ps", 0), *(TaskId("worker", i) for i in range(5))]


class BegunBars(Bars):
    """Bars that the test looks at, also before they are drawn."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO(), force_terminal=True), delay_s=1000)
        self.begun: list[Bar] = []

    def begin(self, text: str, total: int | None = None, unit: str = "") -> Bar:
        self.begun.append(super().begin(text, total, unit))
        return self.begun[-1]

    def ended(self, bar: Bar) -> None:
        super().ended(bar)
        self.begun.remove(bar)


class Screen:
    """The launcher's display without delay or terminal."""

    def __init__(self) -> None:
        self.bars = BegunBars()
        self.shown = LaunchProgress(TASKS, self.bars)

    def texts(self) -> list[str]:
        return [f"{bar.text} ({bar.amount()})" for bar in self.bars.begun]


def test_the_tasks_that_do_not_serve_yet_are_named() -> None:
    screen = Screen()
    for task in TASKS:
        screen.shown.placed(task)
    assert screen.texts() == []
    screen.shown.started()
    assert screen.texts() == ["starting 6 tasks ()"]
    screen.shown.told(TASKS[1], "serves")
    assert screen.texts() == ["waiting for the servers of ps/0, worker/1, worker/2 … (1 of 6 tasks)"]
    screen.shown.told(TASKS[1], "serves")
    screen.shown.told(TASKS[0], "serves")
    assert screen.texts() == ["waiting for the servers of worker/1, worker/2, worker/3 … (2 of 6 tasks)"]
    for task in TASKS[2:]:
        screen.shown.told(task, "serves")
    assert screen.texts() == []
    screen.shown.told(TASKS[0], "serves")  # a second server


def test_a_script_without_servers_starts_until_it_writes() -> None:
    screen = Screen()
    screen.shown.started()
    with screen.shown.cleared():
        assert screen.texts() == []
    assert screen.texts() == []


def test_a_task_that_ends_ends_the_wait_and_its_work() -> None:
    screen = Screen()
    screen.shown.told(TASKS[0], "serves")
    screen.shown.told(TASKS[0], "works 10 40 B saving /tmp/a model")
    screen.shown.told(TASKS[1], "works 1 -1 - reading")
    assert "ps/0: saving /tmp/a model (10 of 40 B)" in screen.texts()
    screen.shown.ended(TASKS[0])
    assert screen.texts() == ["worker/0: reading ()"]
    screen.shown.told(TASKS[1], "rests")
    assert screen.texts() == []


@pytest.mark.parametrize("words", ["works", "works x 3 B text", "works 1 2", "rests now", "serves and more", ""])
def test_lines_of_other_forms_do_no_harm(words: str) -> None:
    LaunchProgress(TASKS, Screen().bars).told(TASKS[0], words)
    LaunchProgress(TASKS, None).told(TASKS[0], words)


def test_work_is_reported_now_and_then_if_it_is_long() -> None:
    sent: list[str] = []
    now = [0.0]
    work = ReportedWork(sent.append, lambda: now[0], "saving x", 100, "B")
    for second in (0.1, 0.2, 0.6, 0.7, 1.0):
        now[0] = second
        work.advance(10)
    work.end()
    assert sent == ["works 30 100 B saving x", "works 50 100 B saving x", "rests"]
    short = ReportedWork(sent.append, lambda: 0.0, "saving y", None, "")
    short.advance(1)
    short.end()
    assert len(sent) == 3


def test_a_report_never_blocks_and_never_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    try:
        monkeypatch.setenv(library_log.REPORT_ENV, library_log.report_variable(write))
        library_log.send_progress("ps", 3, "works 1 2 B a\nworker 1 joined")
        (line,) = os.read(read, 9999).decode().splitlines()
        assert library_log.parse_progress(line) == ("ps", 3, "works 1 2 B a worker 1 joined")
        assert library_log.parse_report(line) is None
        for _ in range(1000):  # nobody reads: the pipe is full long before
            library_log.send_progress("ps", 3, "works " + 1000 * "x")
        assert len(os.read(read, 1 << 20)) <= 1 << 16
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.cluster
def test_a_launch_on_a_terminal_shows_who_is_missing_and_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import json, os, select, sys
        import tfmini as tf
        config = json.loads(os.environ["TF_CONFIG"])
        job, index = config["task"]["type"], config["task"]["index"]
        if job == "worker":  # comes when the launcher has had time to say that it is missing
            while not os.path.exists(os.environ["GO"]):
                select.select([], [], [], 0.02)
        server = tf.train.Server(config["cluster"], job, index)
        if job == "ps":
            server.join()
        print("trained", flush=True)
        """)
    )
    environment = {**os.environ, "GO": str(tmp_path / "go"), "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "tfmini", "launch", "--ps", "1", "--workers", "1", str(script)]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the terminal's other end has gone
                break
            text += data
            if b"waiting for the servers of worker/0" in text:
                (tmp_path / "go").touch()
        os.close(ours)
        assert process.wait() == 0
    assert b"waiting for the servers of worker/0" in text and b"1 of 2 tasks" in text
    visible = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", text.split(b"waiting for the servers")[-1])
    assert b"[worker/0] trained\r\n" in visible


@pytest.mark.parametrize("config", ["garbage", "[]", '{"task": {}}', ""])
def test_a_senseless_task_config_is_left_to_what_uses_it(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script may not use it, or says itself what is wrong with it."""
    monkeypatch.setattr(library_log, "is_launched", lambda: True)
    assert reporter({"TF_CONFIG": config}) is None
    assert reporter({"TF_CONFIG": '{"task": {"type": "ps", "index": 0}}'}) is not None


@pytest.mark.parametrize("number", ["9" * 5000, "²", "٣", "-1", ""])
def test_a_line_with_an_odd_number_is_no_report(number: str) -> None:
    """A script can write what it likes into the pipe; the launcher must outlive it."""
    assert library_log.parse_report(f"ps {number} joined") is None
    assert library_log.parse_progress(f"ps {number} works 1") is None


def test_words_of_a_task_do_nothing_on_the_terminal() -> None:
    bar = Bars(Console(file=io.StringIO()), delay_s=1000).begin("a\x1b[2J\n")
    assert bar.text == r"a\x1b[2J\n"
    bar.update(1, "b\x07")
    assert bar.text == r"b\x07"
    bar.end()
