"""Processes that a scheduler has started as the tasks of a cluster: `tfmini run --cluster NAME`.

There is no launcher. Each process learns its rank from the scheduler's environment variables. Rank 0 is the launcher as
well: it publishes an invitation, runs the agent of its own task as a child process, and supervises all tasks as
`tfmini launch` does. Every other rank is an agent. All of them end with the exit code of the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from tfmini import errors
from tfmini.launch import agent
from tfmini.launch.engine import WARN_S, EngineError, EngineOptions, TaskRequest
from tfmini.launch.hub import AgentEngine
from tfmini.launch.invitation import AGENT_ENV, Invitation, parse_invitation
from tfmini.trusted_files import make_folder, open_trusted, write_trusted

RENDEZVOUS_ENV = "TFMINI_RENDEZVOUS"
_POLL_S = 0.1
_LONGEST = 1 << 16  # bytes of an invitation


class InvitationExchange(ABC):
    """How rank 0 tells the others the invitation, as one word.

    Attributes:
      problem: why `receive` did not use what it has found; "" if it has found nothing, or has used it.
    """

    problem = ""

    @abstractmethod
    def publish(self, word: str) -> None:
        """Tells the other ranks. Called by rank 0, once.

        Raises:
          EngineError: that is impossible.
        """

    @abstractmethod
    def receive(self) -> str:
        """The word, or "" if it is not there yet. Called by the other ranks, again and again."""

    @abstractmethod
    def withdraw(self) -> None:
        """The run is over. Called by rank 0."""


class SharedDirectory(InvitationExchange):
    """A file in a directory that all hosts share, and that no other user can write.

    Args:
      run: the same text in all processes of a run, and in no other run.
      folder: the directory; default: ``TFMINI_RENDEZVOUS``, or ``~/.cache/tfmini``.
    """

    def __init__(self, run: str, folder: str | None = None) -> None:
        found = folder or os.environ.get(RENDEZVOUS_ENV) or os.path.expanduser("~/.cache/tfmini")
        self._path = Path(found) / f"run-{run}"

    def publish(self, word: str) -> None:
        try:
            make_folder(str(self._path.parent))
            write_trusted(str(self._path), word.encode())
        except OSError as error:
            raise EngineError(
                f"Rank 0 cannot tell the other tasks its address: {error}. Set {RENDEZVOUS_ENV} to a directory that "
                f"all hosts share and this user can write."
            ) from None
        except errors.PermissionDeniedError as error:
            raise EngineError(
                f"Rank 0 does not tell the other tasks its address by a file that another user could exchange. "
                f"{error.message} (Or set {RENDEZVOUS_ENV} to a directory of your own that all hosts share.)"
            ) from None

    def receive(self) -> str:
        try:
            with open_trusted(str(self._path), private=True) as file:
                self.problem = ""
                return file.read(_LONGEST).decode("ascii")
        except errors.PermissionDeniedError as error:  # another user could give our tasks commands
            self.problem = error.message
        except (OSError, ValueError):
            self.problem = ""
        return ""

    def withdraw(self) -> None:
        self._path.unlink(missing_ok=True)


class MemberEngine(AgentEngine):
    """The engine of rank 0: the scheduler has started the other agents already."""

    def __init__(self, options: EngineOptions, exchange: InvitationExchange) -> None:
        super().__init__(options)
        self._exchange = exchange
        self._own: subprocess.Popen[bytes] | None = None

    def start_agents(self, requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        """Publishes the invitation and starts the agent of rank 0."""
        environment = {**os.environ, AGENT_ENV: invitation.to_word()}
        argv = [sys.executable, "-m", "tfmini.launch.agent", "0"]
        # A session of its own: Ctrl-C is for this process, which tells the tasks in order.
        self._own = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        self._exchange.publish(invitation.to_word())

    def reap(self) -> None:
        """See `Engine.reap`."""
        if self._own is not None and self._own.poll() is not None and not self.is_complete:
            self.no_agent(f"The agent of rank 0 ended with exit code {self._own.returncode}.")

    def end_agents(self) -> None:
        """Waits for the agent of rank 0."""
        self._exchange.withdraw()
        if self._own is not None:
            self._own.wait()


class SchedulerMember:
    """This process as one of those that a scheduler has started.

    Args:
      name: of the scheduler, for errors.
      rank, size: of this process and of all processes.
      exchange: makes the exchange of the run.
    """

    def __init__(self, name: str, rank: int, size: int, exchange: Callable[[], InvitationExchange]) -> None:
        self.name, self.rank, self.size = name, rank, size
        self._exchange = exchange

    def workers(self, others: int, asked: int | None) -> int:
        """The number of workers: all processes but the ps and the chief.

        Raises:
          click.UsageError: there are too few processes, or not as many as asked for.
        """
        workers = self.size - others
        started = f"{self.name} has started {self.size} process{'es' if self.size > 1 else ''}"
        if workers < 0:
            raise click.UsageError(f"{started} for {others} ps and chief. Start more, or give a smaller --ps.")
        if asked not in (None, workers):
            raise click.UsageError(
                f"{started} for {others + (asked or 0)} tasks. Start one process per task, or leave out --workers: "
                f"then every process that is no ps is a worker."
            )
        return workers

    def run(self, lead: Callable[[MemberEngine], int], options: EngineOptions, start_s: float) -> int:
        """Does the part of this rank; returns the exit code.

        Args:
          lead: supervises the run on rank 0.
          start_s: how long other ranks wait for rank 0, in seconds.

        Raises:
          click.ClickException: rank 0 did not come.
        """
        exchange = self._exchange()
        if self.rank == 0:
            return lead(MemberEngine(options, exchange))
        begun, warn_s = time.monotonic(), WARN_S
        until = begun + start_s
        while True:
            # What is there may be of an earlier run that was killed: its launcher answers no more.
            code = self._follow(exchange.receive())
            if code is not None:
                return code
            if time.monotonic() > until:
                if exchange.problem:
                    raise click.ClickException(
                        f"Rank {self.rank} does not use what seems to be from rank 0. {exchange.problem}"
                    )
                raise click.ClickException(
                    f"Rank {self.rank} has heard nothing of rank 0 for {start_s:g} s. Rank 0 may not have started; or "
                    f"{RENDEZVOUS_ENV} (default ~/.cache/tfmini) is no directory that all hosts share."
                )
            if time.monotonic() > begun + warn_s:
                click.echo(f"tfmini: for {warn_s:g} s, rank {self.rank} has waited for rank 0.", err=True)
                warn_s *= 2
            time.sleep(_POLL_S)  # a shared directory tells nobody that it has changed

    def _follow(self, word: str) -> int | None:
        if not word:
            return None
        try:
            return agent.serve(parse_invitation(word), self.rank)
        except (ValueError, OSError, errors.OpError):
            return None
