"""The page of a launched cluster, as a process beside its tasks. It ends with the launcher, however that ends."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tfmini.cluster import ClusterSpec
from tfmini.compat.roles import tf_config
from tfmini.rpc.keys import KEYS_ENV
from tfmini.tools.dashboard import LOOPBACK, TOKEN_ENV, address_of, check_installed, listen

_END_S = 10.0
"""Seconds that the page has to end before it is killed."""


class LaunchedPage:
    """The page of one run; `begin` starts it, and leaving the context ends it.

    Args:
      port: of the page; 0: a free one; None: no page.
      key_file: the key of the run; "": clients have the right one without it.
      say: tells the user its address.

    Raises:
      ClickException: the extra ``dashboard`` is not installed.
    """

    def __init__(self, port: int | None, key_file: str, say: Callable[[str], None]) -> None:
        self._port = port
        self._key_file = key_file
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        if port is not None:
            check_installed()

    def begin(self, cluster: ClusterSpec) -> None:
        """The addresses of the tasks are known. Later calls change nothing: the page asks the first task for others.

        Raises:
          ClickException: the port is taken.
        """
        if self._port is None or self._process is not None:
            return
        token = os.environ.get(TOKEN_ENV) or secrets.token_urlsafe(24)
        first = next(iter(cluster.tasks()))
        role = {TOKEN_ENV: token, "TF_CONFIG": tf_config(first.job, first.task, cluster)}
        key = {KEYS_ENV: self._key_file} if self._key_file else {}
        with listen(LOOPBACK, self._port) as listener:
            fd = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tfmini", "dashboard", "--listen-fd", str(fd)],
                env={**os.environ, **role, **key},
                stdin=subprocess.PIPE,  # the page ends when its other end is closed, as the end of this process does
                stdout=subprocess.DEVNULL,
                pass_fds=[fd],
                start_new_session=True,  # so that Ctrl-C in the terminal does not end it before the tasks
            )
            self._say(f"the page of the cluster is at {address_of(listener, token)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        page = self._process
        if page is None:
            return
        assert page.stdin is not None
        page.stdin.close()
        try:
            page.wait(_END_S)
        except subprocess.TimeoutExpired:
            page.kill()
            page.wait()
