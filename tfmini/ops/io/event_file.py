"""An event file: records of Event messages, as TensorBoard reads them."""

from __future__ import annotations

import logging
import os
import platform
import time
from typing import Any

from tfmini import errors, protos
from tfmini.ops.io.record_files import frame

_log = logging.getLogger("tensorflow")
FILE_VERSION = "brain.Event:2"


class EventFile:
    """The event file of one writer; a new file is started after the current one is closed or deleted.

    Args:
      prefix: directory and first part of the name, ``logdir/events``.
      suffix: last part of the name.
    """

    def __init__(self, prefix: str, suffix: str = "") -> None:
        self._prefix = prefix
        self._suffix = suffix
        self._path = ""
        self._file: Any = None
        self._unflushed = 0

    @property
    def path(self) -> str:
        """The path of the file; empty before the first event."""
        return self._path

    def write(self, serialized: bytes) -> None:
        """Appends one serialized Event; opens the file if none is open."""
        if self._file is None:
            self.open()
        self._file.write(frame(serialized))
        self._unflushed += 1

    def open(self) -> None:
        """Starts a file with the event that has the format's version.

        Raises:
          NotFoundError, PermissionDeniedError, …: when it cannot be created.
        """
        seconds = int(time.time())
        while True:
            path = f"{self._prefix}.out.tfevents.{seconds:010d}.{platform.node()}{self._suffix}"
            try:
                # Never an existing file: another writer may have created it in this second.
                self._file = open(path, "xb")  # noqa: SIM115 - closed by close
                break
            except FileExistsError:
                seconds += 1
            except OSError as error:
                raise errors.from_os_error(error, path) from error
        self._path = path
        self.write(protos.Event(wall_time=seconds, file_version=FILE_VERSION).SerializeToString())
        self.flush()

    def flush(self) -> None:
        """Writes all events to disk. If the file was deleted, logs that; the next event starts a new file."""
        if self._file is None or not self._unflushed:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        if not os.path.exists(self._path):
            _log.warning("The events file %s has disappeared; %d events are lost.", self._path, self._unflushed)
            self._file.close()
            self._file = None
        self._unflushed = 0

    def close(self) -> None:
        """Flushes and closes the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
