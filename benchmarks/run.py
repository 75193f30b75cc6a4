"""Runs the benchmark cases on tfmini and on real TensorFlow in turn and prints ratios.

    python benchmarks/run.py [--rounds 3] [--oracle PYTHON] [--torch PYTHON] [CASE …]

``--oracle`` or ``TFMINI_ORACLE`` names TensorFlow's Python. Each figure is the median of the rounds. The two
targets alternate, so that other load on the machine affects both. The rows of all-reduces are beside gloo, of the torch
whose Python ``--torch`` or ``TFMINI_TORCH`` names; without one they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import all_reduce

HERE = Path(__file__).resolve().parent
# case -> the largest ratio of tfmini's figure to TensorFlow's that is the goal.
GOALS = {
    "import": 0.06,
    "build_20000_ops": 0.05,
    "first_run_20000_ops": 0.1,
    "run_scalar_op": 1 / 8,
    "run_20000_dependent_ops": 2.5,
    "mlp_1024_step": 0.75,
    "mlp_100_step": 0.6,
    "cnn_step": 1.0,
    "two_devices_step": 1.0,
    "sparse_embedding_step": 0.35,
    "unrolled_lstm_step": 0.8,
    "dynamic_rnn_step": 1.0,
    "while_loop_1000": 1.0,
    "remote_op": 1 / 4,
    "remote_queue": 1 / 4,
    "ps_training_step": 1 / 3,
    "global_step_1_ps_2_workers": 0.25,
    "global_step_2_ps_4_workers": 0.25,
    "sync_step_1_ps_2_workers": 0.25,
    "push_64_mb": 0.12,
    "pull_64_mb": 0.09,
    "pull_64_mb_over_tcp": 1 / 2,
    "ps_memory_64_mb": 0.125,
    "worker_memory_64_mb": 0.16,
    "step_over_64_ps": 0.15,
    "step_of_10000_variables": 0.06,
    "first_step_of_10000_variables": 0.15,
    "save_500_mb": 1.5,
    "restore_500_mb": 1.5,
}

LARGE = 64 << 20  # bytes that each rank reduces
# case -> target of `all_reduce`, ranks, and the largest ratio to gloo's time that is the goal
REDUCTIONS = {
    "all_reduce_shared_2_ranks": ("tfmini", 2, 0.25),
    "all_reduce_shared_4_ranks": ("tfmini", 4, 0.25),
    "all_reduce_tcp_2_ranks": ("tfmini-tcp", 2, 0.7),
    "all_reduce_tcp_4_ranks": ("tfmini-tcp", 4, 0.7),
}
TCP_MEMORY_MB = 70  # the goal for what a rank over tcp grows by


def run_case(command: list[str], name: str, checkout: Path = HERE.parent) -> dict[str, Any]:
    """The JSON object that a case prints, from a process of its own.

    Args:
      checkout: the folder that has the tfmini to measure.
    """
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # for old builds; they halve the speed of a current one
        env.pop(variable, None)
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # import times are those of an installed package
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def measure(python: str, target: str, case: str, checkout: Path = HERE.parent) -> tuple[float, str]:
    """One figure from a process of its own."""
    answer = run_case([python, str(HERE / "cases.py"), "--target", target, case], f"{case} on {target}", checkout)
    return answer["value"], answer["unit"]


def compare(case: str, oracle: str, rounds: int) -> str:
    """A row of the table: tfmini beside TensorFlow."""
    ours, theirs = [], []
    for _ in range(rounds):
        value, unit = measure(sys.executable, "tfmini", case)
        ours.append(value)
        theirs.append(measure(oracle, "tensorflow", case)[0])
    a, b = statistics.median(ours), statistics.median(theirs)
    return _row(case, f"{a:,.1f} {unit}", f"{b:,.1f} {unit}", a / b, GOALS[case])


def compare_with_gloo(case: str, torch: str, rounds: int) -> str:
    """A row, or two: an all-reduce beside gloo's, and over tcp the memory that it takes."""
    target, ranks, goal = REDUCTIONS[case]
    found = all_reduce.measure({target: sys.executable, "gloo": torch}, ranks, LARGE, max(7, rounds))
    ours, theirs = (found[name] for name in (target, "gloo"))
    texts = [f"{1e3 * statistics.median(each.seconds):,.1f} ms" for each in (ours, theirs)]
    rows = [_row(case, *texts, all_reduce.ratio(ours, theirs), goal)]
    if target == "tfmini-tcp":
        met = "yes" if ours.grown_mb <= TCP_MEMORY_MB else "NO"
        rows.append(
            f"| {case}_memory | {ours.grown_mb:.0f} MB | {theirs.grown_mb:.0f} MB | | {TCP_MEMORY_MB} MB | {met} |"
        )
    return "\n".join(rows)


def _row(case: str, ours: str, theirs: str, ratio: float, goal: float) -> str:
    return f"| {case} | {ours} | {theirs} | {ratio:.3f} | {goal:.3f} | {'yes' if ratio <= goal else 'NO'} |"


_KERNEL = """
import numpy, threadpoolctl
for each in threadpoolctl.threadpool_info():
    if "architecture" in each:
        print(f"numpy multiplies with {each['internal_api']} {each['version']}, {each['architecture']}.")
"""


def kernels() -> str:
    """What multiplies in numpy here: a kernel for another processor halves the speed of products."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    return subprocess.run([sys.executable, "-c", _KERNEL], env=env, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--oracle", default=os.environ.get("TFMINI_ORACLE", ""))
    parser.add_argument("--torch", default=os.environ.get("TFMINI_TORCH", ""))
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_intermixed_args()
    unknown = set(args.cases) - set(GOALS) - set(REDUCTIONS)
    if unknown:
        parser.error(f"unknown cases {sorted(unknown)}; there are {', '.join([*GOALS, *REDUCTIONS])}")
    if not args.oracle:
        parser.error("no TensorFlow: give --oracle PYTHON or set TFMINI_ORACLE")
    chosen = args.cases or [*GOALS, *REDUCTIONS]
    print(kernels())
    print("| case | tfmini | other | ratio | goal | met |\n|---|---:|---:|---:|---:|---|")
    for case in chosen:
        if case in GOALS:
            print(compare(case, args.oracle, args.rounds), flush=True)
        elif args.torch:
            print(compare_with_gloo(case, args.torch, args.rounds), flush=True)


if __name__ == "__main__":
    main()
