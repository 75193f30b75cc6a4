"""An engine whose agents are child processes of the launcher.

``python -m tests.launch.child_agents launch --on children …`` is `tfmini` with this engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfmini.launch.engine import ENGINES, TaskRequest
from tfmini.launch.hub import AgentEngine
from tfmini.launch.invitation import AGENT_ENV, Invitation

ROOT = Path(__file__).parents[2]


class ChildAgents(AgentEngine):
    """Starts agents as child processes."""

    adds_tasks = True

    def start_agents(self, requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        self.invitation = invitation
        self.agents: list[subprocess.Popen[bytes]] = []
        for number, request in enumerate(requests):
            self.start_agent(number, request)

    def start_agent(self, number: int, request: TaskRequest) -> None:
        environment = {**os.environ, AGENT_ENV: self.invitation.to_word(), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "tfmini.launch.agent", str(number)]
        self.agents.append(subprocess.Popen(argv, env=environment))

    def reap(self) -> None:
        pass

    def end_agents(self) -> None:
        self.codes = [agent.wait(60) for agent in self.agents]


def parents_of(pid: int) -> Iterator[int]:
    """The process that has started another one, and so on."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


if __name__ == "__main__":
    ENGINES["children"] = "tests.launch.child_agents:ChildAgents"
    from tfmini.tools.cli import main

    main(prog_name="tfmini")
