"""The oracle of estimators: newer TensorFlows have none, so it is a Python of its own (such as TensorFlow 2.15)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.oracle import Oracle


@pytest.fixture(scope="session")
def estimator_oracle() -> Iterator[Oracle]:
    """TensorFlow with ``tf.estimator``; the test is skipped where there is none."""
    python = os.environ.get("TFMINI_ESTIMATOR_ORACLE", "")
    if not os.access(python, os.X_OK):
        pytest.skip("TFMINI_ESTIMATOR_ORACLE does not name a Python that has tensorflow-estimator")
    with contextlib.closing(Oracle(python)) as oracle:
        yield oracle
