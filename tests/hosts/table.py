"""What tasks on hosts of their own put on a wire of 1 Gbit/s, as a table: ``python -m tests.hosts.table``.

Compare only the shares of the link and the ratios of bytes; the times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.hosts.cluster import Cluster, Lines, keys_in
from tests.hosts.network import Network, why_not

_STEPS = 30
_OPEN = {"TFMINI_INSECURE": "1"}
_ROOT = Path(__file__).parents[2]


class Example(NamedTuple):
    """An example with tasks on each host.

    Attributes:
      jobs: job -> the hosts of its tasks.
      result: what the chief prints of its result, with one group for the number.
      least, most: the result is between them.
      unit: of the result.
    """

    jobs: dict[str, list[int]]
    result: str = r"accuracy ([\d.]+) %"
    least: float = 95.0
    most: float = 100.0
    unit: str = " %"

    @property
    def wanted(self) -> str:
        return f"{self.least:g} to {self.most:g}{self.unit}"


_PS_AND_WORKERS, _WORKERS = {"ps": [0], "worker": [1, 2, 3]}, {"worker": [0, 1, 2, 3]}
_TWO_PS = {"ps": [0, 1], "worker": [0, 1, 2, 3]}  # two hosts have two tasks each
EXAMPLES = {
    "digits_async": Example(_PS_AND_WORKERS),
    "digits_sync": Example(_PS_AND_WORKERS),
    "digits_allreduce": Example(_WORKERS),
    "digits_local": Example(_WORKERS),
    "digits_numpy": Example(_PS_AND_WORKERS, r"([\d.]+) of the test digits", 0.93, 1, ""),
    "factors_numpy": Example(_PS_AND_WORKERS, r"error ([\d.]+)", 0, 0.2, ""),
    "wide_and_deep": Example(_TWO_PS, r"area under the curve: ([\d.]+)", 0.6, 1, ""),
}
_EXAMPLE_S = 300.0
_BITS = {"mbit": 1e6, "gbit": 1e9}


Row = tuple[str, str, str]  # what was measured, the result, what it should be


def rows(network: Network, keys: Mapping[str, str], rate: str, megabytes: int, pulls: int) -> Iterator[Row]:
    """Measures one after the other."""
    for name, settings in (("encrypted", keys), ("open", _OPEN)):
        yield from _pull(network, settings, name, rate, megabytes, pulls)
        network.end()
    yield from _wire(network, keys)
    network.end()
    yield from _cut(network, keys)
    network.end()
    yield from _examples(network, keys)


def _pull(
    network: Network, settings: Mapping[str, str], name: str, rate: str, megabytes: int, pulls: int
) -> Iterator[Row]:
    cluster = Cluster(network, {"ps": [0], "worker": [1]}, settings)
    cluster.start("ps", 0, "serve")
    worker = cluster.start("worker", 0, "pull", megabytes, pulls)
    seconds = sorted(float(worker.until("pulled")[0]) for _ in range(pulls))
    link = float(rate[:-4]) * _BITS[rate[-4:]]
    for kind, taken in (("median", seconds[len(seconds) // 2]), ("best", seconds[0])):
        share = f"{megabytes * (8 << 20) / taken / link:.3f} of the link"
        yield f"pull of {megabytes} MB over {rate}/s, {name}, {kind} of {pulls}", share, "0.9 or more"


def _wire(network: Network, settings: Mapping[str, str]) -> Iterator[Row]:
    cluster = Cluster(network, {"ps": [0], "worker": [1, 2]}, settings)
    cluster.start("ps", 0, "serve")
    workers = [cluster.start("worker", i, "train", _STEPS) for i in range(2)]
    expected = sum(int(worker.until("wire")[0]) for worker in workers) * _STEPS
    before = network[0].bytes()
    for worker in workers:
        worker.tell()
    for worker in workers:
        worker.until("done")
    measured = sum(network[0].bytes()) - sum(before)
    yield "bytes on the interface of the ps, by those of `tfmini inspect`", f"{measured / expected:.3f}", "0.95 to 1.05"


def _cut(network: Network, settings: Mapping[str, str]) -> Iterator[Row]:
    cluster = Cluster(network, {"ps": [0], "worker": [1]}, settings)
    cluster.start("ps", 0, "serve")
    worker = cluster.start("worker", 0, "step")
    worker.until("step")
    network[0].cut()
    cut_at = time.monotonic()
    kind = worker.until("lost")[1]
    yield f"seconds from the cut of a link to the {kind}", f"{time.monotonic() - cut_at:.1f}", "4 to 5.3"
    network[0].mend()


def _examples(network: Network, settings: Mapping[str, str]) -> Iterator[Row]:
    """The examples, unchanged, on four hosts."""
    for name, example in EXAMPLES.items():
        found = train_example(network, settings, name)
        yield f"result of `examples/{name}.py` on four hosts", f"{found}{example.unit}", example.wanted
        network.end()


def train_example(network: Network, settings: Mapping[str, str], name: str) -> float:
    """Runs an example by the command of docs/guides/clusters.md on each host; returns the chief's result."""
    jobs = EXAMPLES[name].jobs
    cluster = Cluster(network, jobs, settings)
    script = [sys.executable, "-m", "tfmini", "run", str(_ROOT / "examples" / f"{name}.py")]
    tasks = []
    for job, hosts in jobs.items():
        for index, host in enumerate(hosts):
            role = {"cluster": cluster.spec, "task": {"type": job, "index": index}}
            environment = {**cluster.environment, "TF_CONFIG": json.dumps(role)}
            tasks.append(Lines(network[host].start(script, environment), f"{job} {index} of {name}"))
    chief = tasks[len(jobs.get("ps", []))]
    chief.process.wait(_EXAMPLE_S)
    (found,) = re.findall(EXAMPLES[name].result, chief.all())
    return float(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="1gbit", help="of each link")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--pulls", type=int, default=15)
    options = parser.parse_args()
    if why_not():
        print(f"No hosts: {why_not()}.", file=sys.stderr)
        return 1
    print("| what | measured | wanted |\n|---|---:|---|", flush=True)
    with Network(4, rate=options.rate) as network, tempfile.TemporaryDirectory() as directory:
        keys = keys_in(Path(directory))
        for row in rows(network, keys, options.rate, options.megabytes, options.pulls):
            print("| " + " | ".join(row) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
