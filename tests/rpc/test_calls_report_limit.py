"""Errors of peers are logged, but not without an end."""

from __future__ import annotations

from typing import Any

from tfmini.rpc.calls import LINES, PERIOD_S, ReportLimit
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor


def test_lines_beyond_the_limit_are_counted_and_told_later() -> None:
    limit = ReportLimit()
    assert [limit.passes(5.0) for _ in range(LINES + 3)] == [""] * LINES + [None] * 3
    assert limit.passes(5.0 + PERIOD_S) == " (3 more such errors were not logged before)"
    assert limit.passes(5.0 + PERIOD_S) == ""


def test_a_peer_cannot_fill_the_disk_with_lines(caplog: Any) -> None:
    endpoint = Endpoint(get_reactor(), "", 1)
    for _ in range(3 * LINES):
        endpoint.report("a message from somebody", ValueError("odd"))
    endpoint.close()
    assert endpoint.counters["errors"] == 3 * LINES
    assert caplog.text.count("a message from somebody") == LINES
