"""Schedules: whole clusters in virtual time, with faults at seeded moments, and what must hold in each.

``python -m tests.virtual.schedules --count 100000 --jobs 2`` runs that many and prints a table; ``--only N`` replays
the schedule of one seed, exactly, and prints its history. `plans` says what a schedule varies. In each schedule

* every update is applied once if it was acknowledged, and at most once if it failed (`counts`),
* no element of a queue is lost, doubled or overtaken (`queues`),
* the ranks of an all-reduce get the same sum of the values that they gave (`all_reduce`),
* every call ends within `world.SETTLE_S` after the last fault,
* an error names a process that has failed, and without a fault there is no error (`world`).
"""

from __future__ import annotations

import argparse
import collections
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.virtual.all_reduces import AllReduces
from tests.virtual.counts import Counts
from tests.virtual.plans import Plan, plan
from tests.virtual.queues import Queues
from tests.virtual.world import ScheduleError

_MODES: dict[str, Callable[[Plan], Any]] = {"counts": Counts, "queue": Queues, "all-reduce": AllReduces}


def run_schedule(seed: int) -> list[tuple[float, str, str, str]]:
    """Runs the schedule of a seed; returns its history.

    Raises:
      ScheduleError: saying what did not hold.
    """
    drawn = plan(seed)
    schedule = _MODES[drawn.mode](drawn)
    try:
        schedule.run()
    except ScheduleError as error:
        error.add_note(str(drawn))
        error.history = schedule.world.network.history  # type: ignore[attr-defined]
        raise
    history: list[tuple[float, str, str, str]] = schedule.world.network.history
    return history


def _outcome(seed: int) -> tuple[int, str, str]:
    logging.disable(logging.CRITICAL)
    try:
        run_schedule(seed)
    except ScheduleError as error:
        return seed, plan(seed).mode, str(error)
    return seed, plan(seed).mode, ""


def _outcomes(seeds: Iterable[int], jobs: int) -> Iterable[tuple[int, str, str]]:
    if jobs == 1:
        yield from map(_outcome, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_outcome, seeds, chunksize=20)


def _replay(seed: int) -> int:
    logging.basicConfig(level=logging.INFO)
    failure = None
    try:
        history = run_schedule(seed)
    except ScheduleError as error:
        failure, history = error, error.history  # type: ignore[attr-defined]
    for when, event, source, target in history:
        print(f"{when:10.4f}  {source:>4} {'-> ' + target if target else '':7} {event}")
    print(plan(seed))
    print("ended as promised" if failure is None else f"FAILED: {failure}")
    return 0 if failure is None else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--mode", choices=sorted(_MODES), help="only the schedules of this mode")
    options = parser.parse_args()
    if options.only is not None:
        return _replay(options.only)
    seeds = [n for n in range(options.seed, options.seed + options.count) if options.mode in (None, plan(n).mode)]
    results: collections.Counter[tuple[str, str]] = collections.Counter()
    failed, began = [], time.perf_counter()
    for seed, mode, failure in _outcomes(seeds, options.jobs):
        results[mode, "failed" if failure else "ended as promised"] += 1
        if failure:
            failed.append(seed)
            print(f"{plan(seed)} -> FAILED: {failure}", flush=True)
    for (mode, result), count in sorted(results.items()):
        print(f"{count:>7}  {mode}: {result}")
    seconds = time.perf_counter() - began
    print(f"failing seeds: {sorted(failed)}; {1e3 * seconds / max(1, len(seeds)):.1f} ms per schedule")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
