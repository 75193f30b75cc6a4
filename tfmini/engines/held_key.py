"""The key of a run on the host of a task: a file in memory, as the launcher has on its own host."""

from __future__ import annotations

import os


def held_key(key: bytes) -> str:
    """Puts the content of a secret file into memory for the rest of this process; returns the path of the file.

    Other processes of this user can read it there, so a child process gets the path.
    """
    held = os.memfd_create("tfmini-keys")
    os.fchmod(held, 0o600)
    os.write(held, key)
    return f"/proc/{os.getpid()}/fd/{held}"
