"""The socket at which a running `tfmini launch` takes orders, such as those of `tfmini scale`.

It is in the folder of the job files, which only the user can enter (`tfmini.jobs`). An order is one line of JSON with
its name and argument, ``{"workers": 8}``; so is the answer, ``{"done": RESULT}`` or ``{"refused": TEXT}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tfmini.jobs import job_folder
from tfmini.launch.supervision import ScaleError

_LONGEST = 4096  # of an order
_LONGEST_ANSWER = 1 << 24
_CLIENT_S = 1.0  # for a client to send its line: the launcher waits meanwhile
_ANSWER_S = 30.0


Orders = Mapping[str, Callable[[Any], Any]]
"""The name of an order -> what carries it out: it gets the argument, and returns the result or raises ScaleError."""


class Control:
    """The launcher's side; a context manager. Without a place for the socket, the job takes no orders.

    Attributes:
      path: of the socket; "" if there is none.
    """

    def __init__(self) -> None:
        self.path = ""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            path = str(job_folder() / f"{os.getpid()}.socket")
            Path(path).unlink(missing_ok=True)  # of a launcher that was killed and had the same process id
            self._listener.bind(path)
            self.path = path
        self._listener.listen()
        self._listener.setblocking(False)

    def fileno(self) -> int:
        """The descriptor that is readable when there is an order."""
        return self._listener.fileno()

    def answer(self, orders: Orders) -> None:
        """Takes one order and answers it. A client that is slow, or that has gone, is left alone."""
        with contextlib.suppress(OSError, ValueError):
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(_CLIENT_S)
                answer = _answer(_line(connection, _LONGEST), orders)
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        if self.path:
            Path(self.path).unlink(missing_ok=True)


def _answer(line: bytes, orders: Orders) -> dict[str, Any]:
    found = json.loads(line)
    name, argument = next(iter(found.items()), ("", None)) if isinstance(found, dict) else ("", None)
    if name not in orders:
        return {"refused": "the launcher does not know this order: it may be of another version."}
    try:
        return {"done": orders[name](argument)}
    except ScaleError as error:
        return {"refused": str(error)}


def ask(path: str, name: str, argument: int | str) -> Any:
    """Gives a launcher an order; returns its result.

    Raises:
      ScaleError: it refuses.
      OSError: it does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(path)
        connection.sendall(json.dumps({name: argument}).encode() + b"\n")
        line = _line(connection, _LONGEST_ANSWER)
    if not line:
        raise ConnectionError("the launcher has ended")
    found = json.loads(line)
    if "refused" in found:
        raise ScaleError(found["refused"])
    return found.get("done")


def _line(connection: socket.socket, longest: int) -> bytes:
    with connection.makefile("rb") as file:
        return file.readline(longest)
