"""Why steps do not end, in the words of `tfmini stacks`, for the page. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tfmini.dashboard.folding import LONG_S
from tfmini.status.bottleneck import Bottleneck
from tfmini.status.explanation import Explanation, Hop
from tfmini.status.explanation_text import culprit_head, culprit_parts, hop_text, share_text, short
from tfmini.status.snapshot import SILENT, ClusterSnapshot

_MOST = 6
_LINE = 27  # letters of a line in a box
_LINES = 2


@dataclass
class Reasons:
    """Deadlocks and culprits, for the page.

    Attributes:
      headline: those that are worth a look: deadlocks, and what steps have waited for longer than `LONG_S`.
      blocks: all of them: a title, and a line for each wait on the way.
      culprits: the tasks to mark, by full name -> what they do.
      waiting: the tasks whose steps wait for these -> for whom.
      bottleneck: of a cluster whose steps end.
    """

    headline: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    culprits: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    bottleneck: Bottleneck | None = None

    def to_json(self) -> dict[str, Any]:
        """What the page shows beside the picture."""
        slow = "" if self.bottleneck is None else share_text(self.bottleneck)
        return {"headline": self.headline, "blocks": self.blocks, "bottleneck": slow}

    def alone(self) -> set[str]:
        """The tasks that share no box with others."""
        return set(self.culprits) | ({self.bottleneck.task} if self.bottleneck else set())

    def mark(self, tasks: Sequence[str]) -> str:
        """How a box is marked: ``culprit``, ``bottleneck`` or not."""
        if any(task in self.culprits for task in tasks):
            return "culprit"
        return "bottleneck" if self.bottleneck is not None and self.bottleneck.task in tasks else ""

    def words(self, tasks: Sequence[str]) -> list[str]:
        """What a box does or waits for; nothing of several tasks that do not do the same."""
        slow = self.bottleneck
        told = {self.culprits.get(task) or self.waiting.get(task) or "" for task in tasks}
        text = told.pop() if len(told) == 1 else ""
        if not text and slow is not None and slow.task in tasks:
            text = f"others wait for it {100 * slow.share:.0f} % of the time"
        return textwrap.wrap(text, _LINE, max_lines=_LINES, placeholder=" …")


def why(explanation: Explanation, bottleneck: Bottleneck | None, cluster: ClusterSnapshot) -> Reasons:
    """The reasons why the steps of a cluster do not end."""
    found = Reasons()
    for cycle in explanation.cycles[:_MOST]:
        _add_cycle(found, cycle)
    runners = {step.step_id: task.task for task in cluster.tasks for step in task.running}
    long = [culprit for culprit in explanation.culprits if culprit.since_s >= LONG_S]
    for culprit in long:
        # What nobody ends: the last one who waits for it is who the others wait for.
        task = culprit.task or (culprit.way[-1].who if culprit.way else "")
        if culprit.kind != SILENT:
            found.culprits.setdefault(task, short(culprit.text))
        for step in culprit.steps:
            found.waiting.setdefault(runners.get(step, ""), f"waits for {short(task)}")
    found.headline += [culprit_head(culprit) for culprit in long[:2] if culprit.kind != SILENT]
    for culprit in explanation.culprits[:_MOST]:
        title, lines = culprit_parts(culprit)
        found.blocks.append({"title": title, "lines": lines})
    silent = {task.task for task in cluster.tasks if task.state == SILENT}
    if not found.headline and not long and bottleneck is not None and bottleneck.task not in silent:
        found.bottleneck = bottleneck
    return found


def _add_cycle(found: Reasons, cycle: Sequence[Hop]) -> None:
    names = [short(hop.who) for hop in cycle]
    ring = " ← ".join([*dict.fromkeys(names), names[0]])
    found.headline.append(f"deadlock: {ring}")
    found.blocks.append({"title": f"Deadlock: {ring}", "lines": [*map(hop_text, cycle), f"{names[0]} (see above)"]})
    for hop, later in zip(cycle, [*cycle[1:], cycle[0]]):
        found.culprits.setdefault(hop.who, f"deadlock with {short(later.who) if later.who != hop.who else 'itself'}")
