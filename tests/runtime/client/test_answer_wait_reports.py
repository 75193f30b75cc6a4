"""A client that waits for long is told for what; so is one that gives up."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import tfmini as tf
from tfmini.runtime.client import answer
from tfmini.runtime.master.step import describe_parts


class Lines(logging.Handler):
    """The warnings of tfmini; a test waits for one and then ends the wait that it tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.on_line: Callable[[], None] = lambda: None

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.on_line()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    monkeypatch.setattr(answer, "FIRST_S", 0.05)
    handler = Lines()
    logger = logging.getLogger("tfmini")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def wait_until_told(target: str, fetch: Any, free: Any, lines: Lines, *parts: str, count: int = 1) -> list[str]:
    """The first lines that have all of ``parts``, in a run of ``fetch``, which waits; then ``free`` ends the wait.

    A step that is told of before it has come to its wait may wait for something else.
    """
    told = threading.Event()

    def found() -> list[str]:
        return [text for text in lines.texts if all(part in text for part in parts)]

    lines.on_line = lambda: told.set() if len(found()) >= count else None
    with tf.Session(target) as session, tf.Session(target) as other:
        helper = session if not target else other  # sessions without a target share nothing

        def release() -> None:
            told.wait(60)
            helper.run(free)

        thread = threading.Thread(target=release)
        thread.start()
        session.run(fetch)
        thread.join()
    assert len(found()) >= count, lines.texts
    return found()


def test_a_local_wait_is_reported_repeatedly(lines: Lines) -> None:
    queue = tf.FIFOQueue(2, tf.float32, shapes=[()], name="jobs")
    part = '_jobs" (0 of 2 elements) (node next) for '
    first, *_ = wait_until_told("", queue.dequeue(name="next"), queue.enqueue(1.0), lines, part, count=2)
    assert re.match(r"Session.run has had no answer for \d+ s: step ", first)
    assert re.search(r'waits for an element of FIFOQueue "_\d+_jobs" \(0 of 2 elements\) \(node next\) for \d', first)
    assert first.endswith("Were the queue runners started (tf.train.start_queue_runners)?")


@pytest.fixture(scope="module")
def targets() -> Iterator[tuple[str, str]]:
    """The targets of worker 0 and ps 0 of a cluster in this process."""
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    yield workers[0].target, servers[0].target
    for server in (*workers, *servers):
        server.stop()


def test_a_wait_for_another_task_is_reported(lines: Lines, targets: tuple[str, str]) -> None:
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(2, tf.float32, shapes=[()], shared_name="remote")
        value = queue.dequeue()
    with tf.device("/job:worker/task:0"):
        double = value * 2.0
    parts = [
        "on /job:worker/replica:0/task:0 waits for ", " from /job:ps/replica:0/task:0 for ",
        'on /job:ps/replica:0/task:0 waits for an element of FIFOQueue "remote" (0 of 2 elements)',
    ]  # fmt: skip
    wait_until_told(targets[0], double, queue.enqueue(1.0), lines, *parts)


def test_a_client_of_a_remote_master_gets_the_report(
    lines: Lines, targets: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the server were in another process: the session speaks to it by messages.
    monkeypatch.setattr("tfmini.runtime.process.server_at", lambda address: None)
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(2, tf.float32, shapes=[()], shared_name="far")
        value = queue.dequeue()
    part = 'waits for an element of FIFOQueue "far" (0 of 2 elements)'
    wait_until_told(targets[0], value, queue.enqueue(1.0), lines, part)


def test_a_wait_for_a_full_queue_is_not_reported() -> None:
    full = 'step 1 on /job:a waits for room in FIFOQueue "q" (1 of 1) (node e) for 12.0 s'
    handler = Lines()
    logging.getLogger("tfmini").addHandler(handler)
    try:
        for text in (full, f"{full}; {full}", "", f"{full}; step 1 on /job:b waits for x from /job:a for 1 s"):
            answer.report(lambda told, text=text: told(text), None, 10.0, lambda: False)
    finally:
        logging.getLogger("tfmini").removeHandler(handler)
    assert len(handler.texts) == 1 and "/job:b" in handler.texts[0]


@pytest.mark.parametrize("order", [("full", "empty"), ("empty", "full")])
def test_a_step_that_waits_for_room_and_for_an_element_is_reported(
    order: tuple[str, str], lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "FIRST_S", 0.1)
    with tf.Session() as session:
        queue = tf.FIFOQueue(1, tf.float32, shapes=[()], name="q")
        session.run(queue.enqueue(1.0))
        ops = {"full": queue.enqueue(2.0), "empty": tf.FIFOQueue(1, tf.float32, shapes=[()], name="none").dequeue()}
        first, second = (ops[name] for name in order)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run([first, second], options=tf.RunOptions(timeout_in_ms=1000))
    assert any("an element of FIFOQueue" in text for text in lines.texts)


def test_an_interrupt_says_what_it_interrupted(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = answer.this_thread

    def interrupted(gate: Any, is_over: Callable[[], bool], seconds: float | None) -> bool:
        if seconds is None:  # not a step: what prepares for it
            return thread().sleep(gate, is_over, seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(answer, "this_thread", lambda: SimpleNamespace(sleep=interrupted))
    queue = tf.FIFOQueue(2, tf.float32, shapes=[()], name="empty")
    with tf.Session() as session, pytest.raises(KeyboardInterrupt):
        session.run(queue.dequeue())
    assert any(text.startswith("Session.run was interrupted: step ") for text in lines.texts)
    assert any('_empty" (0 of 2 elements)' in text for text in lines.texts)


def test_a_task_that_does_not_answer_is_named() -> None:
    silent = tf.errors.DeadlineExceededError.of("no answer in 2 s")
    peer = SimpleNamespace(call=lambda request, answered, **_: answered(silent))
    part = SimpleNamespace(task="/job:ps/replica:0/task:0", graph=None, peer=peer)
    texts: list[str] = []
    describe_parts(1, [part, part], {}, texts.append)  # type: ignore[list-item]
    assert texts == ["; ".join(["/job:ps/replica:0/task:0 does not say what it waits for: no answer in 2 s"] * 2)]


def test_a_missing_task_is_told_once_also_without_any_logging_set_up() -> None:
    program = """
        import tfmini as tf
        from tfmini.runtime.master import registration
        registration._PROGRESS_S = 0.1
        reports = []
        report = registration.Registration._report

        def and_end(self):
            report(self)
            reports.append(1)
            if len(reports) == 4:
                self.cancel(tf.errors.CancelledError(None, None, "enough"))

        registration.Registration._report = and_end
        cluster = {"ps": ["localhost:1"], "worker": ["localhost:0"]}
        server = tf.train.Server(cluster, job_name="worker", task_index=0)
        with tf.device("/job:ps/task:0"):
            there = tf.constant(1.0) + tf.placeholder_with_default(1.0, [])
        try:
            tf.Session(server.target).run(there)
        except tf.errors.OpError as error:
            print(type(error).__name__)
        server.stop()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=200)
    told = [line for line in done.stderr.splitlines() if "still waiting for response from worker" in line]
    assert told and len(told) == len({line.partition("(")[2] for line in told}), done.stderr
    assert len(told) == 4 and not done.returncode and done.stdout == "CancelledError\n"
