"""The gain of `tfmini place`, predicted and measured: two ps and two workers on hosts of their own, with slow links.

    python benchmarks/placements.py [--profile PROFILE] [--rate 100mbit] [--steps 20] [--rounds 3]

The hosts are network namespaces (`tests/hosts/network.py`): it needs root and iproute2. For each skewed model it
proposes a plan, then trains under round robin, greedy by bytes and the plan, in turn, and prints a table for
benchmarks/README.md. PROFILE is a file of `tfmini calibrate`; without one it calibrates first, for four minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import tfmini as tf  # noqa: E402
from tests.hosts.cluster import PORT, Lines, keys_in  # noqa: E402
from tests.hosts.network import Network, why_not  # noqa: E402
from tfmini.show.planning.models import Models, Script  # noqa: E402
from tfmini.show.planning.search import Proposal, propose  # noqa: E402
from tfmini.show.simulation.calibration import calibrate  # noqa: E402
from tfmini.show.simulation.prediction import Topology  # noqa: E402
from tfmini.show.simulation.profile import Profile, read_profile  # noqa: E402

TRAINING = Path(__file__).with_name("placed_training.py")
MODELS = ("embedding", "vgg")
PS, WORKERS = 2, 2
OTHERS = {"round robin": "round_robin", "greedy by bytes": "greedy_by_bytes"}
_LIMIT_S = 300.0


def proposed(model: str, profile: Profile, rate: str, file: Path) -> Proposal:
    """Writes the plan of a model."""
    script = Script(
        str(TRAINING), {"ps": list(range(PS)), "worker": list(range(WORKERS))}, arguments=[model, "round_robin", "1"]
    )

    def cluster(tasks: list[str]) -> Topology:
        return Topology.on_own_machines(tasks, profile, rate)

    found = propose(Models(script, profile, cluster, WORKERS, [float("inf")] * PS), described={})
    found.plan.save(file)
    return found


def measured(network: Network, keys: dict[str, str], model: str, placement: str, steps: int) -> float:
    """The median seconds of a step, while all workers train."""
    spec = {
        "ps": [f"{network[i].address}:{PORT}" for i in range(PS)],
        "worker": [f"{network[PS + i].address}:{PORT}" for i in range(WORKERS)],
    }
    try:
        tasks = []
        for host, (job, index) in enumerate([(job, i) for job, rows in spec.items() for i in range(len(rows))]):
            config = json.dumps({"cluster": spec, "task": {"type": job, "index": index}})
            environment = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "TF_CONFIG": config, **keys}
            command = [sys.executable, str(TRAINING), model, placement, str(steps)]
            tasks.append(Lines(network[host].start(command, environment, stdin=-1), f"{job} {index}"))
        for task in tasks:
            task.until("ready", _LIMIT_S)
        for task in tasks[PS:]:
            task.tell()
        return statistics.median(float(s) for task in tasks[PS:] for s in task.until("steps", _LIMIT_S))
    finally:
        network.end()


def compared(network: Network, model: str, profile: Profile, arguments: argparse.Namespace, folder: Path) -> None:
    """Prints the rows of one model."""
    file = folder / f"{model}.json"
    found = proposed(model, profile, arguments.rate, file)
    runs: dict[str, list[float]] = {name: [] for name in (*OTHERS, "plan")}
    keys = keys_in(folder / model)
    for _ in range(arguments.rounds):
        for name, seconds in runs.items():
            seconds.append(measured(network, keys, model, OTHERS.get(name, str(file)), arguments.steps))
    medians = {name: statistics.median(seconds) for name, seconds in runs.items()}
    for name, step in medians.items():
        predicted = found.others.get(name, found.step_s) or found.step_s
        gains = f"{predicted / found.step_s:.2f} | {step / medians['plan']:.2f}"
        spread = f"{1e3 * min(runs[name]):.0f} to {1e3 * max(runs[name]):.0f}"
        print(f"| {model} | {name} | {1e3 * predicted:.0f} | {1e3 * step:.0f} ({spread}) | {gains} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="default: calibrate now")
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=MODELS, action="append", help="default: all")
    arguments = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    profile = read_profile(arguments.profile) if arguments.profile else calibrate(tf, "here")
    print("| model | placement | predicted ms | measured ms (runs) | gain of the plan, predicted | measured |")
    print("|---|---|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder, Network(PS + WORKERS, rate=arguments.rate) as network:
        for model in arguments.model or MODELS:
            compared(network, model, profile, arguments, Path(folder))


if __name__ == "__main__":
    main()
