"""How much memory stays warm for the next messages."""

from __future__ import annotations

import pytest

from tfmini.rpc import shared_blocks


@pytest.mark.parametrize(
    "memory, kept", [(4 << 30, 1 << 30), (8 << 30, 2 << 30), (16 << 30, 2 << 30), (64 << 30, 8 << 30)]
)
def test_the_share_follows_the_machine(monkeypatch: pytest.MonkeyPatch, memory: int, kept: int) -> None:
    monkeypatch.setattr(shared_blocks, "machine_memory", lambda: memory)
    assert shared_blocks.kept_limit.__wrapped__() == kept
