"""A cluster on hosts of its own: admitted by a key, cut for a moment and for good, and what it puts on the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.cluster import Cluster, keys_in, thorough
from tests.hosts.network import Network

pytestmark = pytest.mark.cluster

_LOST_AFTER_S = 4.0
_LATE_S = 30.0  # how much later an error may come on a busy machine; `table` measures it on an idle one
_STEPS = 20


@pytest.mark.ci
def test_tasks_on_three_hosts_train_and_send_what_the_inspector_says(network: Network, tmp_path: Path) -> None:
    cluster = Cluster(network, {"ps": [0], "worker": [1, 2]}, keys_in(tmp_path))
    cluster.start("ps", 0, "serve")
    workers = [cluster.start("worker", i, "train", _STEPS) for i in range(2)]
    expected = [int(worker.until("wire")[0]) for worker in workers]
    before = network[0].bytes()
    for worker in workers:
        worker.tell()
    losses = [float(worker.until("done")[0]) for worker in workers]
    received, sent = (after - now for after, now in zip(network[0].bytes(), before))
    assert max(losses) < 1e-3
    wire = sum(expected) * _STEPS
    # These tasks have one user and one machine id. They share no memory all the same: nothing goes past the wire.
    assert wire <= received + sent <= 1.05 * wire


@thorough
def test_training_goes_on_over_a_link_that_delays_and_loses_packets(network: Network, tmp_path: Path) -> None:
    cluster = Cluster(network, {"ps": [0], "worker": [1]}, keys_in(tmp_path))
    network[1].impair(delay_s=0.002, loss=0.01)
    cluster.start("ps", 0, "serve")
    worker = cluster.start("worker", 0, "train", 3)
    worker.until("wire")
    worker.tell()
    assert float(worker.until("done")[0]) < 0.2


def test_a_cut_link_is_named_in_time_and_a_short_cut_is_survived(network: Network, tmp_path: Path) -> None:
    settings = {"TFMINI_LOST_AFTER": str(_LOST_AFTER_S), **keys_in(tmp_path)}
    cluster = Cluster(network, {"ps": [0], "worker": [1]}, settings)
    ps = cluster.start("ps", 0, "serve")
    worker = cluster.start("worker", 0, "step")
    worker.until("step")
    network[0].cut()
    with pytest.raises(AssertionError, match="no 'lost'"):  # a step waits, and no error comes
        worker.until("lost", limit_s=0.2 * _LOST_AFTER_S)
    network[0].mend()
    worker.skip()
    worker.until("step")
    network[0].cut()
    silence_s, kind, *text = worker.until("lost")
    assert _LOST_AFTER_S - 1 <= float(silence_s) <= _LOST_AFTER_S + _LATE_S
    assert kind == "UnavailableError"
    assert f"/job:ps/replica:0/task:0 at tcp://{cluster.spec['ps'][0]}" in " ".join(text)
    assert ps.process.poll() is None
