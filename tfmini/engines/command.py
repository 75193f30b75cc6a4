"""The command of a scheduler that starts agents, such as srun and mpirun, as a child process of the launcher."""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence

from tfmini.engines.invitation import AGENT_ENV, Invitation
from tfmini.tools.engine import EngineError, Events

_LAST_LINES = 10
_END_S = 15.0  # for the scheduler to notice that its processes have ended


class EngineCommand:
    """A running scheduler's command. What it prints is shown; if it ends too early, the run is broken.

    Args:
      argv: its command line; the agents inherit its environment, with the invitation.

    Raises:
      EngineError: there is no such program.
    """

    def __init__(
        self, argv: Sequence[str], invitation: Invitation, events: Events, selector: selectors.BaseSelector
    ) -> None:
        self.name = os.path.basename(argv[0])
        self._events, self._selector = events, selector
        self._partial = b""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        try:
            self._process = subprocess.Popen(
                argv,
                env={**os.environ, AGENT_ENV: invitation.to_word()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the launcher, which tells the tasks in order
            )
        except OSError as error:
            raise EngineError(f"Cannot run {argv[0]}: {error.strerror}. Is it installed, and in PATH?") from None
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        selector.register(self._output, selectors.EVENT_READ, self._take_output)

    def has_ended(self) -> bool:
        """Whether it has ended; if so, its last words have been shown."""
        if self._process.poll() is None:
            return False
        self._take_output()
        return True

    def complaint(self) -> str:
        """Why it ended, for an error."""
        said = " ".join(line for line in self._last if line.strip(" -=*")) or "it printed nothing"
        return f"{self.name} ended with exit code {self._process.returncode} before all tasks had a place: {said}"

    def close(self) -> None:
        """Waits for its end, since its agents have ended or are about to; asks for it, and then insists."""
        for ask in (lambda: None, self._process.terminate, self._process.kill):
            ask()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
                break
        self._take_output()
        if self._output in self._selector.get_map():
            self._selector.unregister(self._output)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._output.close()

    def _take_output(self) -> None:
        try:
            data = os.read(self._output.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:
            if self._output in self._selector.get_map():
                self._selector.unregister(self._output)
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            self._last.append(text)
            self._events.note(f"{self.name}: {text}" if not text.startswith(self.name) else text)
