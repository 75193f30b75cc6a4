"""Notices that the list of admitted keys has changed, so that a server ends the links of revoked keys.

It has a thread of its own: the file may be on a network file system that does not answer, and the server's heartbeats
must not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfmini.rpc.keys import AdmittedKeys

PERIOD_S = 0.5


class AdmissionWatch:
    """Calls ``on_change``, in its thread, after each change of the list. Its thread starts at once."""

    def __init__(self, admitted: AdmittedKeys, on_change: Callable[[], object]) -> None:
        self._admitted = admitted
        self._on_change = on_change
        self._version = admitted.version()  # before the first connection is accepted
        self._end = threading.Event()
        threading.Thread(target=self._run, name="tfmini-admissions", daemon=True).start()

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S):
            version = self._admitted.version()
            if version != self._version:
                self._version = version
                self._on_change()

    def close(self) -> None:
        """Ends the thread, without waiting for it: it may be inside a call that does not return."""
        self._end.set()
