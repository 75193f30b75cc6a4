"""Two checkouts of tfmini side by side: what a change has made faster or slower.

    git worktree add /tmp/before HEAD~3
    python benchmarks/pairs.py /tmp/before [--rounds 7] [CASE …]

Runs the benchmark cases of this checkout with the tfmini of the other one and with its own, in turn and in changing
order. The ratios are this checkout's figures to the other's, below 1 where this one is better: that of the medians,
that of the best rounds, and the quartiles of the single rounds' ratios. A change of less than the quartiles' width is
no change.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from run import GOALS, HERE, measure


def compare(case: str, before: Path, rounds: int) -> str:
    """A row of the table."""
    figures: dict[Path, list[float]] = {before: [], HERE.parent: []}
    unit = ""
    for number in range(rounds):
        for checkout in sorted(figures, reverse=bool(number % 2)):
            value, unit = measure(sys.executable, "tfmini", case, checkout)
            figures[checkout].append(value)
    old, new = figures[before], figures[HERE.parent]
    ratios = [b / a for a, b in zip(old, new)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    middle = statistics.median(new) / statistics.median(old)
    texts = [f"{statistics.median(each):,.1f} {unit}" for each in (old, new)]
    return f"| {case} | {texts[0]} | {texts[1]} | {middle:.3f} | {min(new) / min(old):.3f} | {low:.2f} to {high:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_intermixed_args()
    if not (args.before / "tfmini" / "__init__.py").exists():
        parser.error(f"{args.before} is no checkout of tfmini")
    if unknown := set(args.cases) - set(GOALS):
        parser.error(f"unknown cases {sorted(unknown)}; there are {', '.join(GOALS)}")
    if args.rounds < 2:
        parser.error("--rounds must be at least 2")
    print("| case | before | now | ratio | of the best | quartiles |\n|---|---:|---:|---:|---:|---:|")
    for case in args.cases or GOALS:
        print(compare(case, args.before.resolve(), args.rounds), flush=True)


if __name__ == "__main__":
    main()
