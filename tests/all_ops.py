"""All ops of tfmini, for tests that look at every one: the modules of ops are imported at first use otherwise."""

from __future__ import annotations

from tfmini.graph.registry import OPS
from tfmini.op_homes import HOMES


def import_all_ops() -> None:
    """Imports every module that declares ops."""
    for name in HOMES:
        assert OPS[name].name == name
