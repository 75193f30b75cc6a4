"""The links in a task's status."""

from __future__ import annotations

from tests.rpc.task_processes import Call
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint, State
from tfmini.rpc.reactor import get_reactor
from tfmini.runtime.task_status import link_snapshots

PS = "/job:ps/replica:0/task:0"
WORKER = "/job:worker/replica:0/task:0"


def test_the_end_of_an_idle_connection_is_no_trouble() -> None:
    """As of a task that was stopped for a while: both ends connect again when they need to."""
    server, client = Endpoint(get_reactor(), PS, 1), Endpoint(get_reactor(), WORKER, 1)
    try:
        address = server.listen("tcp://127.0.0.1:0")
        peer = client.peer(address.removeprefix("tcp://"), PS)
        Call(peer, m.GetStatus()).wait()
        assert peer.state is State.READY
        peer.link.end("silent")
        (link,) = [each for each in link_snapshots(client, {}, {}) if each.peer == PS]
        assert (link.state, link.why, peer.why) == ("lost", "", "silent")
    finally:
        client.close()
        server.close()


def test_a_peer_that_cannot_be_reached_has_the_reason() -> None:
    """So that `tfmini status` says it for each pair of tasks."""
    endpoint = Endpoint(get_reactor(), WORKER, 1)
    try:
        Call(endpoint.peer("no-such-host.invalid:1", PS), m.GetStatus()).wait()
        (link,) = link_snapshots(endpoint, {}, {})
    finally:
        endpoint.close()
    assert (link.peer, link.address, link.state) == (PS, "tcp://no-such-host.invalid:1", "lost")
    assert "the name 'no-such-host.invalid' was not found" in link.why
