"""How a run of `tfmini launch` ends by signals, with real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.tools.launched import LIMIT_S, REPOSITORY, SERVER, Cluster, read_until, ready

pytestmark = pytest.mark.usefixtures("ctrl_c")


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
    assert "tfmini: ps/0 did not end within the grace time; killing." in done.stderr


def test_ctrl_c_lets_the_workers_close_their_sessions(cluster: Cluster) -> None:
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


def test_tasks_have_the_default_handlers_where_the_launcher_ignores_ctrl_c(cluster: Cluster) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for ``nohup tfmini launch … &``; `ctrl_c` undoes it
    body = """
    print("default handler:", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    wait_for_ever()
    """
    with cluster.start(body, "--ps", "0") as launcher:
        begun = read_until(launcher, ready(1))
        launcher.send_signal(signal.SIGINT)
        launcher.send_signal(signal.SIGTERM)
        _, err = launcher.communicate(timeout=LIMIT_S)
    assert begun[0] == "[worker/0] default handler: True"
    assert "SIGINT" not in err and "tfmini: SIGTERM: ending the cluster." in err


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


def test_processes_that_a_task_started_end_with_it(cluster: Cluster) -> None:
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


def test_a_killed_launcher_leaves_no_process_and_no_key(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    places = {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(tmp_path)}  # the job's description stays, until others look
    with cluster.start(GRANDCHILD + "wait_for_ever()", "--workers", "2", **places) as launcher:
        read_until(launcher, ready(6))
        launcher.kill()
        cluster.wait_until_none_is_left()
    assert launcher.returncode == -signal.SIGKILL
    assert not list(folder.rglob("*"))


def test_ctrl_c_shows_no_traceback_of_the_launcher(cluster: Cluster) -> None:
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


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_launcher_whose_output_nobody_reads_obeys_signals(cluster: Cluster, number: int, code: int) -> None:
    """As behind a pager or after Ctrl-S; the messages go to the same place."""
    body = """
    print("ready", flush=True)
    while True:
        print("x" * 1000)
    """
    command = cluster.command(body, "--ps", "0")
    read, write = os.pipe()
    with subprocess.Popen(command, stdout=write, stderr=write, env=cluster.env) as launcher:
        os.close(write)
        try:
            begun = b""
            while b"ready" not in begun:
                begun += os.read(read, 1000)
            launcher.send_signal(number)
            assert launcher.wait(LIMIT_S) == code
        finally:
            launcher.kill()
            os.close(read)
    cluster.wait_until_none_is_left()


def test_a_reader_who_was_slow_misses_nothing(cluster: Cluster) -> None:
    body = """
    for i in range(40_000):
        print(f"{i:0100}")
    """
    with cluster.start(body, "--ps", "0") as launcher:
        assert launcher.stderr is not None and launcher.stdout is not None
        launcher.stderr.readline()  # it has begun; what the task writes is more than all buffers hold
        lines = launcher.stdout.read().splitlines()
        assert launcher.wait(LIMIT_S) == 0
    assert lines == [f"[worker/0] {i:0100}" for i in range(40_000)]


def test_ctrl_c_ends_a_launcher_that_waits_for_the_reader_of_the_last_output(cluster: Cluster) -> None:
    body = """
    print("x" * 200_000)
    sys.exit(3)
    """
    with cluster.start(body, "--ps", "0") as launcher:
        assert launcher.stderr is not None
        while "failed first" not in launcher.stderr.readline():
            pass
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(LIMIT_S) == 130
