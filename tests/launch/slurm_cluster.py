"""A Slurm of this machine's own: a controller and four node daemons, in a temporary directory.

It has its own munge key and socket, state directories and ports, so it meets no other Slurm. Every daemon is a child
process in the foreground and ends with `SlurmCluster.close`; so do the job steps, which Slurm itself ends.

``python -m tests.launch.slurm_cluster COMMAND...`` runs a command with such a cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "slurmstepd", "srun", "sbatch", "scancel", "scontrol", "sinfo", "munged")
NODES = ("n1", "n2", "n3", "n4")
_LIMIT_S = 60

_CONFIGURATION = """
ClusterName=tfmini
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=30
KillWait=30
CompleteWait=0
MinJobAge=300
"""


def missing() -> list[str]:
    """The programs of Slurm and munge that this machine lacks."""
    return [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/sbin"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


class SlurmCluster:
    """A running Slurm with the nodes `NODES`, each of which may run `cpus` tasks at once."""

    def __init__(self, folder: Path, cpus: int = 4) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "state").mkdir()
        with contextlib.ExitStack() as unless_done:
            unless_done.callback(self.close)
            self._start_munge()
            self._configure(cpus)
            self._start("slurmctld", "slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
            for node in NODES:
                self.start_node(node)
            self._wait_until_idle()
            unless_done.pop_all()

    def start_node(self, node: str) -> None:
        """Starts the daemon of a node."""
        self._start(node, "slurmd", "-D", "-N", node, "-f", self.environment["SLURM_CONF"])

    def kill_node(self, node: str) -> None:
        """Lets a node fail: its daemon and its job steps are killed, and Slurm learns that it is down."""
        daemon = self._daemons.pop(node)
        lost = [daemon.pid, *self._steps_of(node)]
        for signum in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: nobody must report the death of another
            for pid in lost:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)
        daemon.wait()
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=killed by a test")

    def run(self, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Runs a command of Slurm, or one that calls such; its output is captured."""
        merged: dict[str, object] = {"env": self.environment, "timeout": _LIMIT_S, "check": False, **options}
        return subprocess.run(command, capture_output=True, text=True, **merged)  # type: ignore[call-overload,no-any-return]

    def close(self) -> None:
        """Cancels all jobs and ends the daemons."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--user=root", timeout=10)
        for daemon in reversed(list(self._daemons.values())):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        for pid in self.processes():  # slurmstepd outlives a slurmd that ends before its job has
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start_munge(self) -> None:
        folder = self.folder
        folder.chmod(0o711)  # munged wants its directories to be nobody else's to write, and its socket to be reachable
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._start(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}",
            *(f"--{option}={folder}/munge.{name}" for option, name in files.items()),
        )  # fmt: skip
        self._wait(lambda: (folder / "munge.socket").exists(), "munged")

    def _configure(self, cpus: int) -> None:
        controller, *ports = _free_ports(1 + len(NODES))
        user = "root" if os.getuid() == 0 else os.environ.get("USER", str(os.getuid()))
        lines = [_CONFIGURATION.format(controller=controller, folder=self.folder, user=user)]
        lines += [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus} State=UNKNOWN"
            for node, port in zip(NODES, ports)
        ]
        lines += [f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO"]
        # More CPUs than this machine has: they only count tasks here.
        lines += ["SlurmdParameters=config_overrides", ""]
        (self.folder / "slurm.conf").write_text("\n".join(lines))

    def _start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.out", "ab") as output:
            self._daemons[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def _wait_until_idle(self) -> None:
        self._wait(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == str(len(NODES)), "nodes")

    def _wait(self, done: object, what: str) -> None:
        """Polls, since the daemons tell nobody when they are ready."""
        until = time.monotonic() + _LIMIT_S
        while not done():  # type: ignore[operator]
            for name, daemon in self._daemons.items():
                if daemon.poll() is not None:
                    raise RuntimeError(f"{name} ended: {(self.folder / f'{name}.out').read_text()}")
            if time.monotonic() > until:
                logs = "".join(path.read_text() for path in self.folder.glob("*.log"))
                raise RuntimeError(f"{what} did not come up within {_LIMIT_S} s:\n{logs}")
            time.sleep(0.1)

    def processes(self) -> list[int]:
        """The processes that have this cluster's configuration in their environment, without this one."""
        mark = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return [pid for pid in found if pid != os.getpid()]

    def _steps_of(self, node: str) -> list[int]:
        """The processes of job steps on a node, and the slurmstepd processes above them."""
        found: dict[int, None] = {}
        marks = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if not marks <= set((process / "environ").read_bytes().split(b"\0")):
                    continue
                found[int(process.name)] = None
                above = Path("/proc") / (process / "stat").read_text().rpartition(")")[2].split()[1]
                if (above / "comm").read_text().startswith("slurmstepd"):
                    found[int(above.name)] = None
        return sorted(found)


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster in a new directory, within the block."""
    # Paths of Unix sockets are short: not in pytest's directory.
    with tempfile.TemporaryDirectory(prefix="tfs.") as name, contextlib.closing(SlurmCluster(Path(name))) as cluster:
        yield cluster


if __name__ == "__main__":
    with slurm_cluster() as running:
        sys.exit(subprocess.run(sys.argv[1:], env=running.environment, check=False).returncode)
