"""Agents and their hub, without a scheduler: the test itself starts the agents."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import msgpack
import pytest
from rich.console import Console

from tests.launch.child_agents import ROOT, ChildAgents, parents_of
from tests.launch.programs import TRAINS
from tests.rpc.task_processes import Call
from tests.tools import comers
from tfmini import errors
from tfmini.launch import agent_messages as m
from tfmini.launch import hub
from tfmini.launch.engine import EngineOptions, TaskRequest
from tfmini.launch.hub import AgentEngine
from tfmini.launch.invitation import LAUNCHER, Invitation, endpoint_of_run
from tfmini.launch.launch_options import LaunchOptions
from tfmini.launch.progress import LaunchProgress
from tfmini.launch.supervision import TaskId
from tfmini.rpc.keys import new_keys
from tfmini.rpc.records import PROTOCOL_VERSION
from tfmini.tools.launch import run_cluster


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


def test_a_lost_agent_fails_its_task(engine: ChildAgents, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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
    calls: list[Call] = []

    def start_agents(requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        for keys, number in ((new_keys(), 0), (invitation.keys, 5)):  # a liar, and one that nobody waits for
            endpoint = endpoint_of_run("", keys)
            held.callback(endpoint.close)
            peer = endpoint.peer(str(invitation.addresses[-1]), LAUNCHER)
            calls.append(Call(peer, m.EnterRun(number, "192.0.2.9", 1, 1, "elsewhere")))
        real(requests, invitation)

    with contextlib.ExitStack() as held:
        engine.start_agents = start_agents  # type: ignore[method-assign]
        assert run(engine, tmp_path, "pass", ps=0) == 0
        liar, other = (call.wait() for call in calls)
    assert isinstance(liar, errors.UnavailableError) and "it uses other keys than this process" in liar.message
    assert isinstance(other, errors.FailedPreconditionError) and "no agent of the number 5" in other.message
    assert "192.0.2.9" not in capfd.readouterr().err


def test_a_message_that_the_launcher_does_not_know_is_named(tmp_path: Path) -> None:
    """Also a known one with a field of another type: nothing falls through."""
    for odd in ([PROTOCOL_VERSION, 9, 0, "what?"], [PROTOCOL_VERSION, m.TaskEnded.row.kind, 0, "soon"]):
        engine, told = ChildAgents(EngineOptions()), list[str]()
        events, invitations = Mock(broken=told.append), list[Invitation]()
        engine.start_agents = lambda _, own, found=invitations: found.append(own)  # type: ignore[assignment]
        with selectors.DefaultSelector() as selector:
            engine.reserve([TaskRequest(TaskId("worker", 0))], events, selector)
            engine.agents = []
            agent = endpoint_of_run("", invitations[-1].keys)
            peer = agent.peer(str(invitations[-1].addresses[-1]), LAUNCHER)
            peer.call(m.EnterRun(0, "here", 1, 1, "host"), lambda answer: None)
            while not events.placed.called:
                drive(selector)
            assert peer.link is not None
            peer.link.send([msgpack.packb(odd)])
            while not told:
                drive(selector)
            engine.close(1)
            agent.close()
        reason = "unknown message kind 9" if odd[1] == 9 else "TaskEnded.returncode must be int, got str"
        assert "The agent of worker/0 on host has ended" in told[0] and reason in told[0]


def drive(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(60):
        key.data()


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
    argv = [sys.executable, "-m", "tests.launch.child_agents", "launch", *options, str(script)]
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


def test_the_loss_of_one_task_may_let_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told to a task that has been let go meanwhile is told to nobody, and what it has said counts no more."""
    engine, ended = ChildAgents(EngineOptions()), list[TaskId]()
    first, second = TaskId("ps", 0), TaskId("worker", 0)
    peers = {first: Mock(), second: Mock()}

    def end(task: TaskId, returncode: int) -> None:
        ended.append(task)
        engine.withdraw(second)

    endpoint = Mock(listen=lambda address: address)
    monkeypatch.setattr(hub, "endpoint_of_run", lambda task, keys: endpoint)
    engine.start_agents = lambda requests, invitation: None  # type: ignore[method-assign]
    engine.agents = []
    with selectors.DefaultSelector() as selector:
        engine.reserve([TaskRequest(first), TaskRequest(second)], Mock(ended=end), selector)
        (handlers,) = endpoint.serve.call_args.args
        for number, peer in enumerate(peers.values()):
            handlers[m.EnterRun](peer, m.EnterRun(number, "here", 1, 1, "here"), Mock(cancelled=False))
            drive(selector)
        engine.start({})
        for peer in peers.values():
            peer.send.reset_mock()
        engine.signal([first, second], signal.SIGTERM)
        for peer in peers.values():
            peer.send.assert_called_once_with(m.SignalTask(int(signal.SIGTERM)))
        (lost,) = peers[first].on_lost.call_args.args
        lost(peers[first], "the connection was closed")
        drive(selector)
        engine.signal([second], signal.SIGTERM)
        handlers[m.TaskEnded](peers[second], m.TaskEnded(1), None)  # its last message was under way
        drive(selector)
        assert ended == [first]
        assert [call.args for call in peers[second].send.call_args_list[1:]] == [(m.LeaveRun(0),)]
        engine.close(1)


def test_a_stopped_launcher_loses_no_task(tmp_path: Path) -> None:
    """It says nothing for longer than a peer may be silent that has to send heartbeats."""
    script, go = tmp_path / "script.py", tmp_path / "go"
    script.write_text(f"import os, time\nprint('begun', flush=True)\nwhile not os.path.exists({str(go)!r}):"
                      " time.sleep(0.01)\nprint('done')\n")  # fmt: skip
    argv = [sys.executable, "-m", "tests.launch.child_agents", "launch", "--on", "children", "--ps", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TFMINI_LOST_AFTER": "2"}
    with subprocess.Popen([*argv, str(script)], stdout=subprocess.PIPE, env=environment, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "[worker/0] begun\n"
        launcher.send_signal(signal.SIGSTOP)
        time.sleep(3.5)  # the silence itself, not a wait for something
        launcher.send_signal(signal.SIGCONT)
        go.touch()
        assert launcher.stdout.readline() == "[worker/0] done\n"
        assert launcher.wait(60) == 0


def test_a_launcher_with_agents_whose_output_nobody_reads_obeys_signals(tmp_path: Path) -> None:
    """The agents are told to wait, so their connections stay alive and their news come through."""
    script = tmp_path / "script.py"
    script.write_text("while True:\n    print('x' * 1000)\n")
    argv = [sys.executable, "-m", "tests.launch.child_agents", "launch", "--on", "children", "--ps", "0"]
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
