"""Endpoints on a simulated network: failure detection, faults and determinism in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.handshake import WEDGED_AFTER_S, Backoff, PeerLiveness, RecentIds, Verdict
from tfmini.rpc.link import _OF_HANDSHAKE, Link, LinkPhase
from tfmini.rpc.messages import Hello
from tfmini.rpc.peer import Peer, State
from tfmini.rpc.waiter import Waiter
from tfmini.testing import Delay, Drop, FaultPlan, Kill, Sever, SimulatedNetwork, Stop, Wedge


class World:
    """Hosts ``ps`` and ``w``: the second calls the first."""

    def __init__(self, *faults: Any, seed: int = 0) -> None:
        self.network = SimulatedNetwork(FaultPlan(faults, seed))
        self.server = self.serve("ps", 42)
        self.client = self.endpoint("w", 7)
        self.peer = self.client.peer("sim://ps", "/job:ps")
        self.lost: list[tuple[float, str]] = []
        self.peer.on_lost(lambda peer, why: self.lost.append((self.network.now(), why)))

    def endpoint(self, name: str, incarnation: int) -> Endpoint:
        host = self.network.host(name)
        return Endpoint(host, f"/job:{name}", incarnation, transports={"sim": host.transport})

    def serve(self, name: str, incarnation: int) -> Endpoint:
        endpoint = self.endpoint(name, incarnation)
        reply = m.GetStatusReply(f"/job:{name}", incarnation, [])
        endpoint.serve({m.GetStatus: lambda peer, request, respond: respond(reply)})
        endpoint.serve({m.DescribeStep: lambda peer, request, respond: None})
        endpoint.listen(f"sim://{name}")
        return endpoint

    def call(self, request: Any, **options: Any) -> list[Any]:
        """The answers, as they come: (time, answer)."""
        answers: list[Any] = []
        self.peer.call(request, lambda answer: answers.append((self.network.now(), answer)), **options)
        return answers


def test_a_call_takes_virtual_time_only() -> None:
    world = World()
    answers = world.call(m.GetStatus())
    world.network.run(until=3600.0)
    ((when, answer),) = answers
    assert when < 0.01
    assert answer.incarnation == 42
    assert world.peer.state is State.READY  # an hour of heartbeats


def test_a_killed_task_fails_its_calls_at_once() -> None:
    world = World(Kill("ps", at=2.0))
    answers = world.call(m.DescribeStep(1))
    world.network.run(until=10.0)
    ((when, answer),) = answers
    assert 2.0 <= when < 2.01
    assert isinstance(answer, errors.UnavailableError)
    assert "/job:ps at sim://ps is unavailable" in answer.message
    assert len(world.lost) == 1


def test_a_stopped_task_is_lost_after_its_silence() -> None:
    world = World(Stop("ps", at=10.0))
    answers = world.call(m.DescribeStep(1))
    world.network.run(until=20.0)
    ((when, answer),) = answers
    assert 13.0 <= when <= 14.6
    assert "silent" in answer.message


def test_a_task_that_was_stopped_learns_that_it_was_lost_itself() -> None:
    world = World(Stop("w", at=10.0, until=16.0))
    answers = world.call(m.DescribeStep(1))
    world.network.run(until=20.0)
    ((when, answer),) = answers
    assert when < 16.1
    assert "/job:ps at sim://ps is unavailable: the peer closed the connection: /job:w sent nothing" in answer.message


def test_a_short_stop_loses_no_peer_on_either_side() -> None:
    world = World(Stop("ps", at=10.0, until=12.5), Stop("w", at=20.0, until=22.5))
    world.call(m.GetStatus())
    world.network.run(until=40.0)
    assert not world.lost
    assert world.peer.state is State.READY


def test_a_wedged_task_is_lost_although_it_sends_heartbeats() -> None:
    world = World(Wedge("ps", at=10.0))
    world.call(m.GetStatus())
    world.network.run(until=9.0)
    answers = world.call(m.DescribeStep(1))
    world.network.run(until=10.0 + WEDGED_AFTER_S - 2)
    assert not answers
    world.network.run(until=10.0 + WEDGED_AFTER_S + 3)
    ((_, answer),) = answers
    assert isinstance(answer, errors.UnavailableError)
    for part in ("/job:ps at sim://ps", "wedged", f"for {WEDGED_AFTER_S:g} s", "DescribeStep unanswered", "restart it"):
        assert part in answer.message


def test_a_task_that_answers_late_or_never_is_not_wedged() -> None:
    """What is not answered for long may take long: only a task that handles nothing is wedged."""
    world = World(Wedge("ps", at=10.0, until=10.0 + 0.8 * WEDGED_AFTER_S))
    answers = world.call(m.DescribeStep(1))
    world.network.run(until=10.0 * WEDGED_AFTER_S)
    assert not answers and not world.lost
    assert world.peer.state is State.READY


def test_a_pulled_cable_is_detected_on_both_sides() -> None:
    world = World(Sever(("w", "ps"), at=5.0, until=30.0, silent=True))
    world.call(m.GetStatus())
    world.network.run(until=12.0)
    assert len(world.lost) == 1
    assert 8.0 <= world.lost[0][0] <= 10.0
    assert not world.server.links()
    answers = world.call(m.GetStatus(), wait_for_ready=True)
    world.network.run(until=29.9)
    assert not answers
    world.network.run(until=36.0)  # the last attempt during the cut ends 4 s later
    assert answers[0][1].incarnation == 42


def test_a_restarted_task_aborts_pinned_calls() -> None:
    world = World(Kill("ps", at=1.0))
    world.call(m.GetStatus())
    world.network.run(until=2.0)
    world.serve("ps", 43)
    free, pinned = world.call(m.GetStatus()), world.call(m.GetStatus(), incarnation=42)
    world.network.run(until=5.0)
    assert free[0][1].incarnation == 43
    assert isinstance(pinned[0][1], errors.AbortedError)


def test_a_lost_message_ends_in_the_deadline() -> None:
    world = World(Drop(("w", "ps"), "DescribeStep", nth=1), Drop(("w", "ps"), "GetStatus", nth=2))
    assert world.call(m.GetStatus()) is not None
    answers = world.call(m.GetStatus(), timeout_s=2.0)
    world.network.run(until=5.0)
    ((when, answer),) = answers
    assert when == pytest.approx(2.0)
    assert isinstance(answer, errors.DeadlineExceededError)


def test_a_new_connection_replaces_the_old_one_at_once() -> None:
    """Else the loss of the old one, seconds later, would abort steps that use the new one."""
    world = World()
    network, events = world.network, []

    def ready(peer: Any) -> None:
        events.append(("ready", network.now()))
        peer.on_lost(lambda peer, why: events.append((why, network.now())))

    world.server.on_peer_ready(ready)
    world.call(m.GetStatus())
    network.run(until=5.0)
    link: Any = world.peer.link
    link.connection.close = lambda reason: None  # the network loses the end of the connection
    link.end("only this side has noticed")
    network.run(until=6.0)
    assert len(events) == 1
    answers = world.call(m.GetStatus())
    network.run(until=20.0)
    assert answers[0][1].incarnation == 42
    assert [what for what, _ in events] == ["ready", "the peer has made a new connection in its place", "ready"]
    assert events[1][1] == events[2][1]
    assert len(world.server.links()) == len(world.server._accepted) == 1


def test_a_connection_that_was_given_up_replaces_no_newer_one() -> None:
    """Its Hello waited in the backlog of a task that was not up yet, and is read last."""
    world = World()
    network, server = world.network, world.server
    held: list[Any] = []
    genuine = Link._on_hello

    def hold_first(link: Link, hello: Any, request_id: int) -> None:
        if held:
            genuine(link, hello, request_id)
        else:
            held.append((link, hello, request_id))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_OF_HANDSHAKE[LinkPhase.AWAITS_HELLO], Hello, hold_first)
        answers = world.call(m.GetStatus(), wait_for_ready=True)
        network.run(until=1.0)
        first: Any = world.peer.link
        first.connection.close = lambda reason: None  # the server has not seen its end yet
        network.run(until=6.0)  # the client gives it up and connects again
        assert answers and len(held) == 1
        genuine(*held[0])
    network.run(until=20.0)
    assert not world.lost and world.peer.state is State.READY
    assert len(server.links()) == len(server._accepted) == 1


def restarted(world: World) -> Endpoint:
    """A later incarnation of the client's task, while the server has not seen the end of the earlier one."""
    world.call(m.GetStatus())
    world.network.run(until=5.0)
    link: Any = world.peer.link
    link.connection.close = lambda reason: None
    later = world.endpoint("w", 8)
    later.peer("sim://ps", "/job:ps").call(m.GetStatus(), lambda answer: None)
    return later


def test_a_restarted_task_ends_the_connections_of_its_earlier_incarnation_at_once() -> None:
    """Whose host or network may be gone without a trace: its steps wait for nothing any more."""
    world, lost = World(), list[Any]()
    world.server.on_peer_ready(lambda peer: peer.on_lost(lambda peer, why: lost.append((world.network.now(), why))))
    restarted(world)
    world.network.run(until=6.0)
    ((when, why),) = lost
    assert when < 5.1 and why == "/job:w was restarted: a later incarnation of it has connected"
    assert [link.peer.incarnation for link in world.server.links()] == [8]


def test_an_earlier_incarnation_does_not_end_a_later_one() -> None:
    """Its Hello may have waited somewhere."""
    world = World()
    restarted(world)
    world.network.run(until=6.0)
    answers = world.call(m.GetStatus())  # as if it were still there
    world.network.run(until=7.0)
    assert [link.peer.incarnation for link in world.server.links()] == [8]
    assert isinstance(answers[0][1], errors.UnavailableError)


def test_two_connections_of_one_process_that_are_made_at_once_stay() -> None:
    """Of the first one the peer's incarnation is not noted yet when the second one's Hello is looked at."""
    world = World()
    link_ready, answers = Peer.link_ready, list[Any]()
    with pytest.MonkeyPatch.context() as patch:

        def late(peer: Peer, link: Link, task: str, incarnation: int) -> None:
            if peer.endpoint is world.server:  # in another thread, later
                peer.endpoint.reactor.call_later(0.1, link_ready, peer, link, task, incarnation)
            else:
                link_ready(peer, link, task, incarnation)

        patch.setattr(Peer, "link_ready", late)
        for name in ("/job:ps", None):
            world.peer.endpoint.peer("sim://ps", name).call(m.GetStatus(), answers.append, wait_for_ready=True)
        world.network.run(until=6.0)
    assert [type(answer) for answer in answers] == [m.GetStatusReply, m.GetStatusReply]
    assert len(world.server.links()) == 2


def test_a_hello_is_compared_with_links_of_its_own_task_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thousand workers that connect to a ps would cost a million comparisons."""
    world = World()
    restarted(world)
    world.network.run(until=6.0)
    in_hello: list[list[Link]] = []
    links, replace_link = Endpoint.links, Endpoint.replace_link

    def of_hello(own: Endpoint, link: Link, hello: Hello) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Endpoint, "links", lambda own: in_hello.append(links(own)) or in_hello[-1])
            replace_link(own, link, hello)

    monkeypatch.setattr(Endpoint, "replace_link", of_hello)
    for i in range(1, 4):
        world.endpoint(f"w{i}", i).peer("sim://ps", "/job:ps").call(m.GetStatus(), lambda answer: None)
    world.network.run(until=6.5)
    assert not in_hello
    assert len(world.server.links()) == 4


def test_two_connections_of_one_process_live_side_by_side() -> None:
    world = World()
    other = world.client.peer("sim://ps")
    for _ in range(2):
        for peer in (world.peer, other):
            answers: list[Any] = []
            peer.call(m.GetStatus(), answers.append)
            world.network.run(until=world.network.now() + 10.0)
            assert answers[0].incarnation == 42
    assert not world.lost and len(world.server.links()) == 2
    world.client.close()
    world.network.run(until=world.network.now() + 1.0)
    assert not world.server.links() and not world.server._accepted


def test_a_request_that_is_handled_after_the_end_of_its_link_is_cancelled() -> None:
    world, cancelled = World(), list[bool]()
    world.call(m.GetStatus())
    world.network.run(until=1.0)
    (link,) = world.server.links()
    world.server.handlers[m.DescribeStep] = lambda peer, request, respond: cancelled.append(respond.cancelled)
    link.end("another thread has closed the endpoint")
    link.dispatch(m.DescribeStep(1), 99)
    assert cancelled == [True]


def test_a_delayed_message_delays_later_ones() -> None:
    world = World(Delay(("w", "ps"), "GetStatus", nth=1, seconds=0.5))
    first, second = world.call(m.GetStatus()), world.call(m.GetStatus())
    world.network.run(until=2.0)
    assert 0.5 < first[0][0] <= second[0][0] < 0.51


def test_a_simulation_without_events_is_an_error_not_a_hang() -> None:
    network = SimulatedNetwork()
    with pytest.raises(RuntimeError, match="no event is left"):
        network.drive(Waiter())


def history(seed: int) -> list[Any]:
    world = World(Kill("ps", at=1.5), Sever(("w", "ps"), at=0.5, until=0.7), seed=seed)
    for i in range(20):
        world.network.host("w").call_later(i * 0.1, world.call, m.GetStatus())
    world.network.run(until=5.0)
    return world.network.history


def test_equal_seeds_give_equal_histories() -> None:
    assert history(3) == history(3)
    assert history(3) != history(4)


def test_two_hundred_tasks_survive_random_kills() -> None:
    """Every call ends, whatever is killed when."""
    faults = [Kill(f"t{i}", at=0.001 * i) for i in range(0, 200, 3)]
    network = SimulatedNetwork(FaultPlan(faults, seed=1))
    for i in range(200):
        host = network.host(f"t{i}")
        endpoint = Endpoint(host, f"/job:t{i}", i, transports={"sim": host.transport})
        endpoint.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply("", 0, []))})
        endpoint.listen(f"sim://t{i}")
    host = network.host("master")
    master = Endpoint(host, "", 1, transports={"sim": host.transport})
    answers: list[Any] = []
    for _ in range(5):
        for i in range(200):
            host.call_later(
                network.random.random() * 0.3, master.peer(f"sim://t{i}").call, m.GetStatus(), answers.append
            )
    network.run(until=10.0)
    assert len(answers) == 1000
    assert {type(a) for a in answers} == {m.GetStatusReply, errors.UnavailableError}


# ---------------------------------------------------------------------------------------------
# The decisions by themselves
# ---------------------------------------------------------------------------------------------


def test_silence_counts_only_while_this_process_runs() -> None:
    watch = PeerLiveness()
    watch.tick(0.25, received=1, sent=1)
    assert watch.tick(1000.0, received=1, sent=1) is Verdict.BEAT  # at once: the peer may be about to give up
    verdicts = [watch.tick(0.25, received=1, sent=1) for _ in range(16)]
    assert verdicts[-1] is Verdict.LOST
    assert Verdict.LOST not in verdicts[:-3]


def test_every_received_message_counts_and_every_sent_one_saves_a_heartbeat() -> None:
    watch = PeerLiveness()
    for i in range(100):
        assert watch.tick(0.25, received=i, sent=i) is Verdict.FINE
    assert [watch.tick(0.25, received=i, sent=0) for i in range(100, 105)][-1] is Verdict.BEAT


def test_backoff_doubles_to_a_limit_and_starts_over() -> None:
    backoff = Backoff()
    delays = [backoff.failed() for _ in range(7)]
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.succeeded()
    assert backoff.failed() == 0.05


def test_recent_ids_are_bounded() -> None:
    recent = RecentIds(limit=10)
    assert all(recent.is_new(i) for i in range(100))
    assert not recent.is_new(99)
    assert not recent.is_new(91)
    assert recent.is_new(5)
    assert len(recent) <= 20


def test_a_request_id_is_kept_for_ten_seconds_and_not_for_hours() -> None:
    """Else the memory of a server with few requests grows for hours."""
    recent = RecentIds()
    assert recent.is_new(1)
    for second in range(KEEP_IDS_S := 10):
        recent.tick(1.0)
        assert not recent.is_new(1), second
    for _ in range(KEEP_IDS_S):
        recent.tick(1.0)
    assert len(recent) == 0
