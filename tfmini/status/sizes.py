"""Numbers of bytes, for people."""

from __future__ import annotations


def size(count: float) -> str:
    """``512 B``, ``3.2 MB``, …, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
