"""`tfmini status` and `tfmini stacks`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from rich.console import Console, Group

import tfmini as tf
from tests.polling import poll
from tests.show.dashboard.clusters import cluster, task
from tests.show.status.hostile import EVIL, NUMBERS, hostile_task
from tfmini.runtime import snapshot as s
from tfmini.show.status.explanation import explain, explanation_lines, stack_lines, task_lines, to_prometheus
from tfmini.show.status.gather import Gatherer
from tfmini.terminal import as_text
from tfmini.tools.cli import main
from tfmini.tools.status import status_tables


@pytest.fixture
def hanging() -> Iterator[str]:
    """The target of a server where a step waits for an element that nobody enqueues."""
    with tf.Graph().as_default(), tf.train.Server.create_local_server() as server:
        tf.Variable(tf.zeros([10, 10]), name="W")
        queue = tf.FIFOQueue(3, tf.float32, shapes=(), name="jobs", shared_name="jobs")
        element, put = queue.dequeue(name="take"), queue.enqueue(1.0)
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            thread = threading.Thread(target=session.run, args=(element,))
            thread.start()
            with Gatherer(server.target) as gatherer:
                poll(lambda: gatherer.gather(timeout_s=30).tasks[0].waits, "the wait")
            yield server.target
            session.run(put)
            thread.join(60)


def run(*args: str) -> str:
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0, result.output
    return result.output


def test_status_prints_tables_and_json(hanging: str) -> None:
    text = run("status", hanging)
    for part in ("1 task, asked in", "local/0", "sessions", "variables", "[10, 10]", "400 B", "jobs"):
        assert part in text
    cluster = s.from_json(s.ClusterSnapshot, json.loads(run("status", "--json", hanging)))
    assert [variable.name for variable in cluster.tasks[0].variables] == ["W"]


def test_stacks_tells_what_a_step_waits_for_and_shows_the_threads(hanging: str) -> None:
    text = run("stacks", "--least", "0", "--python", hanging)
    assert 'no step puts anything into "jobs": 1 step waits for it' in text
    assert 'waits for an element of FIFOQueue "jobs" (0 of 3 elements)' in text
    assert "thread MainThread" in text and "test_status.py" in text
    found = json.loads(run("stacks", "--least", "0", "--json", hanging))
    assert found["cycles"] == [] and found["culprits"][0]["kind"] == "no step"
    assert found["tasks"]["/job:local/replica:0/task:0"]["waits"][0]["on"] == "jobs"


def test_a_script_that_is_busy_between_its_steps_is_told_as_bound_by_its_input() -> None:
    """Here it looks at itself. Its queue is full, for which a runner waits."""
    with tf.Graph().as_default(), tf.train.Server.create_local_server() as server:
        queue = tf.FIFOQueue(1, tf.float32, shapes=())
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.Variable(1.0) * queue.dequeue())
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)] * 2))
        with tf.train.MonitoredTrainingSession(server.target) as session:
            session.run(train)
            text, found = run("stacks", server.target), json.loads(run("stacks", "--json", server.target))
    assert "local/0 is outside Session.run 100 % of the time: input" in text
    assert "no step runs here" not in text and "DEADLOCK" not in text
    assert found["bottleneck"] is None and found["input"]["share"] == 1.0
    assert found["input"]["tasks"] == ["/job:local/replica:0/task:0"]


def test_watch_shows_the_tables_on_a_screen_of_their_own_in_a_terminal_of_80_columns(hanging: str) -> None:
    text, code = in_a_terminal([sys.executable, "-m", "tfmini", "status", "--watch", "--interval", "0.2", hanging])
    assert code == 0 and text.startswith(ALTERNATE + "h") and text.endswith("\x1b[?25h")
    assert text.count(ALTERNATE + "l") == 1 and text.count("local/0") >= 2
    shown = text.partition(ALTERNATE + "l")[0].split("\x1b[H")[2]
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).split("\r\n")
    assert len(lines) == ROWS and all(len(line) == 80 for line in lines)
    assert hanging.removeprefix("grpc://") in shown and "more lines" in lines[-1]


def test_watch_as_json_is_a_line_for_each_snapshot(hanging: str) -> None:
    """A file of such lines outlives the page; the first one was many lines."""
    command = [sys.executable, "-m", "tfmini", "status", "--watch", "--json", "--interval", "0.2", hanging]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_listen) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert [s.from_json(s.ClusterSnapshot, json.loads(line)).target for line in lines] == [hanging] * 2


def _listen() -> None:
    """A command hears Ctrl-C, which it would not where a shell has started these tests in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


ALTERNATE, ROWS = "\x1b[?1049", 10


def in_a_terminal(command: list[str]) -> tuple[str, int]:
    """What a command writes to a terminal of 80 columns until it has shown some screens; its exit code after Ctrl-C."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (ROWS, 80))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    with (
        subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, preexec_fn=_listen) as process,
        contextlib.ExitStack() as at_end,
    ):
        at_end.callback(process.kill)  # it waits for somebody to read if this test is given up
        os.close(theirs)
        text, is_told = b"", False
        with contextlib.suppress(OSError):  # the terminal has no other end any more
            while data := os.read(ours, 65536):
                text += data
                if text.count(b"\x1b[H") >= 4 and not is_told:
                    process.send_signal(signal.SIGINT)
                    is_told = True
        os.close(ours)
        return text.decode(), process.wait(60)


def test_nobody_there_is_an_error_without_a_traceback() -> None:
    result = CliRunner().invoke(main, ["status", "localhost:1"])
    assert result.exit_code == 1 and "No task of the cluster at localhost:1 answers" in result.output


def test_a_silent_task_is_shown_with_the_reason() -> None:
    from rich.console import Console

    cluster = s.ClusterSnapshot("", 0, 0, (s.TaskSnapshot("/job:ps/replica:0/task:0", "h:1", s.SILENT, "refused"),))
    console = Console(width=120)
    with console.capture() as capture:
        console.print(*status_tables(cluster))
    assert "silent" in capture.get() and "ps/0: refused" in capture.get()


def test_pairs_that_cannot_connect_are_shown_with_the_reason() -> None:
    link = s.LinkSnapshot("/job:ps/replica:0/task:0", "lost", address="tcp://h:1", why="no route to h")
    task = s.TaskSnapshot("/job:worker/replica:0/task:1", "w:1", links=(link,))
    cluster = s.ClusterSnapshot("w:1", 0.0, 1.0, (task,))
    (table,) = [table for table in status_tables(cluster) if table.title == "cannot be reached"]
    cells = [str(cell) for column in table.columns for cell in column.cells]
    assert cells == ["worker/1", "ps/0", "tcp://h:1", "no route to h"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_task_that_tells_odd_things_breaks_no_table(number: float) -> None:
    good = s.TaskSnapshot("/job:ps/replica:0/task:1", "h:1", incarnation="1", queues=(s.QueueSnapshot("q", "Q", 1, 2),))
    odd = hostile_task("/job:ps/replica:0/task:0", number)
    silent = s.TaskSnapshot("/job:ps/replica:0/task:2", "h:2", s.SILENT, EVIL)  # by this process, of an error
    cluster = s.ClusterSnapshot("h:1", 0.0, 1.0, (odd, good, silent))
    terminal = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    terminal.print(Group(*status_tables(cluster)))
    text = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "ps/1" in text and "[/x][link=u]" in text
    lines = [*explanation_lines(explain(cluster)), *task_lines(odd), *stack_lines(cluster)]
    assert all(each.isprintable() for each in lines) and to_prometheus(cluster).count("tfmini_up{") == 3
    assert all(each.isprintable() for each in text.splitlines())


def test_status_shows_a_queue_whose_name_is_markup() -> None:
    with tf.Graph().as_default(), tf.train.Server.create_local_server() as server:
        put = tf.FIFOQueue(3, tf.float32, shapes=(), shared_name=EVIL).enqueue(1.0)
        with tf.Session(server.target) as session:
            session.run(put)
            text = run("status", server.target)
            run("stacks", server.target)
    assert "[/x][link=u]" in text and "\x1b" not in text


def test_a_variable_without_a_value_is_told_as_such() -> None:
    """A scalar of 0 B does not exist."""
    variables = (s.VariableSnapshot("W", "float32", (), 0), s.VariableSnapshot("b", "float32", (0, 3), 0))
    found = cluster(task("worker/0", variables=variables))
    [rows] = [text for table in status_tables(found) if "variable " in (text := as_text(table))]
    assert re.search(r"W +float32 +not initialized", rows) and re.search(r"b +float32 +\[0, 3\] +0 B", rows)
