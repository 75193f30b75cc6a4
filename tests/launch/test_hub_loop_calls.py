"""Calls of other threads in the thread of a loop."""

from __future__ import annotations

import selectors
import threading

from tfmini.launch.hub import LoopCalls


def test_calls_of_other_threads_are_made_in_order_in_the_loops_thread() -> None:
    made: list[tuple[int, int]] = []
    with selectors.DefaultSelector() as selector:
        calls = LoopCalls(selector)

        def work() -> None:
            for number in range(5000):  # more than a socket has room for wakes
                calls.put(lambda number=number: made.append((number, threading.get_ident())))

        thread = threading.Thread(target=work)
        thread.start()
        while len(made) < 5000:
            for key, _ in selector.select(60):
                key.data()
        thread.join()
        calls.put(made.clear)
        calls.close()
        calls.put(made.clear)  # a thread may come late
        assert not selector.get_map()
    assert made == [(number, threading.get_ident()) for number in range(5000)]
