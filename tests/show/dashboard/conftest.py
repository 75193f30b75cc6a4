"""The browser of the tests of pages."""

from __future__ import annotations

from tests.show.inspection.conftest import browser

__all__ = ["browser"]
