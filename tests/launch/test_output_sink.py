"""The launcher's output to a reader who is slow, does not read, or is gone."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from tfmini.launch.output import Sink, SinkStream

MANY = b"0123456789abcdef" * 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, Sink]]:
    """(the reader's end of a pipe, a sink to the other end)."""
    read, write = os.pipe()
    sink = Sink(write)
    yield read, sink
    sink.close()
    os.close(read)


def wait_for_news(sink: Sink) -> None:
    assert select.select([sink], [], [], 60.0)[0]
    sink.woken()


def test_output_waits_for_a_slow_reader_in_order(pipe: tuple[int, Sink]) -> None:
    read, sink = pipe
    count = 20  # the sink is full from one MiB on, and the pipe takes a part of that
    for _ in range(count):
        sink.write(MANY)
    assert sink.is_full
    found = b""
    while len(found) < count * len(MANY):
        found += os.read(read, 1 << 16)
    assert found == count * MANY
    wait_for_news(sink)
    assert not sink.is_full
    sink.drain()
    assert not sink.is_behind()


def test_a_reader_who_does_not_read_costs_bounded_memory_and_no_time(pipe: tuple[int, Sink]) -> None:
    read, sink = pipe
    sink.may_lose = True  # as when the tasks have been told to end
    for _ in range(1000):
        sink.write(MANY)
    sink.drain(patience_s=0.01)
    assert sink.is_behind()
    sent = 1000 * len(MANY)
    found = b""
    while b"were lost" not in found[-100:]:
        found += os.read(read, 1 << 20)
    assert len(found) < 18 << 20
    kept = len(found) // len(MANY) * len(MANY)
    assert found[kept:] == b"\ntfmini: %d bytes of output were lost, since nobody read it.\n" % (sent - kept)


def test_a_reader_who_is_gone_is_reported() -> None:
    read, write = os.pipe()
    os.close(read)
    sink = Sink(write)
    sink.write(b"x")
    wait_for_news(sink)
    assert sink.broken
    sink.write(b"y")
    sink.drain()
    assert not sink.is_behind()


def test_a_descriptor_that_does_not_block_loses_nothing() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    sink = Sink(write)
    for _ in range(4):
        sink.write(MANY)
    found = b""
    while len(found) < 4 * len(MANY):
        found += os.read(read, 1 << 16)
    assert found == 4 * MANY


def test_messages_begin_on_a_line_of_their_own(pipe: tuple[int, Sink]) -> None:
    read, sink = pipe
    sink.write(b"50 %", line_of=read)
    stream = SinkStream(sink, None)
    print("tfmini: a message", file=stream)
    sink.drain()
    assert os.read(read, 100) == b"50 %\ntfmini: a message\n"
