"""Training on hosts of their own, by the program of the tests of training sessions."""

from __future__ import annotations

from pathlib import Path

from tests.hosts.cluster import Cluster, Lines, keys_in
from tests.hosts.network import Network

_TRAINING = Path(__file__).parents[1] / "train/sessions/training_task.py"
# Workers wait for `go` at two thirds: so far that no test comes too late.
_LAST, _EVERY = 6000, 100


class Training:
    """A monitored training of which every task can be started anywhere. ``mode`` is "monitored" or "sync"."""

    def __init__(
        self, network: Network, tmp_path: Path, workers: int, mode: str = "monitored", **settings: str
    ) -> None:
        self._mode = mode
        self.directory = tmp_path / "model"
        self.directory.mkdir()
        jobs = {"ps": [0], "worker": list(range(1, workers + 1))}
        self.cluster = Cluster(network, jobs, {**keys_in(tmp_path), **settings}, _TRAINING)

    def start(self, host: int, job: str, index: int) -> Lines:
        options = (self.directory, self._mode, _LAST, _EVERY)
        return self.cluster.start_on(host, self.cluster.spec, job, index, *options)

    def go(self) -> None:
        """Lets the workers come to the end."""
        (self.directory / "go").touch()
