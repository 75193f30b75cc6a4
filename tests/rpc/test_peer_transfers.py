"""Peers that die, stop or come back in the middle of a huge transfer: an error in time, and the memory back."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rpc.task_process import MAKE
from tests.rpc.task_processes import PS, SETTINGS, Call, connect, until
from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.send_queue import RECEIVE_BUFFERS

HUGE = 96 << 20  # bytes: far more than sockets buffer
routes = pytest.mark.parametrize("route", list(SETTINGS))


class Transfer:
    """A huge request to a task that does not take it."""

    def __init__(self, peer: Any, task: Any, **options: Any) -> None:
        task.stop()
        value = np.ones(HUGE, np.uint8)
        self.value = weakref.ref(value)
        self.call = Call(peer, m.RunGraph(1, 1, (value,)), **options)
        self.link = peer.link
        assert not self.call.answers

    def assert_given_back(self) -> None:
        """Nothing of it is left here: not the tensor, not the block that it was copied to, not a queue."""

        def is_gone() -> bool:
            gc.collect()
            return self.value() is None and shared_blocks() == 0

        until(is_gone, "the end of the sent bytes")
        assert self.link.connection.backlog == 0


def shared_blocks() -> int:
    """Blocks of shared memory that this process maps; they are memfds, so /dev/shm does not show them."""
    return Path("/proc/self/maps").read_text().count("tfmini-block")


@routes
def test_a_killed_receiver_fails_the_transfer_and_frees_its_memory(tasks: Any, client: Endpoint, route: str) -> None:
    task = tasks(route=route)
    transfer = Transfer(connect(client, task), task)
    assert (shared_blocks() > 0) == (route == "local")
    task.signal(signal.SIGKILL)
    answer = transfer.call.wait()
    assert isinstance(answer, errors.UnavailableError)
    assert f"{PS} at {task.address} is unavailable" in answer.message
    transfer.assert_given_back()


@routes
def test_the_receiver_is_stopped(tasks: Any, client: Endpoint, route: str) -> None:
    """A half-open connection: the system fills its buffers, and no process reads them."""
    task = tasks(route=route)
    transfer = Transfer(connect(client, task), task)
    answer = transfer.call.wait()
    assert isinstance(answer, errors.UnavailableError)
    assert "silent: it sent nothing for 4 s" in answer.message  # test_endpoint_simulated has the delay
    transfer.assert_given_back()
    task.signal(signal.SIGCONT)  # it detects the lost connection and serves other peers
    assert isinstance(Call(connect(client, task), m.GetStatus(), wait_for_ready=True).wait(), m.GetStatusReply)


@routes
def test_a_restarted_receiver_fails_the_transfer_and_frees_its_memory(tasks: Any, client: Endpoint, route: str) -> None:
    task = tasks(route=route)
    peer = connect(client, task)
    transfer = Transfer(peer, task, incarnation=42)
    waiting = Call(peer, m.GetStatus(), incarnation=42, wait_for_ready=True)
    task.end()
    tasks(task.address, 43, route=route)
    assert isinstance(transfer.call.wait(), errors.UnavailableError)  # its fate is unknown, so it is not sent again
    answer = waiting.wait()
    assert isinstance(answer, errors.AbortedError)
    assert f"{PS} at {task.address} was restarted" in answer.message
    transfer.assert_given_back()
    value = np.arange(1 << 20)
    reply = Call(peer, m.RunGraph(1, 2, (value,)), incarnation=43).wait()
    np.testing.assert_array_equal(reply.values[0], value)


@pytest.mark.parametrize("route", ["stream", "zmq"])  # on a local lane there is no middle: memory comes as a whole
def test_a_killed_sender_frees_the_receivers_memory(tasks: Any, client: Endpoint, route: str) -> None:
    task = tasks(route=route)
    peer = connect(client, task)
    lent = RECEIVE_BUFFERS.lent
    link, before = peer.link, peer.link.arrived
    over, killed = threading.Event(), []

    def kill_at_the_first_bytes() -> None:
        # It leaves the processor to the sender, which else is silent for too long on a busy machine. It ends with the
        # call, since an ended connection counts no bytes.
        while link.arrived <= before + (1 << 20) and not over.wait(0.001):
            pass
        if not over.is_set():
            task.signal(signal.SIGKILL)
            killed.append(task)

    killer = threading.Thread(target=kill_at_the_first_bytes, daemon=True)  # the waiting thread is busy receiving
    call = Call(peer, m.RunGraph(4 * HUGE >> 20, MAKE, ()))
    killer.start()
    try:
        answer = call.wait()
    finally:
        over.set()
        killer.join()
    assert killed, answer
    assert isinstance(answer, errors.UnavailableError)
    assert f"{PS} at {task.address} is unavailable" in answer.message
    until(lambda: RECEIVE_BUFFERS.lent <= lent, "the return of the memory")


def test_a_killed_sender_of_shared_memory_leaves_none_behind(tasks: Any, client: Endpoint) -> None:
    """The tensors that it sent stay readable; their memory is freed with the last view."""
    task = tasks()
    peer = connect(client, task)
    reply = Call(peer, m.RunGraph(HUGE >> 20, MAKE, ())).wait()
    task.signal(signal.SIGKILL)
    until(lambda: peer.state.value != "ready", "the loss")
    assert reply.values[0][::4096].all()
    del reply

    def is_gone() -> bool:
        gc.collect()
        return shared_blocks() == 0

    until(is_gone, "the end of the block")
