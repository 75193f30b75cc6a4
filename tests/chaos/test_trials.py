"""A slice of the trials; `tests.chaos.trials` runs as many as wanted."""

from __future__ import annotations

import pytest

from tests.chaos.trials import FAULTS, MODES, plan, run_trial

pytestmark = pytest.mark.cluster


def test_a_seed_gives_one_plan_and_many_seeds_all_kinds() -> None:
    plans = [plan(seed) for seed in range(200)]
    assert plans == [plan(seed) for seed in range(200)]
    assert {p.mode for p in plans} == set(MODES)
    assert {fault.kind for p in plans for fault in p.faults} == set(FAULTS)
    assert {fault.victim.job for p in plans for fault in p.faults} == {"ps", "worker"}


@pytest.mark.parametrize("seed", [2, 3, 5])  # asynchronous, synchronous, all-reduce
def test_training_ends_as_promised(seed: int) -> None:
    run_trial(seed)
