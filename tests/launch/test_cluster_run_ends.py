"""The launcher survives tasks that end together, and one that must be killed after it was asked to leave."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.launch import cluster_run, local
from tfmini.launch.cluster_run import ClusterRun, RunLimits
from tfmini.launch.engine import EngineOptions, TaskCommand, TaskRequest
from tfmini.launch.launch_options import LaunchOptions
from tfmini.launch.output import Sink
from tfmini.launch.supervision import PrintNote, RunOver, Supervision, TaskId
from tfmini.tools.launch import task_commands

POLITE = "import time; time.sleep(2)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
TASKS = [TaskId("worker", i) for i in range(4)]

pytestmark = pytest.mark.cluster


class _Prefixes(dict[TaskId, bytes]):
    def __missing__(self, task: TaskId) -> bytes:
        return b""


class WatchedEngine(local.LocalEngine):
    """An engine that calls ``meanwhile`` in the loop of the launcher, after the start, until it says True."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self.meanwhile: Callable[[], bool] = lambda: True
        self.has_started = False
        self._wakes = os.eventfd(1)  # always readable, so that the selector comes back at once

    def reserve(self, requests: Sequence[TaskRequest], events: Any, selector: selectors.BaseSelector) -> None:
        super().reserve(requests, events, selector)

        def look() -> None:
            time.sleep(0.02)
            if self.has_started and self.meanwhile():
                selector.unregister(self._wakes)
                os.close(self._wakes)

        selector.register(self._wakes, selectors.EVENT_READ, look)

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        super().start(commands)
        self.has_started = True


def _finish(
    monkeypatch: pytest.MonkeyPatch, others: str, restarts: int, meanwhile: Callable[[ClusterRun], bool]
) -> RunOver:
    """Runs worker 0 politely beside others. ``meanwhile`` is called in the loop of the launcher until it says True."""
    monkeypatch.setattr(local, "task_argv", lambda command: [sys.executable, "-c", command.arguments[0]])
    run = ClusterRun(
        engine := WatchedEngine(EngineOptions()), [TaskRequest(task) for task in TASKS],
        lambda spec, cpus: {task: TaskCommand([others if task.task else POLITE], {}, {}) for task in cpus},
        Supervision(TASKS, restarts=restarts), RunLimits(0.5), Sink(os.open(os.devnull, os.O_WRONLY)), _Prefixes(),
        say=lambda note: None,
    )  # fmt: skip
    engine.meanwhile = lambda: meanwhile(run)
    return run.run()


def test_workers_that_are_killed_at_once_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ends and the ends of their output come in one look of the selector."""

    children: list[local.LocalTask] = []
    make = local.LocalTask

    def noted(*args: Any) -> local.LocalTask:
        children.append(make(*args))
        return children[-1]

    monkeypatch.setattr(local, "LocalTask", noted)

    def kill(run: ClusterRun) -> bool:
        processes = [child.process for child in children[1 : len(TASKS)]]
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return True

    assert _finish(monkeypatch, POLITE, 1, kill) == RunOver(0, None, "")


def test_a_worker_that_outlasts_its_grace_is_killed_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(run: ClusterRun) -> bool:
        run.scale(3)
        return True

    assert _finish(monkeypatch, STUBBORN.replace("60", "3"), 0, scaled).exit_code == 0


_RANK = """
import json, os, signal, sys, time
from pathlib import Path
import tensorflow as tf
config, here = json.loads(os.environ["TF_CONFIG"]), Path(__file__).parent
rank = config["task"]["index"]
server = tf.train.Server(config["cluster"], job_name="worker", task_index=rank)
step = tf.train.get_or_create_global_step()
w = tf.get_variable("w", initializer=1.0)
opt = tf.train.AllReduceOptimizer(
    tf.train.GradientDescentOptimizer(0.1), num_workers=3, rank=rank, least_workers=int(sys.argv[1])
)
train = opt.minimize(w * w, global_step=step)
hooks = [opt.make_session_run_hook(), tf.train.StopAtStepHook(last_step=20)]
with tf.train.MonitoredTrainingSession(server.target, hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
(here / f"pid.{rank}").write_text(str(os.getpid()))

def has_ended(other):
    try:
        os.kill(int((here / f"pid.{other}").read_text() or 0), 0)
    except FileNotFoundError:
        return False
    except ProcessLookupError:  # the launcher has seen its end
        return True

while rank == 1 and not (has_ended(0) and has_ended(2)):
    time.sleep(0.02)  # polls for other processes
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("least", [0, 2])
def test_a_rank_that_is_killed_when_the_others_have_finished_does_not_come_back(least: int, tmp_path: Path) -> None:
    """It would wait for them without end."""
    script = tmp_path / "train.py"
    script.write_text(_RANK)
    command = [sys.executable, "-m", "tfmini", "launch", "--ps", "0", "--workers", "3", "--restarts", "3", str(script)]
    done = subprocess.run([*command, str(least)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker/1 ended (killed by SIGKILL) when the ranks that it needs had finished" in done.stderr


_TRAINS = """
import json, os, sys
from pathlib import Path
import tensorflow as tf
mode, here = sys.argv[1], Path(__file__).parent
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
server = tf.train.Server(config["cluster"], job_name=job, task_index=index)
print("is", job, index, os.getpid(), flush=True)
if job == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=config["cluster"], worker_device=f"/job:worker/task:{index}")):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=1.0)
    opt, hooks = tf.train.GradientDescentOptimizer(0.1), []
    if mode == "sync":
        opt = tf.train.SyncReplicasOptimizer(opt, 2)
    train = opt.minimize(w * w, global_step=step)
if mode == "sync":
    hooks = [opt.make_session_run_hook(index == 0)]
if mode == "plain":
    session, saver = tf.Session(server.target), tf.train.Saver()
    init, missing = tf.global_variables_initializer(), tf.report_uninitialized_variables()
    session.run(init if index == 0 else [])
    while len(session.run(missing)):
        pass
elif mode == "supervisor":
    logdir = str(here / "model")
    sv = tf.train.Supervisor(is_chief=index == 0, logdir=logdir, global_step=step, save_model_secs=3600)
    session = sv.managed_session(server.target)
else:
    directory = str(here / "model") if index == 0 else None
    session = tf.train.MonitoredTrainingSession(
        server.target, index == 0, directory, hooks=hooks, save_checkpoint_steps=None, save_checkpoint_secs=3600
    )
with session as session:
    try:
        while mode != "supervisor" or not sv.should_stop():
            session.run(train)
            done = session.run(step)
            if done >= 5 and not (here / f"at.{index}").exists():
                (here / f"part.{index}").write_text(str(done))
                (here / f"part.{index}").rename(here / f"at.{index}")
                print("begun", flush=True)
            if index == 1 and (here / "fail").exists():
                os._exit(7)
    except KeyboardInterrupt:
        if mode == "plain" and index == 0:
            saver.save(session, str(here / "model" / "model.ckpt"), global_step=step)
        raise
"""


class _Clock:
    """What the launcher uses of `time`; ``ahead``: so many seconds have passed at once."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


_ENDS = {
    "Ctrl-C": lambda clock, here: os.kill(os.getpid(), signal.SIGINT),
    "SIGTERM": lambda clock, here: os.kill(os.getpid(), signal.SIGTERM),
    "SIGHUP": lambda clock, here: os.kill(os.getpid(), signal.SIGHUP),
    "time limit": lambda clock, here: setattr(clock, "ahead", 1000.0),
    "failure": lambda clock, here: (here / "fail").touch(),
}


@pytest.mark.parametrize(
    "mode, end",
    [
        *(("async", end) for end in _ENDS),
        *(("sync", end) for end in ("Ctrl-C", "time limit")),
        *(("supervisor", end) for end in ("Ctrl-C", "failure")),
        ("plain", "Ctrl-C"),
    ],
)
@pytest.mark.usefixtures("ctrl_c")
def test_whatever_ends_a_run_the_chief_saves_before_the_ps_ends(
    mode: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, script = _Clock(), tmp_path / "train.py"
    monkeypatch.setattr(cluster_run, "time", clock)
    script.write_text(_TRAINS)
    (tmp_path / "model").mkdir()
    tasks = [TaskId("ps", 0), *TASKS[:2]]
    said: list[PrintNote] = []

    def meanwhile() -> bool:
        ready = all((tmp_path / f"at.{index}").exists() for index in range(2))
        if ready:
            _ENDS[end](clock, tmp_path)
        return ready

    with cluster_run.key_of_run() as key_file, (tmp_path / "output").open("wb") as output:
        engine = WatchedEngine(EngineOptions())
        engine.meanwhile = meanwhile
        finish = ClusterRun(
            engine, [TaskRequest(task) for task in tasks],
            partial(task_commands, LaunchOptions(workers=2), str(script), [mode], key_file),
            Supervision(tasks), RunLimits(60.0, time_limit_s=900.0), Sink(os.dup(output.fileno())), _Prefixes(),
            say=said.append,
        ).run()  # fmt: skip
    told = (tmp_path / "output").read_text()
    assert finish.exit_code == {"Ctrl-C": 130, "SIGTERM": 143, "SIGHUP": 129, "time limit": 124, "failure": 7}[end]
    assert not any("did not end" in note.text for note in said)
    saved = int(str(tf.train.latest_checkpoint(str(tmp_path / "model"))).rpartition("-")[2])
    assert saved >= int((tmp_path / "at.0").read_text()), told


def test_agents_whose_launcher_was_killed_let_the_chief_save(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_TRAINS)
    options = ["--on", "children", "--workers", "2", "--grace", "10", str(script), "async"]
    argv = [sys.executable, "-m", "tests.launch.child_agents", "launch", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, text=True) as launcher:
        assert launcher.stdout is not None
        processes, begun = [], 0
        while begun < 2:
            words = launcher.stdout.readline().split()
            assert words, "the launcher has ended"
            begun += words[-1] == "begun"
            if words[1] == "is":
                processes.append(os.pidfd_open(int(words[-1])))
        launcher.kill()
    for fd in processes:
        assert select.select([fd], [], [], 100)[0]
        os.close(fd)
    saved = int(str(tf.train.latest_checkpoint(str(tmp_path / "model"))).rpartition("-")[2])
    assert saved >= int((tmp_path / "at.0").read_text())
