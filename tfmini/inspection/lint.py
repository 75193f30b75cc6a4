"""Warns about likely mistakes in a graph or cluster, with remedies."""

from __future__ import annotations

from tfmini.inspection.findings import Finding, Inspection
from tfmini.inspection.state_checks import STATE_CHECKS
from tfmini.inspection.traffic_checks import TRAFFIC_CHECKS
from tfmini.inspection.waiting_checks import WAITING_CHECKS


def lint(found: Inspection) -> list[Finding]:
    """Returns all warnings about an inspection."""
    return [warning for check in (*STATE_CHECKS, *TRAFFIC_CHECKS, *WAITING_CHECKS) for warning in check(found)]
