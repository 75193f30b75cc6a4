"""An event file: records of Event messages, as TensorBoard reads them."""

from __future__ import annotations

import logging
import os
import platform
import time
from typing import Any

from tfmini import protos
from tfmini.ops.record_files import file_error, frame

_log = logging.getLogger("tfmini")
FILE_VERSION = "brain.Event:2"


class EventFile:
    """One writer's event file; a new one is begun when the present one is closed or was deleted.

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
        """Where the events go; empty before the first one."""
        return self._path

    def write(self, serialized: bytes) -> None:
        """Appends one serialized Event; opens the file if none is open."""
        if self._file is None:
            self.open()
        self._file.write(frame(serialized))
        self._unflushed += 1

    def open(self) -> None:
        """Begins a file with the event that tells the format's version.

        Raises:
          NotFoundError, PermissionDeniedError, …: when it cannot be made.
        """
        seconds = int(time.time())
        while True:
            path = f"{self._prefix}.out.tfevents.{seconds:010d}.{platform.node()}{self._suffix}"
            try:
                # Never an existing file: another writer of this second may be at work on it.
                self._file = open(path, "xb")  # noqa: SIM115 - closed by close
                break
            except FileExistsError:
                seconds += 1
            except OSError as error:
                raise file_error(error, path) from error
        self._path = path
        self.write(protos.Event(wall_time=seconds, file_version=FILE_VERSION).SerializeToString())
        self.flush()

    def flush(self) -> None:
        """Puts what was written on the disk. If the file was deleted, says so and begins another at the next event."""
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
