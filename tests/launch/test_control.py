"""The socket of a launcher, without a launcher."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tfmini.launch.control import Control, ask
from tfmini.launch.supervision import ScaleError


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    with tempfile.TemporaryDirectory(prefix="tfr.") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        with Control() as control:
            yield control
        assert not os.path.exists(control.path)


def asked(control: Control, name: str, argument: int | str, scale: Callable[[int], str] = str) -> Any:
    os.set_blocking(control.fileno(), True)
    launcher = threading.Thread(
        target=control.answer, args=[{"workers": scale, "logs": lambda task: {task: ["x" * 10_000]}}]
    )
    launcher.start()
    try:
        return ask(control.path, name, argument)
    finally:
        launcher.join()


def refuse(workers: int) -> str:
    raise ScaleError(f"{workers} are too many.")


def test_an_order_is_carried_out_or_refused(control: Control) -> None:
    assert asked(control, "workers", 3, lambda workers: f"now {workers}") == "now 3"
    with pytest.raises(ScaleError, match="9 are too many"):
        asked(control, "workers", 9, refuse)


def test_a_long_answer_arrives_and_an_unknown_order_is_refused(control: Control) -> None:
    assert asked(control, "logs", "ps/0") == {"ps/0": ["x" * 10_000]}
    with pytest.raises(ScaleError, match="does not know this order"):
        asked(control, "dance", 1)


def test_only_the_user_can_give_orders(control: Control) -> None:
    folder = os.path.dirname(control.path)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_a_launcher_that_is_gone_does_not_answer(control: Control) -> None:
    os.unlink(control.path)
    with pytest.raises(OSError, match="No such file"):
        ask(control.path, "workers", 3)
    open(control.path, "w").close()  # the context removes it
