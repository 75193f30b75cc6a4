"""The list of admitted keys is looked at beside the work of a server, which a slow file system would hold up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.rpc.task_processes import until
from tfmini.rpc import keys as admission_watch
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.handshake import RecentIds
from tfmini.rpc.keys import AdmissionWatch, AdmittedKeys, generate_keys, load_keys
from tfmini.rpc.reactor import get_reactor


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_watch, "PERIOD_S", 0.01)


def test_each_change_is_told_once_until_the_end(tmp_path: Path) -> None:
    told: list[str] = []
    listed = tmp_path / "list"
    watch = AdmissionWatch(AdmittedKeys(str(listed)), lambda: told.append(threading.current_thread().name))
    listed.write_text("one")
    listed.chmod(0o600)
    until(lambda: len(told) == 1, "the news of the new file")
    listed.unlink()
    until(lambda: len(told) == 2, "the news of its end")
    watch.close()
    assert set(told) == {"tfmini-admissions"}


def test_only_the_watch_of_a_server_waits_for_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats and deadlines go on, also when nothing else runs their timers."""
    keys = load_keys(generate_keys(str(tmp_path)))
    endpoint = Endpoint(get_reactor(), "/job:ps/task:0", 1, keys=keys)
    endpoint.listen("localhost:0")
    waiting, answered = set[str](), threading.Event()

    def version(self: Any) -> int:
        waiting.add(threading.current_thread().name)
        return int(answered.wait(30))

    monkeypatch.setattr(AdmittedKeys, "version", version)
    until(lambda: bool(waiting), "a look at the list")
    ticks: list[float] = []
    monkeypatch.setattr(RecentIds, "tick", lambda ids, elapsed_s: ticks.append(elapsed_s))
    until(lambda: len(ticks) >= 2, "two more ticks")
    assert waiting == {"tfmini-admissions"}
    answered.set()
    endpoint.close()
