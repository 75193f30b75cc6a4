"""Child processes of a launcher: each task is a process group, and no process outlives the launcher.

Each task is the leader of a session and process group, so that a signal reaches all processes of the script and no
others. When the leader ends, the rest of its group is killed. If the launcher is killed, the guardian (`guardian.py`)
kills the groups; each task registers with it before exec. A task starts with SIGINT's default action, and SIGINT
blocked; `script_run` unblocks it after its imports, so that Ctrl-C shows no traceback of them.
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
    """The process that kills the tasks of a killed launcher. Use as a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARDIAN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
        )

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the guardian was killed: continue without it
            os.write(self._process.stdin.fileno(), line.encode("ascii"))

    def register_self(self) -> None:
        """Register the calling process. Called in the child before exec, so that no group is ever unregistered."""
        self._tell(f"+{os.getpid()}\n")

    def release(self, group: int) -> None:
        """Unregister a group, before the system can reuse its number."""
        self._tell(f"-{group}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class TaskProcess:
    """One running task. `output` is its merged standard output and error, non-blocking.

    It ignores the signals `ignored`, until it changes that itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        guardian: Guardian,
        keep_fds: Sequence[int],
        ignored: Sequence[int] = (),
    ) -> None:
        self._guardian = guardian
        self._ignored = ignored
        # preexec_fn is safe here: the other threads of the launcher (`sink.py`, the bars) hold no lock that it takes.
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
        """Prepare the child between fork and exec."""
        self._guardian.register_self()
        # The launcher ignores SIGINT if its shell did (``nohup … &``). The task, in its own session, does not.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for signum in self._ignored:
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    @property
    def pid(self) -> int:
        """The process id of the leader, which is also the id of the group."""
        return self._popen.pid

    def signal_group(self, signum: int) -> None:
        """Send a signal to every process of the group; does nothing if there is none."""
        if self._popen.returncode is None:  # the system does not reuse the number before the leader is reaped
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
                os.killpg(self.pid, signum)

    def poll(self) -> int | None:
        """The leader's exit code (minus the signal that killed it) if it has ended, else None.

        When it detects the end, it kills the rest of the group.
        """
        if self._popen.returncode is None and self._leader_has_ended():
            self._kill_group()
        return self._popen.returncode

    def _kill_group(self) -> None:
        self.signal_group(signal.SIGKILL)
        self._guardian.release(self.pid)
        self._popen.wait()

    def _leader_has_ended(self) -> bool:
        # With WNOWAIT the leader stays a zombie, so that the system does not reuse its group number meanwhile.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def read(self) -> bytes | None:
        """The output since the last read; b"" at its end, None if there is none now."""
        try:
            return os.read(self.output.fileno(), 65536)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Kill the group if it runs, and release the descriptors."""
        if self._popen.returncode is None:
            self._kill_group()
        self.output.close()
