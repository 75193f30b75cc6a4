"""The address book: what tasks write, and connections that follow a task to another address."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rpc.task_processes import Call
from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc.addresses import AddressBook, TaskEntry, book_of_job
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor

PS = "/job:ps/replica:0/task:0"
WORKER = "/job:worker/replica:0/task:1"


@pytest.fixture
def book(tmp_path: Path) -> AddressBook:
    return AddressBook(str(tmp_path / "book"))


def test_what_a_task_writes_is_found(book: AddressBook) -> None:
    assert book.find(PS) is None
    book.publish(PS, TaskEntry(("10.0.0.1:2222", "[fd00::1]:2222"), 7))
    book.publish(WORKER, TaskEntry(("10.0.0.2:2222",), 8))
    assert book.find(PS) == TaskEntry(("10.0.0.1:2222", "[fd00::1]:2222"), 7)
    book.publish(PS, TaskEntry(("10.0.0.3:2222",), 9))
    assert book.find(PS) == TaskEntry(("10.0.0.3:2222",), 9)
    assert sorted(path.name for path in Path(book.directory).iterdir()) == ["ps-0.json", "worker-1.json"]


def test_a_task_removes_its_own_entry_only(book: AddressBook) -> None:
    book.publish(PS, TaskEntry(("10.0.0.1:2222",), 7))
    book.withdraw(PS, 6)
    assert book.find(PS) is not None
    book.withdraw(PS, 7)
    assert book.find(PS) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"task": "/job:ps/replica:0/task:1"}',
     '{"task": "PS", "addresses": ["ipc:///x"], "incarnation": "1"}',
     '{"task": "PS", "addresses": [7], "incarnation": "1"}',
     '{"task": "PS", "addresses": ["a:1"], "incarnation": 7}',
     '{"task": "PS", "addresses": 7, "incarnation": "1"}', '{"task": "PS", "addresses": ["a:1"]}', "[" * 3000],
)  # fmt: skip
def test_a_malformed_entry_is_none(book: AddressBook, text: str, caplog: pytest.LogCaptureFixture) -> None:
    Path(book.directory).mkdir()
    Path(book.directory, "ps-0.json").write_text(text.replace("PS", PS))
    with caplog.at_level(logging.WARNING, "tfmini.rpc"):
        assert book.find(PS) is None
    assert "cannot be used" in caplog.text


def test_a_book_that_others_can_write_is_not_used(book: AddressBook, caplog: pytest.LogCaptureFixture) -> None:
    book.publish(PS, TaskEntry(("10.0.0.1:2222",), 7))
    Path(book.directory).chmod(0o777)
    assert book.find(PS) is None
    assert f"chmod go-w {book.directory}" in caplog.text
    with pytest.raises(errors.PermissionDeniedError, match="chmod go-w"):
        book.publish(PS, TaskEntry(("10.0.0.1:2222",), 8))


def test_a_book_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.FailedPreconditionError, match="TFMINI_ADDRESSES must name a directory"):
        AddressBook(str(tmp_path / "file")).publish(PS, TaskEntry(("a:1",), 1))


def test_the_environment_names_the_book() -> None:
    assert book_of_job({}) is None
    assert str(book_of_job({"TFMINI_ADDRESSES": "/somewhere"})) == "/somewhere"


class Tasks:
    """Incarnations of one task, each with a port of its own."""

    def __init__(self, book: AddressBook) -> None:
        self.book = book
        self.running: list[Endpoint] = []

    def start(self, incarnation: int, task: str = PS, publish: bool = True) -> str:
        endpoint = Endpoint(get_reactor(), task, incarnation)
        endpoint.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply(task, incarnation, []))})
        self.running.append(endpoint)
        address = endpoint.listen("localhost:0").removeprefix("tcp://")
        if publish:
            self.book.publish(task, TaskEntry((address,), incarnation))
        return address

    def client(self) -> Endpoint:
        self.running.append(endpoint := Endpoint(get_reactor(), WORKER, 99, book=self.book))
        return endpoint


@pytest.fixture
def tasks(book: AddressBook) -> Iterator[Tasks]:
    tasks = Tasks(book)
    yield tasks
    for endpoint in reversed(tasks.running):
        endpoint.close()


def test_a_connection_follows_a_task_to_another_address(tasks: Tasks) -> None:
    first = tasks.start(1)
    peer = tasks.client().peer(first, PS)
    assert Call(peer, m.GetStatus(), wait_for_ready=True).wait().incarnation == 1
    tasks.running[0].close()
    second = tasks.start(2)
    assert Call(peer, m.GetStatus(), wait_for_ready=True).wait().incarnation == 2
    assert str(peer) == f"{PS} at tcp://127.0.0.1:{second.rpartition(':')[2]}"


def test_a_task_that_is_not_in_the_book_is_at_its_address_in_the_cluster(tasks: Tasks) -> None:
    peer = tasks.client().peer(tasks.start(1, publish=False), PS)
    assert Call(peer, m.GetStatus(), wait_for_ready=True).wait().incarnation == 1


def test_a_task_without_an_address_is_waited_for(tasks: Tasks) -> None:
    peer = tasks.client().peer("somewhere:0", PS)
    assert "has not said yet" in Call(peer, m.GetStatus()).wait().message
    tasks.start(1)
    assert Call(peer, m.GetStatus(), wait_for_ready=True).wait().incarnation == 1


def test_a_process_that_the_book_does_not_expect_gets_no_request(tasks: Tasks) -> None:
    """Its address belongs to another cluster by now, or an old incarnation still runs there."""
    address = tasks.start(1, publish=False)
    tasks.book.publish(PS, TaskEntry((address,), 2))
    peer = tasks.client().peer(address, PS)
    error = Call(peer, m.GetStatus()).wait()
    assert isinstance(error, errors.UnavailableError) and "another process than the one that" in error.message
    waiting = Call(peer, m.GetStatus(), wait_for_ready=True)
    tasks.book.publish(PS, TaskEntry((address,), 1))
    assert waiting.wait().incarnation == 1
