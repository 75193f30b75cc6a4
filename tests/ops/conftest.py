"""What tests of op families get."""

from __future__ import annotations

from typing import Any

import pytest

from tests.expressions import outcomes
from tests.oracle import Oracle


@pytest.fixture(scope="module")
def theirs(request: pytest.FixtureRequest, oracle: Oracle) -> dict[str, Any]:
    """TensorFlow's outcomes of the test module's table ``CASES``, asked for at once (see `tests.expressions`)."""
    return oracle.call(outcomes, request.module.CASES, getattr(request.module, "NAMES", ""))
