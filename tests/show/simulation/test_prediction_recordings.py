"""Recordings of what code of a simulated task costs."""

from __future__ import annotations

from tfmini.show.simulation.prediction import Recording


def test_a_piece_ends_with_its_effect() -> None:
    recording, happened = Recording(), []
    recording.charge(2.0, "a")
    recording.charge(3.0, "b")
    recording.then(happened.append)
    recording.charge(1.0, "c")
    pieces = recording.take()
    assert [(seconds, label) for seconds, label, *_ in pieces] == [(5.0, "b"), (1.0, "c")]
    assert pieces[0].effect is not None
    assert pieces[1].effect is None
    assert recording.elapsed == 6.0
    assert recording.take() == []


def test_a_locked_piece_stands_alone() -> None:
    recording = Recording()
    recording.charge(1.0, "a")
    recording.charge_locked(2.0, "b", "w")
    recording.charge(3.0, "c")
    assert [(p.seconds, p.lock) for p in recording.take()] == [(1.0, ""), (2.0, "w"), (3.0, "")]


def test_nothing_leaves_no_piece() -> None:
    recording = Recording()
    recording.then(None)
    assert recording.take() == []
