"""`tfmini dashboard` and `tfmini launch --dashboard`."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.tools.launched import SERVER, Cluster  # noqa: E402
from tfmini.jobs import Job  # noqa: E402
from tfmini.tools import (
    cluster_target,  # noqa: E402
    dashboard,  # noqa: E402
)
from tfmini.tools.cli import main  # noqa: E402

WAITING = (
    SERVER
    + """
if JOB == "ps":
    server.join()
sys.stdin = open(os.environ["GATE"])  # until the test opens its other end
"""
)


def ask(url: str) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    if answer.headers.get_content_type() != "text/event-stream":
        return answer.status, answer.read().decode()
    while True:
        line = answer.readline().decode()
        if '"boxes"' in line:
            connection.close()
            return answer.status, line


@pytest.mark.cluster
def test_a_launched_cluster_has_a_page_that_ends_with_it(cluster: Cluster, tmp_path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with cluster.start(WAITING, "--dashboard", GATE=str(gate)) as launcher:
        assert launcher.stderr is not None
        said = iter(launcher.stderr)
        url = next(found[0] for line in said if (found := re.findall(r"the page of the cluster is at (\S+)", line)))
        status, message = ask(url.replace("/?", "/updates?"))
        assert status == 200 and '"id":"ps/0"' in message and '"id":"worker/0"' in message
        assert ask(url)[0] == 200 and ask(url + "x")[0] == 403
        with open(gate, "w"):
            pass
        launcher.communicate(timeout=100)
        assert launcher.returncode == 0
    with pytest.raises(OSError):
        ask(url)


def test_without_a_cluster_it_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_target, "running_jobs", lambda: [])
    done = CliRunner().invoke(main, ["dashboard"], env={"TF_CONFIG": ""})
    assert done.exit_code == 2 and "Give the address of a server" in done.output


def test_a_job_is_found_by_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr(dashboard, "serve", lambda listener, where, *args, **kwargs: served.append(where))
    tasks = {"/job:ps/replica:0/task:0": "localhost:1"}
    monkeypatch.setattr(cluster_target, "running_jobs", lambda: [Job("train-12", 12, 1, "train.py", 0.0, tasks)])
    for target in (["train"], []):
        assert CliRunner().invoke(main, ["dashboard", *target]).exit_code == 0
    assert served == [("localhost:1", tasks, None)] * 2


def test_a_taken_port_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "serve", lambda *args, **kwargs: None)
    with dashboard.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["dashboard", "--port", str(port), "localhost:1"])
    assert done.exit_code == 1
    assert f"Cannot listen on 127.0.0.1:{port}: Address already in use. Choose another --port.\n" in done.output


def test_an_address_of_another_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "serve", lambda *args, **kwargs: None)
    done = CliRunner().invoke(main, ["dashboard", "--host", "192.0.2.77", "localhost:1"])
    assert done.exit_code == 1
    assert ": Cannot assign requested address. Give an address of this machine as --host.\n" in done.output


def test_the_address_has_a_token_that_differs_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "serve", lambda *args, **kwargs: None)
    monkeypatch.delenv(dashboard.TOKEN_ENV, raising=False)
    told = [CliRunner().invoke(main, ["dashboard", "localhost:1"]).output for _ in range(2)]
    tokens = [re.findall(r"http://127\.0\.0\.1:\d+/\?token=([\w-]{32})\n", text) for text in told]
    assert len(tokens[0]) == len(tokens[1]) == 1 and tokens[0] != tokens[1]


def test_without_the_extra_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['starlette'] = None; from tfmini.tools.cli import main; main(['dashboard', 'h'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1 and "pip install 'tfmini-cluster[dashboard]'" in done.stderr
