"""The jobs that `tfmini launch` runs for this user: a small file each, by which other commands find them.

A file is in the user's runtime directory (XDG base directory specification), readable by this user alone. The launcher
removes it at its end. A file that a killed launcher has left behind is recognised by the launcher's process id and
start time, and removed. It names the addresses of the tasks and the place of the run's key; it does not contain the
key.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tfmini.cluster import ClusterSpec


@dataclass(frozen=True)
class Job:
    """A running job.

    Attributes:
      name: of the script, and the launcher's process id.
      pid: the launcher's process; ``started``: its start time, in clock ticks since boot.
      began_s: seconds since 1970.
      tasks: full task name -> address.
      key_file: the key of the run; "": the user's own.
      control: the socket at which it takes orders (`tfmini.launch.control`); "": there is none.
    """

    name: str
    pid: int
    started: int
    script: str
    began_s: float
    tasks: dict[str, str]
    key_file: str = ""
    control: str = ""


class RunningJob:
    """The file of the job of this process; `begin` writes it, and leaving the context removes it."""

    def __init__(self, script: str, key_file: str, control: str = "") -> None:
        self._script = script
        self._key_file = key_file
        self._control = control
        self._began_s = time.time()
        self._path: Path | None = None

    def begin(self, cluster: ClusterSpec) -> None:
        """The addresses of the tasks are known, or have changed. Without its file, no other command finds the job."""
        pid = os.getpid()
        tasks = addresses_by_task(cluster)
        name = f"{Path(self._script).stem}-{pid}"
        job = Job(name, pid, _start_time(pid), self._script, self._began_s, tasks, self._key_file, self._control)
        with contextlib.suppress(OSError):
            self._path = _write(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def addresses_by_task(cluster: ClusterSpec) -> dict[str, str]:
    """Full task name -> address."""
    return {f"/job:{t.job}/replica:0/task:{t.task}": t.address for t in cluster.tasks()}


def running_jobs() -> list[Job]:
    """The jobs that run, the oldest first. Files of launchers that are gone are removed."""
    found = []
    try:
        paths = sorted(job_folder().glob("*.json"))
    except OSError:
        return []
    for path in paths:
        job = _read(path)
        if job is None or not job.started or _start_time(job.pid) != job.started:
            with contextlib.suppress(OSError):
                path.unlink()
            if job is not None and job.control:
                with contextlib.suppress(OSError):
                    os.unlink(job.control)
        else:
            found.append(job)
    return sorted(found, key=lambda job: job.began_s)


def job_at(address: str, jobs: Iterable[Job]) -> Job | None:
    """The job that has a task at ``host:port``; ``localhost`` is 127.0.0.1, by which `tfmini launch` calls it."""
    wanted = _by_number(address)
    return next((job for job in jobs if wanted in map(_by_number, job.tasks.values())), None)


def _by_number(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host == "localhost" else f"{host}{colon}{port}"


def jobs_called(name: str, jobs: Iterable[Job]) -> list[Job]:
    """The jobs that a user may mean by a name: that of the job or of its script, or its launcher's process id."""
    return [job for job in jobs if name in (job.name, str(job.pid), *scripts_of(job))]


def scripts_of(job: Job) -> tuple[str, ...]:
    """``train`` of the job ``train-4064``; also the script's path and the name of its file."""
    return job.name.rpartition("-")[0], job.script, Path(job.script).name


def names_of(jobs: Iterable[Job]) -> str:
    """The names of jobs, for messages."""
    return ", ".join(f"{job.name} ({len(job.tasks)} task{'s' if len(job.tasks) != 1 else ''})" for job in jobs)


def runtime_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's files of running programs are; the folder may not exist yet."""
    base = environment.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base) and os.path.isdir(base):
        return Path(base) / "tfmini"
    return Path(tempfile.gettempdir()) / f"tfmini-{os.getuid()}"


def job_folder() -> Path:
    """The folder of the job files, which only this user can read and write.

    Raises:
      OSError: it cannot be made, belongs to another user, or is open to others.
    """
    folder = runtime_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to other users or belongs to one: remove it")
    jobs = folder / "jobs"
    jobs.mkdir(mode=0o700, exist_ok=True)
    return jobs


def _write(job: Job) -> Path:
    path = job_folder() / f"{job.name}.json"
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(job), file)
    os.replace(temporary, path)  # who reads it meanwhile sees the whole old file or the new one
    return path


def _read(path: Path) -> Job | None:
    try:
        data = json.loads(path.read_text())
        return Job(**data)
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _start_time(pid: int) -> int:
    """The start time of a process in clock ticks since boot; 0: there is none. Process ids are used again."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])
