"""The end of last resort: kills the process groups of a launcher that was killed itself.

Run as a script by `tfmini.tools.processes`, with standard input a pipe that only the launcher holds. Lines `+PGID`
and `-PGID` say which groups exist; end of file says that the launcher is gone, and the groups left are killed.
Imports nothing of tfmini, so that it starts in milliseconds.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read group numbers until the pipe ends, then kill what is left."""
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
