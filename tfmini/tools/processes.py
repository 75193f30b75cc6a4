"""Child processes of a launcher: started in groups of their own, seen to their end, never left behind.

Each task is the leader of a session and process group, so that a signal reaches whatever the script started, and
nothing else. When the leader ends, the rest of its group is killed. Should the launcher be killed, the guardian
(`guardian.py`) kills the groups; each task announces itself to it before it runs a single line of the script.
A task is born with SIGINT held back; `script_run` lets it in when it can end without a traceback of our imports.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

_GUARDIAN = Path(__file__).with_name("guardian.py")


class Guardian:
    """The process that outlives a killed launcher for a moment. Use as a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARDIAN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is not for it
        )

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed the guardian: a lesser evil
            os.write(self._process.stdin.fileno(), line.encode("ascii"))

    def announce_self(self) -> None:
        """Called in the child before exec, so that no moment is left without cover."""
        self._tell(f"+{os.getpid()}\n")

    def release(self, group: int) -> None:
        """Forget a group, before its number can be given to another."""
        self._tell(f"-{group}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class TaskProcess:
    """One running task. `output` is its merged standard output and error, non-blocking."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], guardian: Guardian, keep_fds: Sequence[int]
    ) -> None:
        self._guardian = guardian
        # preexec_fn is safe here because the launcher has a single thread.
        self._popen = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=keep_fds,
            preexec_fn=self._prepare,  # noqa: PLW1509
        )
        assert self._popen.stdout is not None
        self.output: IO[bytes] = self._popen.stdout
        os.set_blocking(self.output.fileno(), False)

    def _prepare(self) -> None:
        """What the child does between fork and exec."""
        self._guardian.announce_self()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    @property
    def pid(self) -> int:
        """The process id of the leader, which is also the id of the group."""
        return self._popen.pid

    def signal_group(self, signum: int) -> None:
        """Send a signal to every process of the group; nothing happens when none is left."""
        if self._popen.returncode is None:  # until the leader is reaped, its number is not given to another
            with contextlib.suppress(
                ProcessLookupError, PermissionError
            ):  # macOS: EPERM for a group of zombies
                os.killpg(self.pid, signum)

    def poll(self) -> int | None:
        """The leader's exit code (minus the signal that killed it) once it has ended, else None.

        On the first sight of the end, the rest of the group is killed.
        """
        if self._popen.returncode is None and self._leader_has_ended():
            self.signal_group(signal.SIGKILL)
            self._guardian.release(self.pid)
            self._popen.wait()
        return self._popen.returncode

    def _leader_has_ended(self) -> bool:
        # WNOWAIT leaves the leader a zombie, so that its group number stays ours while we kill the group.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def read(self) -> bytes | None:
        """What has been written since the last read; b"" at the end of the output, None when nothing waits."""
        try:
            return os.read(self.output.fileno(), 65536)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Kill what runs and release the descriptors."""
        if self._popen.returncode is None:
            self.signal_group(signal.SIGKILL)
            self._guardian.release(self.pid)
            self._popen.wait()
        self.output.close()
