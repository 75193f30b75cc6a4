"""Every sample of an op with a lowering, run by XLA on the CPU: TensorFlow's answers, as for the numpy kernels."""

from __future__ import annotations

import pytest

from tests.ops.samples.notation import Row
from tests.xla.lowered_samples import difference, groups
from tfmini.graph.device_types import FAKE_ENV

pytest.importorskip("jax")


@pytest.mark.parametrize("rows", [pytest.param(rows, id=f"{room}-{head}") for (room, head), rows in groups().items()])
def test_values(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_ENV, "1")
    assert [(row.text, wrong) for row in rows if (wrong := difference(row))] == []
