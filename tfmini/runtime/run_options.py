"""RunOptions as the runtime reads them, without importing protobuf for a run that has none."""

from __future__ import annotations


def timeout_of(options: bytes) -> float | None:
    """The timeout of serialized RunOptions in seconds, or None."""
    if not options:
        return None
    from tfmini import protos

    milliseconds = protos.RunOptions.FromString(options).timeout_in_ms
    return milliseconds / 1000 if milliseconds > 0 else None
