"""Agents and their hub, without a scheduler: the test itself starts the agents."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.console import Console

from tests.engines.child_agents import ROOT, ChildAgents, parents_of
from tests.engines.programs import TRAINS
from tests.tools import comers
from tfmini.cluster import HostPort
from tfmini.engines.channel import Channel, ChannelError
from tfmini.engines.hub import AgentEngine, _Place
from tfmini.engines.invitation import Invitation, connect
from tfmini.tools.engine import EngineOptions, TaskRequest
from tfmini.tools.launch import run_cluster
from tfmini.tools.launch_options import LaunchOptions
from tfmini.tools.progress_reports import LaunchProgress
from tfmini.tools.supervision import TaskId


@pytest.fixture
def engine() -> Iterator[ChildAgents]:
    engine = ChildAgents(EngineOptions())
    yield engine
    for agent in engine.agents:
        if agent.poll() is None:
            agent.kill()
            agent.wait()


def run(engine: AgentEngine, folder: Path, body: str, **options: object) -> int:
    script = folder / "script.py"
    script.write_text(body)
    say = Console(stderr=True, highlight=False, soft_wrap=True)
    return run_cluster(engine, LaunchOptions(**options), str(script), ["--task={job}.{task}"], say)  # type: ignore[arg-type]


def test_tasks_of_agents_train_with_a_key_of_the_run(
    engine: ChildAgents, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(LaunchProgress, "told", lambda self, task, words: told.append(f"{task} {words}"))
    assert run(engine, tmp_path, TRAINS) == 0
    assert capfd.readouterr().out == "[worker/0] ['--task=worker.0'] 42 fd\n"
    assert sorted(told) == ["ps/0 serves", "worker/0 serves"]
    assert engine.codes == [0, 0]


def test_the_first_failure_is_named_and_is_the_exit_code(
    engine: ChildAgents, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
import json, os, signal, sys
if json.loads(os.environ["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}:
    sys.exit("the cause")
signal.pause()
"""
    assert run(engine, tmp_path, body, workers=2) == 1
    said = capfd.readouterr().err
    assert "tfmini: worker/1 failed (exit code 1); stopping ps/0, worker/0." in said
    assert "worker/1 failed first: exit code 1. Its last lines:\n  | the cause" in said
    assert engine.codes == [1, 1, 1]


def test_a_lost_agent_fails_its_task(
    engine: ChildAgents, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its guardian kills the task; the others are stopped."""
    body = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); signal.pause()"
    assert run(engine, tmp_path, body, ps=0) == 137
    assert f"worker/0 is lost with its agent on {socket.gethostname()}" in capfd.readouterr().err


def test_sigterm_from_the_scheduler_reaches_workers_first(
    engine: ChildAgents, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The ps goes on until the worker has ended."""
    body = """
import json, os, signal, socket, sys
config = json.loads(os.environ["TF_CONFIG"])
from tfmini import listen_fd
host, port = config["cluster"]["ps"][0].split(":")
if config["task"]["type"] == "ps":
    listener = socket.socket(fileno=listen_fd.claim(int(port)))
    listener.settimeout(100)
    connection, _ = listener.accept()
    os.kill(os.getppid(), signal.SIGTERM)   # what a scheduler sends to all agents ...
    os.kill(os.getpid(), signal.SIGTERM)    # ... and to all tasks
    connection.sendall(b"x")
    signal.pause()
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
connection = socket.create_connection((host, int(port)), timeout=100)
assert connection.recv(1) == b"x"
os.kill(os.getppid(), signal.SIGTERM)
while not ended:
    signal.pause()
print("saved")
"""
    assert run(engine, tmp_path, body, grace=60.0) == 0
    out, err = capfd.readouterr()
    assert out == "[worker/0] saved\n" and "has received SIGTERM from the engine." in err


def test_who_lacks_the_secret_gets_no_task(
    engine: ChildAgents, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    real = engine.start_agents

    def start_agents(requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        liar = Channel(connect(invitation), b"?" * 32, is_hub=False)
        liar.send("hello", 0, "192.0.2.9", 1, 1, "elsewhere")
        held.callback(liar.close)
        real(requests, invitation)
        liar.receive()  # waits for nothing: the hub has not read yet
        liar.flush()

    with contextlib.ExitStack() as held:
        engine.start_agents = start_agents  # type: ignore[method-assign]
        assert run(engine, tmp_path, "pass", ps=0) == 0
    assert "192.0.2.9" not in capfd.readouterr().err


def test_signals_of_the_launcher_reach_the_tasks(
    engine: ChildAgents, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = f"import os, signal; os.kill({os.getpid()}, signal.SIGTERM); signal.pause()"
    assert run(engine, tmp_path, body, ps=0) == 143
    assert "SIGTERM: ending the cluster." in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.cluster
def test_a_ps_lost_with_its_agent_comes_back_elsewhere_and_workers_join(tmp_path: Path) -> None:
    """The others learn its address from their copies of the address book, and training goes on from the checkpoint."""
    go, script = tmp_path / "go", tmp_path / "script.py"
    script.write_text("import sys\n" + comers.SCRIPT)
    options = ["--on", "children", "--workers", "2", "--restarts", "2", "--grace", "60"]
    argv = [sys.executable, "-m", "tests.engines.child_agents", "launch", *options, str(script)]
    with tempfile.TemporaryDirectory(prefix="tfr.") as runtime:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": runtime}
        with subprocess.Popen(
            [*argv, "async", str(tmp_path / "model"), str(go)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as launcher:  # fmt: skip
            output = comers.Output(launcher)
            _, _, pid, first = output.until("[ps/0]", "ps")
            before = output.step(0, after=100)
            os.kill(next(parents_of(int(pid))), signal.SIGKILL)
            _, _, _, second = output.until("[ps/0]", "ps")
            assert first != second
            assert output.step(1) > before - 60
            assert comers.scale(3, XDG_RUNTIME_DIR=runtime).returncode == 0
            output.step(2)
            go.touch()
            _, said = output.end()
    assert "ps/0 was killed by SIGKILL; starting it again (1 of 2)." in said


def test_what_is_told_to_one_task_may_end_others(tmp_path: Path) -> None:
    """The hub learns that an agent is gone when it sends to it; the run then lets other tasks go, which are next."""
    engine, ended = ChildAgents(EngineOptions()), list[TaskId]()
    first, second = TaskId("ps", 0), TaskId("worker", 0)

    def gone(*message: object) -> None:
        raise ChannelError("the connection is closed")

    def end(task: TaskId, returncode: int) -> None:
        ended.append(task)
        engine.withdraw(second)

    for task, send in ((first, gone), (second, lambda *message: None)):
        channel = Mock(fileno=lambda: 3, send=send, unsent=False)
        engine._places[task] = _Place(channel, HostPort("here", 1), 1, "here")
    engine._begun, engine._expected = True, {}
    engine._selector, engine._events = Mock(get_map=dict), Mock(ended=end)
    engine.signal([first, second], signal.SIGTERM)
    engine._tell_addresses()
    engine._take(second)  # its last message was ready before
    assert ended == [first]


def test_a_launcher_with_agents_whose_output_nobody_reads_obeys_signals(tmp_path: Path) -> None:
    """The agents are told to wait, so their connections stay alive and their news come through."""
    script = tmp_path / "script.py"
    script.write_text("while True:\n    print('x' * 1000)\n")
    argv = [sys.executable, "-m", "tests.engines.child_agents", "launch", "--on", "children", "--ps", "0"]
    read, write = os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*argv, "--workers", "2", str(script)], stdout=write, stderr=write, env=environment) as run:
        os.close(write)
        try:
            begun = b""
            while b"xxx" not in begun:
                begun += os.read(read, 1000)
            run.send_signal(signal.SIGTERM)
            assert run.wait(120) == 143
        finally:
            run.kill()
            os.close(read)
