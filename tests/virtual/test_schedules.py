"""A slice of the schedules; `tests.virtual.schedules` runs as many as wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.virtual.counts import Account
from tests.virtual.plans import DELAYS, MODES, plan
from tests.virtual.schedules import outcome, run, run_schedule
from tests.virtual.tally import Tally
from tests.virtual.world import ScheduleError, named_processes
from tfmini.testing import Kill, Sever, Stop

_PRINT = """
import hashlib, logging, sys
from tests.virtual.schedules import run_schedule
logging.disable(logging.CRITICAL)
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(seed, hashlib.sha256(repr(run_schedule(seed)).encode()).hexdigest())
"""


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_clusters_end_as_promised(first: int) -> None:
    for seed in range(first, first + 40):
        run_schedule(seed)


# A server that stops, a step repeated after the end of its run, tensors sent by a dead link to the incarnation before,
# a chief killed while it ends its run.
@pytest.mark.parametrize("seed", [1004915, 2017507, 2020574, 5014202])
def test_what_once_failed_ends_as_promised(seed: int) -> None:
    """They replay what they found as long as `plans` draws the same from a seed."""
    run_schedule(seed)


def test_a_seed_gives_one_plan_and_many_seeds_all_kinds() -> None:
    plans = [plan(seed) for seed in range(300)]
    assert plans == [plan(seed) for seed in range(300)]
    assert {p.mode for p in plans} == set(MODES) and {p.delay_s for p in plans} == set(DELAYS)
    assert {type(fault) for p in plans for fault in p.faults} == {Kill, Stop, Sever}
    assert any(isinstance(fault, Kill) and fault.gently for p in plans for fault in p.faults)


def test_a_schedule_repeats_exactly_in_another_process() -> None:
    """The order of sets differs between the processes, and so does what ran before."""
    histories = [_histories(first, 30, hash_seed) for first, hash_seed in ((0, "1"), (20, "2"))]
    assert len(histories[1]) == 10 and histories[0][20:] == histories[1]


def _histories(first: int, last: int, hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _PRINT, str(first), str(last)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_an_account_notices_lost_and_doubled_updates(value: float) -> None:
    account = Account()
    account.begin()  # its outcome stays unknown
    account.begin()
    with pytest.raises(ScheduleError):
        account.check(value, 1)
    account.check(2.0, 1)
    with pytest.raises(ScheduleError):
        account.check(1.0, 0)


def test_tasks_are_read_from_errors_by_name_and_by_address() -> None:
    text = "/job:ps/replica:0/task:1 was lost by /job:worker/replica:0/task:0; no answer from tcp://w2:2222"
    assert named_processes(text) == {"ps1", "w0", "w2"}


def test_a_long_run_goes_on_where_it_was_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "tally")
    command = ["--start", "7", "--mode", "all-reduce", "--every", "2", "--resume", path]
    assert run(["--count", "3", *command]) == 0
    assert run(["--count", "5", *command]) == 0
    whole = Tally.load(path, "--start 7 --mode all-reduce", 7)
    assert whole.count == 5 and [plan(n).mode for n in range(7, whole.next_seed)].count("all-reduce") == 5
    assert "4 of 5" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--mode queue"):
        Tally.load(path, "--start 7 --mode queue", 7)


def test_most_faults_come_before_the_programs_end() -> None:
    outcomes = [outcome(seed) for seed in range(60)]
    assert sum(each.met_fault for each in outcomes) > 40 and not any(each.failure for each in outcomes)
