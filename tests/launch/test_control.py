"""The socket of a launcher, without a launcher."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator

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


def asked(control: Control, workers: int, scale: Callable[[int], str]) -> str:
    os.set_blocking(control.fileno(), True)
    launcher = threading.Thread(target=control.answer, args=[scale])
    launcher.start()
    try:
        return ask(control.path, workers)
    finally:
        launcher.join()


def refuse(workers: int) -> str:
    raise ScaleError(f"{workers} are too many.")


def test_an_order_is_carried_out_or_refused(control: Control) -> None:
    assert asked(control, 3, lambda workers: f"now {workers}") == "now 3"
    with pytest.raises(ScaleError, match="9 are too many"):
        asked(control, 9, refuse)


def test_only_the_user_can_give_orders(control: Control) -> None:
    folder = os.path.dirname(control.path)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_a_launcher_that_is_gone_does_not_answer(control: Control) -> None:
    os.unlink(control.path)
    with pytest.raises(OSError, match="No such file"):
        ask(control.path, 3)
    open(control.path, "w").close()  # the context removes it
