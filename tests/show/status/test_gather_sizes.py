"""Numbers of bytes, for people."""

from __future__ import annotations

import pytest

from tfmini.show.status.gather import size


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (31_400, "31.4 kB"), (2.5e9, "2.5 GB"), (3e12, "3 TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text
