"""Requests that are cancelled while their handlers ask to be told."""

from __future__ import annotations

from typing import Any

import pytest

from tfmini.rpc import messages as m
from tfmini.rpc.calls import Responder


class Overtaken(list[Any]):
    """A list whose owner is cancelled by another thread at the moment when a callback is added."""

    responder: Responder
    is_before: bool

    def append(self, callback: Any) -> None:
        if self.is_before:
            self.responder.cancel()
        super().append(callback)
        if not self.is_before:
            self.responder.cancel()


@pytest.mark.parametrize("is_before", [True, False])
def test_a_callback_that_comes_with_the_cancellation_is_called_once(is_before: bool) -> None:
    link: Any = None
    responder = Responder(link, m.GetStatus, 1)
    responder._callbacks = callbacks = Overtaken()
    callbacks.responder, callbacks.is_before = responder, is_before
    called: list[str] = []
    responder.on_cancel(lambda: called.append("called"))
    responder.cancel()
    assert called == ["called"]


def test_callbacks_are_called_in_their_order() -> None:
    link: Any = None
    responder, called = Responder(link, m.GetStatus, 1), list[int]()
    for number in range(3):
        responder.on_cancel(lambda number=number: called.append(number))
    assert called == []
    responder.cancel()
    responder.on_cancel(lambda: called.append(3))
    assert called == [0, 1, 2, 3]
