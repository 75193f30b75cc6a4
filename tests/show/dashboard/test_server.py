"""The page's server: who is let in, what it answers."""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.show.dashboard.clusters import name_of, working  # noqa: E402
from tests.show.dashboard.serving import TOKEN, Fake, serving, serving_source  # noqa: E402
from tfmini import errors  # noqa: E402
from tfmini.show.dashboard.board import Board  # noqa: E402
from tfmini.show.dashboard.server import Strangers  # noqa: E402


def ask(
    address: str, path: str, method: str = "GET", token: str | None = TOKEN, **headers: str
) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    try:
        mark = "" if token is None else f"{'&' if '?' in path else '?'}token={token}"
        connection.request(method, path + mark, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def messages(address: str, count: int) -> list[dict[str, Any]]:
    """The first messages that a page gets."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/updates?token={TOKEN}")
    answer, found = connection.getresponse(), []
    while len(found) < count:
        line = answer.readline()
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    connection.close()
    return found


@pytest.fixture(scope="module")
def shown():
    fake = Fake(working(2, 3))
    with serving(fake) as address:
        messages(address, 1)
        yield fake, address


PATHS = [("/", "GET"), ("/updates", "GET"), ("/task?name=x", "GET"), ("/metrics", "GET"), ("/trace?name=x", "POST"),
         ("/timeline?id=x", "GET"), ("/timeline.json?id=x", "GET")]  # fmt: skip


@pytest.mark.parametrize("path, method", [*PATHS, ("/nothing", "GET")])
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "%ff"])
def test_nothing_is_shown_without_the_token(shown, path: str, method: str, token: str | None) -> None:
    status, text, _ = ask(shown[1], path, method, token)
    assert status == 403 and "needs the token" in text


def test_the_token_may_be_a_bearer(shown) -> None:
    assert ask(shown[1], "/metrics", token=None, Authorization=f"Bearer {TOKEN}")[:2] == (200, "tasks 5\n")
    assert ask(shown[1], "/metrics", token=None, Authorization="Bearer no")[0] == 403


def test_the_page_is_one_document_that_loads_nothing(shown) -> None:
    status, text, headers = ask(shown[1], "/")
    assert status == 200 and "/*SCRIPT*/" not in text and TOKEN not in text
    assert "src=" not in text.split("<script")[0] and "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert ask(shown[1], "/")[1] != text  # the nonce


def test_a_page_gets_everything_first_and_then_what_is_new(shown) -> None:
    first, second = messages(shown[1], 2)
    assert len(first["boxes"]) == 5 and len(first["events"]) == 5 and second["events"] == []
    assert second["number"] > first["number"]


def test_a_task_opens(shown) -> None:
    status, text, _ = ask(shown[1], f"/task?name={name_of('ps/0')}")
    assert status == 200 and json.loads(text)["short"] == "ps/0"
    assert ask(shown[1], "/task?name=nobody")[0] == 404


def test_changes_need_a_post_and_an_error_says_why() -> None:
    fake = Fake(working(1, 1))
    with serving(fake) as address:
        assert ask(address, "/trace?name=x")[0] == 405
        status, text, _ = ask(address, "/trace?name=x", "POST")
        found = json.loads(text)
        assert status == 200 and found["about"].endswith("spans")
        status, shown_page, headers = ask(address, f"/timeline?id={found['timeline']}")
        assert status == 200 and "Tanh" in shown_page and "frame-ancestors 'self'" in headers["Content-Security-Policy"]
        assert json.loads(ask(address, f"/timeline.json?id={found['timeline']}")[1])["traceEvents"]
        assert [ask(address, f"/{path}?id=x")[0] for path in ("timeline", "timeline.json")] == [404, 404]

        def fails(name: str) -> bytes:
            raise errors.DeadlineExceededError.of(f"{name} ran no step.")

        fake.trace = fails
        assert ask(address, "/trace?name=x", "POST")[:2] == (409, '{"problem":"x ran no step."}')


def test_a_cluster_that_cannot_be_read_is_said_on_the_page() -> None:
    fake = Fake(working(1, 1))
    fake.problem = errors.UnavailableError.of("No server answers at localhost:1.")
    with serving(fake) as address:
        (first,) = messages(address, 1)
        assert first["problem"] == "No server answers at localhost:1." and "boxes" not in first
        assert ask(address, "/metrics")[0] == 503
        fake.problem = ValueError("odd")
        assert any(message["problem"] == "ValueError: odd" for message in messages(address, 3))
        fake.problem = None
        assert any("boxes" in message and not message["problem"] for message in messages(address, 3))


# ---------------------------------------------------------------- other users of this machine


def half_sent(address: str, text: bytes = b"GET / HTTP/1.1\r\nX: ") -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    found = socket.create_connection((host, int(port)), timeout=60)
    found.sendall(text)
    return found


def is_cut(connection: socket.socket) -> bool:
    """Whether the server ends a connection; waits for it."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_half_sent_requests_keep_nobody_out_and_are_cut() -> None:
    fake = Fake(working(1, 1))
    with serving_source(fake.source(), 0.05, strangers=Strangers(8, limit_s=3600)) as address:
        first = [half_sent(address) for _ in range(8)]
        more = [half_sent(address) for _ in range(40)]
        assert all(map(is_cut, first))
        assert all(map(is_cut, more[:32]))
        assert ask(address, "/")[0] == 200
        for connection in (*first, *more):
            connection.close()


@pytest.mark.parametrize(
    "text", [b"", b"G", b"GET / HTTP/1.1\r\nX: ", b"POST /trace HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\nx",
             b"GET /?token=wrong HTTP/1.1\r\nHost: x\r\n\r\n", b"\0\0"]
)  # fmt: skip
def test_a_connection_without_the_token_is_cut_in_time(text: bytes) -> None:
    fake = Fake(working(1, 1))
    with serving_source(fake.source(), 0.05, strangers=Strangers(8, limit_s=0.05)) as address:
        with half_sent(address, text) as connection:
            assert is_cut(connection)
        assert ask(address, "/")[0] == 200


def test_open_pages_outlive_any_number_of_strangers() -> None:
    fake = Fake(working(1, 1))
    with serving_source(fake.source(), 0.05, strangers=Strangers(4, limit_s=0.05)) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        connection.request("GET", f"/updates?token={TOKEN}")
        answer = connection.getresponse()
        assert answer.readline().startswith(b"retry")
        strangers = [half_sent(address) for _ in range(16)]
        assert all(map(is_cut, strangers))
        for _ in range(10):
            while not (line := answer.readline()).startswith(b"data: "):
                assert line
        connection.close()
        for each in strangers:
            each.close()


def test_a_number_that_json_does_not_have_keeps_the_page_alive() -> None:
    fake = Fake(working(1, 1))
    nan = float("nan")
    task = dataclasses.replace(fake.snapshot.tasks[0], taken_s=nan, uptime_s=float("inf"), steps_s=nan)
    fake.snapshot = dataclasses.replace(fake.snapshot, tasks=(task, *fake.snapshot.tasks[1:]), taken_s=nan)
    with serving(fake) as address:
        assert "boxes" in messages(address, 1)[0]


def test_a_snapshot_and_a_trace_that_cannot_be_shown_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(working(1, 1))
    fake.trace = lambda name: b"\xff no StepStats"

    def fails(self: Board, reader: object) -> dict[str, object]:
        raise KeyError("odd\x1b[2J")

    with serving(fake) as address:
        status, text, _ = ask(address, "/trace?name=x", "POST")
        assert status == 409 and json.loads(text)["problem"].startswith("The recorded step cannot be shown: ")
        monkeypatch.setattr(Board, "message", fails)
        assert messages(address, 1)[0]["problem"] == r"KeyError: 'odd\x1b[2J'"
