"""Kills the process groups of a launcher that was killed itself.

`tfmini.launch.local` runs it as a script; its standard input is a pipe that only the launcher holds. Lines `+PGID`
and `-PGID` add and remove a group. End of file means that the launcher has ended: the remaining groups are killed.
It imports nothing of tfmini, so that it starts in milliseconds.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read group numbers until the pipe ends, then kill the remaining groups."""
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
