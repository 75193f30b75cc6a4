"""Sends random messages to a real server by every transport and checks that it keeps its promises.

``python -m tests.fuzz.attack --messages 1000000`` runs the whole count; the tests run a slice. After each batch a
well-behaved client runs a step, which must give the right answer in time; at the end the server must hold no step,
request, connection or memory of the attackers.
"""

from __future__ import annotations

import argparse
import collections
import gc
import logging
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

import tfmini as tf
from tests.fuzz.mutations import CLEARING, ENDING, Messages, hello
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.messages import GetStatus
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.records import REGISTRY
from tfmini.rpc.waiter import Waiter
from tfmini.rpc.zmq_transport import ZmqTransport

ROUTES = ("local", "stream", "zmq")
STATES = ("before the Hello", "established", "as a task")
BATCH, BURST = 200, 3
STEP_LIMIT_S = 30.0


class Attack:
    """One server, one well-behaved client, and attackers that come and go.

    Args:
      seed: of the messages.
    """

    def __init__(self, seed: int) -> None:
        self.server = tf.train.Server({"ps": ["localhost:0"]}, protocol="zmq")
        self.address = self.server.target.removeprefix("zmq://")
        self.messages = Messages(seed, self._handles)
        self.random = self.messages.random
        self.counts: collections.Counter[str] = collections.Counter()
        self.slowest_s = 0.0
        self._allowed = [kind for kind in REGISTRY if kind not in ENDING | CLEARING]
        with tf.Graph().as_default():
            self._x = tf.placeholder(tf.float32, [None])
            self._count = tf.Variable(0, name="count")
            with tf.control_dependencies([tf.assign_add(self._count, 1)]):
                self._y = tf.reduce_sum(self._x * 2.0)
            self._session = tf.Session(self.server.target)
            self._session.run(tf.global_variables_initializer())
        self._steps = 0

    def run(self, count: int, progress: bool = False) -> None:
        """Sends ``count`` messages."""
        while sum(self.counts.values()) < count:
            route, state = self.random.choice(ROUTES), self.random.choice(STATES)
            sent = self._by_connection(route) if state == STATES[0] else self._by_peer(route, state == STATES[2])
            self.counts[f"{route}, {state}"] += sent
            self.check()
            if progress and self._steps % 100 == 0:
                print(f"{sum(self.counts.values()):>9,} messages; slowest step {self.slowest_s:.3f} s", flush=True)

    def check(self) -> None:
        """The well-behaved client's step gives the right answer within its limit, exactly once."""
        self._steps += 1
        begun = time.monotonic()
        options = tf.RunOptions(timeout_in_ms=int(STEP_LIMIT_S * 1000))
        value = self._session.run(self._y, {self._x: np.arange(10.0)}, options=options)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        assert value == 90.0
        if self._steps % 20 == 0:
            assert self._session.run(self._count) == self._steps

    def close(self) -> dict[str, int]:
        """Ends the server; returns what was left of the attackers before: it must be zero."""
        waiter, reactor = Waiter(), get_reactor()
        left: dict[str, int] = {}

        def look(tries: int = 400) -> None:
            left.update(self._leftovers())
            if not any(left.values()) or not tries:
                waiter.set()
            else:
                reactor.call_later(0.02, look, tries - 1)

        look()
        reactor.drive(waiter, reactor.now() + 30.0)
        self._session.close()
        self.server.stop()
        return left

    # ---- attackers --------------------------------------------------------------------------

    def _by_connection(self, route: str) -> int:
        """Messages on bare connections that have not said Hello, or say it wrongly."""
        reactor = get_reactor()
        transport = ZmqTransport(reactor, self.server.endpoint.keys)
        count = self.random.randrange(1, 4)
        ended = Waiter()
        connection = transport.connect(f"tcp://{self.address}")
        connection.start(lambda parts: None, lambda reason: ended.set())
        if self.random.random() < 0.3:
            connection.send(hello())
        for _ in range(count):
            connection.send(self.messages.next(list(REGISTRY.keys() - CLEARING))[1])
        reactor.drive(ended, reactor.now() + 0.005)
        connection.close()
        reactor.drive(ended, reactor.now() + 5.0)
        return count

    def _by_peer(self, route: str, is_task: bool) -> int:
        """A batch of messages on an established link, on the wanted kind of connection."""
        reactor = get_reactor()
        task = f"/job:worker/replica:0/task:{self.random.randrange(3)}" if is_task else ""
        previous = os.environ.get("TFMINI_LANE")
        os.environ["TFMINI_LANE"] = "on" if route == "local" else "off"
        try:
            attacker = Endpoint(reactor, task, self.random.randrange(1, 1 << 60), lanes=route != "zmq")
        finally:
            os.environ.pop("TFMINI_LANE")
            if previous is not None:
                os.environ["TFMINI_LANE"] = previous
        peer = attacker.peer(f"tcp://{self.address}")
        ready = Waiter()
        peer.call(GetStatus(), lambda answer: ready.set())
        assert reactor.drive(ready, reactor.now() + 20.0), "no answer to GetStatus"
        sent, well_formed = 0, self.random.random() < 0.04
        while sent < BATCH and (link := peer.link) is not None:
            kinds = list(ENDING) if self.random.random() < 0.002 else self._allowed
            link.send(self.messages.next(kinds, well_formed)[1])
            sent += 1
            if not sent % BURST:  # a malformed message may have ended the link: what follows it would not arrive
                reactor.drive(Waiter(), reactor.now() + 0.0005)
        answered, link = Waiter(), peer.link
        if link is not None:
            peer.call(GetStatus(), lambda answer: answered.set(), timeout_s=5.0)
        # The answer says that the server has handled the batch, and so does the end of the link.
        while peer.link is link is not None and not reactor.drive(answered, reactor.now() + 0.001):
            pass
        attacker.close()
        return sent

    # ---- the server from inside -------------------------------------------------------------

    def _handles(self) -> list[Any]:
        sessions = [handle for handle in self.server.master.sessions if handle != self._session_handle]
        return [*sessions, *range(1, 4)]

    @property
    def _session_handle(self) -> str:
        return next(iter(self.server.master.sessions), "")  # the first session is the well-behaved client's

    def _leftovers(self) -> dict[str, int]:
        gc.collect()
        worker = self.server.worker
        return {"runs": len(worker.runs), "links": len(self.server.endpoint.links())}


def in_parallel(messages: int, seed: int, jobs: int) -> int:
    """Runs so many processes with a seed each; returns how many have failed."""
    share = ["--messages", str(-(-messages // jobs))]
    command = [sys.executable, "-m", "tests.fuzz.attack", *share]
    running = [subprocess.Popen([*command, "--seed", str(seed + i)]) for i in range(jobs)]
    return sum(process.wait() != 0 for process in running)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the messages, each with its server")
    options = parser.parse_args()
    if options.jobs > 1:
        return in_parallel(options.messages, options.seed, options.jobs)
    logging.getLogger("tfmini").setLevel(logging.CRITICAL)
    attack = Attack(options.seed)
    attack.run(options.messages, progress=True)
    counters = dict(attack.server.endpoint.counters)
    left = attack.close()
    for where, count in sorted(attack.counts.items()):
        print(f"{count:>9,}  {where}")
    print(f"server's counters: {counters}")
    print(f"left behind: {left}; slowest step of the other client: {attack.slowest_s:.3f} s")
    return 1 if any(left.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
