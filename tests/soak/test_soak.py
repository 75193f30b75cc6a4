"""A short soak; `tests.soak.soak` runs a million steps."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.soak.soak import SAMPLES, Sample, plot, soak, verdict


def _samples(memory: list[float]) -> list[Sample]:
    return [Sample(i, job, value, 5, 30) for i, value in enumerate(memory) for job in ("ps", "worker")]


def test_growth_after_the_first_tenth_is_told() -> None:
    assert not any("GROWN" in line for line in verdict(_samples([40.0] * 10 + [60.0] * 90)))
    grown = [line for line in verdict(_samples([60.0 + i for i in range(100)])) if "GROWN" in line]
    assert [line.split()[:2] for line in grown] == [["ps", "memory"], ["worker", "memory"]]


@pytest.mark.cluster
def test_tasks_keep_no_thread_and_no_descriptor_of_clients() -> None:
    samples = soak(steps=3_000, idle_clients=2)
    assert len(samples) == 2 * SAMPLES
    lines = verdict(samples)
    assert not any("GROWN" in line for line in lines if "memory" not in line), lines  # memory settles later
    assert len(ElementTree.fromstring(plot(samples)).findall(".//{*}polyline")) == 6
