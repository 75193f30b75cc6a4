"""Silent peers, wedged peers, and the bounds after which they count as such."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys

import pytest

from tfmini.rpc import handshake
from tfmini.rpc.handshake import LOST_AFTER_S, TICK_S, WEDGED_AFTER_S, Attention, PeerLiveness, Verdict


@pytest.mark.parametrize(("bound", "default"), [("LOST_AFTER", 4.0), ("WEDGED_AFTER", 60.0)])
def test_the_bounds_can_be_set(monkeypatch: pytest.MonkeyPatch, bound: str, default: float) -> None:
    monkeypatch.delenv(f"TFMINI_{bound}", raising=False)
    assert runpy.run_path(handshake.__file__)[f"{bound}_S"] == default
    monkeypatch.setenv(f"TFMINI_{bound}", "30.5")
    assert runpy.run_path(handshake.__file__)[f"{bound}_S"] == 30.5


@pytest.mark.parametrize("text", ["soon", "1", "nan", "-3", "1e9"])
def test_a_bound_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TFMINI_LOST_AFTER", text)
    with pytest.raises(ValueError, match="TFMINI_LOST_AFTER must be a number of seconds from 2 to 86400"):
        runpy.run_path(handshake.__file__)


@pytest.mark.parametrize(("lost_after", "handshake"), [("2", "4.0"), ("30", "30.0")])
def test_a_handshake_may_last_as_long_as_silence(lost_after: str, handshake: str) -> None:
    program = "from tfmini.rpc.link import HELLO_TIMEOUT_S; print(HELLO_TIMEOUT_S)"
    environment = {**os.environ, "TFMINI_LOST_AFTER": lost_after}
    printed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert printed.stdout.strip() == handshake, printed.stderr


def seconds_until(verdict: Verdict, tick) -> float:
    """How long it ticks until the verdict, at most twice the longer bound."""
    for i in range(int(2 * WEDGED_AFTER_S / TICK_S)):
        if tick() is verdict:
            return i * TICK_S
    return float("inf")


def test_a_process_that_computes_may_be_silent_for_longer() -> None:
    for computes, bound_s in ((False, LOST_AFTER_S), (True, WEDGED_AFTER_S)):
        watch = PeerLiveness(lambda computes=computes: computes)
        found_s = seconds_until(Verdict.LOST, lambda watch=watch: watch.tick(TICK_S, 1, 1))
        assert bound_s - TICK_S <= found_s <= bound_s + TICK_S


def test_heartbeats_go_on_to_a_peer_that_computes() -> None:
    watch = PeerLiveness(lambda: True)
    assert {watch.tick(TICK_S, 1, 1) for _ in range(int(2 * LOST_AFTER_S / TICK_S))} == {Verdict.FINE, Verdict.BEAT}


def test_a_peer_that_handles_nothing_is_wedged() -> None:
    watch = Attention()

    def tick() -> Verdict:
        watch.heard(handled=7, doing="")
        return watch.tick(TICK_S, 1, 1)

    assert WEDGED_AFTER_S - 1 <= seconds_until(Verdict.WEDGED, tick) <= WEDGED_AFTER_S + 1


@pytest.mark.parametrize("doing", ["", "computes MatMul (node a)"])
def test_a_peer_that_handles_messages_or_computes_is_not(doing: str) -> None:
    watch, handled = Attention(), iter(range(10_000))

    def tick() -> Verdict:
        watch.heard(handled=7 if doing else next(handled), doing=doing)
        return watch.tick(TICK_S, 1, 1)

    assert seconds_until(Verdict.WEDGED, tick) == float("inf")


def test_a_peer_whose_large_message_is_arriving_is_not() -> None:
    """Its heartbeats wait behind the message."""
    watch, arrived = Attention(), iter(range(0, 1 << 60, 1 << 20))
    assert seconds_until(Verdict.WEDGED, lambda: watch.tick(TICK_S, 1, next(arrived))) == float("inf")
    assert watch.is_bulk


def test_a_side_whose_bytes_lie_unread_notices() -> None:
    watch = Attention()
    for i in range(8):
        watch.tick(TICK_S, handled=i, arrived=100 * i)
    assert watch.held_s == 0
    watch.tick(TICK_S, handled=7, arrived=800)
    for _ in range(4):
        watch.tick(TICK_S, handled=7, arrived=800)
    assert watch.held_s == pytest.approx(5 * TICK_S)
    watch.tick(TICK_S, handled=8, arrived=800)
    assert watch.held_s == 0


def test_a_side_that_always_sends_something_reports_now_and_then() -> None:
    watch = Attention()
    assert [watch.tick(TICK_S, i, i) for i in range(41)].count(Verdict.BEAT) == 2
    watch.reported()
    assert watch.tick(TICK_S, 50, 50) is Verdict.FINE


def test_the_own_pause_does_not_count() -> None:
    watch = Attention()
    assert watch.tick(10 * WEDGED_AFTER_S, 1, 1) is Verdict.FINE


def test_a_side_that_handles_nothing_does_not_judge_the_other() -> None:
    """The heartbeats of the other lie unread."""
    watch, arrived = Attention(), iter(range(0, 1 << 20, 50))
    assert seconds_until(Verdict.WEDGED, lambda: watch.tick(TICK_S, 1, next(arrived))) == float("inf")
    assert not watch.is_bulk


def test_a_task_that_ticks_late_sends_a_heartbeat_at_every_tick() -> None:
    """Its peers count the time that really passes."""
    liveness = PeerLiveness()
    liveness.tick(0.25, received=0, sent=0)
    for sent in range(5):
        assert liveness.tick(1.5, received=0, sent=sent) is Verdict.BEAT
        liveness.tick(0.1, received=sent, sent=sent + 1)
