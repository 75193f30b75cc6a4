"""Runs the benchmark cases on tfmini and on real TensorFlow in turn and prints ratios.

    python benchmarks/run.py [--rounds 3] [--oracle PYTHON] [CASE …]

``--oracle`` or ``TFMINI_ORACLE`` names TensorFlow's Python. Each figure is the median of the rounds. The two
targets alternate, so that other load on the machine affects both.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--oracle", default=os.environ.get("TFMINI_ORACLE", ""))
    parser.add_argument("cases", nargs="*", default=[])
    args = parser.parse_args()
    unknown = set(args.cases) - set(GOALS)
    if unknown:
        parser.error(f"unknown cases {sorted(unknown)}; there are {', '.join(GOALS)}")
    if not args.oracle:
        parser.error("no TensorFlow: give --oracle PYTHON or set TFMINI_ORACLE")
    print("| case | tfmini | TensorFlow | ratio | goal | met |\n|---|---:|---:|---:|---:|---|")
    for case in args.cases or GOALS:
        ours, theirs = [], []
        for _ in range(args.rounds):
            value, unit = measure(sys.executable, "tfmini", case)
            ours.append(value)
            theirs.append(measure(args.oracle, "tensorflow", case)[0])
        a, b = statistics.median(ours), statistics.median(theirs)
        met = "yes" if a / b <= GOALS[case] else "NO"
        row = f"| {case} | {a:,.1f} {unit} | {b:,.1f} {unit} | {a / b:.3f} | {GOALS[case]:.3f} | {met} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
