"""A task says why it cannot connect to another one: name, route, firewall, key or cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hosts.cluster import PORT, Cluster, keys_in
from tests.hosts.network import Network

pytestmark = pytest.mark.cluster


@pytest.mark.ci
def test_each_reason_is_told_apart(network: Network, tmp_path: Path) -> None:
    keys, other = keys_in(tmp_path / "ours"), keys_in(tmp_path / "other")
    here, there, walled = network[0], network[1], network[2]
    cluster = Cluster(network, {"worker": [0], "ps": [1]}, keys)
    cluster.start("ps", 0, "serve").until("ready")
    beside = {"ps": [f"{there.address}:{PORT + 1}"]}
    cluster.start_on(1, beside, "ps", 0, "serve", environment=other).until("ready")
    elsewhere = {"ps": [f"{there.address}:{PORT + 2}"], "worker": [f"{there.address}:9"]}
    cluster.start_on(1, elsewhere, "ps", 0, "serve").until("ready")
    here.names({"ps-0": there.address})
    walled.drop(here)
    expected = {
        f"{there.address}:{PORT}": "^reached",
        f"ps-0:{PORT}": "^reached",
        f"ps-1:{PORT}": "the name 'ps-1' was not found",
        f"{there.address}:{PORT + 9}": "connection refused",
        f"{walled.address}:{PORT}": f"silent: no answer from {walled.address} .* firewall",
        f"10.77.0.99:{PORT}": "no route to 10.77.0.99 .*no host has this address",
        f"192.0.2.1:{PORT}": "no route to 192.0.2.1",
        f"{there.address}:{PORT + 1}": "it uses other keys than this process",
        f"{there.address}:{PORT + 2}": "two clusters share an address by mistake",
    }
    worker = cluster.start("worker", 0, "reach", *expected)
    worker.process.wait(90)
    walled.accept(here)
    told = {line.split()[1]: line for line in worker.seen if line.startswith(("reached", "unreachable"))}
    assert [line for address, line in told.items() if not re.search(expected[address], line)] == []
    assert set(told) == set(expected)
