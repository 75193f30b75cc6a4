"""How a step's cost grows with variables, ps, workers, bytes and ops, beside real TensorFlow.

    python benchmarks/growth.py [--rounds 3] [--oracle PYTHON] [--out FOLDER] [SERIES …]

Prints a table with the slope of each series: the exponent p of cost ~ size^p between its last two points, 1 where the
cost is proportional. With ``--out`` it also writes a plot (SVG, logarithmic axes) per series. Each point is measured in
a process of its own, on both targets in turn; the figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from clusters import between_graph, cluster_of, load, median
from models import chain, sum_of_squares
from run import run_case


def step_over_variables(target: str, variables: int) -> float:
    """A step that updates small variables on 4 ps."""
    return _step_of_many(target, 4, variables)


def step_over_ps(target: str, ps: int) -> float:
    """A step that updates one small variable on each ps."""
    return _step_of_many(target, ps, ps)


def _step_of_many(target: str, ps: int, variables: int) -> float:
    with cluster_of(target, ps, 1, tasks_per_process=max(1, ps // 4)) as (tf, server, _):
        with tf.device(tf.train.replica_device_setter(ps_tasks=ps, worker_device="/job:worker/task:0")):
            train = sum_of_squares(tf, variables)
        session = tf.Session(server.target)
        session.run(tf.global_variables_initializer())
        return median(lambda: session.run(train), max(5, 2000 // variables), 2)


def step_over_workers(target: str, workers: int) -> float:
    """The time between two updates of asynchronous training, 784-100-10 on one ps."""
    return between_graph(target, 1, workers) / 1e6


def pull_over_bytes(target: str, size: int) -> float:
    """Reading a variable of so many bytes from a ps."""
    with cluster_of(target, 1, 1) as (tf, server, _):
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(tf.zeros([size // 4]), name="v")
        with tf.device("/job:worker/task:0"):
            pulled = tf.identity(v)
        session = tf.Session(server.target)
        session.run(v.initializer)
        return median(lambda: session.run(pulled.op), 5 if size > 1 << 25 else 50, 3)


def run_over_ops(target: str, ops: int) -> float:
    """A chain of dependent scalar ops in one process."""
    tf = load(target)
    x, y = chain(tf, ops)
    with tf.Session() as session:
        return median(lambda: session.run(y, {x: np.float32(1)}), max(5, 20_000 // ops), 2)


Series = tuple[Callable[[str, int], float], list[int]]
SERIES: dict[str, Series] = {
    "variables": (step_over_variables, [10, 100, 1_000, 10_000]),
    "ps": (step_over_ps, [1, 4, 16, 64]),
    "workers": (step_over_workers, [1, 2, 4, 8, 16]),
    "bytes": (pull_over_bytes, [1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30]),
    "ops": (run_over_ops, [100, 1_000, 10_000, 100_000]),
}


def slope(sizes: list[int], seconds: list[float]) -> float:
    """The exponent between the last two points."""
    return math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])


def plot(name: str, sizes: list[int], curves: dict[str, list[float]]) -> str:
    """The curves over the sizes, both axes logarithmic, as SVG."""
    width, height, left, bottom = 480, 300, 70, 40
    lowest = math.floor(math.log10(min(min(values) for values in curves.values())))
    highest = math.ceil(math.log10(max(max(values) for values in curves.values())))

    def place(size: float, value: float) -> tuple[float, float]:
        across = math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])
        up = (math.log10(value) - lowest) / (highest - lowest)
        return left + across * (width - left - 20), (height - bottom) * (1 - up) + 10 * up

    parts = [f'<text x="{width / 2}" y="{height - 5}" text-anchor="middle">{name}</text>']
    for power in range(lowest, highest + 1):
        _, y = place(sizes[0], 10.0**power)
        parts.append(f'<path d="M{left} {y:.0f}H{width - 20}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{_seconds(10.0**power)}</text>')
    for size in sizes:
        x, _ = place(size, 10.0**lowest)
        parts.append(f'<text x="{x:.0f}" y="{height - bottom + 16}" text-anchor="middle">{size:,}</text>')
    for colour, (target, values) in zip(("#06c", "#c60"), curves.items()):
        points = [place(size, value) for size, value in zip(sizes, values)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        x, y = points[-1]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x}" y="{y - 6:.0f}" text-anchor="end" fill="{colour}">{target}</text>')
    frame = f'width="{width}" height="{height}" font-family="sans-serif" font-size="11"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>{"".join(parts)}</svg>\n'


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= 0.999 * scale:
            return f"{value / scale:g} {unit}"
    return f"{value * 1e6:g} us"


def measure_series(name: str, oracle: str, rounds: int, out: Path | None) -> None:
    """Prints the table of one series and writes its plot."""
    sizes = SERIES[name][1]
    curves: dict[str, list[float]] = {"tfmini": [], "TensorFlow": []}
    for size in sizes:
        figures: dict[str, list[float]] = {target: [] for target in curves}
        for _ in range(rounds):
            for target, python in (("tfmini", sys.executable), ("TensorFlow", oracle)):
                command = [python, __file__, "--point", target.lower(), name, str(size)]
                figures[target].append(run_case(command, f"{name} {size} on {target}")["value"])
        a, b = (statistics.median(figures[target]) for target in curves)
        curves["tfmini"].append(a)
        curves["TensorFlow"].append(b)
        print(f"| {name} | {size:,} | {_rounded(a)} | {_rounded(b)} | {a / b:.3f} |", flush=True)
    slopes = " | ".join(f"{slope(sizes, values):.2f}" for values in curves.values())
    print(f"| {name} | slope | {slopes} | |", flush=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"growth-{name}.svg").write_text(plot(name, sizes, curves))


def _rounded(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--oracle", default=os.environ.get("TFMINI_ORACLE", ""))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("series", nargs="*", metavar="SERIES", help=", ".join(SERIES))
    args = parser.parse_args()
    if args.point:
        target, name, size = args.point
        print(json.dumps({"value": SERIES[name][0](target, int(size))}), flush=True)
        os._exit(0)  # TensorFlow's servers cannot be stopped
    if not args.oracle:
        parser.error("no TensorFlow: give --oracle PYTHON or set TFMINI_ORACLE")
    if unknown := set(args.series) - set(SERIES):
        parser.error(f"unknown series {sorted(unknown)}; there are {', '.join(SERIES)}")
    print("| of | size | tfmini | TensorFlow | ratio |\n|---|---:|---:|---:|---:|")
    for name in args.series or SERIES:
        measure_series(name, args.oracle, args.rounds, args.out)


if __name__ == "__main__":
    main()
