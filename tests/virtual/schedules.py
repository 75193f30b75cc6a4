"""Schedules: whole clusters in virtual time, with faults at seeded moments, and what must hold in each.

``python -m tests.virtual.schedules --count 100000 --jobs 2 --resume FILE`` runs that many and prints a table; the same
command continues a run that was ended. ``--only N`` replays the schedule of one seed, exactly, and prints its history.
`plans` says what a schedule varies. In each schedule

* every update is applied once if it was acknowledged, and at most once if it failed (`counts`),
* no element of a queue is lost, doubled or overtaken (`queues`),
* the ranks of an all-reduce get the same sum of the values that they gave (`all_reduces`),
* monitored training ends with the updates that its workers made, each once; in synchronous training, exactly
  (`trainings`),
* every call ends within `world.SETTLE_S` after the last fault,
* an error names a process that has failed, and without a fault there is no error (`world`).
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from tests.virtual.all_reduces import AllReduces
from tests.virtual.counts import Counts
from tests.virtual.plans import Plan, plan
from tests.virtual.queues import Queues
from tests.virtual.tally import Outcome, Tally
from tests.virtual.trainings import Training
from tests.virtual.world import ScheduleError, World
from tfmini.runtime.process import current_process

_MODES: dict[str, Callable[[Plan], Any]] = {
    "counts": Counts, "queue": Queues, "all-reduce": AllReduces, "async": Training, "sync": Training,
}  # fmt: skip


def run_schedule(seed: int) -> list[tuple[float, str, str, str]]:
    """Runs the schedule of a seed; returns its history.

    Raises:
      ScheduleError: saying what did not hold.
    """
    history: list[tuple[float, str, str, str]] = _run(seed).network.history
    return history


def _run(seed: int) -> World:
    drawn = plan(seed)
    schedule = _MODES[drawn.mode](drawn)
    world: World = schedule.world
    try:
        schedule.run()
    except ScheduleError as error:
        error.add_note(str(drawn))
        error.world = world  # type: ignore[attr-defined]
        raise
    return world


def outcome(seed: int) -> Outcome:
    """Runs the schedule of a seed; returns what came of it."""
    try:
        return Outcome(seed, plan(seed).mode, "", _run(seed).has_met_fault)
    except ScheduleError as error:
        world: World = error.world  # type: ignore[attr-defined]
        return Outcome(seed, plan(seed).mode, str(error) or "failed", world.has_met_fault)
    except Exception:  # noqa: BLE001 - the other schedules go on
        return Outcome(seed, plan(seed).mode, traceback.format_exc(), False)


def _outcomes(seeds: Iterable[int], jobs: int) -> Iterable[Outcome]:
    if jobs == 1:
        yield from map(outcome, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, logging.disable, [logging.CRITICAL]) as pool:
        yield from pool.imap(outcome, seeds, chunksize=20)  # in order, so that a run can be continued


def _in_virtual_time(record: logging.LogRecord) -> bool:
    """Adds the virtual time and the simulated process to a line of the log."""
    process = current_process()
    record.when, record.host = process.now(), getattr(process, "name", "")
    return True


def _replay(seed: int) -> int:
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(_in_virtual_time)
    handler.setFormatter(logging.Formatter("%(when)10.4f  %(host)4s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    failure = None
    try:
        history = run_schedule(seed)
    except ScheduleError as error:
        failure, history = error, error.world.network.history  # type: ignore[attr-defined]
    for when, event, source, target in history:
        print(f"{when:10.4f}  {source:>4} {'-> ' + target if target else '':7} {event}")
    print(plan(seed))
    print("ended as promised" if failure is None else f"FAILED: {failure}")
    return 0 if failure is None else 1


def _run_all(options: argparse.Namespace) -> int:
    """Runs the schedules that the arguments ask for, and prints failures, progress and a summary."""
    of = f"--start {options.start} --mode {options.mode or 'all'}"
    logging.disable(logging.CRITICAL)
    tally = Tally.load(options.resume, of, options.start) if options.resume else Tally(of, options.start)
    of_mode = (seed for seed in itertools.count(tally.next_seed) if options.mode in (None, plan(seed).mode))
    seeds = itertools.islice(of_mode, max(0, options.count - tally.count))
    began = time.perf_counter() - tally.seconds
    try:
        for found in _outcomes(seeds, options.jobs):
            tally.add(found)
            tally.seconds = time.perf_counter() - began
            if found.failure:
                print(f"{plan(found.seed)} -> FAILED: {found.failure}", flush=True)
            if tally.count % options.every == 0:
                print(tally.progress(options.count), flush=True)
                if options.resume:
                    tally.save(options.resume)
    finally:
        logging.disable(logging.NOTSET)
        if options.resume:
            tally.save(options.resume)
        print(tally.summary(), flush=True)
    return 1 if tally.failed else 0


def run(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="how many schedules")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--mode", choices=sorted(_MODES), help="only the schedules of this mode")
    parser.add_argument("--every", type=int, default=1000, help="schedules between two lines of progress")
    parser.add_argument(
        "--resume", metavar="FILE", help="where results are kept; a run goes on after those in the file"
    )
    parser.add_argument("--only", type=int, metavar="SEED", help="replay one schedule, with its history and its log")
    options = parser.parse_args(arguments)
    return _run_all(options) if options.only is None else _replay(options.only)


if __name__ == "__main__":
    sys.exit(run())
