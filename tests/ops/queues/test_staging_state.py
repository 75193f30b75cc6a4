"""Staging areas as state objects."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.fake_wait import FakeWait
from tfmini import errors
from tfmini.ops.queues.staging_state import StageState


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
