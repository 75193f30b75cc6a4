"""Tests that need a scheduler run by `make test-slurm`, `make test-mpi` and `make test-ray`, not by `make test`."""

from __future__ import annotations

import os

import pytest

# Open MPI wants to be asked twice before it runs as root, and shows tasks a terminal.
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "NO_COLOR": "1"}


def only_with(engine: str) -> pytest.MarkDecorator:
    """Skips the tests of a module unless ``TFMINI_TEST_ENGINE`` names their scheduler."""
    asked = os.environ.get("TFMINI_TEST_ENGINE", "")
    return pytest.mark.skipif(asked != engine, reason=f"needs {engine}: make test-{engine}")
