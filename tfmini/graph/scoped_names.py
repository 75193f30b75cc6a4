"""Removal and addition of a name scope, for the export and import of a part of a graph.

A name may be that of an op, a tensor, a control input (``^name``) or a colocation group (``loc:@name``).
"""

from __future__ import annotations

import re

_MARK = re.compile(r"(\^|loc:@|)(.*)", re.S)


def _parts(name: str) -> tuple[str, str]:
    match = _MARK.match(name)
    return (match[1], match[2]) if match else ("", name)


def strip_name_scope(name: str, export_scope: str | None) -> str:
    """Returns ``name`` relative to ``export_scope``. A name outside of the scope stays as it is."""
    if not export_scope:
        return name
    mark, bare = _parts(name)
    prefix = export_scope.rstrip("/") + "/"
    return mark + bare[len(prefix) :] if bare.startswith(prefix) else name


def prepend_name_scope(name: str, import_scope: str | None) -> str:
    """Returns ``name`` with ``import_scope`` in front."""
    if not import_scope:
        return name
    mark, bare = _parts(name)
    return f"{mark}{import_scope.rstrip('/')}/{bare}"
