"""Set-ups that deserve a warning, each with its remedy."""

from __future__ import annotations

from tfmini.inspection.findings import Finding, Inspection
from tfmini.inspection.state_checks import STATE_CHECKS
from tfmini.inspection.traffic_checks import TRAFFIC_CHECKS
from tfmini.inspection.waiting_checks import WAITING_CHECKS


def lint(found: Inspection) -> list[Finding]:
    """All warnings about an inspection."""
    return [warning for check in (*STATE_CHECKS, *TRAFFIC_CHECKS, *WAITING_CHECKS) for warning in check(found)]
