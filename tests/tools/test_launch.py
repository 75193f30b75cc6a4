"""`tfmini launch` with real processes that run tiny scripts. Every wait has a limit; none is a sleep."""

from __future__ import annotations

import json
import signal
import socket
import textwrap

import pytest

from tests.tools.launched import LIMIT_S, SERVER, Cluster, read_until


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


def test_an_evaluator_and_a_master_are_tasks_too(cluster: Cluster) -> None:
    done = cluster.run(
        """
        print("role", JOB, TASK, sorted(config["cluster"]))
        if JOB == "ps":
            own = listener("ps", TASK)
            clients = [own.accept()[0] for _ in range(2)]
            [client.sendall(b"x") for client in clients]
            signal.pause()
        else:
            assert socket.create_connection(address("ps", 0), timeout=100).recv(1)
        """,
        *["--workers", "0", "--master", "--evaluator"],
    )
    assert done.returncode == 0, done.stderr
    roles = sorted(line.partition("role ")[2] for line in done.stdout.splitlines())
    assert roles == [f"{task} 0 ['master', 'ps']" for task in ("evaluator", "master", "ps")]


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


def test_a_single_tasks_last_lines_are_not_repeated(cluster: Cluster) -> None:
    done = cluster.run("raise ValueError('the cause')", "--ps", "0")
    assert done.returncode == 1 and done.stderr.endswith("tfmini: worker/0 failed first: exit code 1.\n")
    assert (done.stdout + done.stderr).count("ValueError: the cause") == 1


def test_the_exit_code_is_the_failed_tasks(cluster: Cluster) -> None:
    assert cluster.run("sys.exit(37)", "--ps", "0").returncode == 37
    killed = cluster.run("os.kill(os.getpid(), signal.SIGKILL)", "--ps", "0")
    assert killed.returncode == 137
    assert "worker/0 failed first: killed by SIGKILL. Its last lines:\n  | (no output)" in killed.stderr


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


def test_a_run_ends_at_the_time_limit(cluster: Cluster) -> None:
    done = cluster.run("wait_for_ever()", "--coordinator-timeout", "0.4")
    assert done.returncode == 124
    assert "tfmini: timed out after 0.4 s; still running then: ps/0, worker/0." in done.stderr


def test_a_closed_output_pipe_ends_the_run(cluster: Cluster) -> None:
    with cluster.start('while True: print("line")', "--ps", "0") as launcher:
        read_until(launcher, lambda lines: True)
        assert launcher.stdout is not None
        launcher.stdout.close()
        launcher.stdout = None
        launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 128 + signal.SIGPIPE


def test_a_line_without_an_end_is_seen_while_its_task_waits(cluster: Cluster) -> None:
    body = """
    sys.stdout.write("your name? ")
    sys.stdout.flush()
    signal.pause()
    """
    with cluster.start(body, "--ps", "0") as launcher:
        assert launcher.stdout is not None
        wanted = "[worker/0] your name? "
        assert launcher.stdout.read(len(wanted)) == wanted
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(LIMIT_S) == 143


def test_incomplete_lines_and_closed_outputs_are_handled(cluster: Cluster) -> None:
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
def test_prefixes_are_coloured_on_a_terminal_only(
    cluster: Cluster, options: list[str], env: dict[str, str], coloured: bool
) -> None:
    done = cluster.run('print("x")', "--ps", "0", *options, args=(), **env)
    plain = "[worker/0] x\n"
    assert done.stdout == (f"\x1b[1;36m{plain[:10]}\x1b[0m{plain[10:]}" if coloured else plain)


def test_an_equal_share_of_the_cores_unless_the_user_sets_it(cluster: Cluster) -> None:
    body = 'print(os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"])'
    done = cluster.run(body, "--ps", "0", "--cpus-per-task", "3", OMP_NUM_THREADS="5")
    assert done.stdout == "[worker/0] 5 3\n"


def test_a_run_has_a_key_of_its_own(cluster: Cluster) -> None:
    """Only its tasks connect to its servers. The file is in the launcher's memory, so it goes with the launcher."""
    body = """
    import tfmini as tf
    key = os.environ["TFMINI_KEYS"]
    print(key, oct(os.stat(key).st_mode), os.readlink(key).split()[0])
    server = tf.train.Server(config["cluster"], job_name=JOB, task_index=TASK)
    if JOB == "ps":
        server.join()
    else:
        with tf.device("/job:ps/task:0"):
            answer = tf.constant(6) * 7
        with tf.Session(server.target) as session:
            print(session.run(answer))
    """
    done = cluster.run(body)
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted((line.split()[1:] for line in done.stdout.splitlines()), key=len)
    assert said[1] == said[2] == [said[1][0], "0o100600", "/memfd:tfmini-keys"]
    assert said[0] == ["42"]


@pytest.mark.parametrize("chosen", ["TFMINI_KEYS", "TFMINI_INSECURE"])
def test_chosen_keys_stay(cluster: Cluster, chosen: str) -> None:
    body = 'print(os.environ.get("TFMINI_KEYS"), os.environ.get("TFMINI_INSECURE"))'
    done = cluster.run(body, "--ps", "0", **{chosen: "1"})
    assert done.stdout == f"[worker/0] {'1 None' if chosen == 'TFMINI_KEYS' else 'None 1'}\n"


def test_chosen_ports(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = cluster.run("", "--port-base", str(port))
    assert done.returncode == 1
    assert f"No ports for the cluster: [Errno 98] cannot reserve 127.0.0.1:{port} for ps/0" in done.stderr


def test_launch_options_after_the_script_are_reported(cluster: Cluster) -> None:
    # The script never reads its arguments, so these were meant for the launcher, though its text has the words.
    run = cluster.run("print(JOB == 'ps', 'workers')", "--ps", "0", args=("--ps", "2", "--workers=1", "--steps=3"))
    assert run.returncode == 0
    script = str(cluster.script)
    assert f"--ps and --workers follow {script}, so they are passed to the script; put options of `tfmini launch`" in (
        run.stderr
    )


def test_a_double_dash_before_the_scripts_options_is_the_launchers(cluster: Cluster) -> None:
    body = "print(sys.argv[1:])"
    assert cluster.run(body, "--ps", "0", args=("--", "--x")).stdout == "[worker/0] ['--x']\n"
    assert cluster.run(body, "--ps", "0", args=("--", "--", "--x")).stdout == "[worker/0] ['--', '--x']\n"


def test_messages_in_json_have_a_level_a_task_and_an_exit_code(cluster: Cluster) -> None:
    body = """
    if TASK == 1:
        print("no data")
        sys.exit(7)
    wait_for_ever()
    """
    run = cluster.run(body, "--ps", "0", "--workers", "2", "--log-json")
    told = [json.loads(line) for line in run.stderr.splitlines()]
    assert [(line["level"], line["task"], line.get("exit_code")) for line in told] == [
        ("INFO", "", None), ("ERROR", "worker/1", 7), ("ERROR", "worker/1", 7),
    ]  # fmt: skip
    assert told[-1]["message"] == "worker/1 failed first: exit code 7." and told[-1]["last_lines"] == ["no data"]


def test_the_error_of_a_script_is_one_message_in_json(cluster: Cluster) -> None:
    run = cluster.run("import tfmini\nraise EOFError('no more')", "--ps", "0", "--log-json")
    (error,) = map(json.loads, run.stdout.splitlines())
    assert (error["level"], error["task"], error["message"]) == ("ERROR", "worker/0", "EOFError: no more")
    assert error["exception"].startswith("Traceback") and str(cluster.script) in error["exception"]
    told = json.loads(run.stderr.splitlines()[-1])
    assert told["last_lines"] == ["EOFError: no more"]


def test_errors_of_the_command_are_json_as_well(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        run = cluster.run("", "--log-json", "--port-base", str(busy.getsockname()[1]))
    (line,) = map(json.loads, run.stderr.splitlines())
    assert (run.returncode, line["level"], line["exit_code"]) == (1, "ERROR", 1)
    assert line["message"].startswith("No ports for the cluster")


def test_a_worker_inside_join_is_stopped_like_a_ps(cluster: Cluster) -> None:
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
    assert "The working tasks have finished; stopping worker/1 inside server.join()." in done.stderr


def test_a_cluster_of_ps_tasks_only_is_reported(cluster: Cluster) -> None:
    done = cluster.run("print('up')", "--workers", "0")
    assert (done.returncode, done.stdout) == (0, "[ps/0] up\n")
    assert "there are only ps tasks: the cluster runs until you end it (Ctrl-C)" in done.stderr
