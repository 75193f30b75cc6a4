"""Runs the benchmark cases on tfmini and on real TensorFlow in turn and prints ratios.

    python benchmarks/run.py [--rounds 3] [--oracle PYTHON] [--oracle-1x PYTHON] [--torch PYTHON] [CASE …]

``--oracle`` or ``TFMINI_ORACLE`` names a Python with TensorFlow 2, ``--oracle-1x`` or ``TFMINI_ORACLE_1X`` one with
1.15. Each figure is the median of the rounds, and a ratio is that to the better TensorFlow. The targets alternate, so
that other load on the machine affects all. The rows of all-reduces are beside gloo, of the torch whose Python
``--torch`` or ``TFMINI_TORCH`` names; without one they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import all_reduce

HERE = Path(__file__).resolve().parent
# case -> the largest ratio of tfmini's figure to that of the better TensorFlow that is the goal.
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
    "sparse_embedding_step": 0.45,
    "unrolled_lstm_step": 0.8,
    "dynamic_rnn_step": 1.0,
    "while_loop_1000": 1.0,
    "remote_op": 0.09,
    "remote_queue": 1 / 4,
    "ps_training_step": 0.27,
    "global_step_1_ps_2_workers": 0.27,
    "global_step_2_ps_4_workers": 0.28,
    "sync_step_1_ps_2_workers": 0.3,
    "pull_4_kb": 0.13,
    "push_4_kb": 0.13,
    "pull_1_mb": 0.12,
    "push_1_mb": 0.12,
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


def compare(case: str, oracles: Sequence[str], rounds: int) -> str:
    """A row of the table: tfmini beside the TensorFlow of each Python."""
    found: list[list[float]] = [[] for _ in range(1 + len(oracles))]
    for _ in range(rounds):
        value, unit = measure(sys.executable, "tfmini", case)
        found[0].append(value)
        for figures, oracle in zip(found[1:], oracles, strict=True):
            figures.append(measure(oracle, "tensorflow", case)[0])
    ours, *theirs = map(statistics.median, found)
    texts = [f"{value:,.1f} {unit}" for value in (ours, *theirs)]
    return _row([case, *texts], ours / min(theirs), GOALS[case])


def compare_with_gloo(case: str, torch: str, rounds: int) -> str:
    """A row, or two: an all-reduce beside gloo's, and over tcp the memory that it takes."""
    target, ranks, goal = REDUCTIONS[case]
    found = all_reduce.measure({target: sys.executable, "gloo": torch}, ranks, LARGE, max(7, rounds))
    ours, theirs = (found[name] for name in (target, "gloo"))
    texts = [f"{1e3 * statistics.median(each.seconds):,.1f} ms" for each in (ours, theirs)]
    rows = [_row([case, *texts], all_reduce.ratio(ours, theirs), goal)]
    if target == "tfmini-tcp":
        met = "yes" if ours.grown_mb <= TCP_MEMORY_MB else "NO"
        rows.append(
            f"| {case}_memory | {ours.grown_mb:.0f} MB | {theirs.grown_mb:.0f} MB | | {TCP_MEMORY_MB} MB | {met} |"
        )
    return "\n".join(rows)


def _row(cells: Sequence[str], ratio: float, goal: float) -> str:
    return f"| {' | '.join(cells)} | {ratio:.3f} | {goal:.3f} | {'yes' if ratio <= goal else 'NO'} |"


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
    parser.add_argument("--oracle-1x", default=os.environ.get("TFMINI_ORACLE_1X", ""))
    parser.add_argument("--torch", default=os.environ.get("TFMINI_TORCH", ""))
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_intermixed_args()
    unknown = set(args.cases) - set(GOALS) - set(REDUCTIONS)
    if unknown:
        parser.error(f"unknown cases {sorted(unknown)}; there are {', '.join([*GOALS, *REDUCTIONS])}")
    oracles = {"TensorFlow 1.15": args.oracle_1x, "TensorFlow 2": args.oracle}
    oracles = {name: python for name, python in oracles.items() if python}
    if not oracles:
        parser.error(
            "no TensorFlow: give --oracle PYTHON or --oracle-1x PYTHON, or set TFMINI_ORACLE or TFMINI_ORACLE_1X"
        )
    chosen = args.cases or [*GOALS, *REDUCTIONS]
    print(kernels())
    _print_table(
        oracles,
        [case for case in chosen if case in GOALS],
        lambda case: compare(case, [*oracles.values()], args.rounds),
    )
    reductions = [case for case in chosen if case in REDUCTIONS]
    if args.torch and reductions:
        _print_table(["gloo"], reductions, lambda case: compare_with_gloo(case, args.torch, args.rounds))


def _print_table(others: Iterable[str], cases: Iterable[str], row: Callable[[str], str]) -> None:
    names = ["case", "tfmini", *others, "ratio", "goal", "met"]
    print("", f"| {' | '.join(names)} |", "|---|" + "---:|" * (len(names) - 2) + "---|", sep="\n")
    for case in cases:
        print(row(case), flush=True)


if __name__ == "__main__":
    main()
