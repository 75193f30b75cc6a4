"""A server that shows clusters which do not exist."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

import tfmini as tf
from tests.show.dashboard.clusters import START
from tfmini.runtime import snapshot as s
from tfmini.show.dashboard.server import ClusterReader, Dashboard, PageServer, Strangers

TOKEN = "the-token"


def traced_step(ops: int = 3) -> bytes:
    """The serialized StepStats of a step of so many ops, one after the other."""
    metadata = tf.RunMetadata()
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, name="x")
        for _ in range(ops):
            x = tf.tanh(x)
        session.run(x, {"x:0": 1.0}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    return bytes(metadata.step_stats.SerializeToString())


class Fake:
    """A source whose snapshots a test sets. ``problem``: an error that it raises instead."""

    def __init__(self, snapshot: s.ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.problem: Exception | None = None
        self.trace: Callable[[str], bytes] = lambda name: traced_step()

    def gather(self) -> s.ClusterSnapshot:
        if self.problem is not None:
            raise self.problem
        return self.snapshot

    def source(self) -> ClusterReader:
        return ClusterReader(
            self.gather, lambda cluster: f"tasks {len(cluster.tasks)}\n", lambda name: self.trace(name)
        )


@contextlib.contextmanager
def serving(fake: Fake, interval_s: float = 0.05, port: int = 0, filled: int = 0) -> Iterator[str]:
    """Serves the page of a fake cluster; ``filled``: seconds of history that it has at the start."""
    with serving_source(fake.source(), interval_s, port, [fake.snapshot] * filled) as address:
        yield address


@contextlib.contextmanager
def serving_source(
    source: ClusterReader, interval_s: float, port: int = 0, history: Sequence[s.ClusterSnapshot] = (),
    strangers: Strangers | None = None,
) -> Iterator[str]:  # fmt: skip
    """Serves the page of a source in a thread; yields its address without the token."""
    listener = socket.create_server(("127.0.0.1", port))
    dashboard = Dashboard(source, TOKEN, interval_s)
    for second, snapshot in enumerate(history):
        dashboard.board.take(dataclasses.replace(snapshot, taken_s=START + second))
    server = PageServer(dashboard, strangers)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(30)
        listener.close()
        assert not thread.is_alive()
