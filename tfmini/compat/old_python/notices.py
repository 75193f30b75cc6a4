"""One notice for each thing that is given back."""

from __future__ import annotations

import logging
import sys

_log = logging.getLogger("tensorflow")
_told: set[str] = set()
_OWN = ("tfmini.compat.old_python", "importlib", "_frozen_importlib", "h5py.")


def tell_once(what: str, remedy: str) -> None:
    """Logs that a program uses something of an old Python or package, with the line; once for each ``what``."""
    if what in _told:
        return
    _told.add(what)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame = frame.f_back
    _log.warning(
        "%s:%d uses %s, which is no more: %s.", frame.f_code.co_filename, frame.f_lineno, what, remedy
    )  # fmt: skip
