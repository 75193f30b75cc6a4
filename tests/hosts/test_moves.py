"""Tasks that come back on another host: the others find them, and nobody else is started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.hosts.cluster import PORT, Cluster, keys_in, thorough
from tests.hosts.network import Network
from tests.hosts.training import Training

pytestmark = pytest.mark.cluster


def test_tasks_that_move_are_found_in_the_address_book(network: Network, tmp_path: Path) -> None:
    """They are started again by the very same command: even their own address is that of another host."""
    training = Training(network, tmp_path, 2, TFMINI_ADDRESSES=str(tmp_path / "book"))
    ps = training.start(0, "ps", 0)
    chief, worker = training.start(1, "worker", 0), training.start(2, "worker", 1)
    chief.until("step")
    worker.until("step")
    ps.end(signal.SIGKILL)
    training.start(3, "ps", 0)
    worker.skip()
    worker.until("step")
    worker.end(signal.SIGKILL)
    worker = training.start(0, "worker", 1)
    worker.until("step")
    training.go()
    assert max(float(task.until("done")[0]) for task in (chief, worker)) < 1e-2


@thorough
def test_names_are_looked_up_again(network: Network, tmp_path: Path) -> None:
    """The host of the ps goes with it, without a word; its name gets the address of another host."""
    training = Training(network, tmp_path, 1, TFMINI_LOST_AFTER="2")
    training.cluster.spec = {"ps": [f"ps-0:{PORT}"], "worker": [f"{network[1].address}:{PORT}"]}
    for host in network:
        host.names({"ps-0": network[0].address})
    ps = training.start(0, "ps", 0)
    chief = training.start(1, "worker", 0)
    chief.until("step")
    network[0].cut()
    ps.end(signal.SIGKILL)
    for host in network:
        host.names({"ps-0": network[3].address})
    training.start(3, "ps", 0)
    training.go()
    assert float(chief.until("done")[0]) < 1e-2


@thorough
def test_ipv6(network: Network, tmp_path: Path) -> None:
    training = Training(network, tmp_path, 1)
    training.cluster.spec = {job: [f"[{network[i].address6}]:{PORT}"] for job, i in (("ps", 0), ("worker", 1))}
    training.start(0, "ps", 0)
    chief = training.start(1, "worker", 0)
    training.go()
    assert float(chief.until("done")[0]) < 1e-2


@pytest.mark.ci
def test_a_worker_joins_that_nobody_knew(network: Network, tmp_path: Path) -> None:
    """Only its own ClusterSpec has it. It leaves again, told by SIGTERM, and the others do not notice."""
    training = Training(network, tmp_path, 1)
    training.start(0, "ps", 0)
    chief = training.start(1, "worker", 0)
    chief.until("step")
    known = training.cluster.spec
    training.cluster.spec = {**known, "worker": [*known["worker"], f"{network[2].address}:{PORT}"]}
    guest = training.start(2, "worker", 1)
    guest.until("step")
    guest.end(signal.SIGTERM)
    training.go()
    assert float(chief.until("done")[0]) < 1e-2


def test_a_rank_that_moves_is_found_by_the_others(network: Network, tmp_path: Path) -> None:
    """The second rank to die is the leader of the group."""
    settings = {"TFMINI_ADDRESSES": str(tmp_path / "book"), **keys_in(tmp_path)}
    cluster = Cluster(network, {"worker": [0, 1, 2]}, settings)
    ranks = [cluster.start("worker", i, "ranks", tmp_path / "go") for i in range(3)]
    for rank in ranks:
        rank.until("step")
    for index, host in ((2, 3), (0, 2)):
        ranks[index].end(signal.SIGKILL)
        ranks[index] = cluster.start_on(host, cluster.spec, "worker", index, "ranks", tmp_path / "go")
        for rank in ranks:
            rank.skip()
            rank.until("step")
    (tmp_path / "go").touch()
    assert len({rank.until("done")[0] for rank in ranks}) == 1  # the same bits


@pytest.mark.ci
@thorough
def test_four_ranks_go_on_as_three_and_again_as_four(network: Network, tmp_path: Path) -> None:
    """A host is lost with its rank, without a word. The rank comes back on another one, by the same command."""
    settings = {"TFMINI_ADDRESSES": str(tmp_path / "book"), "TFMINI_LOST_AFTER": "2", **keys_in(tmp_path)}
    cluster = Cluster(network, {"worker": [0, 1, 2, 3]}, settings)
    words = ("ranks", tmp_path / "go", 3)
    ranks = [cluster.start("worker", i, *words) for i in range(4)]
    for rank in ranks:
        rank.until("step", there="4")
    network[3].cut()
    ranks[3].end(signal.SIGKILL)
    for rank in ranks[:3]:
        rank.until("step", there="3")
    ranks[3] = cluster.start_on(2, cluster.spec, "worker", 3, *words)
    for rank in ranks:
        rank.until("step", there="4")
    (tmp_path / "go").touch()
    assert len({rank.until("done")[0] for rank in ranks}) == 1  # the same bits
