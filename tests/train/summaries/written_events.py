"""What is in event files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tfmini as tf


def events(folder: Path) -> list[Any]:
    return [e for path in sorted(folder.glob("events*")) for e in tf.train.summary_iterator(str(path))]


def values(folder: Path) -> list[tuple[int, str, str]]:
    """(step, tag, kind) of all that was written."""
    return [(e.step, v.tag, v.WhichOneof("value")) for e in events(folder) for v in e.summary.value]
