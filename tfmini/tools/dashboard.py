"""`tfmini dashboard`: a live web page of a running cluster."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from tfmini import errors
from tfmini.cluster import ClusterSpec
from tfmini.command_line import HELP, Command, OptionalArgument
from tfmini.compat.roles import tf_config
from tfmini.launch.engine import TOKEN_ENV
from tfmini.rpc.keys import KEYS_ENV
from tfmini.tools.cluster_target import ClusterTarget, cluster_of_tf_config, find_cluster

if TYPE_CHECKING:
    from tfmini.show.dashboard.server import PageServer


LOOPBACK = "127.0.0.1"
_ANSWER_S = 2.0  # a task that does not answer for as long is shown as silent
_MISSING = "The page needs two more packages: pip install 'tfmini-cluster[dashboard]'."


@click.command(cls=Command, context_settings=HELP)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="P",
              help="Port of the page.  [default: a free port]")  # fmt: skip
@click.option("--host", default=LOOPBACK, show_default=True, metavar="ADDRESS",
              help="Address that the page listens on. Others than loopback are not encrypted.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, metavar="S",
              help="Seconds between two looks at the cluster.")  # fmt: skip
@click.option("--listen-fd", type=int, hidden=True, help="A listening socket. The page ends with its standard input.")
@click.argument("target", required=False, cls=OptionalArgument)
def dashboard(port: int, host: str, interval: float, listen_fd: int | None, target: str | None) -> None:
    """Serve a live page of the cluster of TARGET: its tasks, links, steps, waits, scalars and events.

    TARGET is the address of any server of the cluster, HOST:PORT, or a job of `tfmini launch`: its name, script or
    process id. Without one it is the only job that runs, or the cluster of TF_CONFIG. The page needs the cluster's
    key, as every client does (TFMINI_KEYS); that of a job is found. It only reads.

    The address that is printed has a token; whoever has it can see the page. On another machine, use ssh:
    `ssh -L 8000:localhost:PORT HOST`, then open the address with port 8000.
    """
    check_installed()
    where = find_cluster(target) if listen_fd is None else cluster_of_tf_config()
    token = os.environ.get(TOKEN_ENV) or secrets.token_urlsafe(24)
    with listen(host, port) if listen_fd is None else socket.socket(fileno=listen_fd) as listener:
        if listen_fd is None:
            click.echo(f"the page of the cluster is at {address_of(listener, token)}\n(end with Ctrl-C)")
        serve(listener, where, token, interval, has_launcher=listen_fd is not None)


def check_installed() -> None:
    """Raises a ClickException that says what to install, where the extra ``dashboard`` is missing."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise click.ClickException(_MISSING) from None


def listen(host: str, port: int) -> socket.socket:
    """A listening socket for the page.

    Raises:
      ClickException: the port is taken, or the address is not one of this machine.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        remedy = "Choose another --port." if is_port else "Give an address of this machine as --host."
        reason = (error.strerror or str(error)).partition(" (while")[0]  # what follows repeats the address
        raise click.ClickException(f"Cannot listen on {host}:{port}: {reason}. {remedy}") from None


def address_of(listener: socket.socket, token: str) -> str:
    """The whole address of the page, with its token."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}"


def serve(listener: socket.socket, where: ClusterTarget, token: str, interval: float, *, has_launcher: bool) -> None:
    """Serves the page until Ctrl-C, or until the launcher that has started it ends."""
    from tfmini.show.dashboard.server import ClusterReader, Dashboard, PageServer
    from tfmini.show.status.explanation import to_prometheus
    from tfmini.show.status.gather import Gatherer

    try:
        with Gatherer(where.target, tasks=where.tasks, keys=where.keys) as gatherer:
            source = ClusterReader(partial(gatherer.gather, timeout_s=_ANSWER_S), to_prometheus, gatherer.trace)
            server = PageServer(Dashboard(source, token, interval))
            if has_launcher:
                threading.Thread(target=_stop_at_eof, args=(server,), daemon=True).start()
            server.run(sockets=[listener])
    except errors.OpError as error:  # no key
        raise click.ClickException(error.message) from None
    except KeyboardInterrupt:
        return


def _stop_at_eof(server: PageServer) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    server.stop()


# ---- dashboard process ----------------------------------------
# The page of a launched cluster, as a process beside its tasks. It ends with the launcher, however that ends.

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
