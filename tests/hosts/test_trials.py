"""A slice of the trials of links; `tests.hosts.trials` runs as many as wanted."""

from __future__ import annotations

import pytest

from tests.hosts.cluster import thorough
from tests.hosts.network import Network
from tests.hosts.trials import FAULTS, MODES, plan, run_trial

pytestmark = pytest.mark.cluster


def test_a_seed_gives_one_plan_and_many_seeds_all_kinds() -> None:
    plans = [plan(seed) for seed in range(500)]
    assert plans == [plan(seed) for seed in range(500)]
    assert {(p.mode, p.fault, p.victim) for p in plans} >= {(m, f, v) for m in MODES for f in FAULTS for v in range(3)}


@thorough
def test_training_survives_the_loss_of_a_host(network: Network) -> None:
    seed = next(seed for seed in range(100) if plan(seed).mode == "sync" and plan(seed).fault == "lost host")
    run_trial(network, plan(seed))
