"""Peers in processes of their own that die, stop and come back."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rpc.task_processes import LIMIT_S, PS, SETTINGS, Call, connect, until
from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.peer import State
from tfmini.rpc.reactor import get_reactor


@pytest.mark.parametrize("route", list(SETTINGS))
def test_a_killed_task_is_detected_at_once(tasks: Any, client: Endpoint, route: str) -> None:
    task = tasks(route=route)
    peer = connect(client, task)
    lost: list[str] = []
    peer.on_lost(lambda peer, why: lost.append(why))
    call = Call(peer, m.DescribeStep(1))
    Call(peer, m.GetStatus()).wait()
    task.signal(signal.SIGKILL)
    answer = call.wait()
    assert isinstance(answer, errors.UnavailableError)
    assert f"{PS} at {task.address} is unavailable" in answer.message
    assert "silent" not in answer.message  # it was the closed connection, not the four seconds
    assert len(lost) == 1
    assert peer.state is State.LOST
    task.process.wait(LIMIT_S)  # a dying process closes its sockets one by one: its listener may accept until then
    assert isinstance(Call(peer, m.GetStatus()).wait(), errors.UnavailableError)
    assert "connection refused" in peer.why


@pytest.mark.parametrize("route", list(SETTINGS))
def test_a_restarted_task_is_detected(tasks: Any, client: Endpoint, route: str) -> None:
    task = tasks(route=route)
    peer = connect(client, task)
    task.end()
    waiting = Call(peer, m.GetStatus(), wait_for_ready=True)
    pinned = Call(peer, m.GetStatus(), wait_for_ready=True, incarnation=42)
    tasks(task.address, 43, route=route)
    assert waiting.wait().incarnation == 43
    answer = pinned.wait()
    assert isinstance(answer, errors.AbortedError)
    assert f"{PS} at {task.address} was restarted" in answer.message
    assert peer.incarnation == 43
    assert isinstance(Call(peer, m.GetStatus(), incarnation=42).wait(), errors.AbortedError)
    assert isinstance(Call(peer, m.GetStatus(), incarnation=43).wait(), m.GetStatusReply)


def test_a_stopped_task_is_lost_by_its_silence(tasks: Any, client: Endpoint) -> None:
    kinds = [tasks(route=route) for route in SETTINGS]
    peers = [connect(client, task) for task in kinds]
    calls = [Call(peer, m.DescribeStep(1)) for peer in peers]
    calm = connect(client, tasks())
    never_met = tasks()
    for task in (*kinds, never_met):
        task.signal(signal.SIGSTOP)
        os.waitpid(task.process.pid, os.WUNTRACED)  # until it is stopped
    connecting = Call(client.peer(never_met.address, PS), m.GetStatus())
    for call in calls:
        answer = call.wait()  # how soon is a matter of virtual time: see test_endpoint_simulated
        assert isinstance(answer, errors.UnavailableError)
        assert "silent: it sent nothing for 4 s" in answer.message
    assert calm.state is State.READY  # its heartbeats came
    assert "did not complete the handshake" in connecting.wait().message
    for task in kinds:
        task.signal(signal.SIGCONT)
    for peer in peers:
        answer = Call(peer, m.GetStatus(), wait_for_ready=True).wait()
        assert isinstance(answer, m.GetStatusReply), answer


def test_shared_memory_survives_its_sender(tasks: Any, client: Endpoint) -> None:
    """A tensor that was received stays readable when its sender has died."""
    task = tasks()
    peer = connect(client, task)
    value = np.arange(500_000, dtype=np.int64)
    reply = Call(peer, m.RunGraph(1, 1, (value,))).wait()
    assert peer.link.connection.statistics()["borrowed"] == 1
    task.end()
    until(lambda: peer.state is not State.READY, "the loss")
    np.testing.assert_array_equal(reply.values[0], value)


def test_no_descriptor_or_shared_memory_leaks(tasks: Any) -> None:
    def descriptors() -> set[str]:
        found = set()
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.add(f"{fd}:{os.readlink(f'/proc/self/fd/{fd}').split(':')[0]}")
        return found

    task = tasks()
    client = Endpoint(get_reactor(), "", 7)
    connect(client, task)  # whatever is made once per process exists now
    client.close()
    before = descriptors()
    for _ in range(5):
        client = Endpoint(get_reactor(), "", 7)
        peer = connect(client, task)
        Call(peer, m.RunGraph(1, 1, (np.zeros(100_000),))).wait()
        client.close()

    def is_tidy() -> bool:
        gc.collect()
        return len(descriptors()) <= len(before) and "tfmini-block" not in Path("/proc/self/maps").read_text()

    until(is_tidy, "the end of all descriptors and blocks")  # ZeroMQ closes its own in its own thread
