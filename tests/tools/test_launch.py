"""`tfmini launch` with real processes that run tiny scripts. Every wait has a limit; none is a sleep."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 120

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for foreign processes through pidfds")

# What scripts of these tests start with: JOB and TASK, and the ps side of a cluster.
PREAMBLE = """
import json, os, signal, socket, subprocess, sys
config = json.loads(os.environ["TF_CONFIG"])
JOB, TASK = config["task"]["type"], config["task"]["index"]
def address(job, task):
    host, port = config["cluster"][job][task].split(":")
    return host, int(port)
def listener(job, task):
    from tfmini import listen_fd
    listener = socket.socket(fileno=listen_fd.claim(address(job, task)[1]))
    listener.settimeout(100)
    return listener
def wait_for_ever():
    print("ready", flush=True)
    while True:
        signal.pause()
"""


class Cluster:
    """Runs `tfmini launch` on scripts, and finds whatever processes that leaves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = f"TFMINI_TEST={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        ours = ("NO_COLOR", "FORCE_COLOR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self._env = {key: text for key, text in os.environ.items() if key not in ours}
        self._env |= {name: value, "PYTHONPATH": str(REPOSITORY)}

    def command(self, body: str, *options: str, args: tuple[str, ...] = ()) -> list[str]:
        script = self._folder / "script.py"
        script.write_text(PREAMBLE + textwrap.dedent(body))
        # The usual grace time may be too short for a task that has to share its core with others.
        grace = [] if "--grace" in options else ["--grace", "100"]
        return [sys.executable, "-m", "tfmini", "launch", *grace, *options, str(script), *args]

    def run(
        self, body: str, *options: str, args: tuple[str, ...] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        with self.start(body, *options, args=args, **env) as launcher:
            out, err = launcher.communicate(timeout=LIMIT_S)
            return subprocess.CompletedProcess(launcher.args, launcher.returncode, out, err)

    @contextlib.contextmanager
    def start(
        self, body: str, *options: str, args: tuple[str, ...] = (), **env: str
    ) -> Iterator[subprocess.Popen[str]]:
        command = self.command(body, *options, args=args)
        with subprocess.Popen(
            command,
            env={**self._env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as launcher:
            try:
                yield launcher
            finally:
                launcher.kill()

    def left(self) -> list[int]:
        """The processes of this test that exist."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def wait_until_none_is_left(self) -> None:
        """Returns as soon as every process of this test has ended; they are not children of ours."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                try:
                    assert select.select([fd], [], [], LIMIT_S)[0], f"process {pid} was left behind"
                finally:
                    os.close(fd)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    with contextlib.suppress(AssertionError):
        cluster.wait_until_none_is_left()
    left = cluster.left()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


def read_until(launcher: subprocess.Popen[str], done: Callable[[list[str]], bool]) -> list[str]:
    """Lines of the launcher's output until `done` of them is true. (The test's time limit bounds it.)"""
    assert launcher.stdout is not None
    lines: list[str] = []
    for line in launcher.stdout:
        lines.append(line.rstrip("\n"))
        if done(lines):
            return lines
    raise AssertionError(f"the launcher ended; it wrote {lines}")


def ready(count: int) -> Callable[[list[str]], bool]:
    return lambda lines: sum("ready" in line for line in lines) == count


def test_every_task_gets_its_role_and_ps_are_stopped_at_the_end(cluster: Cluster) -> None:
    done = cluster.run(
        """
        print("role", JOB, TASK, {job: len(tasks) for job, tasks in config["cluster"].items()})
        print("args", *sys.argv[1:])
        print("error output", file=sys.stderr, flush=True)
        if JOB == "ps":
            own = listener("ps", TASK)
            clients = [own.accept()[0] for _ in range(3)]
            [client.sendall(b"x") for client in clients]
            signal.pause()
        else:  # ends when it has heard both ps, so that these have written their lines
            for task in range(2):
                connection = socket.create_connection(address("ps", task), timeout=100)
                assert connection.recv(1)
        """,
        *["--ps", "2", "--workers", "2", "--chief"],
        args=("--steps=3", "{job}.{task}"),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    counts = "{'ps': 2, 'chief': 1, 'worker': 2}"
    for job, task in [("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0), ("worker", 1)]:
        name = f"[{job}/{task}]".ljust(10)
        own = [line.removeprefix(name + " ") for line in lines if line.startswith(name)]
        assert own == [f"role {job} {task} {counts}", f"args --steps=3 {job}.{task}", "error output"]


def test_scripts_with_the_usual_flags_get_them(cluster: Cluster) -> None:
    done = cluster.run(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--job_name")
        parser.add_argument("--task_index", "--task-index")
        parser.add_argument("--ps_hosts")
        parser.add_argument("--worker_hosts")
        parser.add_argument("--steps")
        flags = parser.parse_args()
        assert flags.job_name == JOB and flags.task_index == str(TASK) and flags.steps == "7", flags
        assert flags.ps_hosts.split(",") == config["cluster"]["ps"], flags
        assert flags.worker_hosts.split(",") == config["cluster"]["worker"], flags
        if JOB == "ps":
            signal.pause()
        """,
        *["--ps", "2", "--workers", "2"],
        args=("--steps", "7"),
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_worker_may_connect_before_its_ps_is_up(cluster: Cluster) -> None:
    done = cluster.run(
        """
        if JOB == "worker":
            with socket.create_connection(address("ps", 0), timeout=100) as connection:
                connection.settimeout(100)
                print("got", connection.recv(100).decode())
        else:
            own = listener("ps", 0)
            for _ in config["cluster"]["worker"]:
                connection, _ = own.accept()
                connection.sendall(b"hello")
                connection.close()
        """,
        *["--ps", "1", "--workers", "2"],
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[worker/0] got hello", "[worker/1] got hello"]


def test_the_first_failure_is_named_with_its_last_lines(cluster: Cluster) -> None:
    done = cluster.run(
        """
        if (JOB, TASK) != ("worker", 1):
            wait_for_ever()
        for line in range(50):
            print("line", line)
        raise ValueError("the [bold]cause[/bold]")
        """,
        *["--ps", "1", "--workers", "2"],
    )
    assert done.returncode == 1
    assert "tfmini: worker/1 failed first: exit code 1. Its last lines:" in done.stderr
    assert "  | ValueError: the [bold]cause[/bold]" in done.stderr.splitlines()
    assert "  | line 20" not in done.stderr.splitlines()
    assert "[worker/1] line 20" in done.stdout.splitlines()


def test_the_exit_code_is_the_failed_tasks(cluster: Cluster) -> None:
    assert cluster.run("sys.exit(37)", "--ps", "0").returncode == 37
    killed = cluster.run("os.kill(os.getpid(), signal.SIGKILL)", "--ps", "0")
    assert killed.returncode == 137
    assert (
        "worker/0 failed first: killed by SIGKILL. Its last lines:\n  | (it wrote nothing)" in killed.stderr
    )


def test_a_ps_that_dies_is_named_and_the_workers_are_stopped(cluster: Cluster) -> None:
    done = cluster.run(
        """
        if JOB == "worker":
            wait_for_ever()
        if TASK == 1:
            print("out of memory")
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for_ever()
        """,
        *["--ps", "2", "--workers", "2"],
    )
    assert done.returncode == 137
    assert "tfmini: ps/1 failed (killed by SIGKILL); stopping ps/0, worker/0, worker/1." in done.stderr
    assert "  | out of memory" in done.stderr


def test_keep_going_lets_the_other_workers_finish(cluster: Cluster) -> None:
    # worker/1 ends only after it has seen worker/0's end: its connection breaks.
    done = cluster.run(
        """
        if (JOB, TASK) == ("worker", 0):
            connection = socket.create_connection(address("worker", 1), timeout=100)
            sys.exit(4)
        connection, _ = listener("worker", 1).accept()
        assert connection.recv(1) == b""
        print("finished")
        """,
        *["--ps", "0", "--workers", "2", "--keep-going"],
    )
    assert done.returncode == 4
    assert done.stdout.splitlines() == ["[worker/1] finished"]
    assert "worker/0 failed first: exit code 4" in done.stderr


def test_the_time_limit(cluster: Cluster) -> None:
    done = cluster.run("wait_for_ever()", "--coordinator-timeout", "0.4")
    assert done.returncode == 124
    assert "tfmini: timed out after 0.4 s; still running then: ps/0, worker/0." in done.stderr


def test_a_task_that_ignores_sigterm_is_killed_after_the_grace_time(cluster: Cluster) -> None:
    # The ps tells the worker when it has become deaf.
    done = cluster.run(
        """
        if JOB == "worker":
            connection = socket.create_connection(address("ps", 0), timeout=100)
            connection.settimeout(100)
            assert connection.recv(1)
            sys.exit()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        connection, _ = listener("ps", 0).accept()
        connection.sendall(b"x")
        wait_for_ever()
        """,
        *["--grace", "0.1"],
    )
    assert done.returncode == 0
    assert "tfmini: ps/0 did not end when asked to; killing." in done.stderr


def test_ctrl_c_lets_the_workers_say_goodbye(cluster: Cluster) -> None:
    body = """
    try:
        wait_for_ever()
    except KeyboardInterrupt:
        print(JOB, "interrupted")
    """
    with cluster.start(body, "--workers", "2") as launcher:
        read_until(launcher, ready(3))
        launcher.send_signal(signal.SIGINT)
        out, err = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 130
    # The ps is asked by SIGTERM, and only after the workers.
    assert sorted(out.splitlines()) == ["[worker/0] worker interrupted", "[worker/1] worker interrupted"]
    assert "tfmini: SIGINT: ending the cluster." in err


def test_ctrl_c_during_the_imports_of_a_task_shows_no_traceback(cluster: Cluster, tmp_path: Path) -> None:
    hook = """
    import os, signal
    if "TFMINI_LAUNCH_REPORT" in os.environ:
        print("ready", flush=True)
        while signal.SIGINT not in signal.sigpending():  # it is held back here, or ends this with a traceback
            pass
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(hook))
    script = "print('begun')"
    with cluster.start(script, "--ps", "0", PYTHONPATH=f"{tmp_path}{os.pathsep}{REPOSITORY}") as launcher:
        read_until(launcher, ready(1))
        launcher.send_signal(signal.SIGINT)
        out, err = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 130
    assert out == "" and "Traceback" not in err


def test_sigterm_is_forwarded(cluster: Cluster) -> None:
    with cluster.start("wait_for_ever()") as launcher:
        read_until(launcher, ready(2))
        launcher.terminate()
        launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 143


def test_a_second_ctrl_c_kills(cluster: Cluster) -> None:
    body = """
    signal.signal(signal.SIGINT, lambda *_: print("deaf", flush=True))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_for_ever()
    """
    with cluster.start(body, "--grace", "1000") as launcher:
        read_until(launcher, ready(2))
        launcher.send_signal(signal.SIGINT)
        read_until(launcher, lambda lines: lines[-1].endswith("deaf"))
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 130


GRANDCHILD = """
subprocess.Popen([sys.executable, "-S", "-c", "import signal; print('ready', flush=True); signal.pause()"])
"""


def test_what_a_task_has_started_ends_with_it(cluster: Cluster) -> None:
    body = (
        GRANDCHILD
        + """
if JOB == "worker":
    listener("worker", 0).accept()
else:
    wait_for_ever()
"""
    )
    with cluster.start(body) as launcher:
        lines = read_until(launcher, ready(3))
        assert any(line.startswith("[worker/0]") for line in lines)
        # The worker ends at the first connection, its child by itself would not.
        assert launcher.stderr is not None
        started = launcher.stderr.readline()
        host, _, port = started.rsplit("worker/0 at ", 1)[1].strip().partition(":")
        socket.create_connection((host, int(port)), timeout=LIMIT_S).close()
        launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 0
    cluster.wait_until_none_is_left()


def test_a_killed_launcher_leaves_nobody(cluster: Cluster) -> None:
    with cluster.start(GRANDCHILD + "wait_for_ever()", "--workers", "2") as launcher:
        read_until(launcher, ready(6))
        launcher.kill()
        cluster.wait_until_none_is_left()
    assert launcher.returncode == -signal.SIGKILL


def test_a_reader_that_goes_away_ends_the_run(cluster: Cluster) -> None:
    with cluster.start('while True: print("line")', "--ps", "0") as launcher:
        read_until(launcher, lambda lines: True)
        assert launcher.stdout is not None
        launcher.stdout.close()
        launcher.stdout = None
        launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 128 + signal.SIGPIPE


def test_output_without_newline_and_output_closed_early(cluster: Cluster) -> None:
    done = cluster.run(
        r"""
        sys.stdout.write("first\nno newline")
        sys.stdout.flush()
        os.close(1), os.close(2)
        """,
        *["--ps", "0"],
    )
    assert (done.returncode, done.stdout) == (0, "[worker/0] first\n[worker/0] no newline\n")


@pytest.mark.parametrize(
    ("options", "env", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, True),
        (["--no-color"], {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, False),
        ([], {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": "1"}, False),
    ],
)
def test_colours(cluster: Cluster, options: list[str], env: dict[str, str], coloured: bool) -> None:
    done = cluster.run('print("x")', "--ps", "0", *options, args=(), **env)
    plain = "[worker/0] x\n"
    assert done.stdout == (f"\x1b[1;36m{plain[:10]}\x1b[0m{plain[10:]}" if coloured else plain)


def test_a_fair_share_of_the_cores_unless_the_user_says_otherwise(cluster: Cluster) -> None:
    body = 'print(os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"])'
    done = cluster.run(body, "--ps", "0", "--cpus-per-task", "3", OMP_NUM_THREADS="5")
    assert done.stdout == "[worker/0] 5 3\n"


def test_chosen_ports(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = cluster.run("", "--port-base", str(port))
    assert done.returncode == 1
    assert f"No ports for the cluster: [Errno 98] cannot reserve 127.0.0.1:{port} for ps/0" in done.stderr


def test_options_of_the_launcher_after_the_script_are_noted(cluster: Cluster) -> None:
    # The script never reads its arguments, so these were meant for the launcher.
    run = cluster.run("pass", "--ps", "0", args=("--workers", "1", "--steps=3"))
    assert run.returncode == 0
    assert "--workers stands after " in run.stderr and "--steps stands" not in run.stderr


# A server that is joined, and for clients in the other tasks.
SERVER = """
import tfmini as tf
server = tf.train.Server(config["cluster"], job_name=JOB, task_index=TASK)
"""


def test_a_worker_that_only_serves_is_ended_like_a_ps(cluster: Cluster) -> None:
    body = SERVER + textwrap.dedent("""
    if JOB == "ps" or TASK > 0:
        server.join()
    with tf.device("/job:worker/task:1"):
        there = tf.constant(2.0) * tf.placeholder_with_default(3.0, [])
    with tf.Session(server.target) as session:
        print(session.run(there))
    """)
    done = cluster.run(body, "--workers", "2")
    assert (done.returncode, done.stdout) == (0, "[worker/0] 6.0\n")
    assert "The work is done; stopping worker/1, which only served, in server.join()." in done.stderr


def test_ctrl_c_shows_no_traceback_of_the_launchers_own_making(cluster: Cluster) -> None:
    body = SERVER + textwrap.dedent("""
    if JOB == "ps" or TASK > 0:
        print("ready", flush=True)
        server.join()
    wait_for_ever()
    """)
    with cluster.start(body, "--workers", "2") as launcher:
        read_until(launcher, ready(3))
        launcher.send_signal(signal.SIGINT)
        out, err = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 130
    assert "Traceback" not in out + err


def test_a_cluster_of_ps_only_says_so(cluster: Cluster) -> None:
    done = cluster.run("print('up')", "--workers", "0")
    assert (done.returncode, done.stdout) == (0, "[ps/0] up\n")
    assert "no task works: the cluster serves until it is ended (Ctrl-C)" in done.stderr
