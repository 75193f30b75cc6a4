"""The page's server: who is let in, what it answers."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.dashboard.clusters import name_of, working  # noqa: E402
from tests.dashboard.serving import TOKEN, Fake, serving  # noqa: E402
from tfmini import errors  # noqa: E402


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
