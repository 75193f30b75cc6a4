"""The time after which a silent peer counts as lost."""

from __future__ import annotations

import pytest

from tfmini.rpc import membership


def test_the_bound_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFMINI_LOST_AFTER", raising=False)
    assert membership._lost_after_s() == 4.0
    monkeypatch.setenv("TFMINI_LOST_AFTER", "30.5")
    assert membership._lost_after_s() == 30.5


@pytest.mark.parametrize("text", ["soon", "1", "nan", "-3", "1e9"])
def test_a_bound_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TFMINI_LOST_AFTER", text)
    with pytest.raises(ValueError, match="TFMINI_LOST_AFTER must be a number of seconds from 2 to 86400"):
        membership._lost_after_s()
