"""The address book of a job: a directory in which each task writes where it is, for tasks that move.

A cluster engine may start a task again on another host. The others know its name, ``/job:ps/task:0``, from the
ClusterSpec, and look up its address here whenever they connect. ``TFMINI_ADDRESSES`` names the directory. All tasks
must see it, or an agent on each host keeps a copy. Other users must not be able to write it (`tfmini.trusted_files`).
A task that is not in the book is at its address in the ClusterSpec.

An entry also has the task's incarnation: an address may belong to a task of another cluster by now, and an old
incarnation of the task may still run where nobody expects it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.rpc.addresses import parse_address
from tfmini.trusted_files import make_folder, open_trusted, write_trusted

_log = logging.getLogger("tfmini.rpc")

ADDRESSES_ENV = "TFMINI_ADDRESSES"
_LARGEST = 64 << 10  # bytes of an entry
_MOST = 16  # addresses of a task


class TaskEntry(NamedTuple):
    """Where one task is.

    Attributes:
      addresses: ``host:port``, the best one first.
      incarnation: of the process that wrote it.
    """

    addresses: tuple[str, ...]
    incarnation: int


class AddressBook:
    """See the module. `find` and `publish` read and write files, so they may block."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __str__(self) -> str:
        return self.directory

    def find(self, task: str) -> TaskEntry | None:
        """The entry of a task by its full name; None if there is none that can be used."""
        path = self._path(task)
        try:
            with open_trusted(path) as file, errors.reading("It is no entry", ValueError):
                return _entry(json.loads(file.read(_LARGEST)), task)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, errors.OpError) as error:  # who looks for the task is a thread of the runtime
            _log.warning("The entry %s of the address book cannot be used: %s", path, error)
            return None

    def publish(self, task: str, entry: TaskEntry) -> None:
        """Writes where a task is, in place of what was written before. Readers see the whole old or new entry.

        Raises:
          errors.FailedPreconditionError: the directory cannot be written.
          errors.PermissionDeniedError: other users can write the directory, or a folder above it.
        """
        path = self._path(task)
        written = {"task": task, "addresses": list(entry.addresses), "incarnation": f"{entry.incarnation:016x}"}
        try:
            make_folder(self.directory)
            write_trusted(path, json.dumps(written).encode(), 0o644)
        except OSError as error:
            raise errors.FailedPreconditionError.of(
                f"{task} cannot write its address to {path}: {error.strerror}. {ADDRESSES_ENV} must name a directory "
                f"that all tasks can write."
            ) from error

    def withdraw(self, task: str, incarnation: int) -> None:
        """Removes the entry of a task that has stopped, unless a later incarnation has written its own."""
        entry = self.find(task)
        if entry is not None and entry.incarnation == incarnation:
            with contextlib.suppress(OSError):
                os.remove(self._path(task))

    def _path(self, task: str) -> str:
        """``/job:ps/replica:0/task:3`` is in ``ps-3.json``."""
        job, _, index = task.removeprefix("/job:").partition("/replica:0/task:")
        return os.path.join(self.directory, f"{job}-{index}.json")


def _entry(written: Any, task: str) -> TaskEntry:
    if not isinstance(written, dict) or written.get("task") != task:
        raise ValueError(f"it is not an entry of {task}")
    addresses = tuple(written.get("addresses", ()))[:_MOST]
    for address in addresses:
        if not isinstance(address, str) or parse_address(address).scheme != "tcp":
            raise ValueError(f"{address!r} is not host:port")
    return TaskEntry(addresses, int(written["incarnation"], 16))


def book_of_job(environment: Mapping[str, str] | None = None) -> AddressBook | None:
    """The address book that ``TFMINI_ADDRESSES`` names; None without one."""
    directory = (os.environ if environment is None else environment).get(ADDRESSES_ENV, "")
    return AddressBook(directory) if directory else None
