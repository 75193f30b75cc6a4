"""Endpoints, peers and calls, over ZeroMQ and both kinds of lane, in one process and in the simulator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from tests.rpc.task_processes import until
from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc import zmq_pump, zmq_router, zmq_transport
from tfmini.rpc.codec import encode, kind_of
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import Keys, own_keys
from tfmini.rpc.lane_listener import TOKEN_BYTES, TokenListener
from tfmini.rpc.link import Link
from tfmini.rpc.messages import Goodbye, Hello
from tfmini.rpc.peer import State
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.records import PROTOCOL_VERSION
from tfmini.rpc.waiter import Waiter
from tfmini.rpc.zmq_transport import ZmqTransport

PS = "/job:ps/replica:0/task:0"
TIMEOUT_S = 60.0


def call(peer: Any, request: Any, **options: Any) -> Any:
    """The reply; raises an error answer."""
    waiter, answers = Waiter(), []

    def on_reply(answer: Any) -> None:
        answers.append(answer)
        waiter.set()

    peer.call(request, on_reply, **options)
    assert get_reactor().drive(waiter, get_reactor().now() + TIMEOUT_S), "no answer"
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def get_status(peer: Any, request: Any, respond: Any) -> None:
    respond(m.GetStatusReply(PS, 42, []))


def run_graph(peer: Any, request: m.RunGraph, respond: Any) -> None:
    respond(m.RunGraphReply(request.feed_values))


@pytest.fixture(params=["local", "stream", "open stream", "zmq"])
def route(request: Any) -> str:
    """The connection that links use: the local lane, a stream lane (without keys: an open one), or ZeroMQ."""
    return str(request.param)


@pytest.fixture
def lanes(route: str) -> bool:
    return route != "zmq"


@pytest.fixture
def endpoints(route: str, lanes: bool) -> Iterator[Any]:
    made: list[Endpoint] = []

    def make(task: str = "", incarnation: int = 1, cluster: Any = None, **options: Any) -> Endpoint:
        options = {"lanes": lanes, "insecure": route == "open stream", **options}
        made.append(Endpoint(get_reactor(), task, incarnation, cluster, **options))
        if "stream" in route:
            made[-1].host_id = ""
        return made[-1]

    yield make
    for endpoint in made:
        endpoint.close()


@pytest.fixture
def server(endpoints: Any) -> Any:
    endpoint = endpoints(PS, 42)
    endpoint.serve({m.GetStatus: get_status, m.RunGraph: run_graph})
    endpoint.address = endpoint.listen("localhost:0")
    return endpoint


@pytest.fixture
def peer(server: Any, endpoints: Any) -> Any:
    return endpoints("/job:worker/replica:0/task:0", 7).peer(server.address, PS)


def settle(peer: Any, lanes: bool) -> None:
    """Until the link has taken its final route."""
    call(peer, m.GetStatus())
    if lanes:
        until(lambda: peer.endpoint.counters["lanes"] == 1, "the move to the lane")


def test_a_call_gets_its_reply(peer: Any) -> None:
    assert call(peer, m.GetStatus()) == m.GetStatusReply(PS, 42, [])
    assert (peer.task, peer.incarnation, peer.state) == (PS, 42, State.READY)


@pytest.mark.parametrize("count", [1, 1000, 100_000, 3_000_000])
def test_tensors_arrive_unchanged_in_both_directions(peer: Any, lanes: bool, count: int) -> None:
    settle(peer, lanes)
    values = (np.arange(count, dtype=np.float32), np.array([b"a", b"bc"], object), np.array(3, np.int64))
    reply = call(peer, m.RunGraph(1, 2, values))
    for sent, received in zip(values, reply.values):
        np.testing.assert_array_equal(sent, received)
        assert received.dtype == sent.dtype
        assert not received.flags.writeable


def test_messages_stay_in_order_across_the_lane_switch(server: Any, peer: Any, lanes: bool) -> None:
    seen: list[int] = []
    server.serve({m.SendTensors: lambda peer, message, _: seen.append(message.step_id)})
    for i in range(2000):
        peer.send(m.SendTensors(i, "", 0, b"", ()))
        if i % 100 == 0:
            call(peer, m.GetStatus())
    call(peer, m.GetStatus())
    assert seen == list(range(2000))
    until(lambda: peer.endpoint.counters["lanes"] == lanes, "the move to the lane")


def test_a_large_message_waits_for_the_lane(
    server: Any, peer: Any, lanes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over ZeroMQ it would be cut into pieces, whose memory the heap of the receiver keeps."""
    cuts, cut = [], zmq_pump.cut
    monkeypatch.setattr(zmq_pump, "cut", lambda parts: cuts.append(1) or cut(parts))
    seen: list[int] = []
    server.serve({m.SendTensors: lambda peer, message, _: seen.append(message.step_id)})
    value = np.ones(1 << 20, np.float32)
    for i in range(10):
        peer.send(m.SendTensors(i, "", 0, b"", (value,) if i % 2 else ()))
    assert (call(peer, m.RunGraph(1, 2, (value,))).values[0] == value).all()
    assert seen == list(range(10))
    assert bool(cuts) is not lanes


@pytest.mark.parametrize("leaver", ["_DealerConnection", "_RouterConnection"])
def test_the_end_of_a_connection_that_was_left_does_not_end_the_link(
    server: Any, peer: Any, lanes: bool, monkeypatch: pytest.MonkeyPatch, leaver: str
) -> None:
    """Another thread of the loop may report it before the one that has left it does anything else."""
    cls = getattr(zmq_transport if leaver == "_DealerConnection" else zmq_router, leaver)
    start, send, close, ends = cls.start, cls.send, cls.close, {}

    def end_now(connection: Any) -> None:
        reporter = threading.Thread(target=ends[connection], args=("moved to a lane",))
        reporter.start()
        reporter.join(5.0)  # it waits for our lock only if it ends the link

    def send_last(connection: Any, parts: Any) -> None:
        send(connection, parts)
        if leaver == "_DealerConnection" and list(parts) == list(encode(m.LaneSwitch())):
            end_now(connection)

    def close_last(connection: Any, reason: str = "closed here") -> None:
        close(connection, reason)
        if reason == "moved to a lane":
            end_now(connection)

    def start_noted(connection: Any, on_parts: Any, on_closed: Any) -> None:
        ends[connection] = on_closed
        start(connection, on_parts, on_closed)

    monkeypatch.setattr(cls, "start", start_noted)
    monkeypatch.setattr(cls, "send", send_last)
    monkeypatch.setattr(cls, "close", close_last)
    settle(peer, lanes)
    until(lambda: server.counters["lanes"] == lanes, "the move of the server")
    link = peer.link
    assert call(peer, m.GetStatus()).task == PS
    assert link is not None
    assert peer.link is link


@pytest.fixture
def no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """No peer gets on a lane: what it shows is not what the listener expects."""
    monkeypatch.setattr(TokenListener, "issue_token", lambda self, on_connection, once=True: bytes(TOKEN_BYTES))


def test_a_large_message_does_not_wait_for_ever(no_lane: None, peer: Any) -> None:
    value = np.ones(1 << 20, np.float32)
    assert (call(peer, m.RunGraph(1, 2, (value,))).values[0] == value).all()
    assert peer.backlog == 0


def test_more_than_may_wait_for_the_lane_leaves_at_once(
    no_lane: None, server: Any, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfmini.rpc.link.HOLD_S", 600.0)
    monkeypatch.setattr("tfmini.rpc.link.HOLD_MOST", 5 << 20)
    seen: list[int] = []
    server.serve({m.SendTensors: lambda peer, message, _: seen.append(message.step_id)})
    for i in range(3):
        peer.send(m.SendTensors(i, "", 0, b"", (np.ones(1 << 19, np.float32),)))
    until(lambda: seen == [0, 1, 2], "the messages")
    assert call(peer, m.GetStatus())


def test_a_message_that_is_refused_after_its_wait_for_the_lane_ends_the_link(
    no_lane: None, peer: Any, lanes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller was told that it is sent: its call would wait for ever."""

    def refuse(connection: Any, parts: Any) -> None:
        if sum(map(len, parts)) > 1 << 20:
            raise errors.ResourceExhaustedError.of("The queue is full.")
        send(connection, parts)

    dealer = vars(zmq_transport)["_DealerConnection"]
    send = dealer.send
    monkeypatch.setattr(dealer, "send", refuse)
    kind, text = (
        (errors.UnavailableError, "waited for a faster way: ") if lanes else (errors.ResourceExhaustedError, "")
    )
    with pytest.raises(kind, match=f"{text}The queue is full"):
        call(peer, m.RunGraph(1, 2, (np.ones(1 << 20, np.float32),)))


def test_close_lets_a_message_leave_that_waits_for_the_lane(no_lane: None, server: Any, peer: Any, lanes: bool) -> None:
    got: list[Any] = []
    server.serve({m.SendTensors: lambda peer, message, respond: got.append(message)})
    call(peer, m.GetStatus())
    peer.send(m.SendTensors(1, "", 0, b"", (np.ones(1 << 20, np.float32),)))
    assert peer.has_unsent or not lanes
    peer.endpoint.close()
    until(lambda: got, "the message")


def test_error_answers_keep_their_origin(server: Any, peer: Any) -> None:
    error = errors.OutOfRangeError.of("queue closed", device="/device:CPU:0", task="/job:x", derived=True)
    server.serve({m.DescribeStep: lambda peer, request, respond: respond(error)})
    with pytest.raises(errors.OutOfRangeError, match="queue closed") as caught:
        call(peer, m.DescribeStep(1))
    assert (caught.value.device, caught.value.task, caught.value.derived) == ("/device:CPU:0", "/job:x", True)


def test_a_bug_in_a_handler_is_answered(server: Any, peer: Any) -> None:
    def fail(peer: Any, request: Any, respond: Any) -> None:
        raise KeyError("oops")

    server.serve({m.DescribeStep: fail})
    with pytest.raises(errors.InternalError, match="oops"):
        call(peer, m.DescribeStep(1))
    call(peer, m.GetStatus())


@pytest.mark.parametrize("malformed", [False, True])
def test_a_lost_one_way_message_ends_the_link(server: Any, peer: Any, lanes: bool, malformed: bool) -> None:
    """A step would wait for its content for ever, and there is nobody to answer."""

    def fail(peer: Any, message: Any, _: Any) -> None:
        raise KeyError("oops")

    server.serve({m.SendTensors: fail})
    settle(peer, lanes)
    reasons: list[str] = []
    peer.on_lost(lambda peer, reason: reasons.append(reason))
    parts = encode(m.SendTensors(1, "", 0, b"", ()))
    if malformed:
        parts[0] = b"\x99" + parts[0][1:] + b"\x05"  # one field too many
    peer.link.send(parts)
    until(lambda: reasons, "the end of the link")
    text = "SendTensors has 5 fields, got 6" if malformed else "SendTensors could not be used by"
    assert text in reasons[0] and ("oops" in reasons[0] or malformed)
    assert isinstance(call(peer, m.GetStatus()), m.GetStatusReply)  # over another link


def test_unserved_kind_is_refused(server: Any, peer: Any) -> None:
    with pytest.raises(errors.UnimplementedError, match=f"{PS} has no handler for CleanupAll"):
        call(peer, m.CleanupAll(()))
    assert server.counters["unserved"] == 1


def test_another_thread_may_answer_later(server: Any, peer: Any) -> None:
    threads: list[threading.Thread] = []

    def later(peer: Any, request: Any, respond: Any) -> None:
        threads.append(threading.Thread(target=respond, args=(m.DescribeStepReply(""),)))
        threads[-1].start()

    server.serve({m.DescribeStep: later})
    assert [call(peer, m.DescribeStep(i)) for i in range(50)] == [m.DescribeStepReply("")] * 50
    for thread in threads:
        thread.join(TIMEOUT_S)


def test_many_threads_may_call_at_once(peer: Any) -> None:
    wrong: list[Any] = []

    def work(name: int) -> None:
        for i in range(100):
            value = np.array([name, i])
            reply = call(peer, m.RunGraph(1, 2, (value,)))
            if not np.array_equal(reply.values[0], value):
                wrong.append((name, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert not wrong


def test_cancel_reaches_the_handler(server: Any, peer: Any) -> None:
    responders: list[Any] = []
    server.serve({m.DescribeStep: lambda peer, request, respond: responders.append(respond)})
    answers: list[Any] = []
    handle = peer.call(m.DescribeStep(1), answers.append)
    until(lambda: responders, "the request")
    told: list[bool] = []
    responders[0].on_cancel(lambda: told.append(True))
    handle.cancel()
    handle.cancel()
    assert [type(a) for a in answers] == [errors.CancelledError]
    until(lambda: told, "the cancellation")
    responders[0](m.DescribeStepReply(""))
    call(peer, m.GetStatus())
    assert len(answers) == 1


def test_a_cancel_is_not_lost_while_the_connection_becomes_ready(
    server: Any, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has just been sent, and the state is not yet READY, when another thread cancels it."""
    cancelled: list[bool] = []
    server.serve({m.DescribeStep: lambda peer, request, respond: respond.on_cancel(lambda: cancelled.append(True))})
    given_up: list[threading.Thread] = []
    send = Link.send

    def send_and_cancel(link: Link, parts: Any) -> None:
        send(link, parts)
        if kind_of(parts) == m.DescribeStep.row.kind:
            (handle,) = peer.calls.values()
            given_up.append(threading.Thread(target=handle.cancel))
            given_up[0].start()
            until(lambda: not peer.calls, "the end of the call")

    monkeypatch.setattr(Link, "send", send_and_cancel)
    answers: list[Any] = []
    peer.call(m.DescribeStep(1), answers.append)
    until(lambda: cancelled, "the cancellation")
    given_up[0].join(TIMEOUT_S)
    assert [type(answer) for answer in answers] == [errors.CancelledError]


def test_deadline_names_request_and_task(server: Any, peer: Any) -> None:
    server.serve({m.DescribeStep: lambda peer, request, respond: None})
    with pytest.raises(errors.DeadlineExceededError, match=f"DescribeStep to {PS} at .* within 0.05 s"):
        call(peer, m.DescribeStep(1), timeout_s=0.05)


def test_a_refused_connection_is_reported(endpoints: Any) -> None:
    listener = ZmqTransport(get_reactor(), own_keys()).listen("tcp://127.0.0.1:0", lambda c: None)
    listener.close()
    nobody = endpoints().peer(listener.address, PS)
    with pytest.raises(errors.UnavailableError, match=f"{PS} at .* is unavailable: connection refused"):
        call(nobody, m.GetStatus())
    assert nobody.state is State.LOST


def test_wait_for_ready_waits_for_a_late_server(endpoints: Any) -> None:
    listener = ZmqTransport(get_reactor(), own_keys()).listen("tcp://127.0.0.1:0", lambda c: None)
    listener.close()
    client = endpoints()
    answers: list[Any] = []
    client.peer(listener.address).call(m.GetStatus(), answers.append, wait_for_ready=True)
    until(lambda: client.peer(listener.address).state is State.LOST, "the first refusal")
    late = endpoints(PS, 42)
    late.serve({m.GetStatus: get_status})
    late.listen(listener.address)
    until(lambda: answers, "the answer")
    assert answers[0] == m.GetStatusReply(PS, 42, [])


def test_wrong_task_is_clear_on_both_sides(server: Any, endpoints: Any, caplog: Any) -> None:
    wrong = endpoints().peer(server.address, "/job:ps/replica:0/task:1")
    with pytest.raises(errors.FailedPreconditionError, match="expected /job:ps/replica:0/task:1, but this is"):
        call(wrong, m.GetStatus())
    assert "expected /job:ps/replica:0/task:1" in caplog.text


def test_a_client_is_not_mistaken_for_a_task(endpoints: Any) -> None:
    nobody = endpoints()
    address = nobody.listen("localhost:0")
    with pytest.raises(errors.FailedPreconditionError, match="a client, not a task, answers at"):
        call(endpoints().peer(address, PS), m.GetStatus())


def test_other_cluster_is_clear_on_both_sides(endpoints: Any, caplog: Any) -> None:
    worker = "/job:worker/replica:0/task:0"
    server = endpoints(PS, 42, {worker: "10.0.0.2:2222"})
    address = server.listen("localhost:0")
    text = f"{worker} is at 10.0.0.3:2222 in its own ClusterSpec and at 10.0.0.2:2222 in that of {PS}"
    with pytest.raises(errors.FailedPreconditionError, match=text):
        call(endpoints(worker, 1, {worker: "10.0.0.3:2222", PS: address}).peer(address, PS), m.GetStatus())
    assert text in caplog.text
    assert "Give all tasks the same ClusterSpec" in caplog.text


def test_partial_clusters_meet(endpoints: Any) -> None:
    """A task may know only itself, or write its own address in another way than others do."""
    worker = "/job:worker/replica:0/task:0"
    for ours, theirs in (({}, {worker: "a:1"}), ({worker: "a:1"}, {}), ({worker: "a:1"}, {worker: "0.0.0.0:1"})):
        server = endpoints(PS, 42, ours)
        server.serve({m.GetStatus: get_status})
        assert call(endpoints(worker, 1, theirs).peer(server.listen("localhost:0"), PS), m.GetStatus())


def test_version_mismatch_is_clear_on_both_sides(server: Any, endpoints: Any, monkeypatch: Any, caplog: Any) -> None:
    """The listening side answers in its own version, which is how the other side learns of it."""
    reactor = get_reactor()
    connection = ZmqTransport(reactor, server.keys).connect(server.address)
    got: list[Any] = []
    other = PROTOCOL_VERSION + 1
    connection.start(got.append, lambda reason: got.append(reason))
    parts = encode(Hello(other, "", 1, "", b"", False, "", 0, 0), 1)
    parts[0] = parts[0][:1] + bytes([other]) + parts[0][2:]
    connection.send(parts)
    until(lambda: got, "the answer")
    assert b"protocol version %d, this process version %d" % (other, PROTOCOL_VERSION) in got[0][0]
    assert f"protocol version {other}" in caplog.text
    connection.close()


def test_malformed_messages_do_not_stop_the_server(server: Any, peer: Any) -> None:
    reactor = get_reactor()
    for parts in (
        [b"\xff\xff"],
        [b"GET / HTTP/1.1"],
        [b"\x93\x01\x02"],
        encode(m.GetStatus(), 5),
        [b"x"] * 100,
        encode(Goodbye("x" * 100_000)),
        [b"\xdd\x00\x10\x00\x00" + b"\x80" * (1 << 20)],
    ):
        ended = Waiter()
        connection = ZmqTransport(reactor, server.keys).connect(server.address)
        connection.start(lambda parts: None, lambda reason, ended=ended: ended.set())
        connection.send(parts)
        assert reactor.drive(ended, reactor.now() + TIMEOUT_S)
    call(peer, m.GetStatus())
    assert server.counters["malformed"] == 7


def test_malformed_request_on_a_good_link_is_answered(server: Any, peer: Any, lanes: bool) -> None:
    settle(peer, lanes)
    answers: list[Any] = []
    handle = peer.call(m.DescribeStep(1), lambda answer: None)
    peer.calls[handle.request_id].on_reply = answers.append
    bad = encode(m.GetStatus(), handle.request_id)
    bad[0] = b"\x94" + bad[0][1:] + b"\x05"  # one field too many
    peer.link.send(bad)
    until(lambda: answers, "the answer")
    assert isinstance(answers[0], errors.OpError)
    assert isinstance(call(peer, m.GetStatus()), m.GetStatusReply)


def test_a_slow_request_keeps_only_its_own_client_waiting(server: Any, endpoints: Any, lanes: bool) -> None:
    """Also if all clients share one socket: another thread serves the other clients."""
    quick_was_served = threading.Event()
    in_time: list[bool] = []

    def slow(peer: Any, request: Any, respond: Any) -> None:
        in_time.append(quick_was_served.wait(TIMEOUT_S / 2))
        respond(m.DescribeStepReply(""))

    def quick(peer: Any, request: Any, respond: Any) -> None:
        quick_was_served.set()
        respond(m.Acknowledged())

    server.serve({m.DescribeStep: slow, m.CleanupAll: quick})
    one, other = (endpoints(f"/job:worker/replica:0/task:{i}", i + 7).peer(server.address, PS) for i in range(2))
    for peer in (one, other):
        settle(peer, lanes)
    answers: list[Any] = []
    one.call(m.DescribeStep(1), answers.append)
    other.call(m.CleanupAll(()), answers.append)
    until(lambda: len(answers) == 2, "both answers")
    assert in_time == [True]


def test_full_inboxes_cause_backpressure(server: Any, peer: Any, lanes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfmini.rpc.zmq_router.INBOX_LIMIT", 0)
    settle(peer, lanes)
    seen: list[int] = []
    server.serve({m.SendTensors: lambda peer, message, _: seen.append(message.step_id)})
    for i in range(500):
        peer.send(m.SendTensors(i, "", 0, b"", ()))
    until(lambda: len(seen) == 500, "the last message")
    assert seen == list(range(500))


def test_a_duplicate_of_a_request_without_retry_is_refused(server: Any, peer: Any, lanes: bool) -> None:
    settle(peer, lanes)
    runs: list[Any] = []
    server.serve({m.DeregisterGraph: lambda peer, request, respond: respond(m.Acknowledged())})
    server.handlers[m.RunGraph] = lambda peer, request, respond: runs.append(respond)
    answers: list[Any] = []
    handle = peer.call(m.RunGraph(1, 2, ()), answers.append)
    peer.link.send(encode(m.RunGraph(1, 2, ()), handle.request_id))
    until(lambda: answers, "the refusal")
    assert isinstance(answers[0], errors.AbortedError)
    assert "The same RunGraph request was received twice" in answers[0].message
    assert len(runs) == 1
    assert server.counters["duplicates"] == 1


def test_close_tells_peers_and_frees_the_port(server: Any, peer: Any, endpoints: Any, lanes: bool) -> None:
    settle(peer, lanes)
    server.serve({m.DescribeStep: lambda peer, request, respond: None})
    lost: list[str] = []
    peer.on_lost(lambda peer, why: lost.append(why))
    answers: list[Any] = []
    peer.call(m.DescribeStep(1), answers.append)
    call(peer, m.GetStatus())
    server.close("is stopping")
    until(lambda: lost, "the Goodbye")
    assert f"{PS} is stopping" in lost[0]
    assert isinstance(answers[0], errors.UnavailableError)
    assert PS in answers[0].message
    again = endpoints(PS, 43)
    again.serve({m.GetStatus: get_status})
    again.listen(server.address)
    call(peer, m.GetStatus())
    assert peer.incarnation == 43
    with pytest.raises(errors.AbortedError, match="was restarted: its incarnation was 000000000000002a"):
        call(peer, m.GetStatus(), incarnation=42)


def test_close_lets_one_way_messages_leave(server: Any, peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    server.serve({m.AbortStep: lambda peer, message, respond: got.append(message)})
    with monkeypatch.context() as patch:  # another thread of the loop might be faster than this one
        patch.setattr(peer.endpoint, "dial", lambda peer: None)
        peer.send(m.AbortStep(1, "why"))
        assert peer.has_unsent  # there is no connection yet
    peer.endpoint.dial(peer)
    peer.endpoint.close()
    until(lambda: got, "the message")


def test_messages_count_as_unsent_until_the_next_attempt_to_connect(endpoints: Any) -> None:
    """A task that has just been refused waits a moment before it tries again; a close of it must wait, too."""
    listener = ZmqTransport(get_reactor(), own_keys()).listen("tcp://127.0.0.1:0", lambda c: None)
    listener.close()
    client = endpoints()
    peer = client.peer(listener.address)
    with pytest.raises(errors.UnavailableError):
        call(peer, m.GetStatus())
    got: list[Any] = []
    late = endpoints(PS, 42)
    late.serve({m.AbortStep: lambda peer, message, respond: got.append(message)})
    late.listen(listener.address)
    peer.send(m.AbortStep(1, "why"))
    assert peer.has_unsent or got
    client.close()
    until(lambda: got, "the message")


def test_messages_count_as_unsent_while_a_new_connection_takes_them(
    server: Any, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close of the endpoint waits for them."""
    send, asked, early = Link.send, threading.Event(), list[bool]()

    def ask_meanwhile(link: Link, parts: Any) -> None:
        if list(parts) == list(encode(message)):
            asker.start()
            early.append(asked.wait(0.05))
        send(link, parts)

    def ask() -> None:
        peer.has_unsent  # noqa: B018 - that it returns
        asked.set()

    asker = threading.Thread(target=ask)
    monkeypatch.setattr(Link, "send", ask_meanwhile)
    message = m.AbortStep(1, "why")
    peer.send(message)
    until(asked.is_set, "the answer")
    asker.join()
    assert early == [False]


def test_closing_an_endpoint_fails_its_pending_calls(server: Any, peer: Any) -> None:
    server.serve({m.DescribeStep: lambda peer, request, respond: None})
    answers: list[Any] = []
    peer.call(m.DescribeStep(1), answers.append)
    peer.endpoint.close()
    assert isinstance(answers[0], errors.CancelledError)
    with pytest.raises(errors.CancelledError):
        peer.endpoint.peer(server.address)
    answers.clear()
    peer.call(m.GetStatus(), answers.append)
    until(lambda: answers, "the answer")
    assert isinstance(answers[0], errors.UnavailableError)


def test_the_server_can_call_its_client(server: Any, endpoints: Any, lanes: bool) -> None:
    client = endpoints()
    client.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply("me", 1, []))})
    call(client.peer(server.address), m.GetStatus())
    guest = next(p for p in server.peers() if p.incarnation == 1)
    assert call(guest, m.GetStatus()).task == "me"


def test_blocks_are_returned(server: Any, peer: Any, route: str, lanes: bool) -> None:
    if route != "local":
        pytest.skip("shared memory needs the local lane")
    settle(peer, lanes)
    value = np.ones(1_000_000, np.float32)
    kept = []
    for i in range(20):
        reply = call(peer, m.RunGraph(1, i, (value,)))
        if i < 3:
            kept.append(reply.values[0][10:20])
    del reply
    lane = peer.link.connection
    until(lambda: lane.statistics()["lent_blocks"] == 0, "the return of the blocks")
    until(lambda: lane.statistics()["borrowed"] == 3, "the return of the last block")
    assert lane.statistics()["idle_blocks"] <= 3
    assert all((k == 1).all() for k in kept)


def test_invalid_addresses_are_refused(endpoints: Any) -> None:
    endpoint = endpoints()
    for bad in ("nonsense", "host:99999999", "host:port", "http://x:1", "grpc://", ":80", "a b:1", "::1:80"):
        with pytest.raises(errors.InvalidArgumentError, match="Could not interpret the address"):
            endpoint.peer(bad)
        with pytest.raises(errors.InvalidArgumentError):
            endpoint.listen(bad)


@pytest.mark.parametrize("address", ["localhost:0", "0.0.0.0:0", "ipc"])
def test_unauthenticated_peers_are_refused(endpoints: Any, tmp_path: Path, address: str) -> None:
    """Loopback and Unix sockets are no exception, and nothing has to be set up."""
    server = endpoints(PS, 42, insecure=False)
    server.serve({m.GetStatus: get_status})
    bound = server.listen(address if address != "ipc" else f"ipc://{tmp_path}/socket").replace("0.0.0.0", "127.0.0.1")
    for stranger in (endpoints(insecure=True), endpoints(keys=Keys(*zmq.curve_keypair()))):
        with pytest.raises(errors.UnauthenticatedError):
            call(stranger.peer(bound), m.GetStatus(), wait_for_ready=True)
    assert call(endpoints(insecure=False).peer(bound), m.GetStatus()).incarnation == 42
