"""How much memory stays warm for the next messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfmini.rpc import kept_memory


@pytest.mark.parametrize(
    "memory, kept", [(4 << 30, 1 << 30), (8 << 30, 2 << 30), (16 << 30, 2 << 30), (64 << 30, 8 << 30)]
)
def test_the_share_follows_the_machine(monkeypatch: pytest.MonkeyPatch, memory: int, kept: int) -> None:
    monkeypatch.setattr(kept_memory, "machine_memory", lambda: memory)
    assert kept_memory.kept_limit.__wrapped__() == kept


@pytest.mark.parametrize("text, is_limit", [("1000000\n", True), ("max\n", False), (f"{1 << 62}\n", False)])
def test_a_container_has_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, is_limit: bool) -> None:
    (tmp_path / "max").write_text(text)
    monkeypatch.setattr(kept_memory, "_LIMIT_FILES", ())
    machine = kept_memory.machine_memory()
    monkeypatch.setattr(kept_memory, "_LIMIT_FILES", (str(tmp_path / "none"), str(tmp_path / "max")))
    assert kept_memory.machine_memory() == (1_000_000 if is_limit else machine)
