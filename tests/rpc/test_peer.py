"""Calls of a peer whose connection ends while other threads make and send calls."""

from __future__ import annotations

from typing import Any

import pytest

from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.peer import CallHandle
from tfmini.testing.simulated import SimulatedNetwork


class Losing(CallHandle):
    """A call whose message another thread sends, for good, once it has been seen: it cannot be sent again."""

    @property
    def parts(self) -> Any:
        found, self._parts = self._parts, None
        return found

    @parts.setter
    def parts(self, parts: Any) -> None:
        self._parts = parts


@pytest.mark.parametrize("parts", [[b"message"], None])
def test_a_call_that_is_sent_while_its_link_ends_waits_or_fails(parts: Any) -> None:
    """It is in one of both lists, and waits only with its message."""
    host = SimulatedNetwork().host("w")
    peer = Endpoint(host, "/job:w", 7, transports={"sim": host.transport}).peer("sim://ps", "/job:ps")
    call = Losing(peer, m.GetStatus, 1, lambda answer: None, None)
    call.parts = parts
    peer.calls[1] = call
    failed = peer._split_calls(permanent=False)
    waiting = list(peer._waiting.drain())
    assert (failed, waiting) == (([], [(parts, call)]) if parts else ([call], []))
