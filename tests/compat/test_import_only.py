"""Names that can only be imported and derived from, and refuse the rest with a remedy."""

from __future__ import annotations

from importlib import import_module

import pytest

from tfmini.compat import import_only, internals


@pytest.fixture(autouse=True)
def _alias() -> None:
    internals.find_private_paths()


@pytest.mark.parametrize("dotted", sorted(import_only.NAMES))
def test_each_name_can_be_imported_and_refuses_to_be_used(dotted: str) -> None:
    module = import_module(f"tfmini.{dotted}")
    for name in import_only.NAMES[dotted].split():
        found = getattr(module, name)
        derived = type("Derived", (found,), {})
        for refused in (found, derived):
            with pytest.raises(NotImplementedError, match=rf"{name} can be imported, and no more: .* use "):
                refused(1)
            with pytest.raises(AttributeError, match="can be imported, and no more"):
                _ = refused.other
    assert not hasattr(module, "no_such_name")
