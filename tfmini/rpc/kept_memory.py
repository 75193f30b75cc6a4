"""How much memory a process keeps warm for the messages of its next steps, and for how long.

New memory costs several times the copy into it, in page faults. So memory that messages have used is used again: as
much as the latest steps used, within a share of the machine's memory. What no message has used for a while goes back to
the system, so a process that rests holds nothing.
"""

from __future__ import annotations

import functools

from tfmini.machine_memory import machine_memory

KEEP_S = 10.0  # seconds; memory that is idle for so long is given back, after twice as long at the latest
_AT_MOST_OF_SMALL = 2 << 30  # bytes, where they are a quarter of the machine's memory at most


@functools.cache
def kept_limit() -> int:
    """Returns how many idle bytes of one kind a process keeps: an eighth of its memory, or up to 2 GB of a quarter."""
    memory = machine_memory()
    return max(memory // 8, min(_AT_MOST_OF_SMALL, memory // 4))
