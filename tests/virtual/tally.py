"""The results of a long run of schedules: a summary per mode, a line of progress, and a file from which to continue."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import NamedTuple


class Outcome(NamedTuple):
    """The result of a schedule.

    Attributes:
      failure: what did not hold; "" if it ended as promised.
      met_fault: whether a fault came before its programs had ended.
    """

    seed: int
    mode: str
    failure: str
    met_fault: bool


@dataclass
class Tally:
    """The outcomes until now.

    Attributes:
      of: the arguments that say which schedules these are.
      next_seed: the first seed that has not been looked at.
      modes: mode -> the numbers of schedules that ended as promised, that failed, and that met a fault.
      seconds: the time that they have taken.
    """

    of: str
    next_seed: int
    modes: dict[str, list[int]] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """The number of schedules."""
        return sum(ended + failed for ended, failed, _ in self.modes.values())

    def add(self, outcome: Outcome) -> None:
        """Adds an outcome; they come in the order of their seeds."""
        numbers = self.modes.setdefault(outcome.mode, [0, 0, 0])
        numbers[1 if outcome.failure else 0] += 1
        numbers[2] += outcome.met_fault
        self.next_seed = outcome.seed + 1
        if outcome.failure:
            self.failed.append(outcome.seed)

    def progress(self, total: int) -> str:
        """A line about what is done and what is left."""
        each = self.seconds / max(1, self.count)
        left = max(0, total - self.count) * each / 60
        return (
            f"{self.count:,} of {total:,} ({100 * self.count / max(1, total):.1f} %), to seed {self.next_seed - 1:,}:"
            f" {len(self.failed)} failed; {1e3 * each:.1f} ms each, {left:.0f} min left"
        )

    def summary(self) -> str:
        """A table of the modes, and the failing seeds."""
        lines = [f"{'mode':12} {'promised':>9} {'failed':>7} {'met a fault':>12}"]
        lines += [f"{mode:12} {n[0]:>9,} {n[1]:>7,} {n[2]:>12,}" for mode, n in sorted(self.modes.items())]
        each = 1e3 * self.seconds / max(1, self.count)
        return "\n".join([*lines, f"{self.count:,} schedules, {each:.1f} ms each; failing seeds: {self.failed}"])

    def save(self, path: str) -> None:
        """Replaces the file."""
        with open(f"{path}.new", "w") as file:
            json.dump(asdict(self), file)
        os.replace(f"{path}.new", path)

    @staticmethod
    def load(path: str, of: str, start: int) -> Tally:
        """The tally of a file; a new one if there is no file.

        Raises:
          ValueError: the file is of other schedules.
        """
        if not os.path.exists(path):
            return Tally(of, start)
        with open(path) as file:
            found = Tally(**json.load(file))
        if found.of != of:
            raise ValueError(f"{path} is of the schedules {found.of}, and not of {of}; name another file")
        return found
