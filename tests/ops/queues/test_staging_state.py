"""Staging areas as state objects."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.fake_wait import FakeWait
from tfmini import errors
from tfmini.ops.queues.staging_state import MapStageState, StageState


def test_a_staging_area_keeps_its_memory_limit() -> None:
    area = StageState("s", 0, 16)
    area.put(FakeWait(), [np.zeros(2)])
    wait = FakeWait()
    area.put(wait, [np.zeros(1)])
    assert wait.is_pending
    area.empty()
    assert wait.value == ()
    with pytest.raises(errors.ResourceExhaustedError, match="combined size of '24' bytes"):
        area.put(FakeWait(), [np.zeros(3)])


def test_a_get_of_another_width_leaves_the_tuple() -> None:
    area = StageState("s", 0, 100)
    area.put(FakeWait(), [np.zeros(2)])
    wait = FakeWait()
    area.get(wait, 2)
    with pytest.raises(errors.InvalidArgumentError, match="Mismatch stage/unstage: 1 vs. 2"):
        _ = wait.value
    assert area.size() == 1 and area.bytes == 16


def test_a_map_area_whose_width_grows_keeps_its_older_tuples() -> None:
    area = MapStageState("m", 0, 0, 2, False)
    area.put(FakeWait(), 1, [0, 1], [np.float32(1), np.float32(2)])
    area.put(FakeWait(), 2, [0], [np.float32(3)])
    area.width = 3
    wait, beyond, late = FakeWait(), FakeWait(), FakeWait()
    area.put(late, 2, [1, 2], [np.float32(4), np.float32(5)])
    area.get(beyond, 1, [2], remove=False)
    area.get(wait, 2, [0, 1, 2], remove=True)
    assert late.value == () and wait.value == (3, 4, 5)
    with pytest.raises(errors.InvalidArgumentError, match="Index '2' for key '1' was out of bounds '2'"):
        _ = beyond.value
