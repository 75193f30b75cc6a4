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

HERE = Path(__file__).resolve().parent
# case -> the largest ratio of tfmini's figure to TensorFlow's that the design allows (section 5).
BUDGETS = {
    "import": 1 / 10,
    "build_20000_ops": 1 / 20,
    "first_run_20000_ops": 1 / 4,
    "run_scalar_op": 1 / 8,
    "run_20000_dependent_ops": 2.5,
    "local_mlp_step": 1.0,
    "local_cnn_step": 1.2,
    "remote_op": 1 / 4,
    "ps_training_step": 1 / 3,
    "pull_64_mb": 1 / 5,
    "pull_64_mb_over_tcp": 1 / 2,
    "ps_memory_64_mb": 1 / 4,
    "global_step_1_ps_2_workers": 1 / 2,
    "global_step_2_ps_4_workers": 1 / 2,
    "while_loop_1000": 1.0,
    "unrolled_lstm_step": 1.2,
    "dynamic_rnn_step": 1.5,
    "remote_queue": 1 / 4,
    "save_500_mb": 1.5,
    "restore_500_mb": 1.5,
}


def measure(python: str, target: str, case: str) -> tuple[float, str]:
    """One figure from a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # import times are those of an installed package
    done = subprocess.run(
        [python, str(HERE / "cases.py"), "--target", target, case],
        env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{case} on {target} failed:\n{done.stderr[-2000:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return answer["value"], answer["unit"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--oracle", default=os.environ.get("TFMINI_ORACLE", ""))
    parser.add_argument("cases", nargs="*", default=[])
    args = parser.parse_args()
    unknown = set(args.cases) - set(BUDGETS)
    if unknown:
        parser.error(f"unknown cases {sorted(unknown)}; there are {', '.join(BUDGETS)}")
    if not args.oracle:
        parser.error("no TensorFlow: give --oracle PYTHON or set TFMINI_ORACLE")
    print("| case | tfmini | TensorFlow | ratio | budget | met |\n|---|---:|---:|---:|---:|---|")
    for case in args.cases or BUDGETS:
        ours, theirs = [], []
        for _ in range(args.rounds):
            value, unit = measure(sys.executable, "tfmini", case)
            ours.append(value)
            theirs.append(measure(args.oracle, "tensorflow", case)[0])
        a, b = statistics.median(ours), statistics.median(theirs)
        met = "yes" if a / b <= BUDGETS[case] else "NO"
        row = f"| {case} | {a:,.1f} {unit} | {b:,.1f} {unit} | {a / b:.3f} | {BUDGETS[case]:.3f} | {met} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
